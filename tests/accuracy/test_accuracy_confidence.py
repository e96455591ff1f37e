from __future__ import annotations

import numpy as np
import pytest

from secondguess.accuracy import AverageConfidence, DifferenceOfConfidences, ThresholdedConfidence
from secondguess.errors import UserError


def test_temperature_scaling_undoes_exaggeration(world) -> None:
    estimator = AverageConfidence().fit(world(4000, 0, exaggeration=3.0))
    harder = world(4000, 1, exaggeration=3.0, spread=1.5)
    found = estimator.estimate(harder)
    assert found.details["temperature"] == pytest.approx(3.0, rel=0.1)
    assert found.value == pytest.approx(harder.correct.mean(), abs=0.02)
    assert AverageConfidence(None).fit(world(4000, 0)).estimate(harder).value > harder.correct.mean() + 0.1


def test_isotonic_calibration_is_scikit_learns(world) -> None:
    from sklearn.isotonic import IsotonicRegression

    validation, operation = world(500, 0, 2.0), world(500, 1, 2.0)
    curve = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    curve.fit(validation.confidences, validation.correct)
    expected = curve.predict(operation.confidences).mean()
    assert AverageConfidence("isotonic").fit(validation).estimate(operation).value == pytest.approx(expected, abs=1e-6)


def test_difference_of_confidences(world) -> None:
    validation, operation = world(200, 0), world(300, 1, spread=1.0)
    expected = validation.correct.mean() + operation.confidences.mean() - validation.confidences.mean()
    assert DifferenceOfConfidences().fit(validation).estimate(operation).value == pytest.approx(expected)


@pytest.mark.parametrize("score", ["confidence", "entropy"])
def test_the_threshold_leaves_as_many_below_as_there_are_errors(score, world) -> None:
    validation = world(500, 0)
    estimator = ThresholdedConfidence(score).fit(validation)
    assert estimator.estimate(validation).value == pytest.approx(validation.correct.mean())
    p = world(300, 1).probabilities
    scores = p.max(axis=1) if score == "confidence" else (p * np.log(p)).sum(axis=1)
    assert estimator.estimate(world(300, 1)).value == pytest.approx((scores >= estimator._learnt.score).mean())


@pytest.mark.parametrize("score", ["confidence", "entropy"])
def test_images_that_tie_at_the_threshold_count_by_a_fraction(score, see) -> None:
    """A saturated softmax: by definition the estimate of the validation images is their accuracy."""
    labels = np.arange(100) % 6
    saturated = 200.0 * np.eye(6)[np.where(np.arange(100) < 10, (labels + 1) % 6, labels)]
    validation = see(saturated, labels)
    estimator = ThresholdedConfidence(score).fit(validation)
    assert estimator.estimate(validation).value == pytest.approx(0.9)
    unsure = see(saturated / np.where(np.arange(100) < 50, 100, 1)[:, None], labels)
    assert estimator.estimate(unsure).value == pytest.approx(0.45), "half of them lie below, nine of ten others count"
    # 25 of 100 lie above the 60 of one score, and 55 are right: half of these 60 are missing.
    three = np.repeat([3.0, 2.0, 1.0], [25, 60, 15])[:, None] * np.eye(6)[0]
    tied = ThresholdedConfidence(score).fit(see(three, np.arange(100) >= 55))
    assert tied._learnt.at == pytest.approx(0.5)
    assert tied.estimate(see(three[:50], np.full(50, -1))).value == pytest.approx((25 + 0.5 * 25) / 50)


@pytest.mark.parametrize("score", ["confidence", "entropy"])
@pytest.mark.parametrize("right", [True, False])
def test_a_model_that_is_never_or_always_right(score, right, see) -> None:
    logits = 3 * np.random.default_rng(0).normal(size=(50, 6))
    labels = (logits.argmax(axis=1) + (not right)) % 6
    estimator = ThresholdedConfidence(score).fit(see(logits, labels))
    assert estimator.estimate(see(logits, labels)).value == float(right)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(UserError, match="calibrated by 'temperature', 'isotonic' or None, not by 'platt'"):
        AverageConfidence("platt")
    with pytest.raises(UserError, match="'confidence' or 'entropy', not 'margin'"):
        ThresholdedConfidence("margin")
