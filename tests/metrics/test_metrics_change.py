"""Referees: statsmodels' McNemar, Agresti-Caffo and Holm, all pairs for DeLong, and simulations under the null."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from statsmodels.stats.contingency_tables import mcnemar as referee_mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import confint_proportions_2indep

from secondguess.errors import UserError
from secondguess.metrics import auroc, auroc_change, bootstrap_change, holm, mcnemar, share_change

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(("lost", "gained"), [(0, 0), (0, 1), (3, 9), (12, 4), (7, 7), (250, 190)])
def test_mcnemar_is_that_of_statsmodels(lost, gained):
    assert mcnemar(lost, gained) == pytest.approx(referee_mcnemar([[5, lost], [gained, 9]], exact=True).pvalue)


def test_holm_is_that_of_statsmodels():
    p_values = np.array([0.04, 0.001, 0.02, 0.001, 0.9, 0.012])
    np.testing.assert_allclose(holm(p_values), multipletests(p_values, method="holm")[1])
    assert holm([]).shape == (0,)


def test_an_unpaired_share_has_the_interval_of_agresti_and_caffo():
    first, second = np.arange(80) < 60, np.arange(110) < 70
    found = share_change(first, second, paired=False)
    expected = confint_proportions_2indep(70, 110, 60, 80, method="agresti-caffo", compare="diff")
    assert (found.interval.low, found.interval.high) == pytest.approx(expected)
    assert (found.before, found.after) == (60 / 80, 70 / 110)
    assert found.interval.value == pytest.approx(70 / 110 - 60 / 80)
    assert share_change(second, first, paired=False).p_value == pytest.approx(found.p_value)


def test_a_paired_share_is_as_computed_by_hand():
    before = np.array([True] * 90 + [False] * 10)
    after = before.copy()
    after[:2], after[-6:] = False, True  # two lost, six gained
    found = share_change(before, after)
    assert (found.before, found.after, found.interval.value) == pytest.approx((0.9, 0.94, 0.04))
    half = 1.959964 * np.sqrt(2.5 + 6.5 - 4**2 / 102) / 102
    assert (found.interval.low, found.interval.high) == pytest.approx((4 / 102 - half, 4 / 102 + half), rel=1e-6)
    assert found.p_value == pytest.approx(2 * (1 + 8 + 28) / 2**8)
    assert found.interval.n == 100


def test_two_equal_models_leave_room_for_a_difference():
    right = np.ones(50, dtype=bool)
    found = share_change(right, right)
    assert found.p_value == 1 and found.interval.low < 0 < found.interval.high


def test_a_paired_test_sees_what_an_unpaired_one_does_not():
    before = RNG.random(1000) < 0.9
    after = before.copy()
    after[np.flatnonzero(before)[:12]] = False
    assert share_change(before, after).p_value < 0.001 < 0.3 < share_change(before, after, paired=False).p_value


def delong(nominal, other):
    """Every pair: the AUROC, and the placements of each side."""
    wins = (other[:, None] > nominal) + (other[:, None] == nominal) / 2
    return wins.mean(), wins.mean(axis=0), wins.mean(axis=1)


def test_auroc_change_is_delong_by_all_pairs():
    other = np.arange(90) < 40
    first = np.round(RNG.normal(size=90) + other, 1)  # with ties
    second = np.round(first + RNG.normal(size=90), 1)
    found = auroc_change((first, other, np.arange(90)), (second, other, np.arange(90)))
    (area, quiet, loud), (area2, quiet2, loud2) = (delong(one[~other], one[other]) for one in (first, second))
    error = np.sqrt(np.var(quiet2 - quiet) / 50 + np.var(loud2 - loud) / 40)
    assert (found.before, found.after) == pytest.approx((area, area2))
    assert found.before == pytest.approx(auroc(first[~other], first[other]))
    assert found.interval.high - found.interval.value == pytest.approx(1.959964 * error, rel=1e-6)
    apart = auroc_change((first, other, np.arange(90)), (second, other, 90 + np.arange(90)))
    error = np.sqrt((np.var(quiet) + np.var(quiet2)) / 50 + (np.var(loud) + np.var(loud2)) / 40)
    assert apart.interval.high - apart.interval.value == pytest.approx(1.959964 * error, rel=1e-6)
    assert apart.interval.n == 180 and apart.p_value > found.p_value


def test_auroc_change_of_mistakes_agrees_with_the_bootstrap():
    """An image may be a mistake of one model and not of the other; resampling images is the referee."""
    n = 400
    hard = RNG.random(n)
    wrong, wrong2 = hard + 0.5 * RNG.random((2, n)) > 1.1
    scores, scores2 = hard + 0.8 * RNG.random((2, n))
    found = auroc_change((scores, wrong, np.arange(n)), (scores2, wrong2, np.arange(n)))
    drawn = bootstrap_change(
        lambda values, bad: auroc(values[~bad], values[bad]), (scores, wrong), (scores2, wrong2), resamples=400
    )
    assert found.interval.value == drawn.interval.value
    assert found.interval.high == pytest.approx(drawn.interval.high, abs=0.01)


@pytest.mark.parametrize("paired", [True, False])
def test_bootstrap_change_of_a_mean_has_its_standard_error(paired):
    before = RNG.normal(size=300)
    after = before + RNG.normal(0.1, 0.3, size=300)
    found = bootstrap_change(np.mean, [before], [after], paired=paired, resamples=2000)
    variance = np.var(after - before) if paired else np.var(after) + np.var(before)
    half = found.interval.high - found.interval.value
    assert half == pytest.approx(1.96 * np.sqrt(variance / 300), rel=0.06)
    assert found.interval.value == pytest.approx(after.mean() - before.mean())
    assert found == bootstrap_change(np.mean, [before], [after], paired=paired, resamples=2000)


def test_many_rows_cost_what_few_do_and_spread_as_they_should():
    before = RNG.normal(size=100_000)
    found = bootstrap_change(np.mean, [before], [before[::-1]], paired=False, resamples=200)
    assert found.interval.high == pytest.approx(1.96 * np.sqrt(2 / 100_000), rel=0.2)


@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_no_change_is_surer_than_if_every_image_pointed_one_way(n):
    """Referees: McNemar's test of images that were all lost, Fisher's of other images; every swap, counted."""
    ones, zeros = np.ones(n), np.zeros(n)
    lost = share_change(ones > 0, zeros > 0).p_value
    for step in (1.0, 1e-7):  # and with an error that is all but nothing
        for noise in (0.0, 1e-9):
            before = 0.1 + noise * RNG.random(n)
            found = bootstrap_change(np.mean, [before], [before + step], resamples=50)
            assert found.p_value == pytest.approx(lost), (step, noise)
    swaps = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    assert lost == pytest.approx(np.mean(np.abs(1 - 2 * swaps.mean(axis=1)) >= 1) if n > 1 else 1.0)
    for m in (n, n + 3):
        apart = bootstrap_change(np.mean, [ones], [np.zeros(m)], paired=False, resamples=50)
        assert apart.p_value == pytest.approx(share_change(ones > 0, np.zeros(m) > 0, paired=False).p_value)


def test_images_with_the_same_answer_make_no_change_surer():
    """As in McNemar's test, whose referee is every swap."""
    before, after = np.zeros(10), np.zeros(10)
    after[:4] = 1.0
    found = bootstrap_change(np.max, [before], [after], resamples=50)  # of which the error says too little
    swaps = (np.arange(2**10)[:, None] >> np.arange(10)) & 1
    kept = np.where(swaps, before, after).max(axis=1) - np.where(swaps, after, before).max(axis=1)
    assert found.p_value >= 2**-3 and np.mean(np.abs(kept) >= 1) == 2**-3
    other = np.arange(10) < 5
    dead = auroc_change((other * 1.0, other, np.arange(10)), (np.zeros(10), other, np.arange(10)))
    assert dead.p_value == 2**-4, "those that scored nothing still do"


