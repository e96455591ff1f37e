"""Decision trees as plain arrays: what can be saved without a pickle, walked for many images at once, and explained.

Node i asks whether `values[:, feature[i]] <= threshold[i]` and sends an image to `left[i]` or `right[i]`; a leaf sends
every image to itself. Several trees share the arrays, one root each.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tree", "joined", "last_values", "leaves", "single"]

Tree = dict[str, NDArray[Any]]
ROWS = 2048  # walked together: their nodes in a hundred trees still fit the processor's cache


def single(fitted: Any) -> Tree:
    """The arrays of one fitted scikit-learn tree (its `tree_`)."""
    own = np.arange(fitted.node_count)
    inner = fitted.children_left >= 0
    return {
        "left": np.where(inner, fitted.children_left, own).astype(np.int32),
        "right": np.where(inner, fitted.children_right, own).astype(np.int32),
        "feature": np.where(inner, fitted.feature, 0).astype(np.int32),
        "threshold": np.where(inner, fitted.threshold, 0.0).astype(np.float64),
        "root": np.zeros(1, dtype=np.int32),
    }


def joined(trees: list[Tree]) -> Tree:
    """Several trees in one set of arrays."""
    starts = np.cumsum([0] + [len(tree["left"]) for tree in trees])[:-1].astype(np.int32)
    shifted = [
        {key: values + start if key in ("left", "right", "root") else values for key, values in tree.items()}
        for tree, start in zip(trees, starts, strict=True)
    ]
    return {key: np.concatenate([tree[key] for tree in shifted]) for key in trees[0]}


def leaves(tree: Tree, values: NDArray[np.float32]) -> NDArray[np.int32]:
    """The leaf that each row of values (n, d) reaches in each of T trees, (n, T)."""
    found = np.empty((len(values), len(tree["root"])), dtype=np.int32)
    for start in range(0, len(values), ROWS):
        found[start : start + ROWS] = _walk(tree, values[start : start + ROWS])[-1]
    return found


def last_values(tree: Tree, values: NDArray[np.float32]) -> NDArray[np.float64]:
    """The largest training value that goes left at each node, (nodes,): C4.5's thresholds instead of midpoints.

    Args:
        tree: of one root, with scikit-learn's thresholds.
        values: (n, d) the values that it was grown on; they reach the same leaves with either threshold.
    """
    largest = np.full(len(tree["left"]), -np.inf)
    for start in range(0, len(values), ROWS):
        part = values[start : start + ROWS]
        for now, after in pairwise(_walk(tree, part)):
            node = now[:, 0]
            went_left = (after[:, 0] == tree["left"][node]) & (tree["left"][node] != node)
            asked = part[np.flatnonzero(went_left), tree["feature"][node[went_left]]]
            np.maximum.at(largest, node[went_left], asked)
    return np.where(np.isfinite(largest), largest, tree["threshold"])


def _walk(tree: Tree, values: NDArray[np.float32]) -> list[NDArray[np.int32]]:
    """The nodes (n, T) after every step, from the roots to the leaves."""
    rows = np.arange(len(values))[:, None]
    node = np.broadcast_to(tree["root"], (len(values), len(tree["root"])))
    steps = [node]
    while True:
        below = values[rows, tree["feature"][node]] <= tree["threshold"][node]
        after = np.where(below, tree["left"][node], tree["right"][node])
        if np.array_equal(after, node):
            return steps
        steps.append(after)
        node = after
