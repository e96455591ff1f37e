from __future__ import annotations

import math
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from secondguess.errors import UserError
from secondguess.metrics import (
    aupr,
    aupr_interval,
    auroc,
    auroc_interval,
    bootstrap,
    detection,
    detection_rate,
    detection_rate_interval,
    false_alarm_rate,
    false_alarm_rate_interval,
    threshold_at,
    wilson,
)

# Few distinct values, so that ties within and between the sets are the rule.
TIED = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=25)
EXTREME = st.lists(
    st.one_of(st.sampled_from([-math.inf, -1.0, 0.0, -0.0, 1.0, math.inf]), st.floats(allow_nan=False)),
    min_size=1,
    max_size=15,
)
RATES = st.sampled_from([0.0, 0.01, 0.05, 0.1, 0.25, 0.29, 0.5, 0.9])
INTERVALS = [
    (auroc_interval, auroc),
    (aupr_interval, aupr),
    (detection_rate_interval, detection_rate),
    (false_alarm_rate_interval, false_alarm_rate),
]


def sets(n=300, m=200, shift=1.0, decimals=12, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n).round(decimals), rng.normal(shift, size=m).round(decimals)


def labelled(nominal, other):
    return np.repeat([0, 1], [len(nominal), len(other)]), np.concatenate([nominal, other])


@settings(deadline=None)
@given(EXTREME, EXTREME)
def test_auroc_equals_counting_pairs(nominal, other):
    won = sum(1 if o > n else 0.5 if o == n else 0 for n in nominal for o in other)
    assert auroc(nominal, other) == won / (len(nominal) * len(other))
    assert auroc(other, nominal) == pytest.approx(1 - auroc(nominal, other), abs=1e-15)


@settings(deadline=None)
@given(TIED, TIED)
def test_areas_equal_sklearn_with_ties(nominal, other):
    assert auroc(nominal, other) == pytest.approx(roc_auc_score(*labelled(nominal, other)))
    assert aupr(nominal, other) == pytest.approx(average_precision_score(*labelled(nominal, other)))


@pytest.mark.parametrize("decimals", [12, 1, 0])
def test_areas_equal_sklearn_on_larger_sets(decimals):
    nominal, other = sets(2000, 1500, decimals=decimals)
    assert auroc(nominal, other) == pytest.approx(roc_auc_score(*labelled(nominal, other)), abs=1e-12)
    assert aupr(nominal, other) == pytest.approx(average_precision_score(*labelled(nominal, other)), abs=1e-12)


def test_known_areas():
    assert auroc([0, 1], [2, 3]) == aupr([0, 1], [2, 3]) == 1
    assert auroc([2, 3], [0, 1]) == 0
    assert auroc([1, 1], [1, 1, 1]) == 0.5
    assert aupr([1, 1], [1, 1, 1]) == 0.6
    assert auroc([-math.inf, 0], [math.inf]) == 1
    assert auroc([math.inf], [math.inf]) == 0.5
    assert aupr([math.inf], [math.inf, -math.inf]) == pytest.approx(0.5 * 1 / 2 + 0.5 * 2 / 3)


@pytest.mark.parametrize("metric", [auroc, aupr, detection_rate, false_alarm_rate])
def test_only_the_order_of_the_scores_counts(metric):
    nominal, other = sets(decimals=1)
    rng = np.random.default_rng(1)
    expected = metric(nominal, other)
    assert metric(np.exp(nominal), np.exp(other)) == expected
    assert metric(rng.permutation(nominal), rng.permutation(other)) == expected
    assert metric(nominal.astype(np.float32), other.astype(np.float32)) == expected


@settings(deadline=None)
@given(EXTREME, RATES)
def test_threshold_is_the_smallest_that_keeps_the_rate(nominal, rate):
    scores = np.array(nominal)
    threshold = threshold_at(scores, rate)
    assert np.mean(scores > threshold) <= rate
    below = scores[scores < threshold]
    assert all(np.mean(scores > t) > rate for t in below)
    assert threshold in scores


def test_threshold_on_known_cases():
    hundred = np.arange(1.0, 101.0)
    assert threshold_at(hundred, 0.05) == 95
    assert threshold_at(hundred, 0.29) == 71
    assert threshold_at(hundred, 0) == 100
    assert threshold_at([1, 1, 1, 2], 0.2) == 2
    assert threshold_at([1, 1, 1, 2], 0.25) == 1
    assert threshold_at([5.0], 0.99) == 5


