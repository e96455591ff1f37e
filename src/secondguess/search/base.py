"""The contract of a search: `ask(n)` returns the next images to label, `tell(images, labels)` takes their labels.

A search is a learner: its parameters live in `__init__`, `fit(pool)` begins it on a pool, and it can be saved at any
time; loaded again and given the same pool with `resume`, it continues where it was. It implements `_choose`, and `_fit`
if it prepares something for a pool; the public methods are final and own the checks. What a search chooses depends on
the pool, its parameters, its seed, and the answers in the order in which they came, only. A second
answer on an image replaces the first one, in its old place.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.contracts.learner import Learner
from secondguess.errors import UserError
from secondguess.search.pool import Pool, wrong

__all__ = ["Pool", "Search"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Search(Learner):
    """Leads a person to the errors in a pool.

    Args:
        seed: of the random choices of the search.

    Attributes:
        name: by which it is known in the registry, in reports and on the page; lower case with underscores.
        title: what to call it in a table or a legend.
        needs_distances: whether the pool must have distances.
        can_wait: whether it can begin without these, and be begun anew when they are there.
    """

    noun: ClassVar[str] = "search"
    title: ClassVar[str] = ""
    needs_distances: ClassVar[bool] = False
    can_wait: ClassVar[bool] = False

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    @final
    def fit(self, pool: Pool) -> Self:
        """Begin on a pool, with no answers; a search that has begun before begins anew."""
        self._open = pool.eligible.copy()
        self._answers: dict[int, bool] = {}
        self._pool_digest = _digest(pool)
        return self._prepared(pool)

    @final
    def resume(self, pool: Pool) -> Self:
        """Continue on the pool that this search had begun on before it was saved."""
        if not self.is_fitted:
            raise UserError(f"The search {self.name!r} has not begun, so it cannot be resumed; call fit(pool).")
        if self._pool_digest != _digest(pool):
            raise UserError(
                f"The search {self.name!r} was begun on other images or predictions than those of this pool; resume it "
                "on the same pool, or begin anew with fit(pool)."
            )
        return self._prepared(pool)

    def _prepared(self, pool: Pool) -> Self:
        if pool.size == 0:
            raise UserError(
                f"None of the {len(pool)} images may be asked about; lower min_confidence or change critical."
            )
        self._pool = pool
        self._fit(pool)
        return self

    @property
    def pool(self) -> Pool:
        """What may be asked about."""
        if not hasattr(self, "_pool"):
            begin = "resume" if self.is_fitted else "fit"
            raise UserError(f"The search {self.name!r} has no pool to ask about yet; call {begin}(pool) first.")
        return self._pool

    @property
    def is_fitted(self) -> bool:
        """Whether the search has begun."""
        return hasattr(self, "_answers")

    def __repr__(self) -> str:
        if not hasattr(self, "_pool"):
            return super().__repr__()
        shown = ", ".join(f"{name}={value!r}" for name, value in self.params().items())
        return f"{type(self).__name__}({self.remaining} of {self.pool.size} images left, {shown})"

    def state(self) -> dict[str, Any]:
        """What was asked, answered and skipped, and which pool it belongs to; the pool itself is not part of it."""
        if not self.is_fitted:
            return {}
        return {
            "errors_": self.errors,
            "labelled_": self.labelled,
            "open_": self._open,
            "pool_": self._pool_digest,
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        if state:
            answers = zip(state["labelled_"].tolist(), state["errors_"].tolist(), strict=True)
            self._open, self._pool_digest = state["open_"].copy(), str(state["pool_"])
            self._answers = dict(answers)

    @property
    def remaining(self) -> int:
        """How many images can still be asked about."""
        return int(self._open.sum()) if self.is_fitted else 0

    @property
    def labelled(self) -> Ints:
        """(t,) the images whose label is known, in the order in which their labels first came."""
        return np.array(list(getattr(self, "_answers", {})), dtype=np.int64)

    @property
    def errors(self) -> NDArray[np.bool_]:
        """(t,) whether the prediction was wrong, for each image of `labelled`."""
        return np.array(list(getattr(self, "_answers", {}).values()), dtype=np.bool_)

    @final
    def ask(self, n: int = 1) -> Ints:
        """The next images to label.

        Returns:
            (m,) positions in the pool, most wanted first: m = n, or fewer when no more are left. None of them was asked
            for, labelled or skipped before.
        """
        if n < 1:
            raise UserError(f"{n} images were asked for; ask for at least 1.")
        candidates = self._candidates()
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
        """Take in the labels of some images, whether they were asked for or not.

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
        """The reasons for asking about an image now, readable by a person: finite numbers and texts by name."""
        row = int(self._positions([index])[0])
        shown: dict[str, float | str] = {
            "prediction": self.pool.observation.class_names[self.pool.predictions[row]],
            "confidence": float(self.pool.confidence[row]),
        }
        distances = self.pool.distances
        if distances is not None and not distances.failed[row]:
            shown["distance"] = float(distances.mae[row])
        return shown | self._reasons(row)

    def _candidates(self) -> Ints:
        """(m,) the positions that may still be asked about, ascending."""
        return np.flatnonzero(self.pool.eligible & self._open)

    def _fit(self, pool: Pool) -> None:
        """Prepare what depends on the pool and the parameters alone. Nothing to do by default."""

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

    @classmethod
    def _registered(cls, name: str) -> type[Learner]:
        from secondguess.search.registry import get

        return get(name)


def _digest(pool: Pool) -> str:
    """A digest of a pool's predictions and of what may be asked about."""
    digest = hashlib.sha256(pool.eligible.tobytes())
    digest.update(np.ascontiguousarray(pool.predictions).tobytes())
    return digest.hexdigest()


def best(scores: Floats, candidates: Ints, n: int) -> Ints:
    """The n candidates with the largest scores (m,), one for each candidate; ties go to the lowest position."""
    return candidates[np.argsort(-scores, kind="stable")[:n]]
