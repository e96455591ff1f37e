from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, binom

from secondguess import UserError
from secondguess.guard.risk import RiskControl, RiskPromise, smallest_accepted


def draw(rng, n, steepness=6.0):
    """Statistics uniform in [0, 1], wrong with a probability that rises with them; risk of a limit in closed form."""
    statistics = rng.random(n)
    return statistics, rng.random(n) < 0.4 * statistics**steepness


def risk_of(limit, steepness=6.0):
    """P(wrong | T <= limit) = 0.4 limit^s / (s + 1)."""
    return 0.4 * min(limit, 1.0) ** steepness / (steepness + 1)


@pytest.mark.parametrize(("risk", "confidence", "n"), [(0.02, 0.9, 400), (0.02, 0.9, 3000), (0.05, 0.8, 600)])
def test_the_promise_is_kept_over_many_calibration_sets(risk, confidence, n):
    """Broken promises are Binomial(trials, 1 - confidence) at most: an exact test, which one run in 10^5 would fail."""
    rng, trials, broken, refused = np.random.default_rng(0), 600, 0, 0
    for _ in range(trials):
        control = RiskControl.plan(*draw(rng, n), risk, confidence)
        try:
            limit, _ = control.promise(*draw(rng, n))
        except UserError:
            refused += 1
            continue
        broken += risk_of(limit) > risk
    assert broken <= binom.ppf(1 - 1e-5, trials, 1 - confidence)
    assert refused < trials / 2  # a promise that is never made is kept, too


def test_the_promise_is_not_needlessly_careful():
    """With many images the limit comes near to the one that has exactly the risk."""
    rng = np.random.default_rng(1)
    limit, promise = RiskControl.plan(*draw(rng, 20_000), 0.02).promise(*draw(rng, 20_000))
    assert 0.017 < risk_of(limit) < 0.0205
    assert promise.accepted.value == pytest.approx(limit, abs=0.02)
    assert promise.wrong.value < 0.02


def test_it_passes_where_the_exact_bound_of_clopper_and_pearson_does():
    rng = np.random.default_rng(2)
    control = RiskControl.plan(*draw(rng, 2000), 0.03, 0.9)
    statistics, wrong = draw(rng, 2000)
    limit, _ = control.promise(statistics, wrong)
    for tried in control.limits[control.limits <= limit]:
        taken = statistics <= tried
        k, e = int(taken.sum()), int(wrong[taken].sum())
        assert beta.ppf(0.9, e + 1, k - e) <= 0.03


def test_a_model_that_errs_less_than_allowed_is_always_accepted():
    rng = np.random.default_rng(3)
    limit, promise = RiskControl.plan(*draw(rng, 2000), 0.2).promise(*draw(rng, 2000))
    assert limit == np.inf
    assert promise.accepted.value == 1.0


def test_what_cannot_be_promised_is_refused_in_a_sentence():
    rng = np.random.default_rng(4)
    control = RiskControl.plan(*draw(rng, 100), 0.001)
    with pytest.raises(
        UserError, match=r"A risk of 0.001 cannot be promised with 95% confidence: of the .* takes 2995"
    ):
        control.promise(*draw(rng, 100))
    useless = np.random.default_rng(5).random(500) < 0.5
    with pytest.raises(UserError, match="are answered wrongly"):
        RiskControl.plan(np.zeros(500), useless, 0.05).promise(np.zeros(500), useless)


def test_infinite_statistics_are_accepted_by_no_finite_limit():
    statistics = np.array([0.0, 1.0, np.inf] * 200)
    wrong = np.isinf(statistics)
    limit, promise = RiskControl.plan(statistics, wrong, 0.05).promise(statistics, wrong)
    assert 1.0 <= limit < np.inf
    assert promise.wrong.value == 0


@pytest.mark.parametrize(("risk", "confidence"), [(0.02, 0.95), (0.01, 0.9), (0.3, 0.5)])
def test_the_fewest_images(risk, confidence):
    least = smallest_accepted(risk, confidence)
    assert (1 - risk) ** least <= 1 - confidence < (1 - risk) ** (least - 1)


@pytest.mark.parametrize(("risk", "confidence"), [(0, 0.9), (1, 0.9), (0.1, 1), (0.1, 0)])
def test_shares_are_checked(risk, confidence):
    with pytest.raises(UserError, match="give"):
        smallest_accepted(risk, confidence)


def test_a_promise_survives_a_file():
    from dataclasses import asdict

    rng = np.random.default_rng(6)
    _, promise = RiskControl.plan(*draw(rng, 2000), 0.05).promise(*draw(rng, 2000))
    assert RiskPromise.from_dict(asdict(promise)) == promise
    assert "at most 5.00% of the accepted predictions are wrong" in str(promise)
