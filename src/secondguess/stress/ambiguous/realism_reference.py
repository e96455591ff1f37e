"""How real a companion set is: generated images against real ones of its classes, in the features of a classifier.

All measures of `secondguess.metrics.realism`, and GIQA relative to real images that no model was trained on. A number
alone says little, as it depends on the features and on how many images there are: the same measures of real, held-out
images stand beside it.

The features decide. A classifier of the very classes keeps them apart, and finds whatever lies between them far from
all real images; so it learns the other classes only, where there are two or more of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.images import Dataset, ImageSet
from secondguess.metrics.giqa import COMPONENTS, relative_giqa
from secondguess.metrics.interval import Interval
from secondguess.metrics.realism import frechet_distance, kernel_distance_interval, manifolds
from secondguess.progress import Progress
from secondguess.stress.ambiguous.feature_vectors import features, train_extractor

__all__ = ["LEAST", "RealismReference", "kept_out", "measure_realism", "some_rows"]

Floats = NDArray[np.float64]

COMPARED = 5000  # real images, at most, in what grows with the square of their number
LEAST = COMPONENTS  # images of each kind that the measures need at least
LEARNT = 0.8  # of a data set that is in one piece; the rest is held out


def measure_realism(real: Floats, generated: Floats) -> dict[str, Any]:
    """Return distances between two sets of features, and how they overlap, in a form that JSON can hold.

    The Fréchet distance is of all rows, whatever grows with the square of their number of at most 5,000 of each.

    Args:
        real: (n, d) features of real images.
        generated: (m, d) features of generated ones.

    Returns:
        `frechet`; `kernel` (KID) with the bounds of its interval; `precision`, `recall`, `density` and `coverage`, with
        the number of `neighbours` that they are about.
    """
    some = some_rows(real)
    return {
        "frechet": frechet_distance(real, generated),
        "kernel": _bounded(kernel_distance_interval(some, generated[:COMPARED])),
        **asdict(manifolds(some, generated[:COMPARED])),
    }


def some_rows(rows: Floats) -> Floats:
    """At most 5,000 of the rows (n, d), always the same ones."""
    return rows[np.random.default_rng(0).permutation(len(rows))[:COMPARED]]


def kept_out(train: ImageSet, classes: Sequence[int]) -> tuple[int, ...]:
    """The classes that an extractor of features must not learn: these, if two others remain, else none."""
    others = np.setdiff1d(train.labels, [-1, *classes])
    return tuple(classes) if len(others) >= 2 else ()


@dataclass(frozen=True, eq=False)
class RealismReference:
    """Real images, against which companion sets between some of their classes are measured.

    Attributes:
        train: labelled images of all classes.
        held_out: others, of which no extractor learns.
        classes: those that a companion set lies between.
    """

    train: ImageSet
    held_out: ImageSet
    classes: tuple[int, ...]

    def __post_init__(self) -> None:
        for kind, part in (("training", self.train), ("held-out", self.held_out)):
            if (found := int(np.isin(part.labels, self.classes).sum())) < LEAST:
                raise UserError(
                    f"{found} {kind} images of {part.name} are of the classes in question, but at least {LEAST} are "
                    "needed to measure how real others are; give more."
                )

    @classmethod
    def of(cls, data: Dataset, classes: Sequence[int], *, seed: int = 0) -> Self:
        """The training and test images of a data set; where it is in one piece, a fifth of it is held out."""
        train, test = (data.train, data.test) if data.train is not None else data.test.split(LEARNT, seed=seed)
        return cls(train, test, tuple(classes))

    def measure(
        self, images: ImageSet, *, seed: int = 0, device: str = "auto", progress: Progress | None = None
    ) -> dict[str, Any]:
        """Return how real images are, in a form that JSON can hold.

        Args:
            images: a companion set.
            seed: of the extractor's training, the mixtures of GIQA and its resamples.
            device: where to compute.
            progress: where to report.

        Returns:
            What `measure_realism` says of the `generated` and of the `held_out` real images; `giqa`, with `quality` and
            `diversity` in nats per image, each with its bounds; the `features` that this is about, with their
            `dimensions` and the `classes` that the extractor knows; and how many `images` of each kind there are.
        """
        if len(images) < LEAST:
            raise UserError(
                f"{images.name} has {len(images)} images; at least {LEAST} are needed to measure how real they are."
            )
        left_out = kept_out(self.train, self.classes)
        extractor = train_extractor(self.train, leave_out=left_out, seed=seed, device=device, progress=progress)
        real, unseen, made = (
            features(part, extractor, progress=progress)
            for part in (self._of_classes(self.train), self._of_classes(self.held_out), images)
        )
        giqa = relative_giqa(some_rows(real), made[:COMPARED], some_rows(unseen), seed=seed)
        known = np.setdiff1d(self.train.labels, [-1, *left_out])
        return {
            "features": {
                "classes": [self.train.class_names[label] for label in known],
                "dimensions": real.shape[1],
            },
            "images": {"real": len(real), "held_out": len(unseen), "generated": len(made)},
            "generated": measure_realism(real, made),
            "held_out": measure_realism(real, unseen),
            "giqa": {"quality": _bounded(giqa.quality), "diversity": _bounded(giqa.diversity)},
        }

    def _of_classes(self, images: ImageSet) -> ImageSet:
        return images.take(np.isin(images.labels, self.classes))


def _bounded(measured: Interval) -> list[float]:
    return [measured.value, measured.low, measured.high]
