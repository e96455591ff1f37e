from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.stats import spearmanr

from secondguess import UserError
from secondguess.metrics import (
    aurc,
    aurc_interval,
    detection_columns,
    excess_aurc,
    excess_aurc_interval,
    risk_at_coverage,
    risk_coverage,
    spearman,
    spearman_interval,
)


def by_hand(order):
    """The mean risk of the first k predictions, which are wrong or not, over all k."""
    return float(np.mean([np.mean(order[:k]) for k in range(1, len(order) + 1)]))


@pytest.mark.parametrize("seed", range(5))
def test_the_area_is_the_mean_risk_of_every_prefix(seed):
    rng = np.random.default_rng(seed)
    scores, wrong = rng.random(60), rng.random(60) < 0.3
    assert aurc(scores, wrong) == pytest.approx(by_hand(wrong[np.argsort(scores)]))
    best = np.sort(wrong)
    assert excess_aurc(scores, wrong) == pytest.approx(by_hand(wrong[np.argsort(scores)]) - by_hand(best))


def test_ties_count_as_the_mean_over_all_orders():
    scores, wrong = np.array([1.0, 0.0, 1.0, 1.0, 2.0]), np.array([True, False, False, True, True])
    orders = [[1, *middle, 4] for middle in permutations((0, 2, 3))]
    assert aurc(scores, wrong) == pytest.approx(np.mean([by_hand(wrong[order]) for order in orders]))


def test_the_best_order_has_no_excess_and_chance_has_the_error_rate():
    rng = np.random.default_rng(0)
    wrong = rng.random(20_000) < 0.2
    assert excess_aurc(wrong + 0.1 * rng.random(20_000), wrong) == pytest.approx(0, abs=1e-12)
    assert aurc(rng.random(20_000), wrong) == pytest.approx(0.2, abs=0.02)
    assert aurc(np.zeros(20_000), wrong) == pytest.approx(wrong.mean())


def test_the_curve_accepts_equal_scores_together():
    curve = risk_coverage([0.0, 1.0, 1.0, np.inf], [False, True, False, True])
    assert curve.thresholds.tolist() == [0.0, 1.0, np.inf]
    assert curve.coverage.tolist() == [0.25, 0.75, 1.0]
    assert curve.risk.tolist() == [0.0, pytest.approx(1 / 3), 0.5]
    assert risk_at_coverage([0.0, 1.0, 1.0, np.inf], [False, True, False, True], 0.5) == pytest.approx(1 / 3)


@pytest.mark.parametrize(("measure", "number"), [(aurc_interval, aurc), (excess_aurc_interval, excess_aurc)])
def test_intervals_hold_the_number(measure, number):
    rng = np.random.default_rng(1)
    scores = rng.random(300)
    wrong = rng.random(300) < 0.5 * scores
    found = measure(scores, wrong, resamples=200)
    assert found.value == number(scores, wrong)
    assert found.low < found.value < found.high


@pytest.mark.parametrize("seed", range(5))
def test_rank_correlation_is_scipys(seed):
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 6, 80)
    second = first + rng.integers(0, 5, 80)
    assert spearman(first, second) == pytest.approx(spearmanr(first, second).statistic)
    found = spearman_interval(first, second, resamples=100)
    assert found.low < found.value < found.high


def test_what_orders_nothing_correlates_with_nothing():
    assert spearman(np.zeros(5), np.arange(5)) == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: aurc([1.0, 2.0], [True]), "2 scores but 1 answers"),
        (lambda: aurc([1.0, 2.0], [0.5, 1.0]), "give one true or false each"),
        (lambda: risk_at_coverage([1.0], [True], 0.0), "give a share above 0 and up to 1"),
        (lambda: spearman([1.0, 2.0], [1.0]), "2 numbers cannot be compared with 1"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()


def test_columns_compare_mistakes_stress_sets_and_mistakes_within_them():
    nominal, corrupted, invalid = np.arange(6.0), np.arange(10.0, 15.0), np.arange(20.0, 22.0)
    known = {
        "nominal": (np.array([1, 1, 1, 0, 0, 0], bool), np.array([0, 0, 0, 1, 1, 0], bool)),
        "corrupted": (np.array([1, 1, 0, 0, 0], bool), np.array([0, 0, 1, 1, 1], bool)),
        "invalid": (np.zeros(2, bool), np.ones(2, bool)),
    }
    found = detection_columns(nominal, {"corrupted": corrupted, "invalid": invalid}, known)
    assert list(found) == ["mistakes", "corrupted", "corrupted.mistakes", "invalid"]
    assert [side.tolist() for side in found["mistakes"]] == [[0, 1, 2], [3, 4]]
    assert [side.tolist() for side in found["corrupted"]] == [nominal.tolist(), corrupted.tolist()]
    assert [side.tolist() for side in found["corrupted.mistakes"]] == [[10, 11], [12, 13, 14]]
    assert list(detection_columns(nominal, {"invalid": invalid}, {})) == ["invalid"]
