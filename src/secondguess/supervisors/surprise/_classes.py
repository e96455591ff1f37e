"""What the methods that work by class share: rows by class, and a score for classes without training data."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.supervisors._traces import same_width
from secondguess.supervisors.surprise._whitening import Rows
from secondguess.supervisors.surprise._workers import Run

__all__ = ["by_group", "class_rows", "one_of", "same_width"]


class Distribution(Protocol):
    """A distribution with a number of dimensions in which it varies."""

    @property
    def rank(self) -> int:
        """The number of dimensions."""


D = TypeVar("D", bound=Distribution)


def class_rows(classes: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    """The ascending indices of the rows of every class that occurs in classes (n,)."""
    order = np.argsort(classes, kind="stable")
    present, starts = np.unique(classes[order], return_index=True)
    return dict(zip(present.tolist(), np.split(order, starts[1:]), strict=True))


def by_group(
    matrix: NDArray[np.floating[Any]],
    groups: NDArray[np.int64],
    find: Callable[[int], D | None],
    measure: Callable[[D, Rows], NDArray[np.float64]],
    name: str,
    kind: str = "class",
    run: Run = map,
) -> NDArray[np.float64]:
    """Measure every row of a matrix (n, d) by the distribution of its group; +inf and a warning where there is none.

    Args:
        matrix: the rows.
        groups: (n,) the group of each row.
        find: from a group to its distribution, or None; one of rank 0 counts as none.
        measure: from a distribution and some rows to one number per row.
        name: of the supervisor, for the warning.
        kind: of the groups, for the warning.
        run: how to go through the groups.
    """
    values = np.full(len(matrix), np.inf)
    unknown: dict[int, int] = {}

    def one(item: tuple[int, NDArray[np.int64]]) -> None:
        group, rows = item
        distribution = find(group)
        if distribution is None or distribution.rank == 0:
            unknown[group] = len(rows)
        else:
            values[rows] = measure(distribution, Rows(matrix, rows))

    list(run(one, class_rows(groups).items()))
    if unknown:
        listed = ", ".join(map(str, sorted(unknown)[:10])) + (", ..." if len(unknown) > 10 else "")
        warnings.warn(
            f"{sum(unknown.values())} images belong to a {kind} ({listed}) with fewer than two different traces in the "
            f"training data; their {name} score is inf.",
            stacklevel=5,
        )
    return values


def one_of(what: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise a `UserError` unless the value is one of the choices."""
    if value not in choices:
        raise UserError(f"{what} must be one of {', '.join(map(repr, choices))}, not {value!r}.")
