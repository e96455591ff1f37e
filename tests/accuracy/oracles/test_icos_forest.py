from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from secondguess.accuracy.oracles.icos.forest import grow_forest, votes
from secondguess.errors import UserError

Sample = tuple[NDArray[np.float64], NDArray[np.bool_]]


def sample(n: int, seed: int) -> Sample:
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(6, 0.2), n)
    return probabilities, rng.random(n) > 0.3 + 0.7 * probabilities.max(axis=1)


@pytest.mark.parametrize("balanced", [False, True])
def test_every_tree_votes_as_scikit_learns(balanced: bool) -> None:
    probabilities, wrong = sample(400, 0)
    others, _ = sample(3000, 1)
    forest = grow_forest(probabilities, wrong, trees=25, balanced=balanced, seed=7)
    referee = RandomForestClassifier(
        25, criterion="entropy", random_state=7, class_weight="balanced" if balanced else None
    ).fit(probabilities.astype(np.float32), wrong)
    shares = np.mean([tree.predict(others.astype(np.float32)) for tree in referee.estimators_], axis=0)
    assert np.array_equal(votes(forest, others), shares)


def test_it_tells_failures_better_than_chance() -> None:
    probabilities, wrong = sample(1500, 0)
    others, truth = sample(1500, 1)
    share = votes(grow_forest(probabilities, wrong), others)
    assert (share > 0.5)[truth].mean() > 2 * (share > 0.5)[~truth].mean()


@pytest.mark.parametrize("always", [False, True])
def test_validation_with_one_outcome_teaches_nothing_and_says_so(always: bool) -> None:
    probabilities, _ = sample(50, 0)
    word = "wrong" if always else "right"
    with pytest.warns(UserWarning, match=f"Every prediction on the 50 validation images is {word}"):
        forest = grow_forest(probabilities, np.full(50, always))
    assert (votes(forest, probabilities) == always).all()


def test_a_forest_needs_a_tree() -> None:
    with pytest.raises(UserError, match="A forest of 0 trees"):
        grow_forest(*sample(20, 0), trees=0)
