"""Images whose answer has changed sides: right before and wrong now, or the other way round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.comparison.pairing import Pair
from secondguess.images import ImageSet
from secondguess.report import data_uri

__all__ = ["Flip", "find_flips"]


@dataclass(frozen=True)
class Flip:
    """One image.

    Attributes:
        image: its name, or the first digits of its digest.
        label: what it is.
        before: what was answered before, and how sure.
        after: what is answered now.
        uri: the picture, "" where the image is not at hand.
    """

    image: str
    label: str
    before: tuple[str, float]
    after: tuple[str, float]
    uri: str = field(default="", repr=False)  # kilobytes

    def to_dict(self) -> dict[str, Any]:
        """Everything but the picture."""
        return {
            "image": self.image,
            "label": self.label,
            "before": {"answer": self.before[0], "confidence": self.before[1]},
            "after": {"answer": self.after[0], "confidence": self.after[1]},
        }


def find_flips(
    pair: Pair, names: tuple[str, ...], images: ImageSet | None, pictures: int
) -> tuple[list[Flip], list[Flip]]:
    """The negative flips and the positive ones, the surest wrong answer first; none where images are not paired.

    Args:
        pair: the test images.
        names: of the classes.
        images: to show; they are recognised by their pixels or, where these differ, by their names.
        pictures: how many images of each sort are shown.
    """
    if not pair.paired:
        return [], []
    lost = np.flatnonzero(pair.before.right & pair.after.wrong)
    gained = np.flatnonzero(pair.before.wrong & pair.after.right)
    lost = lost[np.argsort(-pair.after.confidence[lost], kind="stable")]
    gained = gained[np.argsort(-pair.before.confidence[gained], kind="stable")]
    places = _places(pair, images, [*lost[:pictures], *gained[:pictures]])
    return _flips(pair, names, images, lost, places), _flips(pair, names, images, gained, places)


def _flips(
    pair: Pair, names: tuple[str, ...], images: ImageSet | None, rows: NDArray[np.int64], places: dict[int, int]
) -> list[Flip]:
    first, second = pair.before, pair.after
    return [
        Flip(
            str(second.ids[row]) or f"image {second.digests[row].tobytes().hex()[:12]}",
            names[second.labels[row]],
            (names[first.predicted[row]], float(first.confidence[row])),
            (names[second.predicted[row]], float(second.confidence[row])),
            data_uri(images.images[places[row]]) if images is not None and row in places else "",
        )
        for row in rows.tolist()
    ]


def _places(pair: Pair, images: ImageSet | None, rows: list[int]) -> dict[int, int]:
    """Where in `images` these rows of the pair are, as far as they are there."""
    if images is None or not rows:
        return {}
    by_pixels = {digest.tobytes(): place for place, digest in enumerate(images.digests)}
    by_name = {name: place for place, name in enumerate(images.ids or ())}
    found = {}
    for row in rows:
        digests = pair.after.digests[row].tobytes(), pair.before.digests[row].tobytes()
        place = next((by_pixels[one] for one in digests if one in by_pixels), by_name.get(str(pair.after.ids[row])))
        if place is not None:
            found[int(row)] = place
    return found
