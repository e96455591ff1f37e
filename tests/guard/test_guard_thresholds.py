"""Conformal p-values and thresholds: brute force, closed forms, and thousands of draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from secondguess import UserError
from secondguess.guard.thresholds import Calibration, Threshold, conformal_p_values, realised_rate, smallest_sample

scores = st.lists(st.integers(-5, 5).map(float) | st.just(np.inf) | st.just(-np.inf), min_size=1, max_size=40)


@given(scores, scores)
def test_p_values_are_what_the_formula_says(calibration: list[float], new: list[float]) -> None:
    expected = [(1 + sum(c >= s for c in calibration)) / (len(calibration) + 1) for s in new]
    assert conformal_p_values(calibration, new).tolist() == expected


@given(scores, scores, st.sampled_from([0.05, 0.1, 0.25, 0.3, 0.5, 0.9]))
def test_a_threshold_and_a_p_value_raise_the_same_alarms(
    calibration: list[float], new: list[float], rate: float
) -> None:
    if len(calibration) < smallest_sample(rate):
        with pytest.raises(UserError, match="cannot be promised from"):
            Threshold.at(calibration, rate)
        return
    threshold = Threshold.at(calibration, rate)
    assert threshold.n == len(calibration)
    assert threshold.alarms(new).tolist() == (conformal_p_values(calibration, new) <= rate + 1e-12).tolist()


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", [19, 50])
def test_nominal_images_raise_no_more_alarms_than_promised(n: int, ties: bool) -> None:
    rng = np.random.default_rng(n)
    draws = rng.standard_t(2, size=(20_000, n + 1))
    draws = np.round(draws) if ties else draws
    p = (1 + (draws[:, :-1] >= draws[:, -1:]).sum(axis=1)) / (n + 1)
    assert p[0] == conformal_p_values(draws[0, :-1], draws[0, -1:])[0]
    for rate in (0.05, 0.1, 0.3, 0.7):
        share = (p <= rate).mean()
        assert share <= rate + 4 * np.sqrt(rate * (1 - rate) / len(p))
        if not ties:
            assert share >= np.floor(rate * (n + 1) + 1e-9) / (n + 1) - 4 * np.sqrt(rate / len(p))


def test_ties_that_are_broken_at_random_make_p_uniform() -> None:
    rng = np.random.default_rng(0)
    p = np.array(
        [conformal_p_values(rng.integers(0, 4, 30), rng.integers(0, 4, 1), smooth=seed)[0] for seed in range(4000)]
    )
    assert stats.kstest(p, "uniform").pvalue > 0.01
    assert (
        conformal_p_values([1, 1], [1, 1], smooth=3).tolist() == conformal_p_values([1, 1], [1, 1], smooth=3).tolist()
    )


@pytest.mark.parametrize(("rate", "least"), [(0.01, 99), (0.05, 19), (0.1, 9), (0.001, 999), (0.5, 1), (0.3, 3)])
def test_the_smallest_sample(rate: float, least: int) -> None:
    assert smallest_sample(rate) == least
    assert Threshold.at(np.arange(least), rate).value == least - 1
    if least > 1:
        with pytest.raises(UserError, match=f"give at least {least}"):
            Threshold.at(np.arange(least - 1), rate)


def test_the_realised_rate_is_beta_distributed() -> None:
    n, rate = 199, 0.05
    told = realised_rate(n, rate)
    rng = np.random.default_rng(1)
    realised = 1 - np.sort(rng.random((4000, n)), axis=1)[:, n - 10]  # of uniform scores, above the 10th largest
    assert told.value == pytest.approx(realised.mean(), abs=0.001) == 10 / 200
    assert [told.low, told.high] == pytest.approx(np.quantile(realised, [0.025, 0.975]), abs=0.002)
    assert [told.low, told.high] == pytest.approx(stats.beta(10, 190).interval(0.95))
    assert told.n == n


def test_the_promise_holds_within_every_class() -> None:
    rng = np.random.default_rng(2)
    alarms = np.zeros((400, 3))
    for draw in range(400):
        classes = np.repeat([0, 1, 2], [60, 100, 40])
        spread = np.array([1.0, 5.0, 0.1])
        calibration = Calibration.of(rng.normal(size=200) * spread[classes], classes, minimum=19)
        new = np.repeat([0, 1, 2], 50)
        p = calibration.p_values(rng.normal(size=150) * spread[new], new)
        alarms[draw] = [(p[new == k] <= 0.05).mean() for k in range(3)]
    assert calibration.sizes == {0: 60, 1: 100, 2: 40}
    assert (alarms.mean(axis=0) <= 0.05 + 4 * np.sqrt(0.05 / 20_000)).all()
    assert (alarms.mean(axis=0) >= 0.03).all()


def test_classes_with_few_images_share_a_pool() -> None:
    classes = np.repeat([0, 1, 2, 3], [50, 4, 7, 30])
    scores = np.arange(91.0)
    calibration = Calibration.of(scores, classes, minimum=10)
    assert calibration.sizes == {-1: 11, 0: 50, 3: 30}
    pool = np.arange(50.0, 61.0)
    expected = [conformal_p_values(pool, [55.0])[0]] * 2 + [conformal_p_values(np.arange(50.0), [55.0])[0]]
    assert calibration.p_values([55.0, 55.0, 55.0], [1, 2, 0]).tolist() == expected
    assert Calibration.of(scores, classes, minimum=20).sizes == {-1: 41, 0: 50}  # class 3 has joined it
    assert calibration.p_values([55.0], [9]).tolist() == expected[:1]


def test_a_class_never_seen_is_judged_by_all_images_where_there_is_no_pool() -> None:
    calibration = Calibration.of(np.arange(40.0), np.repeat([0, 1], 20), minimum=5)
    assert calibration.p_values([39.5], [7]).tolist() == [1 / 41]
    with pytest.raises(UserError, match="give the predicted classes"):
        calibration.p_values([1.0])


def test_a_calibration_survives_its_arrays_and_the_order_of_its_scores() -> None:
    rng = np.random.default_rng(3)
    values, classes = rng.normal(size=80), rng.integers(0, 3, 80)
    order = rng.permutation(80)
    first = Calibration.of(values, classes, minimum=5)
    second = Calibration.from_arrays(Calibration.of(values[order], classes[order], minimum=5).arrays())
    new = rng.normal(size=9)
    assert first.p_values(new, classes[:9]).tolist() == second.p_values(new, classes[:9]).tolist()
    assert Calibration.from_arrays(Calibration.of(values).arrays()).known is None


@given(st.lists(st.lists(st.integers(-3, 3), min_size=1, max_size=9), min_size=1, max_size=5))
def test_merged_calibrations_are_that_of_all_scores(parts: list[list[int]]) -> None:
    merged = Calibration.of(parts[0])
    for part in parts[1:]:
        merged = merged.merge(Calibration.of(part))
    whole = Calibration.of(np.concatenate(parts))
    assert merged.scores.tolist() == whole.scores.tolist() and merged.groups.tolist() == whole.groups.tolist()
    with pytest.raises(UserError, match="share a pool"):
        whole.merge(Calibration.of(parts[0], np.zeros(len(parts[0]), dtype=int)))


def test_the_rate_over_all_classes_lies_between_those_of_each() -> None:
    classes = np.repeat([0, 1], [40, 400])
    told = Calibration.of(np.arange(440.0), classes, minimum=19).realised(0.05)
    assert realised_rate(40, 0.05).value <= told.value <= realised_rate(400, 0.05).value
    assert told.high - told.low < realised_rate(40, 0.05).high - realised_rate(40, 0.05).low
    assert told.n == 440


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: conformal_p_values([], [1.0]), "at least one"),
        (lambda: conformal_p_values([1.0], [np.nan]), "1 of 1 scores are NaN"),
        (lambda: smallest_sample(0.0), "above 0 and below 1"),
        (lambda: smallest_sample(1), "above 0 and below 1"),
        (lambda: Calibration.of([1.0, 2.0], minimum=3), "2 calibration images were given, but at least 3"),
        (lambda: Calibration.of([1.0, 2.0], [1]), "give one class each"),
    ],
)
def test_what_cannot_be_calibrated_is_said(call, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()
