from __future__ import annotations

import numpy as np
import pytest

from secondguess.errors import UserError
from secondguess.search import _loess
from secondguess.search._loess import error_rates, loess

lowess = pytest.importorskip("statsmodels.api").nonparametric.lowess


def cloud(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    confidence = rng.permutation(1 - 0.35 * rng.beta(0.4, 2, n))
    return confidence, 4 * confidence + rng.standard_t(3, n) * confidence


@pytest.mark.parametrize("n", [150, 1200])
@pytest.mark.parametrize("passes", [0, 3])
def test_the_fit_is_that_of_statsmodels(n, passes):
    x, y = cloud(n)
    referee = lowess(y, x, frac=0.1, it=passes, return_sorted=False)
    assert loess(x, y, robust=passes > 0) == pytest.approx(referee, abs=1e-7)


@pytest.mark.parametrize("degree", [1, 2])
def test_the_fit_is_that_of_the_authors_fortran(degree):
    fortran = pytest.importorskip("skmisc.loess").loess
    x, y = cloud(700, seed=1)
    referee = fortran(x, y, span=0.1, degree=degree, surface="direct")
    referee.fit()
    assert loess(x, y, degree=degree) == pytest.approx(referee.outputs.fitted_values, abs=1e-6)


def test_the_quadratic_fit_by_hand():
    """One neighbourhood after the other, with the weights written out."""
    x, y = cloud(200, seed=2)
    found = loess(x, y, degree=2)
    for i in range(0, 200, 11):
        distance = np.abs(x - x[i])
        width = np.sort(distance)[20 - 1]
        weights = np.sqrt(np.where(distance < width, (1 - (distance / width) ** 3) ** 3, 0))
        design = np.vander(x - x[i], 3)
        solution = np.linalg.lstsq(design * weights[:, None], y * weights, rcond=None)[0]
        assert found[i] == pytest.approx(solution[-1], abs=1e-6)


def test_many_points_are_interpolated_closely(monkeypatch):
    x, y = cloud(3000)
    exact = loess(x, y)
    monkeypatch.setattr(_loess, "DIRECT", 500)
    assert np.abs(loess(x, y) - exact).max() < 0.02 * y.std()


def test_the_size_of_the_table_changes_nothing(monkeypatch):
    x, y = cloud(500)
    whole = loess(x, y, robust=True)
    monkeypatch.setattr(_loess, "TABLE", 700)
    assert loess(x, y, robust=True) == pytest.approx(whole, abs=1e-12)


def test_a_saturated_confidence_has_the_mean_of_its_points():
    x, y = cloud(300)
    x[:80], y[:80] = 1.0, np.linspace(7, 8, 80)
    assert loess(x, y)[:80] == pytest.approx(7.5)
    assert np.ptp(loess(x, y, robust=True)[:80]) == 0


@pytest.mark.parametrize("decimals", [1, 2, 6])
@pytest.mark.parametrize("degree", [1, 2])
def test_ties_do_no_harm(decimals, degree):
    x, y = cloud(400)
    found = loess(np.round(x, decimals), y, degree=degree, robust=True)
    assert np.isfinite(found).all()
    assert np.abs(found).max() <= np.abs(y).max()
    assert len(set(zip(np.round(x, decimals), np.round(found, 9), strict=True))) == len(set(np.round(x, decimals)))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 12, 49])
def test_few_points_do_no_harm(n):
    x, y = cloud(n)
    found = loess(x, y, robust=True)
    assert found.shape == (n,)
    assert np.isfinite(found).all()


def test_all_points_at_one_confidence():
    found = loess(np.full(30, 0.9), np.arange(30.0))
    assert found == pytest.approx(14.5)


def test_rates_of_errors_stay_rates_and_follow_the_truth():
    rng = np.random.default_rng(3)
    confidence = rng.uniform(0.65, 1, 4000)
    truth = 2 * (1 - confidence)
    rates = error_rates(confidence, rng.random(4000) < truth)
    assert 0 < rates.min() <= rates.max() <= 1
    assert np.abs(rates - truth).mean() < 0.03


def test_bad_parameters():
    with pytest.raises(UserError, match="span of the smoother is 0"):
        loess(np.arange(3.0), np.arange(3.0), span=0)
    with pytest.raises(UserError, match="degree of the smoother is 3"):
        loess(np.arange(3.0), np.arange(3.0), degree=3)
