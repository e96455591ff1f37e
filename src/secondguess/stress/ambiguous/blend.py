"""Pixel blends: the cheapest "ambiguous" images, two real ones laid over each other.

    x = λ a + (1 - λ) b,   a of class c1, b of class c2,   p(c1) = λ,   |p(c1) - p(c2)| = |2λ - 1| < delta_max

which is mixup (Zhang, Cissé, Dauphin, Lopez-Paz: "mixup: beyond empirical risk minimization", ICLR 2018) with λ drawn
uniformly around one half. It learns nothing and costs nothing. The price is paid by the images: people see two objects
in one picture, a double exposure, and not one object that could be either. The generator is here to be compared with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.images.scratch import scratch
from secondguess.planning import Pace, Price
from secondguess.progress import Progress, Silent
from secondguess.stress.ambiguous.base import AmbiguousGenerator, AmbiguousImages, Candidates, assemble
from secondguess.stress.ambiguous.comparison import figures
from secondguess.stress.ambiguous.pairs import choose_pairs, seconds_to_choose
from secondguess.stress.base import Given
from secondguess.stress.registry import register

__all__ = ["PixelBlend"]

BLOCK, BLOCK_VALUES = 1000, 1 << 22  # images read at a time, and values if they are large
BLENDING = 2e-8  # seconds for a value of an image


@register
class PixelBlend(AmbiguousGenerator):
    """Blends of two training images of two classes; every pair of classes contributes equally.

    The columns `source_1` and `source_2` are the positions of the two images in the training set, `lambda` the weight
    of the first.

    Args:
        pairs: `"all"`, `"confused"` (those between which ambiguity is realistic, judged from the data), how many of
            these, or a list.
        delta_max: the largest |p1 - p2|.
    """

    name = "ambiguous_blend"

    def __init__(self, *, pairs: str | int | Sequence[tuple[int, int]] = "confused", delta_max: float = 0.25) -> None:
        if not 0 < delta_max <= 1:
            raise UserError(f"delta_max is {delta_max}; |p1 - p2| lies between 0 and 1.")
        self.pairs, self.delta_max = pairs, delta_max

    def price(self, pace: Pace, given: Given) -> Price:
        """Reading two images for each, after the search for pairs."""
        fixed = 0.0 if given.train is None else pace.slowness * seconds_to_choose(given.train)
        return Price(BLENDING * math.prod(given.nominal.shape), fixed, len(given.nominal), self.least, "images")

    def generate(
        self, train: ImageSet, count: int, *, seed: int = 0, progress: Progress | None = None
    ) -> AmbiguousImages:
        """Make `count` blends of images of `train`."""
        if count < 1:
            raise UserError(f"{count} ambiguous images were asked for; ask for at least one.")
        pairs = choose_pairs(train, self.pairs, seed=seed)
        rng = np.random.default_rng(seed)
        pair = np.array(pairs, dtype=np.int64)[np.arange(count) % len(pairs)]
        sources = np.stack([_members(train, pair[:, side], rng) for side in (0, 1)], axis=1)
        weight = (1 + self.delta_max * rng.uniform(-1, 1, count)) / 2
        blends = scratch((count, *train.shape), np.uint8)
        block = max(1, min(BLOCK, BLOCK_VALUES // math.prod(train.shape)))
        with (progress or Silent()).task("Blending images", count) as advance:
            for start in range(0, count, block):
                rows = slice(start, start + block)
                first, second = (train.images[sources[rows, side]] for side in (0, 1))
                share = weight[rows, None, None, None]
                blends[rows] = np.rint(255 * (share * first + (1 - share) * second))
                advance(min(start + block, count), count)
        origin = {"source_1": sources[:, 0], "source_2": sources[:, 1], "lambda": weight}
        images = assemble(train, Candidates(blends, pair, weight, origin), name=self.name, seed=seed)
        return AmbiguousImages(images, self._card(train, images, pairs, seed))

    def _card(self, train: ImageSet, images: ImageSet, pairs: Sequence[tuple[int, int]], seed: int) -> dict[str, Any]:
        names = train.class_names
        made = np.stack([images.columns["class_1"], images.columns["class_2"]], axis=1)
        return {
            "generator": "PixelBlend",
            "settings": {"pairs": self.pairs, "delta_max": self.delta_max, "seed": seed},
            **figures(images, train, seed=seed),
            "pairs": [
                {"pair": [names[a], names[b]], "images": int((made == (a, b)).all(axis=1).sum())} for a, b in pairs
            ],
            "notes": [],
        }


def _members(train: ImageSet, classes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """The position of a random image of each of the classes (n,)."""
    rows = np.empty(len(classes), dtype=np.int64)
    for label in np.unique(classes):
        wanted = classes == label
        rows[wanted] = rng.choice(np.flatnonzero(train.labels == label), int(wanted.sum()))
    return rows
