"""Algorithm invariants: which probabilities the classifier gives when it is wrong, learnt by a random forest.

The forest is grown on the probability vectors (n, K) of the validation images, to tell wrong predictions from right
ones; each of its trees has one vote, and a prediction is judged wrong if more than half of them say so.

Source: Guerriero et al. 2023, with KNIME's random forest of 100 trees. As there, nothing corrects for failures being
    rare, unless with `balanced`. Unlike there, splits are chosen by information gain rather than by gain ratio,
which scikit-learn does not have.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy.oracles.icos._trees import Tree, joined, leaves, single
from secondguess.errors import UserError

__all__ = ["grow_forest", "votes"]


def grow_forest(
    probabilities: NDArray[np.float64],
    wrong: NDArray[np.bool_],
    *,
    trees: int = 100,
    balanced: bool = False,
    seed: int = 0,
) -> Tree:
    """Learn to recognise wrong predictions by their probabilities.

    Args:
        probabilities: (n, K) of the validation images.
        wrong: (n,) whether each of them is misclassified. If none is, the forest never says so, with a warning.
        trees: how many.
        balanced: give rare failures the weight of the frequent successes: more are found, with more false alarms.
        seed: of the bootstrap samples.

    Returns:
        The arrays of the trees, and `wrong` (nodes,): whether a tree says so at that node.
    """
    from sklearn.ensemble import RandomForestClassifier

    if trees < 1:
        raise UserError(f"A forest of {trees} trees was asked for; it needs at least 1.")
    if wrong.all() or not wrong.any():
        always = "wrong" if wrong.any() else "right"
        warnings.warn(
            f"Every prediction on the {len(wrong)} validation images is {always}, so nothing can be learnt about "
            f"failures from their probabilities: the forest takes every prediction to be {always}.",
            stacklevel=2,
        )
        leaf = np.zeros(1, dtype=np.int32)
        constant: Tree = {"left": leaf, "right": leaf, "feature": leaf, "threshold": np.zeros(1), "root": leaf}
        constant["wrong"] = wrong[:1].copy()
        return constant
    learner = RandomForestClassifier(
        trees, criterion="entropy", class_weight="balanced" if balanced else None, random_state=seed
    )
    learner.fit(probabilities.astype(np.float32), wrong)
    return joined(
        [single(one.tree_) | {"wrong": one.tree_.value[:, 0].argmax(axis=1) == 1} for one in learner.estimators_]
    )


def votes(forest: Tree, probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share of trees that say each prediction is wrong, (n,)."""
    reached = leaves(forest, probabilities.astype(np.float32))
    return np.asarray(forest["wrong"][reached].mean(axis=1))
