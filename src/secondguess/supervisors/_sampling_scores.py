"""Four scores of S probability vectors per image: from passes with dropout, or from the members of an ensemble.

For the samples s^1 ... s^S of an image, their mean m and the entropy H(p) = -sum_k p_k log2 p_k, with 0 log 0 = 0,

| score                | formula                               | range       |
|----------------------|---------------------------------------|-------------|
| variation ratio      | 1 - (votes for the top class) / S     | [0, 1)      |
| mean softmax         | -max m                                | [-1, -1/K]  |
| predictive entropy   | H(m)                                  | [0, log2 K] |
| mutual information   | H(m) - mean_i H(s^i)                  | [0, log2 K] |

A sample votes for its largest probability, the lowest class among equals. Everything is computed in float64, for as
many images at a time as keep their samples below 32 MiB. Definitions as compared by Weiss, Garcia Gomez and Tonella
(Empirical Software Engineering, 2023).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["mean_softmax", "mutual_information", "predictive_entropy", "variation_ratio"]

Samples = NDArray[np.floating[Any]]
Scores = NDArray[np.float64]

BLOCK_BYTES = 32 << 20


def variation_ratio(samples: Samples) -> Scores:
    """The share of samples that do not vote for the class with the most votes, for samples (n, S, K).

    >>> variation_ratio(np.array([[[0.1, 0.9], [0.2, 0.8], [0.6, 0.4]]])).round(4).tolist()
    [0.3333]
    """

    def score(block: Scores) -> Scores:
        votes = (block.argmax(axis=2)[:, :, None] == np.arange(block.shape[2])).sum(axis=1)
        return np.asarray(1 - votes.max(axis=1) / block.shape[1])

    return _blockwise(score, samples)


def mean_softmax(samples: Samples) -> Scores:
    """Minus the largest probability of the mean, for samples (n, S, K).

    >>> mean_softmax(np.array([[[0.5, 0.5], [1.0, 0.0]]])).tolist()
    [-0.75]
    """
    return _blockwise(lambda block: -block.mean(axis=1).max(axis=1), samples)


def predictive_entropy(samples: Samples) -> Scores:
    """The entropy of the mean in bits, for samples (n, S, K).

    >>> predictive_entropy(np.array([[[0.0, 1.0], [1.0, 0.0]]])).tolist()
    [1.0]
    """
    return _blockwise(lambda block: _entropy(block.mean(axis=1)), samples)


def mutual_information(samples: Samples) -> Scores:
    """The entropy of the mean less the mean entropy, in bits, for samples (n, S, K).

    It is the information that the choice of the model has about the answer: 0 where all samples agree, however unsure
    they are. Rounding never makes it negative.

    >>> mutual_information(np.array([[[0.0, 1.0], [1.0, 0.0]], [[0.5, 0.5], [0.5, 0.5]]])).tolist()
    [1.0, 0.0]
    """

    def score(block: Scores) -> Scores:
        return np.maximum(_entropy(block.mean(axis=1)) - _entropy(block).mean(axis=1), 0)

    return _blockwise(score, samples)


def _entropy(probabilities: Scores) -> Scores:
    """Entropy in bits over the last axis."""
    logs = np.log2(probabilities, where=probabilities > 0, out=np.zeros_like(probabilities))
    return np.abs((probabilities * logs).sum(axis=-1))


def _blockwise(score: Callable[[Scores], Scores], samples: Samples) -> Scores:
    """Score some images at a time."""
    rows = max(1, BLOCK_BYTES // (8 * int(np.prod(samples.shape[1:]))))
    starts = range(0, len(samples), rows)
    return np.concatenate([score(np.asarray(samples[i : i + rows], dtype=np.float64)) for i in starts])
