"""The contract of a search: `ask(n)` gives the next images to look at, `tell(images, labels)` what a person said.

A search implements `_choose`; the public `ask`, `tell` and `skip` are final and own the checks. What it chooses depends
on the pool, its parameters, its seed, and the answers in the order in which they came, and on nothing else: whoever
makes the same search again and repeats the recorded calls is where the other was. An answer given again replaces the
first one, in its old place.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.errors import UserError
from secondguess.search.pool import Pool, wrong

__all__ = ["Pool", "Search"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Search(ABC):
    """Leads a person to the errors in a pool.

    Args:
        pool: what may be asked about.
        seed: of whatever the search draws.

    Attributes:
        name: by which it is known in the registry, in reports and on the page; lower case with underscores.
        title: what to call it in a table or a legend.
        needs_distances: whether it is made for pools that know their distances; whoever starts it measures them first.
    """

    name: ClassVar[str]
    title: ClassVar[str] = ""
    needs_distances: ClassVar[bool] = False

    def __init__(self, pool: Pool, *, seed: int = 0) -> None:
        if pool.size == 0:
            raise UserError(
                f"None of the {len(pool)} images may be asked about; lower min_confidence or change critical."
            )
        self.pool = pool
        self.seed = seed
        self._open = pool.eligible.copy()
        self._answers: dict[int, bool] = {}

    def params(self) -> dict[str, Any]:
        """The parameters of `__init__` with their values, the pool left out."""
        names = [name for name in inspect.signature(type(self)).parameters if name != "pool"]
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.params().items())
        return f"{type(self).__name__}({self.remaining} of {self.pool.size} images left, {shown})"

    @property
    def remaining(self) -> int:
        """How many images can still be asked about."""
        return int(self._open.sum())

    @property
    def labelled(self) -> Ints:
        """(t,) the images whose label is known, in the order in which their labels first came."""
        return np.fromiter(self._answers.keys(), np.int64, len(self._answers))

    @property
    def errors(self) -> NDArray[np.bool_]:
        """(t,) whether the prediction was wrong, for each image of `labelled`."""
        return np.fromiter(self._answers.values(), np.bool_, len(self._answers))

    @final
    def ask(self, n: int = 1) -> Ints:
        """The next images to look at.

        Returns:
            (m,) positions in the pool, most wanted first: m = n, or fewer when no more are left. None of them was asked
            for, labelled or skipped before.
        """
        if n < 1:
            raise UserError(f"{n} images were asked for; ask for at least 1.")
        candidates = np.flatnonzero(self._open)
        n = min(n, len(candidates))
        if n == 0:
            return np.zeros(0, dtype=np.int64)
        chosen = np.asarray(self._choose(candidates, n), dtype=np.int64)
        if chosen.shape != (n,) or len(np.unique(chosen)) != n or not self._open[chosen].all():
            raise ValueError(f"{self.name}: _choose returned {chosen} when {n} of {len(candidates)} were wanted")
        self._open[chosen] = False
        return chosen

    @final
    def tell(self, indices: ArrayLike, labels: ArrayLike) -> None:
        """Take in what a person said about some images, whether they were asked for or not.

        Args:
            indices: (m,) positions in the pool.
            labels: (m,) classes, or (m, K) soft labels: a prediction is an error where its class has no share in the
                label; a row of zeros says "none of the classes".
        """
        rows = self._positions(indices)
        errors = wrong(self.pool.predictions[rows], labels, self.pool.observation.num_classes)
        self._answers.update(zip(rows.tolist(), errors.tolist(), strict=True))
        self._open[rows] = False

    @final
    def skip(self, indices: ArrayLike) -> None:
        """Never ask about these images (again); nothing is learnt from that."""
        self._open[self._positions(indices)] = False

    def why(self, index: int) -> dict[str, float | str]:
        """What speaks for asking about an image now, for a person to read: finite numbers and texts by name."""
        row = int(self._positions([index])[0])
        shown: dict[str, float | str] = {
            "prediction": self.pool.observation.class_names[self.pool.predictions[row]],
            "confidence": float(self.pool.confidence[row]),
        }
        distances = self.pool.distances
        if distances is not None and not distances.failed[row]:
            shown["distance"] = float(distances.mae[row])
        return shown | self._reasons(row)

    @abstractmethod
    def _choose(self, candidates: Ints, n: int) -> Ints:
        """The n most wanted among the candidates (m,), m >= n >= 1, ascending positions; most wanted first."""

    def _reasons(self, row: int) -> dict[str, float | str]:
        """What this search adds to `why`."""
        return {}

    def _positions(self, indices: ArrayLike) -> Ints:
        rows = np.asarray(indices)
        if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise UserError(f"Positions of dtype {rows.dtype} and shape {rows.shape} were given; give integers (m,).")
        if rows.size and not (rows.min() >= 0 and rows.max() < len(self.pool)):
            raise UserError(
                f"Positions from {rows.min()} to {rows.max()} were given, but the pool has the images "
                f"0..{len(self.pool) - 1}."
            )
        return rows.astype(np.int64)


def best(scores: Floats, candidates: Ints, n: int) -> Ints:
    """The n candidates with the largest scores (m,), one for each candidate; ties go to the lowest position."""
    return candidates[np.argsort(-scores, kind="stable")[:n]]
