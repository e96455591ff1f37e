"""Logits, or logarithms of probabilities in their place, and the temperature that calibrates them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secondguess.model.observation import Observation

__all__ = ["log_scores", "softened"]

SMALLEST = 1e-30  # a probability of zero stands for one that was rounded away


def log_scores(observation: Observation) -> NDArray[np.float64]:
    """Logits (n, K) with a row maximum of zero; logarithms of the probabilities where the model gives no logits.

    The two differ by a constant per row, to which a softmax is invariant.
    """
    if observation.logits is not None:
        scores = observation.logits.astype(np.float64)
    else:
        scores = np.log(np.maximum(observation.probabilities, SMALLEST))
    return np.asarray(scores - scores.max(axis=1, keepdims=True))


def softened(scores: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """softmax(scores / temperature), (n, K), for scores with a row maximum of zero."""
    weights = np.exp(scores / temperature)
    weights /= weights.sum(axis=1, keepdims=True)
    return weights
