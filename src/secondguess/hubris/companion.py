"""A companion set: ambiguous images, the two classes that each lies between, and how much of the first it is.

Any source of ambiguous images is accepted: AmbiGuess, AmbiGAN, a folder of photographs on which people voted. A set
needs one of

* soft labels, of which the two likeliest classes count;
* columns `class_1` and `class_2` with class numbers;
* nothing, if all images lie between two classes that the user names.

The dial r of an image is the share of its first class in the two: that of the soft label, or of a column (an
estimator's probability of the first class), or what an estimator says now. The binary answer of a classifier with K
classes is its probability of the first class divided by that of both; how much probability that leaves out is reported
as `mass`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.images import ImageSet, load_images
from secondguess.model.agreement import relabelled

__all__ = ["CompanionSet", "read_companion", "restricted"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Reference = str | Floats | Callable[[Any], Floats] | Any

SOFT, NONE = "soft_labels", "constant"
ESTIMATOR = "mean_probability"  # the column in which generators keep their estimator's probability of class_1
SMOOTHING = 0.01  # of a dial at 0 or 1, against which relative hubris would be infinite
_SMALLEST = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class CompanionSet:
    """Ambiguous images with their pairs of classes and their dial.

    Attributes:
        images: the n images.
        pairs: int64 (n, 2), the two classes of each.
        dial: float64 (n,), the share of the first class, in (0, 1); None where nothing is known.
        source: where the dial comes from.
    """

    images: ImageSet
    pairs: Ints
    dial: Floats | None
    source: str

    def __len__(self) -> int:
        return len(self.images)

    @property
    def classes(self) -> tuple[int, int] | None:
        """The two classes, if all images lie between the same."""
        first = self.pairs[0]
        return (int(first[0]), int(first[1])) if (self.pairs == first).all() else None

    @classmethod
    def of(
        cls, images: ImageSet, classes: tuple[int, int] | None = None, reference: Reference = "auto"
    ) -> CompanionSet:
        """Make a companion set: find which classes the images lie between, and where.

        Args:
            images: a set of ambiguous images.
            classes: keep those between these two classes, in this order; None keeps all, each with its own pair.
            reference: where the dial comes from. `"auto"`: soft labels, else the column `mean_probability` of an
                estimator, else none; `"soft_labels"`; the name of a column; `"constant"` for none; an array (n,) for
                `images`; an `AmbiguityEstimator`, or a function of images (n, C, H, W), that gives the probability
                (n,) of the first class.
        """
        pairs = _pairs(images)
        if classes is not None:
            images, pairs, reference = _between(images, pairs, classes, reference)
        if pairs is None:
            raise UserError(
                f"{images.name} has neither soft labels nor columns class_1 and class_2; "
                "name the two classes that its images lie between, e.g. --classes 9,8."
            )
        dial, source = _dial(images, pairs, reference)
        return cls(images, pairs, None if dial is None else np.clip(dial, SMOOTHING / 2, 1 - SMOOTHING / 2), source)

    def outputs(self, classes: int) -> Ints:
        """Which outputs (n, 2) of a model with `classes` outputs belong to the two classes of each image.

        A model with two outputs, made for the only pair, gives them in the order of that pair.
        """
        if self.pairs.max() < classes:
            return self.pairs
        if classes == 2 and self.classes is not None:
            return np.tile(np.arange(2), (len(self), 1))
        raise UserError(
            f"{self.images.name} has images of class {self.pairs.max()}, but the model has {classes} outputs; "
            "give a model of all classes, or one of two classes and name them with --classes."
        )


def read_companion(
    folder: str | os.PathLike[str],
    classes: tuple[int, int] | None = None,
    reference: Reference = "auto",
    *,
    class_names: tuple[str, ...] = (),
    **loading: Any,
) -> CompanionSet:
    """Read a companion set: the folder that `secondguess generate` wrote, or anything that `load_images` reads.

    Args:
        folder: with `images.npz` in it, or any other place of images.
        classes: as in `CompanionSet.of`.
        reference: as in `CompanionSet.of`.
        class_names: the order in which labels should count, such as that of a model; by default that of the images.
        **loading: options of `load_images`, such as `size`.
    """
    inside = Path(folder) / "images.npz"
    images = load_images(inside if inside.is_file() else folder, **loading)
    return CompanionSet.of(in_order(images, class_names), classes, reference)


def in_order(images: ImageSet, class_names: tuple[str, ...]) -> ImageSet:
    """The images with labels that count in the order of `class_names`, where those are their classes."""
    own = images.class_names
    return relabelled(images, class_names) if own and set(own) <= set(class_names) else images


def restricted(probabilities: Floats, pairs: Ints) -> tuple[Floats, Floats]:
    """Return the logits (n, 2) of two classes each, up to a constant per row, and their probability together (n,).

    Args:
        probabilities: (n, K).
        pairs: (n, 2), the classes that count for each row.
    """
    two = np.take_along_axis(probabilities, pairs, axis=1)
    return np.log(np.maximum(two, _SMALLEST)), two.sum(axis=1)


def _pairs(images: ImageSet) -> Ints | None:
    if {"class_1", "class_2"} <= images.columns.keys():
        return np.stack([images.columns["class_1"], images.columns["class_2"]], axis=1).astype(np.int64)
    if images.num_classes == 2:
        return np.tile(np.arange(2), (len(images), 1))
    if images.soft_labels is not None and images.num_classes > 2:
        return np.argsort(-images.soft_labels, axis=1, kind="stable")[:, :2]
    return None


def _between(
    images: ImageSet, pairs: Ints | None, classes: tuple[int, int], reference: Reference
) -> tuple[ImageSet, Ints, Reference]:
    """The images between two classes, all with their pair in the order of `classes`."""
    if len(set(classes)) != 2 or min(classes) < 0:
        raise UserError(f"The classes are {classes}; name two different ones.")
    if pairs is not None and images.num_classes > 2:
        keep = np.flatnonzero((np.sort(pairs, axis=1) == sorted(classes)).all(axis=1))
        if not len(keep):
            raise UserError(f"No image of {images.name} lies between the classes {classes[0]} and {classes[1]}.")
        if isinstance(reference, np.ndarray):
            reference = reference[keep]
        images = images.take(keep)
    return images, np.tile(np.array(classes), (len(images), 1)), reference


def _dial(images: ImageSet, pairs: Ints, reference: Reference) -> tuple[Floats | None, str]:
    if isinstance(reference, np.ndarray):
        return _checked(reference, images, "array"), "array"
    if hasattr(reference, "predict"):
        given = np.asarray(reference.predict(images.materialise()), dtype=np.float64)
        values = _checked(given, images, "estimator")
        return _turned(values, pairs, getattr(reference, "classes", None)), "estimator"
    if callable(reference):
        return _checked(np.asarray(reference(images.materialise())), images, "function"), "function"
    if reference == "auto":
        reference = SOFT if images.soft_labels is not None else ESTIMATOR if ESTIMATOR in images.columns else NONE
    if reference == NONE:
        return None, NONE
    if reference == SOFT:
        return _from_soft(images, pairs), SOFT
    if reference not in images.columns:
        columns = ", ".join(images.columns) or "none"
        raise UserError(
            f"{images.name} has no column {reference!r} (it has {columns}); "
            "give one of them, soft_labels, or constant for no reference."
        )
    values = _checked(np.asarray(images.columns[reference]), images, f"column {reference!r}")
    return _turned(values, pairs, _stored(images)), reference


def _stored(images: ImageSet) -> Ints | None:
    return _pairs(images) if "class_1" in images.columns else None


def _turned(values: Floats, pairs: Ints, classes: Any) -> Floats:
    """The probability of the first class, where the values are about the other one."""
    if classes is None:
        return values
    first = np.broadcast_to(np.asarray(classes), pairs.shape)[:, 0]
    return np.where(first == pairs[:, 1], 1 - values, values)


def _from_soft(images: ImageSet, pairs: Ints) -> Floats:
    if images.soft_labels is None:
        raise UserError(f"{images.name} has no soft labels; name a column instead, or constant for no reference.")
    own = pairs if pairs.max() < images.num_classes else np.tile(np.arange(2), (len(images), 1))
    two = np.take_along_axis(images.soft_labels, own, axis=1)
    both = two.sum(axis=1)
    if (both <= 0).any():
        raise UserError(f"A soft label of {images.name} gives nothing to the two classes of its image.")
    return np.asarray(two[:, 0] / both)


def _checked(values: NDArray[Any], images: ImageSet, what: str) -> Floats:
    values = np.asarray(values, dtype=np.float64)
    if values.shape != (len(images),) or not ((values >= 0) & (values <= 1)).all():
        raise UserError(
            f"The {what} gives values of shape {values.shape} for {len(images)} images; "
            "one probability of the first class is needed for each."
        )
    return values
