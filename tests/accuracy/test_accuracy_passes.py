from __future__ import annotations

import numpy as np
import pytest

from secondguess.accuracy import OraclePasses, ValidationAccuracy, cross_judged, try_estimators
from secondguess.accuracy.oracles import Oracle, Verdicts
from secondguess.accuracy.passes import rogan_gladen
from secondguess.errors import UserError
from secondguess.metrics import wilson
from secondguess.model.observation import Observation


class Noisy(Oracle):
    """Finds a share of the wrong predictions and doubts a share of the right ones; it cheats to do so."""

    name = "noisy"
    requires_fit = False

    def __init__(self, found: float = 0.7, doubted: float = 0.1, undecided: float = 0.0) -> None:
        self.found = found
        self.doubted = doubted
        self.undecided = undecided

    def _judge(self, operation: Observation) -> Verdicts:
        rng = np.random.default_rng(len(operation))
        wrong = rng.random(len(operation)) < np.where(operation.correct, self.doubted, self.found)
        return Verdicts.make(np.where(rng.random(len(operation)) < self.undecided, -1, wrong))


class Memory(Oracle):
    """Knows the failures that it has seen, by their probabilities, and no others."""

    name = "memory"

    def _fit(self, training: Observation, validation: Observation) -> None:
        self.seen_ = validation.confidences[~validation.correct]

    def _judge(self, operation: Observation) -> Verdicts:
        return Verdicts.make(np.isin(operation.confidences, self.seen_))


def test_the_correction_solves_its_equation() -> None:
    for error in (0.0, 0.1, 0.5, 1.0):
        assert rogan_gladen(0.7 * error + 0.1 * (1 - error), (0.7, 0.1, 0.3)) == pytest.approx(error)
    assert rogan_gladen(0.05, (0.7, 0.1, 0.3)) == 0.0
    assert rogan_gladen(0.9, (0.7, 0.1, 0.3)) == 1.0
    assert rogan_gladen(0.2, (0.1, 0.1, 0.3)) == 0.3


def test_the_correction_survives_a_change_of_the_error_rate(world) -> None:
    validation, operation = world(4000, 0), world(4001, 1, spread=1.0)
    raw = OraclePasses(Noisy()).fit(validation).estimate(operation)
    corrected = OraclePasses(Noisy(), corrected=True).fit(validation).estimate(operation)
    truth = operation.correct.mean()
    assert corrected.value == pytest.approx(truth, abs=0.03)
    assert corrected.low <= truth <= corrected.high
    assert abs(raw.value - truth) > 0.05
    assert corrected.high - corrected.low > raw.high - raw.low
    assert corrected.details["true_positive_rate"] == pytest.approx(0.7, abs=0.05)
    judged = Noisy().judge(validation).judged_wrong
    assert corrected.details["precision"] == pytest.approx((~validation.correct)[judged].mean())


def test_an_oracle_that_judges_nothing_wrong_has_no_precision(world) -> None:
    silent = OraclePasses(Noisy(0.0, 0.0), corrected=True).fit(world(500, 0)).estimate(world(501, 1))
    assert "precision" not in silent.details


@pytest.mark.parametrize(("undecided", "expected"), [("pass", 1.0), ("fail", 0.5), ("exclude", 1.0)])
def test_what_becomes_of_the_undecided(undecided, expected, world) -> None:
    estimator = OraclePasses(Noisy(0.0, 0.0, 0.5), undecided=undecided).fit(world(2000, 0))
    assert estimator.estimate(world(2001, 1)).value == pytest.approx(expected, abs=0.04)


class Silent(Oracle):
    """Decides about the first predictions only, and lets them pass."""

    name = "silent"
    requires_fit = False

    def __init__(self, decided: int = 3) -> None:
        self.decided = decided

    def _judge(self, operation: Observation) -> Verdicts:
        return Verdicts.make(np.where(np.arange(len(operation)) < self.decided, 0, -1))


