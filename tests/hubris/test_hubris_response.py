from __future__ import annotations

import numpy as np
import pytest

from secondguess import UserError
from secondguess.hubris import response_curve


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(("offset", "slope"), [(0, 1), (0.7, 3), (-1, 0.4)])
def test_a_known_curve_is_found(offset: float, slope: float) -> None:
    dial = np.random.default_rng(0).uniform(0.05, 0.95, 500)
    found = response_curve(dial, sigmoid(offset + slope * np.log(dial / (1 - dial))), resamples=20)
    assert found.slope.value == pytest.approx(slope, rel=2e-2)
    assert found.offset == pytest.approx(offset, abs=2e-2)
    assert found.slope.low <= slope * 1.02 and found.slope.high >= slope * 0.98


def test_against_logistic_regression() -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(1)
    dial = rng.uniform(0.1, 0.9, 400)
    answers = np.clip(dial + 0.2 * rng.normal(size=400), 0, 1)
    x = np.log(dial / (1 - dial))
    both = np.concatenate([x, x])[:, None]
    labels, weights = np.repeat([1, 0], 400), np.concatenate([answers, 1 - answers])
    # Its penalty is a sum over images, ours a mean: C = 1 / (n 1e-4).
    referee = LogisticRegression(C=1 / (400 * 1e-4), tol=1e-10, max_iter=1000).fit(both, labels, sample_weight=weights)
    found = response_curve(dial, answers, resamples=2)
    assert (found.offset, found.slope.value) == pytest.approx((referee.intercept_[0], referee.coef_[0, 0]), abs=1e-5)


def test_the_bins_hold_means_and_quantiles() -> None:
    dial = np.repeat([0.1, 0.5, 0.9], 10)
    answers = np.concatenate([np.linspace(0, 0.2, 10), np.linspace(0.2, 0.8, 10), np.ones(10)])
    found = response_curve(dial, answers, bins=4, resamples=2)
    assert found.dial == pytest.approx([0.1, 0.5, 0.9])
    assert found.answer == pytest.approx([0.1, 0.5, 1])
    assert found.count.tolist() == [10, 10, 10]
    assert found.low[1] == pytest.approx(np.quantile(answers[10:20], 0.1))
    assert found.high[1] == pytest.approx(np.quantile(answers[10:20], 0.9))
    assert found.to_dict()["slope"]["n"] == 30


def test_answers_of_zero_and_one_have_a_steep_finite_slope() -> None:
    dial = np.linspace(0.05, 0.95, 200)
    found = response_curve(dial, (dial > 0.5).astype(float), resamples=10)
    assert found.slope.value > 8 and np.isfinite(found.slope.high)
    stubborn = response_curve(dial, np.full(200, 0.5), resamples=10)
    assert stubborn.slope.value == pytest.approx(0, abs=1e-3)


def test_one_dial_for_all_has_no_slope() -> None:
    found = response_curve(np.full(20, 0.5), np.linspace(0, 1, 20))
    assert found.slope is None and found.offset is None and found.count.tolist() == [20]
    assert found.to_dict()["slope"] is None


@pytest.mark.parametrize(
    ("dial", "answers", "words"),
    [([0.5], [0.5, 0.5], "one of each"), ([], [], "one of each"), ([1.5], [0.5], "between 0 and 1")],
)
def test_mistakes_are_explained(dial: list[float], answers: list[float], words: str) -> None:
    with pytest.raises(UserError, match=words):
        response_curve(dial, answers)