@settings(deadline=None)
@given(EXTREME, EXTREME, RATES)
def test_detection_rate_is_the_share_above_the_threshold(nominal, other, rate):
    expected = np.mean(np.array(other) > threshold_at(nominal, rate))
    assert detection_rate(nominal, other, rate) == pytest.approx(expected, abs=1e-15)


@settings(deadline=None)
@given(TIED, TIED, st.sampled_from([0.01, 0.3, 0.5, 0.95, 1.0]))
def test_false_alarm_rate_equals_the_roc_curve_of_sklearn(nominal, other, rate):
    fpr, tpr, _ = roc_curve(*labelled(nominal, other), drop_intermediate=False)
    assert false_alarm_rate(nominal, other, rate) == pytest.approx(fpr[np.argmax(tpr >= rate)])


def test_false_alarm_rate_takes_the_stress_set_as_positive():
    nominal, other = np.arange(100.0), np.arange(50.0, 150.0)
    # 95 of the 100 stress scores are at or above 55, and so are 45 of the 100 nominal ones.
    assert false_alarm_rate(nominal, other) == 0.45
    # The other reading of "FPR95": 95 nominal scores are at or below 94, and so are 45 stress ones.
    assert 1 - detection_rate(nominal, other, 0.05) == pytest.approx(0.45)
    skewed = np.concatenate([other, np.full(100, -1.0)])
    assert false_alarm_rate(nominal, skewed) == 1
    assert 1 - detection_rate(nominal, skewed, 0.05) == pytest.approx(0.725)


@pytest.mark.parametrize("decimals", [12, 0])
@pytest.mark.parametrize(("interval", "metric"), INTERVALS)
def test_intervals_equal_the_plain_bootstrap(interval, metric, decimals):
    nominal, other = sets(60, 45, decimals=decimals)
    fast = interval(nominal, other, resamples=60, level=0.9, seed=7)
    plain = bootstrap(metric, nominal, other, resamples=60, level=0.9, seed=7)
    assert fast.value == metric(nominal, other)
    assert fast.to_dict() == pytest.approx(plain.to_dict(), abs=1e-12)
    assert fast.n == 105


def test_none_of_few_images_is_not_none_of_all():
    nominal = np.random.default_rng(0).normal(size=500)
    none, every = (detection_rate_interval(nominal, np.full(13, score)) for score in (-9.0, 9.0))
    assert (none.value, none.low) == (0, 0) and none.high == pytest.approx(wilson(0, 13).high)
    assert (every.value, every.high) == (1, 1) and every.low == pytest.approx(wilson(13, 13).low)
    some = detection_rate_interval(nominal, np.r_[np.full(12, -9.0), 9.0])
    assert some.value == pytest.approx(1 / 13) and some.low < some.value < some.high


@pytest.mark.parametrize("interval", [detection_rate_interval, false_alarm_rate_interval])
def test_rate_intervals_pass_their_rate_on(interval):
    metric = detection_rate if interval is detection_rate_interval else false_alarm_rate
    nominal, other = sets(60, 45)
    fast = interval(nominal, other, 0.4, resamples=30)
    plain = bootstrap(lambda a, b: metric(a, b, 0.4), nominal, other, resamples=30)
    assert fast.to_dict() == pytest.approx(plain.to_dict(), abs=1e-12)


@pytest.mark.parametrize(("interval", "metric"), INTERVALS)
def test_intervals_do_not_depend_on_the_block_size(interval, metric, monkeypatch):
    nominal, other = sets(51, 33)
    whole = interval(nominal, other, resamples=50)
    for cells in (1, 200, 1000):
        monkeypatch.setattr(detection, "_BLOCK_CELLS", cells)
        assert interval(nominal, other, resamples=50) == whole


def test_intervals_accept_infinities_and_one_score():
    assert auroc_interval([-math.inf, 0, math.inf], [math.inf, 1]).high <= 1
    only = auroc_interval([0.0], [1.0], resamples=10)
    assert (only.value, only.low, only.high, only.n) == (1, 1, 1, 2)


