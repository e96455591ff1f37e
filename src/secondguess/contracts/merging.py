"""What is learnt from parts of the data, on one machine or many, and merged without loss.

A learner that can be fitted from parts says of a part what it contributes (a `Mergeable`); the contributions are
merged, in the order of the parts, and the learner is finished from the total. Fitting on everything at once is the same
with one part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["ByKey", "Kept", "Mergeable", "Sums", "merged"]


class Mergeable(Protocol):
    """What some rows contribute; it can be pickled."""

    def merge(self, other: Self) -> Self:
        """What these rows and those that follow them contribute together."""


M = TypeVar("M", bound=Mergeable)


def merged(parts: Iterable[M]) -> M:
    """The contributions of all parts, at least one, merged in their order."""
    return reduce(lambda first, second: first.merge(second), parts)


@dataclass(frozen=True, eq=False)
class Sums:
    """Numbers or arrays that are added."""

    values: Mapping[str, Any]

    def merge(self, other: Self) -> Self:
        """The sums of both."""
        return type(self)({name: value + other.values[name] for name, value in self.values.items()})


@dataclass(frozen=True, eq=False)
class ByKey(Generic[M]):
    """One contribution for each of several keys, such as classes; a part need not have all of them."""

    parts: Mapping[int, M]

    def merge(self, other: Self) -> Self:
        """The keys of both, ascending."""
        found = dict(self.parts)
        for key, part in other.parts.items():
            found[key] = found[key].merge(part) if key in found else part
        return type(self)(dict(sorted(found.items())))


@dataclass(frozen=True, eq=False)
class Kept:
    """Arrays with a row for each image, which are put one below the other."""

    arrays: Mapping[str, NDArray[Any]]

    def merge(self, other: Self) -> Self:
        """The rows of both."""
        return type(self)({name: np.concatenate([rows, other.arrays[name]]) for name, rows in self.arrays.items()})
