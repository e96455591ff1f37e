"""A forest of extremely randomised trees as what it is: a weighted mean over the examples in the same leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sklearn.ensemble import ExtraTreesRegressor

__all__ = ["Forest"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Forest:
    """A fitted forest, with the examples (m, d) and their values (m,)."""

    trees: ExtraTreesRegressor
    examples: Floats
    values: Floats

    @classmethod
    def fit(cls, examples: Floats, values: Floats, *, trees: int, leaf: int, seed: int) -> Self:
        """Grow trees with at least `leaf` examples in every leaf."""
        from sklearn.ensemble import ExtraTreesRegressor

        grown = ExtraTreesRegressor(trees, min_samples_leaf=leaf, random_state=seed).fit(examples, values)
        return cls(grown, examples, values)

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Mean and variance (n,) of the values of the examples that share leaves with each point, (n, d)."""
        mean, square = np.zeros(len(points)), np.zeros(len(points))
        for theirs, ours in zip(self.trees.apply(self.examples).T, self.trees.apply(points).T, strict=True):
            count = np.bincount(theirs)
            mean += (np.bincount(theirs, self.values) / np.maximum(count, 1))[ours]
            square += (np.bincount(theirs, self.values**2) / np.maximum(count, 1))[ours]
        mean, square = mean / len(self.trees.estimators_), square / len(self.trees.estimators_)
        return mean, np.maximum(square - mean**2, 0)

    def distance(self, points: Floats, nearest: int) -> Floats:
        """How far each point is from the example that is the `nearest`-th, (n,), in standard deviations."""
        spread = np.maximum(self.examples.std(axis=0), np.finfo(float).eps)
        apart = ((points[:, None] - self.examples[None]) / spread) ** 2
        ordered = np.sort(apart.sum(axis=2), axis=1)
        return np.asarray(np.sqrt(ordered[:, min(nearest, ordered.shape[1]) - 1]))