def test_no_change_is_no_difference_however_little_it_varies():
    flat, less = np.full(60, 0.1), np.full(50, 0.1)
    assert flat.mean() != less.mean(), "else this says nothing about rounding"
    assert bootstrap_change(np.mean, [flat], [less], paired=False, resamples=50).p_value == 1
    assert bootstrap_change(np.mean, [flat], [flat], resamples=50).p_value == 1
    other, images = np.arange(10) < 5, np.arange(10)
    assert auroc_change((other * 1.0, other, images), (other * 2.0, other, images)).p_value == 1


def test_an_auroc_without_an_error_of_its_own_is_no_certainty():
    """It falls from 1 to 0 or to 1/2: nothing that an image contributes says how sure that is."""
    for n in (2, 5, 30):
        other = np.arange(2 * n) < n
        for scores in (-1.0 - other, np.full(2 * n, -1.0)):
            for images, ways in ((np.arange(2 * n), 2 ** (2 * n)), (np.arange(2 * n) + 2 * n, comb(4 * n, 2 * n))):
                found = auroc_change((other * 1.0, other, np.arange(2 * n)), (scores, other, images))
                assert found.interval.low == found.interval.high < 0
                assert found.p_value == pytest.approx(2 / ways)
    half = np.r_[np.arange(7), 100 + np.arange(3)]  # seven of ten images are the same
    other = np.arange(10) < 5
    found = auroc_change((other * 1.0, other, np.arange(10)), (-1.0 - other, other, half))
    assert found.p_value == pytest.approx(2 / (2**7 * comb(6, 3)))


