from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import optimize, stats

from secondguess.errors import UserError
from secondguess.metrics import discovery


@pytest.fixture
def world():
    rng = np.random.default_rng(0)
    features, confidence = rng.normal(size=(120, 3)), rng.uniform(0.65, 1, 120)
    queries = rng.permutation(120)[:20]
    return features, confidence, queries, rng.random(20) < 0.4


def test_the_ratio_by_hand():
    errors, confidence = np.array([True, False, True]), np.array([0.9, 0.8, 0.7])
    assert discovery.sdr_curve(errors, confidence) == pytest.approx([1 / 0.1, 1 / 0.3, 2 / 0.6])
    assert discovery.sdr(errors, confidence) == pytest.approx(2 / 0.6)
    assert discovery.discovery_ratio(errors, [0.5, 0.5, 1.0]) == pytest.approx(1.0)
    assert discovery.lift(errors, confidence, errors, confidence) == 1.0


def test_a_confidence_of_one_is_no_division_by_zero():
    assert discovery.sdr([False], [1.0]) == 0
    assert discovery.sdr([True], [1.0]) == pytest.approx(1 / discovery.LEAST_CHANCE)


def test_the_pooled_curve_is_the_ratio_of_sums():
    rng = np.random.default_rng(1)
    errors, chances = rng.random((7, 9)) < 0.3, rng.uniform(0.01, 0.4, (7, 9))
    pooled = discovery.pooled_curve(errors, chances)
    for b in range(9):
        assert pooled[b] == pytest.approx(errors[:, : b + 1].sum() / chances[:, : b + 1].sum())
    assert discovery.discovery_curve(errors, chances)[3] == pytest.approx(
        discovery.discovery_curve(errors[3], chances[3])
    )


def test_random_search_is_expected_to_reach_the_ratio_of_the_pool():
    rng = np.random.default_rng(2)
    confidence = rng.uniform(0.65, 1, 4000)
    errors = rng.random(4000) < np.minimum(1, 2.5 * (1 - confidence))
    drawn = np.stack([rng.permutation(4000)[:50] for _ in range(400)])
    pooled = discovery.pooled_curve(errors[drawn], 1 - confidence[drawn])[-1]
    assert pooled == pytest.approx(discovery.sdr(errors, confidence), abs=0.15)


def test_the_number_of_errors_is_poisson_binomial():
    chances = np.array([0.1, 0.5, 0.3, 0.9])
    expected = np.zeros(5)
    for outcome in product((0, 1), repeat=4):
        expected[sum(outcome)] += np.prod(np.where(outcome, chances, 1 - chances))
    assert discovery.errors_distribution(chances) == pytest.approx(expected)
    assert discovery.errors_distribution(np.full(30, 0.2)) == pytest.approx(stats.binom.pmf(np.arange(31), 30, 0.2))


def test_equal_chances_give_the_binomial_test_and_the_interval_of_clopper_and_pearson():
    errors = np.arange(40) < 11
    referee = stats.binomtest(11, 40, 0.15, alternative="greater")
    assert discovery.discovery_p_value(errors, np.full(40, 0.15)) == pytest.approx(referee.pvalue)
    bounds = stats.binomtest(11, 40, 0.15).proportion_ci(0.9)
    found = discovery.discovery_ratio_interval(errors, np.full(40, 0.15), level=0.9)
    assert (found.low, found.high) == pytest.approx((bounds.low / 0.15, bounds.high / 0.15), rel=1e-6)
    assert found.value == pytest.approx(11 / 6)
    likely = discovery.expected_errors_interval(np.full(40, 0.15), 0.9)
    low, high = int(likely.low), int(likely.high)
    assert likely.value == discovery.expected_errors(np.full(40, 0.15)) == pytest.approx(6.0)
    assert (likely.n, likely.level) == (40, 0.9)
    assert (low, high) == (stats.binom.ppf(0.05, 40, 0.15), stats.binom.ppf(0.95, 40, 0.15))


@pytest.mark.parametrize("found", [0, 6])
def test_the_interval_at_its_ends(found):
    chances = np.linspace(0.05, 0.4, 6)
    interval = discovery.discovery_ratio_interval(np.arange(6) < found, chances)
    assert interval.low <= interval.value <= interval.high
    assert (interval.low == 0) == (found == 0)
    assert np.isfinite(interval.high)


def test_the_interval_is_that_of_the_ratio_when_a_factor_makes_errors_certain():
    chances = np.array([0.4, 1e-3, 0.05, 1e-7, 0.3])
    found = discovery.discovery_ratio_interval(np.array([True, True, False, True, True]), chances)
    patterns = np.array(list(product([False, True], repeat=5)))

    def expected_and_tails(factor):
        p = np.minimum(1, factor * chances)
        weights = np.where(patterns, p, 1 - p).prod(axis=1)
        counts = patterns.sum(axis=1)
        return p.sum() / chances.sum(), weights[counts >= 4].sum(), weights[counts <= 4].sum()

    low = optimize.brentq(lambda log: expected_and_tails(np.exp(log))[1] - 0.025, 0, 20)
    high = optimize.brentq(lambda log: expected_and_tails(np.exp(log))[2] - 0.025, 0, 20)
    assert np.exp(low) > found.value, "the factors themselves would miss the ratio"
    assert found.low == pytest.approx(expected_and_tails(np.exp(low))[0], rel=1e-6)
    assert found.high == pytest.approx(expected_and_tails(np.exp(high))[0], rel=1e-6)


