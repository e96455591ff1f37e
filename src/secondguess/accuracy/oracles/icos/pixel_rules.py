"""Training-data invariants: properties of the images of a class, as the rules of a decision tree.

One tree is grown from pixels to the true labels of the training images (Gini, no pruning). Each leaf is a rule: if
these pixels are dark and those are bright, the class is this. Its support is the number of training images in the leaf,
its confidence the share of them that have the class. Rules are kept if

    confidence >= C  and  support > S,

and a prediction that differs from the class of the kept rule that matches its image is judged wrong. Leaves are
disjoint, so no image matches two rules, and an image whose leaf was not kept is not judged.

Source: Guerriero et al. 2023, with KNIME's decision tree. As there, a node with fewer than 10 images is not split, a
split leaves 5 or more on each side, and a threshold is the largest value on its lower side. Unlike there, ties between
equally good splits are broken at random (by the seed) instead of in favour of the last pixel: scikit-learn cannot do
otherwise. The paper picks S so that half of the *operational* images match a kept rule; here validation images are used
instead, so that verdicts do not depend on what else arrives in operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy.oracles.icos._trees import Tree, last_values, leaves, single
from secondguess.errors import UserError

__all__ = ["CRITERIA", "PixelRule", "PixelRules", "choose_support", "grow"]

# The paper's three ways to select rules, as parameters of `Icos`.
CRITERIA: Mapping[int, Mapping[str, Any]] = {
    1: {"confidence": 0.99, "support": "auto"},
    2: {"confidence": 0.99, "support": 0},
    3: {"confidence": 0.0, "support": 0},
}
COVERED = 0.5  # the share of images that a kept rule should match


@dataclass(frozen=True)
class PixelRule:
    """One rule: an image that meets all conditions has the label.

    Attributes:
        label: the class.
        support: how many training images meet the conditions.
        confidence: the share of them that have the label.
        above: feature -> what its value must exceed.
        up_to: feature -> what its value must not exceed.
    """

    label: int
    support: int
    confidence: float
    above: Mapping[int, float]
    up_to: Mapping[int, float]

    def matches(self, values: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Whether each row of values (n, d) meets all conditions, (n,)."""
        met = np.ones(len(values), dtype=bool)
        for feature, bound in self.above.items():
            met &= values[:, feature] > bound
        for feature, bound in self.up_to.items():
            met &= values[:, feature] <= bound
        return met

    def describe(self, class_names: tuple[str, ...] | list[str], name: Callable[[int], str] = str) -> str:
        """The rule as a sentence; `name` says what to call a feature."""
        conditions = []
        for feature in sorted(self.above.keys() | self.up_to.keys()):
            low, high = self.above.get(feature), self.up_to.get(feature)
            left = "" if low is None else f"{low:.3g} < "
            right = "" if high is None else f" <= {high:.3g}"
            conditions.append(f"{name(feature)} > {low:.3g}" if high is None else f"{left}{name(feature)}{right}")
        return (
            f"{' and '.join(conditions) or 'always'} -> {class_names[self.label]!r} "
            f"(support {self.support}, confidence {self.confidence:.3f})"
        )


def grow(
    values: NDArray[np.float32], labels: NDArray[np.int64], classes: int, *, min_records: int = 5, seed: int = 0
) -> Tree:
    """Grow the tree.

    Args:
        values: (n, d) of the training images.
        labels: (n,) their true classes, none unknown.
        classes: K.
        min_records: the fewest images a side of a split may have; a node with fewer than twice as many is a leaf.
        seed: which of several equally good splits is taken.

    Returns:
        The arrays of the tree, and `counts` (nodes, K): the training images of each class in each leaf.
    """
    from sklearn.tree import DecisionTreeClassifier

    if min_records < 1:
        raise UserError(f"A node must hold at least 1 image, not {min_records}; the paper takes min_records=5.")
    learner = DecisionTreeClassifier(
        min_samples_leaf=min_records, min_samples_split=max(2, 2 * min_records), random_state=seed
    )
    tree = single(learner.fit(values, labels).tree_)
    tree["threshold"] = last_values(tree, values)
    flat = leaves(tree, values)[:, 0].astype(np.int64) * classes + labels
    tree["counts"] = np.bincount(flat, minlength=len(tree["left"]) * classes).reshape(-1, classes)
    return tree


