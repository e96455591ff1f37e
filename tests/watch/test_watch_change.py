"""The sequential test of the alarm rate, against a plain loop over its formula and against thousands of draws."""

from __future__ import annotations

import math

import numpy as np
import pytest

from secondguess.errors import UserError
from secondguess.watch.change import ODDS, RateTest


def capital(alarms: np.ndarray, rate: float) -> list[float]:
    """K_t of the module's formula, one image after the other, with every start kept apart."""
    stakes = [(k - 1) / (1 - rate + k * rate) for k in ODDS]
    bets: list[list[float]] = []
    found = []
    for t, x in enumerate(alarms, start=1):
        bets.append([1 / (t * (t + 1))] * len(stakes))
        bets = [[b * (1 + s * (x - rate)) for b, s in zip(one, stakes, strict=True)] for one in bets]
        found.append(1 / (t + 1) + sum(map(sum, bets)) / len(stakes))
    return found


@pytest.mark.parametrize("rate", [0.01, 0.08, 0.5])
def test_it_is_the_formula_whatever_the_batches(rate: float) -> None:
    rng = np.random.default_rng(3)
    alarms = np.concatenate([rng.random(60) < rate, rng.random(40) < min(0.95, 4 * rate)]).astype(np.int64)
    expected = capital(alarms, rate)
    for cuts in ([], [1, 2, 3, 50], [99]):
        test = RateTest(rate, alpha=1e-9)
        for part in np.split(alarms, cuts):
            test.update(part)
        assert test.p_value == pytest.approx(min(1.0, 1 / max(expected)), rel=1e-9)
        assert test.images == 100 and test.change is None
        last = math.exp(np.logaddexp.reduce(test._bet) - math.log(len(ODDS))) + 1 / 101
        assert last == pytest.approx(expected[-1], rel=1e-9)


def test_every_bet_is_fair_at_the_rate_and_loses_below_it() -> None:
    for rate in (0.001, 0.05, 0.6):
        test = RateTest(rate)
        gain, loss = np.exp(test._gain), np.exp(test._loss)
        np.testing.assert_allclose(rate * gain + (1 - rate) * loss, 1, rtol=1e-12)
        assert ((rate / 2) * gain + (1 - rate / 2) * loss < 1).all()
        assert (loss > 0).all()


def test_a_quiet_stream_is_hardly_ever_called_changed_however_long_it_runs() -> None:
    rng, alpha, draws = np.random.default_rng(0), 0.05, 1500
    false = 0
    for _ in range(draws):
        test = RateTest(0.05, alpha)
        test.update((rng.random(3000) < 0.05).astype(np.int64))
        false += test.change is not None
    spread = 3 * math.sqrt(alpha * (1 - alpha) / draws)
    assert false / draws <= alpha + spread


def test_a_late_change_is_found_soon_and_dated_well() -> None:
    rng = np.random.default_rng(1)
    late, when = [], []
    for _ in range(60):
        test = RateTest(0.08, 0.01)
        test.update((rng.random(10_000) < 0.05).astype(np.int64))
        assert test.change is None
        test.update((rng.random(3000) < 0.3).astype(np.int64))
        assert test.change is not None
        late.append(test.change.noticed - 10_000)
        when.append(test.change.since - 10_000)
    assert np.median(late) < 150 and max(late) < 500
    assert abs(np.median(when)) < 20


def test_a_change_is_found_once_and_stays() -> None:
    test = RateTest(0.1, 0.01)
    test.update(np.ones(40, dtype=np.int64))
    found = test.change
    assert found is not None and found.since == 0 and found.noticed < 20
    test.update(np.zeros(5000, dtype=np.int64))
    assert test.change == found and test.images == 5040
    one_by_one = RateTest(0.1, 0.01)
    for _ in range(40):
        one_by_one.update(np.ones(1, dtype=np.int64))
    assert one_by_one.change == found


def test_nothing_is_nothing_and_nonsense_is_refused() -> None:
    test = RateTest(0.1)
    test.update(np.zeros(0, dtype=np.int64))
    assert test.images == 0 and test.p_value == 1
    with pytest.raises(UserError, match="both must be above 0 and below 1"):
        RateTest(0.0)
    with pytest.raises(UserError, match="alpha 1"):
        RateTest(0.1, 1)
