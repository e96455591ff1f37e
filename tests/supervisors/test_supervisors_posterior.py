from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import entropy as divergence

from secondguess import Observation, UserError, check_supervisor
from secondguess.supervisors import make
from secondguess.supervisors.posterior import GeneralisedEntropy, KLMatching, generalised_entropy


def draw(rows: int, classes: int, seed: int, scale: float = 3.0) -> Observation:
    logits = np.random.default_rng(seed).normal(0, scale, (rows, classes))
    return Observation(softmax(logits, axis=1))


@pytest.mark.parametrize(("gamma", "top"), [(0.1, 100), (0.1, 3), (0.5, 1), (0.9, 7)])
def test_the_generalised_entropy_is_the_papers_sum(gamma: float, top: int) -> None:
    seen = draw(50, 7, 0)
    expected = [sum(p**gamma * (1 - p) ** gamma for p in sorted(row)[::-1][:top]) for row in seen.probabilities]
    np.testing.assert_allclose(GeneralisedEntropy(gamma, top).score(seen), expected, rtol=1e-9)


def test_a_saturated_softmax_is_still_told_apart() -> None:
    """1 - p rounds to 0 in double precision, its tenth power does not."""
    p = np.array([[1.0, 1e-20, 1e-30], [1.0, 1e-25, 1e-30], [1.0, 0.0, 0.0]])
    found = generalised_entropy(p)
    assert found[0] > found[1] > found[2] == 0.0
    assert found[0] == pytest.approx(1e-2 + 1e-2 + 1e-3)


def test_kl_matching_is_the_smallest_divergence_from_a_mean_softmax() -> None:
    training, queries = draw(400, 5, 0), draw(40, 5, 1)
    fitted = KLMatching().fit(training, np.zeros(400, np.int64))  # labels play no part
    means = [training.probabilities[training.predictions == c].mean(axis=0) for c in range(5)]
    expected = [min(divergence(p, mean) for mean in means) for p in queries.probabilities]
    np.testing.assert_allclose(fitted.score(queries), expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["gen", "kl_matching"])
def test_one_hot_probabilities_make_no_nan(name: str) -> None:
    seen = Observation(np.eye(3)[np.arange(30) % 3])
    fitted = make(name).fit(seen)
    assert (fitted.score(seen) == 0).all()
    assert np.isfinite(fitted.score(Observation(np.array([[0.5, 0.5, 0.0]])))).all()


@pytest.mark.parametrize("name", ["gen", "gen:gamma=0.5:top=2", "kl_matching"])
def test_it_keeps_the_contract(name: str) -> None:
    check_supervisor(make(name))


@pytest.mark.parametrize(("gamma", "top"), [(0.0, 1), (1.0, 1), (0.1, 0), (0.1, 2.5)])
def test_parameters_are_checked(gamma: float, top: int) -> None:
    with pytest.raises(UserError, match="must be"):
        GeneralisedEntropy(gamma, top)
