"""What is learnt from parts of the data, on one machine or many, and merged without loss.

A learner that can be fitted from parts says of a part what it contributes (a `Mergeable`); the contributions are
merged, in the order of the parts, and the learner is finished from the total. Fitting on everything at once is the same
with one part.

A contribution can be kept between two runs (`taken_apart`, `put_together`), arrays as arrays and the rest as JSON can
hold it, so that nothing runs when it is read: only dataclasses that are marked as `keepable` are made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import reduce
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["ByKey", "Kept", "Mergeable", "Sums", "keepable", "merged", "put_together", "taken_apart"]

KEEPABLE: dict[str, type] = {}  # by name
KIND, ARRAY, PAIRS = "is", "array", "pairs"  # keys in the plain form


class Mergeable(Protocol):
    """What some rows contribute; it can be pickled."""

    def merge(self, other: Self) -> Self:
        """What these rows and those that follow them contribute together."""


M = TypeVar("M", bound=Mergeable)
C = TypeVar("C", bound=type)


def keepable(kind: C) -> C:
    """Mark a dataclass of arrays, numbers, mappings and further such classes as one that can be kept between runs."""
    KEEPABLE[kind.__qualname__] = kind
    return kind


def taken_apart(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """A contribution as JSON can hold it, its arrays being put into `arrays`; a `TypeError` if it is not keepable."""
    if isinstance(value, np.ndarray):
        name = f"{ARRAY}{len(arrays)}"
        arrays[name] = value
        return {ARRAY: name}
    if isinstance(value, np.generic):
        return taken_apart(value.item(), arrays)
    if isinstance(value, float) and not np.isfinite(value):  # JSON has no such number
        return taken_apart(np.array(value), arrays)
    if isinstance(value, Mapping):
        return {PAIRS: [[key, taken_apart(part, arrays)] for key, part in value.items()]}
    if isinstance(value, list):
        return [taken_apart(part, arrays) for part in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    kind = type(value)
    if not is_dataclass(value) or KEEPABLE.get(kind.__qualname__) is not kind:
        raise TypeError(f"{kind.__name__} is not marked as keepable")
    parts = {one.name: taken_apart(getattr(value, one.name), arrays) for one in fields(value)}
    return {KIND: kind.__qualname__, **parts}


def put_together(plain: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The opposite of `taken_apart`."""
    if isinstance(plain, list):
        return [put_together(part, arrays) for part in plain]
    if not isinstance(plain, dict):
        return plain
    if ARRAY in plain:
        return arrays[plain[ARRAY]][()]
    if PAIRS in plain:
        return {key: put_together(part, arrays) for key, part in plain[PAIRS]}
    parts = {name: put_together(part, arrays) for name, part in plain.items() if name != KIND}
    return KEEPABLE[plain[KIND]](**parts)


def merged(parts: Iterable[M]) -> M:
    """The contributions of all parts, at least one, merged in their order."""
    return reduce(lambda first, second: first.merge(second), parts)


@keepable
@dataclass(frozen=True, eq=False)
class Sums:
    """Numbers or arrays that are added."""

    values: Mapping[str, Any]

    def merge(self, other: Self) -> Self:
        """The sums of both."""
        return type(self)({name: value + other.values[name] for name, value in self.values.items()})


@keepable
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


@keepable
@dataclass(frozen=True, eq=False)
class Kept:
    """Arrays with a row for each image, which are put one below the other."""

    arrays: Mapping[str, NDArray[Any]]

    def merge(self, other: Self) -> Self:
        """The rows of both."""
        return type(self)({name: np.concatenate([rows, other.arrays[name]]) for name, rows in self.arrays.items()})
