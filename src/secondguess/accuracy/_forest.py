"""A forest of extremely randomised trees as what it is: a weighted mean over the examples in the same leaves.

The trees are those of scikit-learn's `ExtraTreesRegressor`, which spends more time on cloning and checking a tree than
on growing it to the few hundred examples there are here; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sklearn.tree._tree import Tree

__all__ = ["Forest"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Forest:
    """A fitted forest.

    Attributes:
        trees: grown on the examples.
        leaves: for each tree, mean value and mean square of the examples in each of its nodes, (2, nodes).
        examples: (m, d).
        values: (m,) of the examples.
    """

    trees: tuple[Tree, ...]
    leaves: tuple[Floats, ...]
    examples: Floats
    values: Floats

    @classmethod
    def fit(cls, examples: Floats, values: Floats, *, trees: int, leaf: int, seed: int) -> Self:
        """Grow trees with at least `leaf` examples in every leaf."""
        from sklearn import config_context
        from sklearn.tree import ExtraTreeRegressor

        draws, rounded, grown = np.random.RandomState(seed), _rounded(examples), []
        with config_context(skip_parameter_validation=True):
            for _ in range(trees):
                chance = int(draws.randint(np.iinfo(np.int32).max))
                one = ExtraTreeRegressor(min_samples_leaf=leaf, max_features=1.0, random_state=chance)
                grown.append(one.fit(rounded, values, check_input=False).tree_)
        return cls(tuple(grown), tuple(_means(tree.apply(rounded), values) for tree in grown), examples, values)

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Mean and variance (n,) of the values of the examples that share leaves with each point, (n, d)."""
        rounded = _rounded(points)
        mean, square = np.zeros((2, len(points)))
        for tree, (means, squares) in zip(self.trees, self.leaves, strict=True):
            ours = tree.apply(rounded)
            mean += means[ours] / len(self.trees)
            square += squares[ours] / len(self.trees)
        return mean, np.maximum(square - mean**2, 0)

    def distance(self, points: Floats, nearest: int) -> Floats:
        """How far each point is from the example that is the `nearest`-th, (n,), in standard deviations."""
        spread = np.maximum(self.examples.std(axis=0), np.finfo(float).eps)
        apart = ((points[:, None] - self.examples[None]) / spread) ** 2
        ordered = np.sort(apart.sum(axis=2), axis=1)
        return np.asarray(np.sqrt(ordered[:, min(nearest, ordered.shape[1]) - 1]))


def _rounded(points: Floats) -> NDArray[np.float32]:
    """As trees compare them."""
    return np.ascontiguousarray(points, dtype=np.float32)


def _means(nodes: NDArray[np.int64], values: Floats) -> Floats:
    count = np.maximum(np.bincount(nodes), 1)
    return np.stack([np.bincount(nodes, values), np.bincount(nodes, values**2)]) / count
