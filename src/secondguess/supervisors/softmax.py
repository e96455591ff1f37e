"""Four supervisors that read the softmax vector s of the prediction only.

| name        | score                  | range          |
|-------------|------------------------|----------------|
| max_softmax | -max s                 | [-1, -1/K]     |
| pcs         | -(s_(1) - s_(2))       | [-1, 0]        |
| entropy     | -sum_k s_k log2 s_k    | [0, log2 K]    |
| deep_gini   | 1 - sum_k s_k^2        | [0, 1 - 1/K]   |

Definitions as compared by Weiss, Garcia Gomez and Tonella (Empirical Software Engineering, 2023): max softmax after
Hendrycks and Gimpel (2017), prediction confidence score after Zhang et al. (2020), DeepGini after Feng et al. (2020).
They cost nothing, need no fitting, detect ambiguity very well, and cannot detect inputs on which the model is
confidently wrong. They are pure functions of s, so a model that always returns 1.0 always gets the same score.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.model.observation import Observation
from secondguess.supervisors.base import Supervisor
from secondguess.supervisors.registry import register

if TYPE_CHECKING:
    import torch

    from secondguess.supervisors.base import ScoreGraph
    from secondguess.supervisors.graph import Tensors

__all__ = [
    "DeepGini",
    "Entropy",
    "MaxSoftmax",
    "PredictionConfidence",
    "deep_gini",
    "entropy",
    "max_softmax",
    "pcs",
]

Probabilities = NDArray[np.floating[Any]]


def max_softmax(probabilities: Probabilities) -> NDArray[np.float64]:
    """-max s for (n, K) probabilities.

    >>> max_softmax(np.array([[0.1, 0.8, 0.1]])).tolist()
    [-0.8]
    """
    return -np.asarray(probabilities, dtype=np.float64).max(axis=1)


def pcs(probabilities: Probabilities) -> NDArray[np.float64]:
    """Minus the difference between the two largest probabilities, for (n, K) probabilities.

    >>> pcs(np.array([[0.25, 0.75, 0.0]])).tolist()
    [-0.5]
    """
    top = np.partition(np.asarray(probabilities, dtype=np.float64), -2, axis=1)[:, -2:]
    return top[:, 0] - top[:, 1]


def entropy(probabilities: Probabilities) -> NDArray[np.float64]:
    """Shannon entropy in bits (0 log 0 = 0), for (n, K) probabilities.

    >>> entropy(np.array([[0.5, 0.5], [1.0, 0.0]])).tolist()
    [1.0, 0.0]
    """
    s = np.asarray(probabilities, dtype=np.float64)
    logs = np.log2(s, where=s > 0, out=np.zeros_like(s))
    return np.abs((s * logs).sum(axis=1))


def deep_gini(probabilities: Probabilities) -> NDArray[np.float64]:
    """1 - sum s^2, for (n, K) probabilities.

    >>> deep_gini(np.array([[0.5, 0.5]])).tolist()
    [0.5]
    """
    s = np.asarray(probabilities, dtype=np.float64)
    return np.asarray(1.0 - np.einsum("ij,ij->i", s, s))


@register
class MaxSoftmax(Supervisor):
    """Suspicious = the largest probability is small."""

    name = "max_softmax"
    requires_fit = False

    def _score(self, observation: Observation) -> NDArray[np.float64]:
        return max_softmax(observation.probabilities)

    def _graph(self) -> ScoreGraph:
        return lambda seen: -seen.probabilities.amax(1)


@register
class PredictionConfidence(Supervisor):
    """Suspicious = the two largest probabilities are close (prediction confidence score, PCS)."""

    name = "pcs"
    requires_fit = False

    def _score(self, observation: Observation) -> NDArray[np.float64]:
        return pcs(observation.probabilities)

    def _graph(self) -> ScoreGraph:
        def closeness(seen: Tensors) -> torch.Tensor:
            top = seen.probabilities.topk(2, dim=1).values
            return top[:, 1] - top[:, 0]

        return closeness


@register
class Entropy(Supervisor):
    """Suspicious = the probabilities are spread out."""

    name = "entropy"
    requires_fit = False

    def _score(self, observation: Observation) -> NDArray[np.float64]:
        return entropy(observation.probabilities)

    def _graph(self) -> ScoreGraph:
        def spread(seen: Tensors) -> torch.Tensor:
            s = seen.probabilities
            return -(s * s.where(s > 0, 1.0).log2()).sum(1)

        return spread


@register
class DeepGini(Supervisor):
    """Suspicious = two draws from the predicted distribution would probably disagree."""

    name = "deep_gini"
    requires_fit = False

    def _score(self, observation: Observation) -> NDArray[np.float64]:
        return deep_gini(observation.probabilities)

    def _graph(self) -> ScoreGraph:
        return lambda seen: 1 - seen.probabilities.square().sum(1)
