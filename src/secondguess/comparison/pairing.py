"""The same images in two audits: what both models answered to each.

An image is recognised by the digest of its pixels; of several with the same pixels, one with the same kind of stress
and the same label is taken first. Where the models take images of different sizes, the pixels differ, and it is
recognised by its name and the kind of stress, if names are unique. Images that only one model has seen are left out,
and so are those that have another label now. Where less than half of the smaller set is in the other, the sets are
different ones, and are compared unpaired.

Classes are the same by their names. Numbers, which classes without names are called, are none: where one audit has
nothing else and the other has names only, they stand for these, in their order, if there are as many.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from secondguess.audits.predictions import NOMINAL, Predictions, SetPredictions
from secondguess.errors import UserError
from secondguess.model.observation import are_numbers, shown_classes

__all__ = ["Pair", "match", "names_of"]

ENOUGH = 0.5  # of the smaller set

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pair:
    """One set of images as both models answered it.

    Attributes:
        name: `nominal`, or that of the stress set.
        before: the answers of the one model; labels and answers refer to the classes of both models together.
        after: those of the other; of the same images in the same order, where they are paired.
        paired: whether they are.
        sizes: how many images the two audits have of this set, left out or not.
        relabelled: images that have another label now.
    """

    name: str
    before: SetPredictions
    after: SetPredictions
    paired: bool
    sizes: tuple[int, int]
    relabelled: int = 0

    def identities(self, start: int = 0) -> tuple[Ints, Ints]:
        """Numbers from `start` on by which images are told apart, (n,) before and (m,) after."""
        first = np.arange(len(self.before)) + start
        return first, first if self.paired else np.arange(len(self.after)) + start + len(self.before)


def match(before: Predictions, after: Predictions) -> tuple[tuple[str, ...], dict[str, Pair]]:
    """The class names of both together, and each set that both audits have.

    Raises:
        UserError: the test images are the same, and none of them has the same label in both.
    """
    ours, theirs = names_of(before, after)
    names = (*theirs, *(name for name in ours if name not in theirs))
    place = np.array([*(names.index(name) for name in ours), -1])
    pairs = {}
    for name in before.sets:
        if name in after.sets:
            first, second = before.sets[name], after.sets[name]
            first = replace(first, labels=place[first.labels], predicted=place[first.predicted])
            pairs[name] = _pair(name, first, second)
    if (relabelled := pairs[NOMINAL].relabelled) and not len(pairs[NOMINAL].after):
        raise UserError(
            f"None of the {relabelled} test images that both have seen has the same label in both, where the classes "
            f"are {shown_classes(ours)} before and {shown_classes(theirs)} now; audit both with the same classes."
        )
    return names, pairs


def names_of(before: Predictions, after: Predictions) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The class names of both, by which classes are the same."""
    first, second = before.class_names, after.class_names
    if len(first) != len(second) or set(first) & set(second):  # numbers in another order are names all the same
        return first, second
    return second if are_numbers(first) else first, first if are_numbers(second) else second


def _pair(name: str, first: SetPredictions, second: SetPredictions) -> Pair:
    sizes = len(first), len(second)
    rows, others = _by_pixels(first, second)
    if len(rows) < ENOUGH * min(sizes) and _named(first) and _named(second):
        rows, others = _common(_names(first), _names(second))
    if len(rows) < ENOUGH * min(sizes):
        return Pair(name, first, second, False, sizes)
    same = first.labels[rows] == second.labels[others]
    first, second = first.take(rows[same]), second.take(others[same])
    return Pair(name, first, second, True, sizes, int((~same).sum()))


def _by_pixels(first: SetPredictions, second: SetPredictions) -> tuple[Ints, Ints]:
    """Positions (m,) of images with the same pixels, ascending in `first`."""
    # A black image is black in fog and in snow: which of the two is meant, the pixels alone do not say.
    sure = _common(_wholes(first), _wholes(second))
    rest = [np.setdiff1d(np.arange(len(one)), rows) for one, rows in zip((first, second), sure, strict=True)]
    also = _common(_pixels(first.take(rest[0])), _pixels(second.take(rest[1])))
    rows, others = (np.concatenate([sure[side], rest[side][also[side]]]) for side in (0, 1))
    order = np.argsort(rows)
    return rows[order], others[order]


def _common(first: Sequence[Hashable], second: Sequence[Hashable]) -> tuple[Ints, Ints]:
    """Positions (m,) of what is in both; what is there twice is found twice."""
    places: dict[Hashable, list[int]] = {}
    for row in reversed(range(len(second))):
        places.setdefault(second[row], []).append(row)
    found = [(row, left.pop()) for row, one in enumerate(first) if (left := places.get(one))]
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _pixels(one: SetPredictions) -> list[bytes]:
    return [digest.tobytes() for digest in one.digests]


def _wholes(one: SetPredictions) -> list[tuple[bytes, str, int]]:
    return list(zip(_pixels(one), one.kinds.tolist(), one.labels.tolist(), strict=True))


def _names(one: SetPredictions) -> list[tuple[str, str]]:
    return list(zip(one.ids.tolist(), one.kinds.tolist(), strict=True))


def _named(one: SetPredictions) -> bool:
    return "" not in one.ids and len(set(_names(one))) == len(one)
