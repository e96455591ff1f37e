"""Sets of known accuracy, drawn from what was seen of validation images and of their shifted copies.

Every set has one kind of shift, on all images or on half of them, and class frequencies that are those of the
validation images or drawn from a flat Dirichlet distribution. Drawing needs no further pass of the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy.base import Rows

__all__ = ["NOMINAL", "SIZE", "WAYS", "Copies", "SyntheticSet", "draw_sets", "positions"]

WAYS = ("none", "classes", "appearance", "both")
NOMINAL = -1  # the kind of sets whose images are unchanged
SIZE = 300
NOMINAL_SETS = 150
SHARES = (1.0, 0.5)  # of the images that are shifted


class Copies(NamedTuple):
    """What was seen of shifted copies.

    Attributes:
        rows: of each copy, as of the validation images.
        labels: (n,).
        kinds: (n,), the number of the kind of shift.
        sets: (n,), the number of the shift: its kind and degree.
    """

    rows: Rows
    labels: NDArray[np.int64]
    kinds: NDArray[np.int64]
    sets: NDArray[np.int64]


class SyntheticSet(NamedTuple):
    """Rows of one set, their labels, the kind of shift, and in which way it differs from the validation images."""

    rows: Rows
    labels: NDArray[np.int64]
    kind: int
    way: str


def draw_sets(nominal: Rows, labels: NDArray[np.int64], copies: Copies, seed: int) -> Iterator[SyntheticSet]:
    """Sets of 300 images: 150 without a change of appearance, and four of each shift.

    Args:
        nominal: rows of the validation images.
        labels: (n,) of the validation images.
        copies: of some of them.
        seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    classes, before = np.unique(labels, return_counts=True)
    shares = before / before.sum()
    for number in range(NOMINAL_SETS):
        as_before = number % 3 == 0
        wanted = shares if as_before else rng.dirichlet(np.ones(len(classes)))
        rows = positions(labels, classes, wanted, SIZE, rng)
        yield SyntheticSet(_taken(nominal, rows), labels[rows], NOMINAL, "none" if as_before else "classes")
    for one in np.unique(copies.sets):
        mine = np.flatnonzero(copies.sets == one)
        kind = int(copies.kinds[mine[0]])
        for as_before in (True, False):
            wanted = shares if as_before else rng.dirichlet(np.ones(len(classes)))
            for share in SHARES:
                shifted = mine[positions(copies.labels[mine], classes, wanted, round(SIZE * share), rng)]
                same = positions(labels, classes, wanted, SIZE - len(shifted), rng)
                parts = zip(_taken(copies.rows, shifted), _taken(nominal, same), strict=True)
                yield SyntheticSet(
                    tuple(np.concatenate(both) for both in parts),
                    np.concatenate([copies.labels[shifted], labels[same]]),
                    kind,
                    "appearance" if as_before else "both",
                )


def positions(
    labels: NDArray[np.int64],
    classes: NDArray[np.int64],
    wanted: NDArray[np.float64],
    size: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Positions, with replacement, of images whose classes are as frequent as wanted, as far as there are such."""
    of_image = np.searchsorted(classes, labels)
    weights = (wanted / np.maximum(np.bincount(of_image, minlength=len(classes)), 1))[of_image]
    return rng.choice(len(labels), size=size, p=weights / weights.sum())


def _taken(rows: Rows, places: NDArray[np.int64]) -> Rows:
    return tuple(array[places] for array in rows)
