from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from secondguess.errors import UserError
from secondguess.metrics import Interval, bootstrap, wilson
from secondguess.metrics import interval as module


def test_interval_prints_as_a_sentence_and_takes_a_format():
    interval = Interval(0.9123, 0.894, 0.9312, n=100)
    assert str(interval) == f"{interval}" == "0.912 (0.894 to 0.931)"
    assert f"{interval:.1%}" == "91.2% (89.4% to 93.1%)"


def test_interval_survives_json_even_from_numpy_numbers():
    interval = Interval(np.float32(0.5), np.float64(0.25), np.float64(0.75), np.int64(7), 0.9)
    back = json.loads(json.dumps(interval.to_dict(), allow_nan=False))
    assert back == {"value": 0.5, "low": 0.25, "high": 0.75, "n": 7, "level": 0.9}
    assert Interval(**back) == interval


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((math.nan, 0, 1, 5), "is finite"),
        ((0.5, -math.inf, 1, 5), "is finite"),
        ((0.5, 1, 0, 5), "runs upwards"),
        ((0.5, 0, 1, 0), "at least one row"),
    ],
)
def test_interval_refuses_nonsense(fields, message):
    with pytest.raises(ValueError, match=message):
        Interval(*fields)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize(("successes", "n"), [(0, 1), (1, 1), (0, 20), (20, 20), (3, 20), (500, 1000), (1, 10**6)])
def test_wilson_equals_scipy(successes, n, level):
    expected = stats.binomtest(successes, n).proportion_ci(level, method="wilson")
    interval = wilson(successes, n, level)
    assert interval.value == successes / n
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= interval.low <= interval.value <= interval.high <= 1
    assert (interval.n, interval.level) == (n, level)


def test_wilson_with_no_success_has_the_closed_form_upper_bound():
    z2 = stats.norm.ppf(0.975) ** 2
    interval = wilson(0, 30)
    assert interval.low == 0
    assert interval.high == pytest.approx(z2 / (30 + z2))


@pytest.mark.parametrize("p", [0.5, 0.9, 0.97])
def test_wilson_covers_the_truth_about_as_often_as_it_says(p):
    n = 200
    chance = stats.binom.pmf(np.arange(n + 1), n, p)
    covers = [wilson(k, n).low <= p <= wilson(k, n).high for k in range(n + 1)]
    assert 0.93 < chance @ covers < 0.98


def test_bootstrap_of_a_mean_agrees_with_scipy_and_with_the_normal_interval():
    data = np.random.default_rng(1).normal(3, 2, size=400)
    ours = bootstrap(np.mean, data, resamples=2000)
    scipys = stats.bootstrap(
        (data,), np.mean, n_resamples=2000, method="percentile", rng=np.random.default_rng(2)
    ).confidence_interval
    error = data.std() / 20
    assert ours.value == data.mean()
    assert ours.n == 400
    assert (ours.low, ours.high) == pytest.approx((scipys.low, scipys.high), abs=0.2 * error)
    assert (ours.low, ours.high) == pytest.approx(
        (data.mean() - 1.96 * error, data.mean() + 1.96 * error), abs=0.2 * error
    )


def test_bootstrap_covers_the_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(5)
    intervals = [bootstrap(np.mean, rng.exponential(size=80), resamples=150, seed=i) for i in range(200)]
    assert 0.87 < np.mean([i.low <= 1 <= i.high for i in intervals]) < 0.99


def test_bootstrap_draws_the_same_rows_from_the_arrays_of_one_tuple():
    x = np.arange(50.0)
    interval = bootstrap(lambda a, b: float(np.abs(a - b[:, 0]).max()), (x, np.column_stack([x, -x])))
    assert (interval.value, interval.low, interval.high, interval.n) == (0, 0, 0, 50)


def test_bootstrap_draws_independent_rows_from_separate_samples():
    x = np.arange(50.0)
    interval = bootstrap(lambda a, b: float(np.mean(a == b)), x, x)
    assert interval.value == 1
    assert interval.high < 0.2
    assert interval.n == 100


def test_bootstrap_draws_from_one_sample_do_not_depend_on_the_others():
    x = np.random.default_rng(0).normal(size=30)
    alone = bootstrap(lambda a: float(a.mean()), x)
    beside = bootstrap(lambda a, b: float(a.mean()), x, np.arange(7))
    assert (alone.low, alone.high) == (beside.low, beside.high)


def test_bootstrap_repeats_with_its_seed_and_narrows_with_its_level():
    x = np.random.default_rng(0).normal(size=40)
    assert bootstrap(np.mean, x, seed=3) == bootstrap(np.mean, x, seed=3)
    assert bootstrap(np.mean, x, seed=3) != bootstrap(np.mean, x, seed=4)
    wide, narrow = bootstrap(np.mean, x, level=0.99), bootstrap(np.mean, x, level=0.5)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_a_part_of_many_rows_gives_the_interval_of_all(monkeypatch):
    rng = np.random.default_rng(0)
    rows, more = rng.exponential(size=8000), rng.normal(size=2000)
    exact = bootstrap(lambda a, b: a.mean() - b.mean(), rows, more)
    monkeypatch.setattr(module, "_MOST_ROWS", 1000)
    seen = []
    quick = bootstrap(lambda a, b: seen.append((len(a), len(b))) or a.mean() - b.mean(), rows, more)
    assert seen[0] == (8000, 2000)
    assert set(seen[1:]) == {(800, 200)}
    assert (quick.value, quick.n) == (exact.value, 10_000)
    assert quick.low == pytest.approx(exact.low, abs=0.2 * (exact.high - exact.low))
    assert quick.high == pytest.approx(exact.high, abs=0.2 * (exact.high - exact.low))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bootstrap(np.mean), "No sample was given"),
        (lambda: bootstrap(np.mean, np.array([])), "is empty; give at least one row"),
        (lambda: bootstrap(np.mean, 3.0), r"have shapes \(\)"),
        (
            lambda: bootstrap(np.mean, ([1.0, 2.0], [1.0])),
            r"shapes \(2,\), \(1,\); give arrays with equally many",
        ),
        (lambda: bootstrap(np.mean, [1.0], resamples=0), "resamples is 0; give a whole number"),
        (lambda: bootstrap(np.mean, [1.0], resamples=1.5), "resamples is 1.5; give a whole number"),
        (
            lambda: bootstrap(np.mean, [1.0], level=95),
            "confidence level is 95; give a number between 0 and 1",
        ),
        (
            lambda: bootstrap(lambda x: math.nan, [1.0], resamples=9),
            "is nan on the data and not finite on 9 of 9",
        ),
        (lambda: Interval.from_replicates(1.0, [], 5), "number of replicates is 0"),
        (lambda: wilson(1, 0), "n is 0; give a whole number of at least 1"),
        (lambda: wilson(5, 4), "successes is 5 of 4; give a whole number from 0 to 4"),
        (lambda: wilson(0.5, 4), "successes is 0.5 of 4"),
        (lambda: wilson(1, 4, level=0), "confidence level is 0"),
    ],
)
def test_bad_input_is_explained(call, message):
    with pytest.raises(UserError, match=message):
        call()