def test_auroc_interval_agrees_with_the_variance_of_delong():
    nominal, other = sets(400, 300)
    wins = (other[:, None] > nominal).astype(float)
    error = math.sqrt(wins.mean(1).var(ddof=1) / 300 + wins.mean(0).var(ddof=1) / 400)
    interval = auroc_interval(nominal, other, resamples=2000)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_auroc_interval_covers_the_truth_about_as_often_as_it_says():
    truth = stats.norm.cdf(1 / math.sqrt(2))
    intervals = [auroc_interval(*sets(80, 60, seed=i), resamples=200, seed=i) for i in range(300)]
    assert 0.9 < np.mean([i.low <= truth <= i.high for i in intervals]) < 0.985


def test_a_resample_costs_less_than_the_metric_itself():
    nominal, other = sets(10_000, 10_000)

    def least(work, repeats):
        seconds = []
        for _ in range(repeats):
            start = time.process_time()
            work()
            seconds.append(time.process_time() - start)
        return min(seconds)

    once = least(lambda: auroc(nominal, other), 20)
    many = least(lambda: auroc_interval(nominal, other, resamples=300), 3)
    assert many < 300 * once


@pytest.mark.parametrize(("interval", "metric"), INTERVALS)
def test_interval_memory_is_bounded(interval, metric):
    nominal, other = sets(5000, 5000)
    tracemalloc.start()
    try:
        interval(nominal, other, resamples=300)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * 2**20


@pytest.mark.parametrize(
    ("nominal", "other", "message"),
    [
        ([], [1.0], "The nominal scores are empty; give at least one score"),
        ([1.0], [], "The other scores are empty"),
        ([1.0, math.nan, math.nan], [1.0], "The nominal scores hold 2 NaN among 3 values"),
        ([1.0], [math.nan], "The other scores hold 1 NaN among 1 values"),
        ([[1.0]], [1.0], r"The nominal scores have shape \(1, 1\); give one score for each example"),
        ([1.0], 2.0, r"The other scores have shape \(\)"),
        (["high"], [1.0], "The nominal scores are not an array of numbers"),
    ],
)
@pytest.mark.parametrize("metric", [function for pair in INTERVALS for function in pair])
def test_bad_scores_are_explained(metric, nominal, other, message):
    with pytest.raises(UserError, match=message):
        metric(nominal, other)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: threshold_at([], 0.1), "The nominal scores are empty"),
        (lambda: threshold_at([1.0], 1.0), "false-alarm rate is 1.0; give a number from 0 and below 1"),
        (lambda: threshold_at([1.0], math.nan), "false-alarm rate is nan"),
        (lambda: detection_rate([1.0], [1.0], -0.1), "false-alarm rate is -0.1"),
        (lambda: detection_rate_interval([1.0], [1.0], 5), "false-alarm rate is 5"),
        (lambda: false_alarm_rate([1.0], [1.0], 0), "detection rate is 0; give a number above 0 and up to 1"),
        (lambda: false_alarm_rate_interval([1.0], [1.0], 95), "detection rate is 95"),
        (lambda: auroc_interval([1.0], [1.0], resamples=0), "resamples is 0"),
        (lambda: auroc_interval([1.0], [1.0], level=1), "confidence level is 1"),
    ],
)
def test_bad_options_are_explained(call, message):
    with pytest.raises(UserError, match=message):
        call()


@pytest.mark.parametrize(("interval", "plain"), INTERVALS)
@pytest.mark.parametrize("digits", [12, 1], ids=["distinct", "tied"])
def test_resamples_from_cells_spread_as_those_from_scores(monkeypatch, interval, plain, digits):
    rng = np.random.default_rng(1)
    nominal, other = rng.normal(0, 1, 3000).round(digits), rng.normal(1.2, 1.5, 700).round(digits)
    exact = interval(nominal, other)
    monkeypatch.setattr(detection, "_MANY", 1000)
    monkeypatch.setattr(detection, "_QUANTILES", 128)
    quick = interval(nominal, other)
    assert quick.value == pytest.approx(plain(nominal, other), abs=1e-15)
    assert quick.n == exact.n
    # Both are quantiles of 500 draws: they differ by about a twentieth of the width.
    assert abs(quick.low - exact.low) < 0.2 * (exact.high - exact.low)
    assert abs(quick.high - exact.high) < 0.2 * (exact.high - exact.low)


def test_resamples_from_cells_of_sets_apart_know_no_exception():
    many = np.linspace(0, 1, 40_000)
    found = auroc_interval(many, many + 2, resamples=20)
    assert (found.value, found.low, found.high) == (1, 1, 1)
    five = detection_rate_interval(many, np.full(5, np.inf), resamples=20)
    assert (five.value, five.low) == (1, wilson(5, 5).low)
