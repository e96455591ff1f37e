"""The calibration of the generative judge: what real images cannot tell is not made up."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from secondguess.stress.ambiguous.flow.calibration import LossCalibration

TIMES = 6


def losses_of(labels, classes, rng, *, apart=1.0, scatter=1.0):
    """Losses (n, K, T) that are lower for the own class, with scatter that neighbouring times share."""
    shared = rng.normal(0, scatter, (len(labels), classes, 1))
    own = apart * (np.arange(classes) == labels[:, None])[:, :, None]
    return shared - own + rng.normal(0, 0.3 * scatter, (len(labels), classes, TIMES))


def log_loss(calibration, losses, labels):
    return -np.log(calibration.probabilities(losses)[np.arange(len(labels)), labels]).mean()


def test_two_classes_with_many_images_get_what_a_logistic_regression_gets():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 4000)
    losses = losses_of(labels, 2, rng)
    found = LossCalibration.fit(losses, labels).probabilities(losses)[:, 1]
    x = (losses[:, 0] - losses[:, 1]).mean(axis=1, keepdims=True)  # all times say the same here
    expected = LogisticRegression(C=1e6).fit(x, labels).predict_proba(x)[:, 1]
    assert np.abs(found - expected).mean() < 0.02


def test_weights_multiply_the_scatter_of_the_draws_less_than_free_ones_do():
    def amplified(weights):
        return np.sqrt(np.square(weights).sum()) / abs(weights.sum()) * np.sqrt(TIMES)  # 1 for equal weights

    own, free = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 2, 60)
        losses = losses_of(labels, 2, rng)
        weights = LossCalibration.fit(losses, labels).weights
        assert weights.min() > 0
        own.append(amplified(weights))
        free.append(amplified(LogisticRegression(C=1e6).fit(losses[:, 0] - losses[:, 1], labels).coef_[0]))
    assert np.median(own) < 0.8 * np.median(free)


def test_a_time_that_says_nothing_gets_less_weight():
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 5, 1000)
    losses = losses_of(labels, 5, rng)
    losses[:, :, 2] = rng.normal(0, 1, losses.shape[:2])
    weights = LossCalibration.fit(losses, labels).weights
    assert weights[2] < 0.5 * np.delete(weights, 2).mean()


def test_two_judges_agree_on_the_offsets_of_classes_that_they_saw_few_images_of():
    rng = np.random.default_rng(3)
    offsets = []
    for _ in range(6):
        labels = np.arange(100) % 10
        offsets.append(LossCalibration.fit(losses_of(labels, 10, rng, apart=2.0), labels).offsets)
    assert np.std(offsets, axis=0).mean() < 0.15  # free ones scatter by half a nat


def test_an_offset_that_many_images_speak_for_is_found():
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 3, 20000)
    losses = losses_of(labels, 3, rng)
    losses[:, 1] += 0.5
    found = LossCalibration.fit(losses, labels)
    assert found.offsets[1] - found.offsets[[0, 2]].mean() == pytest.approx(0.5 * found.weights.sum(), rel=0.1)


def test_frequent_classes_are_likelier():
    rng = np.random.default_rng(5)
    labels = rng.permutation(np.repeat([0, 1], [900, 100]))
    calibration = LossCalibration.fit(losses_of(labels, 2, rng), labels)
    assert calibration.offsets[0] - calibration.offsets[1] == pytest.approx(np.log(9), abs=0.2)
    assert calibration.probabilities(losses_of(labels, 2, rng)).mean(axis=0)[0] == pytest.approx(0.9, abs=0.03)


def test_few_images_calibrate_better_than_free_weights_and_offsets_would():
    rng = np.random.default_rng(6)
    labels, fresh = np.arange(100) % 10, np.arange(3000) % 10
    losses, others = (losses_of(some, 10, rng, apart=2.0) for some in (labels, fresh))
    own = log_loss(LossCalibration.fit(losses, labels), others, fresh)
    best = log_loss(LossCalibration.fit(others, fresh), others, fresh)
    assert own < best + 0.05


def test_images_whose_own_class_was_not_looked_at_are_left_out():
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 3, 300)
    losses = losses_of(labels, 3, rng)
    lost = losses.copy()
    lost[:20, labels[0]] = np.nan
    kept = LossCalibration.fit(lost, labels)
    assert np.isfinite(kept.weights).all()
    assert np.isfinite(kept.offsets).all()
    assert kept.probabilities(lost)[0].sum() == pytest.approx(1)


def test_a_class_without_images_changes_nothing():
    rng = np.random.default_rng(8)
    labels = rng.integers(0, 3, 400)
    losses = losses_of(labels, 4, rng)
    with_it, without = LossCalibration.fit(losses, labels), LossCalibration.fit(losses[:, :3], labels)
    assert with_it.weights == pytest.approx(without.weights, rel=1e-3)
    found = with_it.probabilities(losses)
    assert found[:, 3].max() < 1e-6
    assert found[:, :3] == pytest.approx(without.probabilities(losses[:, :3]), abs=1e-3)
