"""Whether the classes of images have changed: the test of counts, and what chance alone does to them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2_contingency, hypergeom

from secondguess.accuracy.shift_tests import BLOCK, DIVISIONS, Change, ShiftTests, compare_counts, total_variation

NO_SETS = np.zeros((0, 1), dtype=np.int64)


def outcome(validation: np.ndarray, operation: np.ndarray, sets: np.ndarray | None = None) -> Change:
    """Of the test of classes, beside synthetic sets where the appearance has changed."""
    tests = ShiftTests(1.0, np.zeros(0), validation, np.zeros(0, dtype=np.int64), {})
    return tests._classes(operation, NO_SETS if sets is None else sets, sets is not None)


def test_two_classes_against_all_divisions_that_there_are() -> None:
    for first, second in (([9, 3], [40, 60]), ([1, 9], [30, 70]), ([5, 5], [50, 50])):
        ours, both = np.array(first), np.add(first, second)
        counts = np.arange(ours.sum() + 1)
        chance = hypergeom(both.sum(), both[0], ours.sum()).pmf(counts)
        off = np.abs(counts - ours.sum() * both[0] / both.sum())
        expected = chance[off >= off[ours[0]] - 1e-9].sum()
        _, p = compare_counts(ours, np.array(second))
        assert p == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / DIVISIONS) + 1e-3)


@pytest.mark.parametrize("images", [200, 20_000])
def test_many_images_of_every_class_against_chi_squared(images: int) -> None:
    """Where its distribution holds, drawn one by one or by classes."""
    rng = np.random.default_rng(images)
    for change in (0.0, 0.03, 0.06):
        shares = np.array([0.25, 0.25 + change, 0.25 - change, 0.25])
        ours, theirs = rng.multinomial(images, shares), rng.multinomial(5000, np.full(4, 0.25))
        expected = chi2_contingency([ours, theirs]).pvalue
        assert compare_counts(ours, theirs)[1] == pytest.approx(expected, abs=0.04)


@pytest.mark.parametrize(("classes", "validation", "images"), [(1000, 5000, 100), (100, 2000, 50), (10, 500, 60)])
def test_the_same_classes_are_called_changed_as_rarely_as_stated(classes: int, validation: int, images: int) -> None:
    """Classes of very different frequency, many of them with one image or none: chi-squared was off fifteenfold."""
    rng, changed = np.random.default_rng(5), 0
    for _ in range(200):
        shares = rng.dirichlet(np.ones(classes))
        changed += bool(outcome(rng.multinomial(validation, shares), rng.multinomial(images, shares)).changed)
    assert changed <= 6  # of 2 expected at .01; more has a probability of less than 1 in 200


@pytest.mark.parametrize(("classes", "validation", "images"), [(1000, 5000, 300), (100, 2000, 100), (10, 500, 60)])
def test_other_classes_are_noticed_and_the_distance_is_theirs(classes: int, validation: int, images: int) -> None:
    rng, found, truth = np.random.default_rng(1), [], []
    for _ in range(20):
        before, now = rng.dirichlet(np.ones(classes)), rng.dirichlet(np.ones(classes))
        found.append(outcome(rng.multinomial(validation, before), rng.multinomial(images, now)))
        truth.append(float(total_variation(before, now)))
    assert sum(bool(one.changed) for one in found) >= 18
    assert np.mean([one.distance for one in found]) == pytest.approx(np.mean(truth), abs=0.06)


def test_among_many_images_a_small_change_is_significant_and_none() -> None:
    rng = np.random.default_rng(0)
    found = outcome(rng.multinomial(40_000, np.full(4, 0.25)), rng.multinomial(40_000, [0.28, 0.22, 0.25, 0.25]))
    assert found.p < 0.01 and found.distance == pytest.approx(0.03, abs=0.01) and found.changed is False


def test_one_class_and_equal_counts_are_no_change() -> None:
    assert compare_counts(np.array([7, 0]), np.array([30, 0])) == (0.0, 1.0)
    assert compare_counts(np.array([10, 20]), np.array([100, 200])) == (0.0, 1.0)


def test_draws_in_blocks_and_one_by_one_are_the_same_test(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    ours, theirs = rng.multinomial(60, np.full(30, 1 / 30)), rng.multinomial(500, np.full(30, 1 / 30))
    whole = compare_counts(ours, theirs)
    assert compare_counts(ours, theirs) == whole
    monkeypatch.setattr("secondguess.accuracy.shift_tests.BLOCK", 1000)  # of which the images are no part any more
    blocks = compare_counts(ours, theirs)
    assert BLOCK > 1000 and blocks == pytest.approx(whole, abs=0.05)


def mistaken(shares: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """How often classes are predicted that are as frequent as this, where three of ten predictions are wrong."""
    return np.asarray(0.7 * shares + 0.3 * rng.dirichlet(np.full(len(shares), 0.3)))


@pytest.mark.parametrize(
    ("classes", "validation", "images"), [(10, 1000, 50), (100, 2000, 50), (100, 2000, 2000), (300, 3000, 150)]
)
def test_beside_mistakes_classes_are_compared_with_sets_of_as_many_images(
    classes: int, validation: int, images: int
) -> None:
    """Sets are of 300 images: fewer in operation move farther by chance, more of them less far."""
    rng = np.random.default_rng(2)
    same, other = [], []
    for _ in range(40):
        shares = rng.dirichlet(np.ones(classes))
        known = rng.multinomial(validation, shares)
        sets = np.stack([rng.multinomial(300, mistaken(known / validation, rng)) for _ in range(40)])
        same.append(outcome(known, rng.multinomial(images, mistaken(shares, rng)), sets))
        now = rng.dirichlet(np.ones(classes))
        other.append(outcome(known, rng.multinomial(images, mistaken(now, rng)), sets))
    assert sum(one.changed is True for one in same) <= 5  # of 2 expected at .05
    assert sum(one.changed is True for one in other) >= 30
    assert all("of 40 synthetic sets" in one.test for one in same)


def test_of_too_few_sets_nothing_is_said() -> None:
    known, now = np.array([500, 500]), np.array([5, 95])
    found = outcome(known, now, np.tile([150, 150], (9, 1)))
    assert (found.changed, found.p) == (None, 0.1)
    assert outcome(known, now, np.zeros((0, 2), dtype=np.int64)).changed is None
    assert outcome(known, now, np.tile([150, 150], (20, 1))).changed is True