def test_no_difference_is_shown_too_often_where_there_is_none():
    """300 pairs of equally good models: exact tests keep below the level, the others close to it."""
    shares, areas, means = np.zeros((3, 300))
    other = np.arange(200) < 100
    for trial in range(300):
        hard = RNG.random(200)
        first, second = (hard + 0.4 * RNG.random((2, 200))) < 1
        shares[trial] = share_change(first, second).p_value
        common, noise = RNG.normal(size=200) + other, RNG.normal(size=(2, 200))
        areas[trial] = auroc_change(
            (common + noise[0], other, np.arange(200)), (common + noise[1], other, np.arange(200))
        ).p_value
        means[trial] = bootstrap_change(np.mean, [noise[0]], [noise[1]], resamples=60).p_value
    assert (shares < 0.05).mean() <= 0.05
    assert 0.02 <= (areas < 0.05).mean() <= 0.085
    assert 0.02 <= (means < 0.05).mean() <= 0.085


def test_the_interval_of_a_paired_share_covers():
    covered = []
    for _ in range(1000):
        before = RNG.random(100) < 0.8
        after = np.where(RNG.random(100) < 0.1, RNG.random(100) < 0.6, before)  # expected change: -0.02
        found = share_change(before, after).interval
        covered.append(found.low <= 0.1 * (0.6 - 0.8) <= found.high)
    assert 0.93 <= np.mean(covered) <= 0.99


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: share_change([True], [True, False]), "1 images before cannot be paired with 2 after"),
        (lambda: share_change([1, 0], [True, False]), "One true or false for each image is needed, not int64"),
        (lambda: auroc_change(([1.0, 2.0], [True, True], [0, 1]), ([1.0], [True], [0])), "two kinds of images"),
        (lambda: mcnemar(-1, 2), "neither can be negative"),
        (
            lambda: bootstrap_change(np.mean, [[1.0]], [[2.0]], resamples=1),
            "resamples is 1, but one resample alone has no",
        ),
        (lambda: bootstrap_change(np.mean, [[1.0]], [[2.0]], resamples=0), "resamples is 0; give a whole number"),
        (lambda: bootstrap_change(np.mean, [[]], [[]]), "is empty; give at least one row"),
        (lambda: bootstrap_change(np.mean, [[1.0]], [[]], paired=False), "is empty; give at least one row"),
        (
            lambda: bootstrap_change(np.dot, [[1.0], [1.0, 2.0]], [[1.0], [1.0]]),
            r"shapes \(1,\), \(2,\); give arrays with",
        ),
        (
            lambda: bootstrap_change(np.mean, [[1.0, 2.0]], [[1.0, np.nan]], resamples=9),
            r"is 1\.5 before and nan after, and its change not finite on \d of 9 resamples; give a statistic",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()
