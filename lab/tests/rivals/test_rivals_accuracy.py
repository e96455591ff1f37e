"""Rivals in estimating accuracy, against closed forms and a linear programme."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from secondguess.model.observation import Observation
from secondguess_lab.rivals.accuracy import ConfidenceBased, OptimalTransport, transported


def seen(n: int, seed: int, exaggeration: float = 1.0) -> Observation:
    """A model of three classes that says p and is right with p, or exaggerates."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, 3))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    p = np.exp(exaggeration * logits)
    return Observation(p / p.sum(axis=1, keepdims=True), labels=labels)


def test_calibration_makes_up_for_exaggeration() -> None:
    operation = seen(4000, 1, 3.0)
    found = ConfidenceBased(resamples=2).fit(seen(4000, 0, 3.0)).estimate(operation)
    assert found.value == pytest.approx(operation.correct.mean(), abs=0.02)
    assert operation.confidences.mean() > operation.correct.mean() + 0.05


def test_transport_is_the_linear_programme() -> None:
    p = seen(12, 2).probabilities
    counts = np.array([3, 6, 3])
    equal = np.zeros((15, 36))
    for row in range(12):
        equal[row, 3 * row : 3 * row + 3] = 1
    for k in range(3):
        equal[12 + k, k::3] = 1
    best = linprog(-p.ravel(), A_eq=equal, b_eq=[*np.ones(12), *counts])
    assert transported(p, counts / 12) == pytest.approx(-best.fun / 12)
    found = OptimalTransport(resamples=2).fit(seen(300, 3)).estimate(seen(300, 4))
    assert 0 < found.value <= seen(300, 4).confidences.mean() + 1e-12