@pytest.mark.parametrize("corrected", [False, True])
def test_resamples_without_a_decision_are_not_taken_for_the_images(corrected, world) -> None:
    """3 of 100 are decided: of the resamples 1 in 20 has none of them."""
    validation, operation = world(100, 0), world(100, 1)
    estimator = OraclePasses(Silent(), corrected, undecided="exclude", resamples=200).fit(validation)
    found = estimator.estimate(operation)
    passed = Silent().judge(operation).share_passed("exclude")
    assert passed == 1.0 and found.details["undecided"] == pytest.approx(0.97)
    assert found.value == (pytest.approx(validation.correct[:3].mean()) if corrected else passed)
    assert found.low <= wilson(3, 3).low and found.high == 1.0, "it rests on three images, not on a hundred"
    nobody = OraclePasses(Silent(0), corrected, undecided="exclude")
    with pytest.raises(UserError, match="'silent' decided about no prediction; count undecided as 'fail'"):
        nobody.fit(validation).estimate(operation)
    assert nobody._learnt == (0.0, 0.0, pytest.approx(1 - validation.correct.mean()))


def test_an_oracle_that_decides_about_nothing_in_a_set_is_not_tried_on_it(world) -> None:
    """Nor does the set end all trials, with a sentence that would be about other images."""
    validation = world(100, 0)
    estimators = [OraclePasses(Silent(0), undecided="exclude"), ValidationAccuracy()]
    found = try_estimators([one.fit(validation) for one in estimators], validation)
    assert found["silent"] == () and len(found["validation_accuracy"]) == 2


def test_the_plain_share_is_that_of_the_verdicts(world) -> None:
    operation = world(2001, 1)
    for undecided in ("pass", "fail", "exclude"):
        oracle = Noisy(undecided=0.3)
        found = OraclePasses(oracle, undecided=undecided).fit(world(500, 0)).estimate(operation)
        assert found.value == pytest.approx(oracle.judge(operation).share_passed(undecided))


def test_a_corrected_oracle_needs_verdicts_on_images_it_does_not_know(world) -> None:
    """In sample, a memory has a true positive rate of one; out of sample of zero, and the correction falls back."""
    training, validation, operation = world(300, 0), world(1000, 1), world(1000, 2)
    oracle = Memory().fit(training, validation)
    fooled = OraclePasses(oracle, corrected=True).fit(validation).estimate(operation)
    assert fooled.value == 1.0
    verdicts = cross_judged(Memory(), training, validation, folds=4)
    assert not verdicts.judged_wrong.any()
    honest = OraclePasses(oracle, corrected=True, folds=4).fit(validation, training).estimate(operation)
    assert honest.value == pytest.approx(validation.correct.mean())
    anew = OraclePasses(oracle, corrected=True).tried(validation, training)
    assert anew.estimate(operation).value == pytest.approx(validation.correct.mean())


def test_an_oracle_that_is_not_fitted_learns_with_the_estimator(world) -> None:
    training, validation, operation = world(300, 0), world(1000, 1), world(1000, 2)
    given = Memory()
    together = OraclePasses(given).fit(validation, training).estimate(operation)
    assert not given.is_fitted
    assert together == OraclePasses(Memory().fit(training, validation)).fit(validation).estimate(operation)
    assert OraclePasses("cross-reference").name == "cross_reference"
    known = OraclePasses(given.clone().fit(training, validation))
    assert known.tried(validation, None).estimate(operation).value == together.value


def test_bad_input(world) -> None:
    with pytest.raises(UserError, match="not 'maybe'"):
        OraclePasses(Noisy(), undecided="maybe")
    with pytest.raises(UserError, match=r"'memory' has not been fitted.* call fit\(validation, training\)"):
        OraclePasses(Memory()).fit(world(50, 0))
    with pytest.raises(UserError, match="decided about no prediction"):
        OraclePasses(Noisy(undecided=1.1), undecided="exclude").fit(world(50, 0)).estimate(world(50, 1))
    with pytest.raises(UserError, match="1 folds of 50 images"):
        cross_judged(Memory(), world(50, 0), world(50, 1), folds=1)