def test_the_interval_always_holds_its_ratio():
    rng = np.random.default_rng(8)
    for number in range(300):
        count = int(rng.integers(1, 30))
        chances = 10.0 ** rng.uniform(-9, 0, count)
        errors = rng.random(count) < rng.random()
        found = discovery.discovery_ratio_interval(errors, chances, level=(0.1, 0.5, 0.95)[number % 3])
        assert found.low <= found.value <= found.high
        assert found.high <= count / np.maximum(chances, discovery.LEAST_CHANCE).sum() * (1 + 1e-9)


def test_the_interval_covers():
    rng, covered = np.random.default_rng(3), 0
    chances = rng.uniform(0.02, 0.2, 50)
    for _ in range(200):
        found = discovery.discovery_ratio_interval(rng.random(50) < 2 * chances, chances, level=0.9)
        covered += found.low <= 2 <= found.high
    assert covered >= 180


def test_spread_by_brute_force_and_never_increasing(world):
    features, _, queries, _ = world
    pairs = np.linalg.norm(features[:, None] - features, axis=2)
    assert discovery.largest_distance(features) == pytest.approx(pairs.max())
    found = discovery.spread_curve(features, queries)
    for b in range(len(queries)):
        assert found[b] == pytest.approx((pairs / pairs.max())[:, queries[: b + 1]].min(axis=1).mean())
    assert (np.diff(found) <= 0).all()


def test_spread_is_that_of_the_images_asked_about(world):
    features = world[0]
    centre = np.argsort(np.linalg.norm(features, axis=1))[:5]
    assert discovery.spread_curve(features, centre)[-1] > discovery.spread_curve(features, np.arange(0, 120, 24))[-1]


def test_largest_distance_in_tiles_and_of_one_point():
    rng = np.random.default_rng(4)
    features = rng.normal(size=(2300, 2))
    features[0], features[-1] = (-50, 0), (50, 0)
    assert discovery.largest_distance(features) == pytest.approx(100)
    assert discovery.largest_distance(np.zeros((3, 2))) == 1.0


def test_coverage_by_brute_force_and_never_decreasing(world):
    features, confidence, queries, errors = world
    pairs = np.linalg.norm(features[:, None] - features, axis=2)
    similar = np.exp(-((pairs / pairs.max()) ** 2) / 0.02)
    found = discovery.coverage_curve(features, confidence, queries, errors, sigma=0.02)
    for b in range(len(queries)):
        seen = queries[: b + 1][errors[: b + 1]]
        utility = confidence @ similar[:, seen].max(axis=1) if len(seen) else 0.0
        assert found[b] == pytest.approx(utility)
    assert (np.diff(found) >= 0).all()


def test_apfd_of_a_whole_order_is_the_textbook_formula():
    rng = np.random.default_rng(5)
    errors = rng.random(60) < 0.2
    ranks = np.flatnonzero(errors) + 1
    expected = 1 - ranks.sum() / (len(ranks) * 60) + 1 / 120
    assert discovery.apfd_curve(errors, int(errors.sum()))[-1] == pytest.approx(expected)


def test_apfd_of_a_perfect_search_is_half_of_what_is_left_to_gain():
    curve = discovery.apfd_curve(np.ones(10, dtype=bool), 500)
    assert curve == pytest.approx([0.5] * 10)
    assert discovery.apfd_curve(np.zeros(10, dtype=bool), 500) == pytest.approx([0.0] * 10)


def test_errors_per_hundred():
    assert discovery.errors_per_hundred_curve([True, False, True, False]) == pytest.approx([100, 50, 200 / 3, 50])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: discovery.sdr([1, 0], [0.9, 0.9]), "say with one boolean for each query"),
        (lambda: discovery.sdr([True], [1.2]), "confidences leave"),
        (lambda: discovery.discovery_ratio([True], [1.2]), "chances leave"),
        (lambda: discovery.discovery_ratio([True, False], [0.2]), "one chance for each query"),
        (lambda: discovery.pooled_curve([True], [0.2]), "one row for each repetition"),
        (lambda: discovery.apfd_curve([True, True], 1), "2 errors were found, but the pool is said to hold 1"),
        (lambda: discovery.spread_curve(np.zeros((3, 2)), [3]), r"positions in 0\.\.2"),
        (lambda: discovery.largest_distance(np.zeros((0, 2))), "features have shape"),
        (lambda: discovery.lift([True], [0.9], [False], [0.9]), "no error in the whole pool"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(UserError, match=message):
        call()
