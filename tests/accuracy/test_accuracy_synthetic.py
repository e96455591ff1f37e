"""Accuracy from look-alikes: learnt from shifted copies, tried on other kinds of shift."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ks_2samp
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import LogisticRegression

from secondguess.accuracy import (
    Estimator,
    ShiftedCopies,
    ShiftReport,
    SyntheticShifts,
    ValidationAccuracy,
    learnt_shifts,
)
from secondguess.accuracy import try_estimators as tried
from secondguess.accuracy._forest import Forest
from secondguess.accuracy._synthetic_sets import WAYS, Copies, draw_sets
from secondguess.accuracy.shift_tests import measures, weighted_ks
from secondguess.errors import UserError
from secondguess.images import ImageSet, load
from secondguess.model.classifier import Classifier
from secondguess.model.observation import Observation
from secondguess.stress import corrupt
from secondguess.stress.corruptions import COLOUR, MNIST_C

World = Callable[..., Observation]


@pytest.fixture(scope="module")
def digits() -> tuple[Classifier, ImageSet, ImageSet]:
    """A linear classifier of digits, validation images and those of operation."""
    data = load("digits")
    flat = data.train.materialise().reshape(len(data.train), -1)
    fitted = LogisticRegression(C=0.05, max_iter=300).fit(flat, data.train.labels)
    classifier = Classifier(lambda images: fitted.predict_proba(images.reshape(len(images), -1)))
    validation, operation = data.test.split(0.5, seed=0)
    return classifier, validation, operation


@pytest.fixture(scope="module")
def copies(digits: tuple[Classifier, ImageSet, ImageSet]) -> ShiftedCopies:
    classifier, validation, _ = digits
    return ShiftedCopies.observe(classifier, validation, seed=1)


@pytest.fixture(scope="module")
def fitted(digits: tuple[Classifier, ImageSet, ImageSet], copies: ShiftedCopies) -> SyntheticShifts:
    classifier, validation, _ = digits
    return SyntheticShifts().fit(classifier.observe(validation), None, copies)


def spoilt(images: ImageSet, kind: str, severity: int) -> ImageSet:
    made = corrupt(images.materialise(), kind, severity=severity, seed=5)
    return ImageSet.from_arrays(made, images.labels, class_names=images.class_names, layout="NCHW")


def test_nothing_is_learnt_from_what_is_tested_on() -> None:
    for channels, published in ((1, MNIST_C), (3, COLOUR)):
        shifts = learnt_shifts(channels)
        assert not {one.kind for one in shifts} & {*published, "identity"}
        assert len(shifts) == 3 * len({one.kind for one in shifts}) > 45
        assert {one.strength for one in shifts if one.severity is None} == {0.33, 0.67, 1.0}


def test_copies_are_the_shifted_images(digits: tuple[Classifier, ImageSet, ImageSet], copies: ShiftedCopies) -> None:
    classifier, validation, _ = digits
    number = next(place for place, one in enumerate(copies.shifts) if one.kind == "gaussian_blur")
    seen, shift = copies.with_images(number), copies.shifts[number]
    before = validation.take(copies.rows).materialise()
    expected = before + shift.strength * (corrupt(before, shift.kind, severity=shift.severity, seed=1) - before)
    assert np.abs(seen.images.materialise() - expected).max() <= 0.5 / 255 + 1e-6
    assert classifier.observe(seen.images).probabilities == pytest.approx(seen.probabilities)
    assert (copies.seen[number].labels == validation.labels[copies.rows]).all() and copies.seen[number].images is None


def test_sets_have_the_classes_and_the_share_that_they_say() -> None:
    labels = np.repeat(np.arange(4), 50)
    nominal = (np.zeros(200), np.zeros(200), labels)
    twice = np.concatenate([labels, labels])
    copied = Copies((np.ones(400), np.ones(400), twice), twice, np.repeat([0, 1], 200), np.repeat([0, 1], 200))
    sets = list(draw_sets(nominal, labels, copied, seed=0))
    assert [one.way for one in sets[:3]] == ["none", "classes", "classes"] and {one.way for one in sets} == set(WAYS)
    assert [one.kind for one in sets[150:]] == [0] * 4 + [1] * 4
    for one in sets:
        shares = np.bincount(one.labels, minlength=4) / 300
        assert (np.abs(shares - 0.25).max() < 0.1) == (one.way in ("none", "appearance")) or one.way in (
            "classes",
            "both",
        )
        assert one.rows[0].mean() in ((0.0,) if one.kind < 0 else (0.5, 1.0))
    assert all(
        np.array_equal(one.labels, other.labels)
        for one, other in zip(sets, draw_sets(nominal, labels, copied, seed=0), strict=True)
    )


def test_the_forest_is_scikit_learns_with_the_variance_in_its_leaves() -> None:
    rng = np.random.default_rng(0)
    examples, points = rng.random((80, 3)), rng.random((7, 3))
    values = examples.sum(axis=1)
    forest = Forest.fit(examples, values, trees=30, leaf=3, seed=2)
    referee = ExtraTreesRegressor(30, min_samples_leaf=3, random_state=2).fit(examples, values)
    mean, variance = forest.predict(points)
    assert mean == pytest.approx(referee.predict(points))
    weights = np.zeros((7, 80))
    for tree in referee.estimators_:
        same = tree.apply(points)[:, None] == tree.apply(examples)[None]
        weights += same / same.sum(axis=1, keepdims=True) / 30
    assert variance == pytest.approx(weights @ values**2 - (weights @ values) ** 2)
    apart = np.linalg.norm((points[:, None] - examples) / examples.std(axis=0), axis=2)
    assert forest.distance(points, 5) == pytest.approx(np.sort(apart, axis=1)[:, 4])


def test_kinds_that_were_not_learnt_are_estimated(digits, fitted: SyntheticShifts) -> None:
    """Eight shifts of four kinds: nearly all intervals cover; where it has a narrow one, the number is near."""
    classifier, _, operation = digits
    errors, narrow, covers = [], [], []
    for kind in ("shot_noise", "rotate", "fog", "zigzag"):
        for severity in (1, 3):
            seen = classifier.observe(spoilt(operation, kind, severity))
            found, truth = fitted.estimate(seen), seen.correct.mean()
            covers.append(found.low <= truth <= found.high)
            errors.append(abs(found.value - truth))
            narrow.append(found.high - found.low <= 0.3)
    assert sum(covers) >= 7 and np.mean(errors) < 0.13
    assert any(narrow) and max(error for error, sure in zip(errors, narrow, strict=True) if sure) < 0.1


def test_it_knows_its_errors(digits, copies: ShiftedCopies, fitted: SyntheticShifts) -> None:
    classifier, validation, _ = digits
    seen = classifier.observe(validation)
    others = [fitted, ValidationAccuracy().fit(seen)]
    rows = np.sort(np.random.default_rng(copies.seed).permutation(len(validation))[:40])  # as if there were 40 copies
    few = replace(copies, rows=rows, images=validation.take(rows), seen=tuple(one.take(rows) for one in copies.seen))
    found = tried(others, seen, shifted=few, seed=copies.seed)
    trials = {name: {one.shift: one for one in made} for name, made in found.items()}
    assert list(trials["synthetic_shifts"]) == list(trials["validation_accuracy"]) == list(WAYS)
    for way in ("appearance", "both"):
        assert trials["synthetic_shifts"][way].error < trials["validation_accuracy"][way].error
    assert trials["validation_accuracy"]["none"].passed(0.05)
    assert tried(others, seen, shifted=few, seed=copies.seed) == found


def test_without_copies_changes_of_appearance_are_not_tried(world: World) -> None:
    found = tried([ValidationAccuracy()], world(400, 0))
    assert [one.shift for one in found["validation_accuracy"]] == ["none", "classes"]
    with pytest.raises(UserError, match="3 labelled images and 5 repetitions"):
        tried([ValidationAccuracy()], world(3, 0))
    with pytest.raises(UserError, match="Two estimators are called 'validation_accuracy'"):
        tried([ValidationAccuracy(), ValidationAccuracy()], world(100, 0))
    alone = SyntheticShifts().fit(world(500, 0))
    assert not alone.estimate(world(500, 1)).withheld
    assert alone.estimate(world(500, 1, spread=0.3)).withheld.startswith("they look changed, and there were no shifted")


def test_what_looks_like_no_set_is_withheld(digits, copies: ShiftedCopies) -> None:
    """Learnt from a slight change only, noise is unlike everything known."""
    classifier, validation, operation = digits
    slight = [place for place, one in enumerate(copies.shifts) if one.kind == "quantize"][:1]
    few = replace(copies, shifts=tuple(copies.shifts[k] for k in slight), seen=tuple(copies.seen[k] for k in slight))
    narrow = SyntheticShifts().fit(classifier.observe(validation), None, few)
    found = narrow.estimate(classifier.observe(spoilt(operation, "impulse_noise", 5)))
    assert found.details["distance"] > found.details["farthest"]
    assert found.withheld.startswith("the model's outputs on them are like those on none")
    assert not narrow.estimate(classifier.observe(operation)).withheld


def test_fewer_images_have_wider_intervals(digits, fitted: SyntheticShifts) -> None:
    classifier, _, operation = digits
    seen = classifier.observe(operation)
    few, many = fitted.estimate(seen.take(np.arange(20))), fitted.estimate(seen)
    assert few.high - few.low > many.high - many.low > 0


def test_a_saved_one_is_the_same(digits, fitted: SyntheticShifts, tmp_path) -> None:
    classifier, _, operation = digits
    fitted.save(tmp_path / "one.safetensors")
    loaded, seen = Estimator.load(tmp_path / "one.safetensors"), classifier.observe(operation)
    assert isinstance(loaded, SyntheticShifts)
    found = fitted.estimate(seen)
    assert loaded.estimate(seen) == found and loaded.shift(seen, found) == fitted.shift(seen, found)
    assert loaded.own_trials == fitted.own_trials


def test_the_way_of_a_shift_is_recognised(digits, fitted: SyntheticShifts) -> None:
    classifier, _, operation = digits

    def report(images: ImageSet) -> ShiftReport:
        seen = classifier.observe(images)
        found = fitted.shift(seen, fitted.estimate(seen))
        assert found.to_dict()["way"] == found.way and found.sentence().endswith(").")
        return found

    assert report(operation).way == "none"
    assert report(operation.take(operation.labels < 4)).way == "classes"
    brighter = report(spoilt(operation, "brightness", 3))
    assert brighter.way == "appearance" and brighter.appearance.what == "brighter"
    both = report(spoilt(operation.take(operation.labels < 3), "brightness", 1))
    assert both.appearance.changed and both.classes.changed is not False, "perhaps, but never: no"


def test_a_weighted_distance_against_scipy_and_against_repetition() -> None:
    rng = np.random.default_rng(0)
    values, reference = rng.normal(size=300), rng.normal(0.2, size=400)
    distance, p = weighted_ks(values, reference, np.ones(400))
    referee = ks_2samp(values, reference, method="asymp")
    assert distance == pytest.approx(referee.statistic) and p == pytest.approx(referee.pvalue, abs=0.02)
    times = rng.integers(1, 4, size=400)
    repeated = ks_2samp(values, np.repeat(reference, times)).statistic
    assert weighted_ks(values, reference, times.astype(float))[0] == pytest.approx(repeated)


def test_measures_by_hand() -> None:
    images = np.zeros((2, 3, 4, 4), dtype=np.float32)
    images[1, 0] = 0.6
    images[1, :, :, 2:] += 0.4
    seen = Observation(np.full((2, 2), 0.5), images=ImageSet.from_arrays(images, layout="NCHW"))
    found = measures(seen)
    assert found["brightness"] == pytest.approx([0, 0.4], abs=0.01) and found["colour"] == pytest.approx(
        [0, 0.6], abs=0.01
    )
    assert found["sharpness"] == pytest.approx(np.log([1e-3, 0.4 / 3 + 1e-3]), abs=0.02)
    assert list(measures(Observation(np.full((2, 2), 0.5)))) == ["confidence"]


def test_blocks_of_copies_are_what_all_at_once_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    images = (np.random.default_rng(0).integers(0, 256, (9, 1, 12, 12)) / 255).astype(np.float32)
    shifts = [one for one in learnt_shifts(1) if one.severity in (None, 4)]
    whole = [one.apply(images, 5) for one in shifts]
    monkeypatch.setattr("secondguess.accuracy.shifted_copies.BLOCK", 2 * 12 * 12)
    for shift, expected in zip(shifts, whole, strict=True):
        assert np.array_equal(shift.apply(images, 5), expected), shift