@dataclass(frozen=True, eq=False)
class PixelRules:
    """The rules of a tree with enough confidence and support, most confident first.

    Attributes:
        tree: what `grow` returned.
        confidence: C, the least confidence of a rule.
        support: S, which the support of a rule must exceed.
    """

    tree: Tree
    confidence: float = 0.99
    support: int = 0

    @cached_property
    def kept(self) -> NDArray[np.int64]:
        """The leaves of the rules: by confidence, then by support, then by their number of questions."""
        size, share = leaf_statistics(self.tree)
        kept = np.flatnonzero((size > self.support) & (share >= self.confidence))
        questions = np.array([len(self._path(int(leaf))) for leaf in kept], dtype=np.int64)
        return kept[np.lexsort((questions, -size[kept], -share[kept]))]

    def __len__(self) -> int:
        """The number of rules."""
        return len(self.kept)

    def __getitem__(self, index: int) -> PixelRule:
        """The rule of that number, repeated questions about a feature merged into one interval."""
        leaf = int(self.kept[index])
        above: dict[int, float] = {}
        up_to: dict[int, float] = {}
        for node, went_left in self._path(leaf):
            feature, bound = int(self.tree["feature"][node]), float(self.tree["threshold"][node])
            if went_left:
                up_to[feature] = min(bound, up_to.get(feature, np.inf))
            else:
                above[feature] = max(bound, above.get(feature, -np.inf))
        counts = self.tree["counts"][leaf]
        support, right = int(counts.sum()), int(counts.max())
        return PixelRule(int(counts.argmax()), support, right / support, above, up_to)

    def __iter__(self) -> Iterator[PixelRule]:
        return (self[index] for index in range(len(self)))

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """The class of each rule."""
        return np.asarray(self.tree["counts"][self.kept].argmax(axis=1), dtype=np.int64)

    def matching(self, values: NDArray[np.float32]) -> NDArray[np.int64]:
        """The number of the rule that each row of values (n, d) matches, (n,); -1 where none does."""
        number = np.full(len(self.tree["left"]), -1, dtype=np.int64)
        number[self.kept] = np.arange(len(self))
        return number[leaves(self.tree, values)[:, 0]]

    def violated(self, values: NDArray[np.float32], predictions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of the rule that contradicts each prediction (n,); -1 where none does."""
        rule = self.matching(values)
        said = np.append(self.labels, -1)[rule]
        return np.where((rule >= 0) & (said != predictions), rule, -1)

    @cached_property
    def _parents(self) -> NDArray[np.int64]:
        nodes = np.arange(len(self.tree["left"]))
        parents = np.full(len(nodes), -1, dtype=np.int64)
        inner = self.tree["left"] != nodes
        for side in ("left", "right"):
            parents[self.tree[side][inner]] = nodes[inner]
        return parents

    def _path(self, leaf: int) -> list[tuple[int, bool]]:
        """The questions on the way to a leaf, from the root: (node, whether the answer was "not more")."""
        path: list[tuple[int, bool]] = []
        node = leaf
        while (parent := int(self._parents[node])) >= 0:
            path.append((parent, int(self.tree["left"][parent]) == node))
            node = parent
        return path[::-1]


def leaf_statistics(tree: Tree) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Support and confidence of each node, (nodes,) both; zero where it is no leaf."""
    size = tree["counts"].sum(axis=1)
    return size, tree["counts"].max(axis=1) / np.maximum(size, 1)


def choose_support(tree: Tree, values: NDArray[np.float32], confidence: float) -> int:
    """S, from images that the tree was not grown on.

    It is the largest S with which half of the images still match a rule of this confidence: the paper's choice for
    MNIST. Where all rules together match fewer, it is the median support of the rules: the paper's choice elsewhere.

    Args:
        tree: what `grow` returned.
        values: (n, d) of the validation images.
        confidence: C.
    """
    size, share = leaf_statistics(tree)
    sure = np.flatnonzero((size > 0) & (share >= confidence))
    if len(sure) == 0:
        return 0
    reached = np.bincount(leaves(tree, values)[:, 0], minlength=len(size))[sure]
    order = np.argsort(-size[sure], kind="stable")
    covered = np.cumsum(reached[order]) / len(values)
    if covered[-1] < COVERED:
        return int(np.median(size[sure]))
    return int(size[sure][order][np.argmax(covered >= COVERED)]) - 1
