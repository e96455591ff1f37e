"""Estimates of accuracy without labels that the product is compared with and does not have itself.

* Confidence-based performance estimation (NannyML): the probability of each class is calibrated by isotonic regression
  on labelled images, one class against the others, rows are normalised, and the estimate is the mean probability of the
  predicted class. The package calibrates a class only where that lowers the calibration error on held-out images;
  here every class is.
* Confidence optimal transport (Lu et al., "Characterizing out-of-distribution error via optimal transport", NeurIPS
  2023): the error is the smallest mean cost of transporting the probabilities p of the images to corners of the simplex
  that are as frequent as the labels of validation images; moving p to corner k costs 1 - p_k.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy import Estimator
from secondguess.model.observation import Observation

__all__ = ["ConfidenceBased", "OptimalTransport", "transported"]

Rows = tuple[NDArray[Any], ...]
MOST = 1000  # images that are assigned to classes at once: the cost grows with their cube


class ConfidenceBased(Estimator):
    """Confidence-based performance estimation."""

    name = "cbpe"

    def _see(self, seen: Observation) -> Rows:
        return (seen.probabilities,)

    def _learn(self, seen: Rows, labels: NDArray[np.int64]) -> list[Any]:
        from sklearn.isotonic import IsotonicRegression

        (p,) = seen
        return [
            IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(p[:, k], labels == k)
            for k in range(p.shape[1])
        ]

    def _value(self, learnt: list[Any], seen: Rows) -> float:
        (p,) = seen
        calibrated = np.column_stack([one.predict(p[:, k]) for k, one in enumerate(learnt)])
        total = calibrated.sum(axis=1, keepdims=True)
        calibrated = np.divide(calibrated, total, out=np.full_like(calibrated, 1 / p.shape[1]), where=total > 0)
        return float(calibrated[np.arange(len(p)), p.argmax(axis=1)].mean())


class OptimalTransport(Estimator):
    """Confidence optimal transport."""

    name = "cot"

    def _see(self, seen: Observation) -> Rows:
        return (seen.probabilities,)

    def _learn(self, seen: Rows, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(np.bincount(labels, minlength=seen[0].shape[1]) / len(labels))

    def _value(self, learnt: NDArray[np.float64], seen: Rows) -> float:
        return transported(seen[0][:MOST], learnt)


def transported(probabilities: NDArray[np.float64], frequencies: NDArray[np.float64]) -> float:
    """The mean probability (n, K) of the assigned class, where classes are as frequent as given, (K,)."""
    from scipy.optimize import linear_sum_assignment

    n = len(probabilities)
    counts = np.floor(frequencies * n).astype(int)
    counts[np.argsort(counts - frequencies * n, kind="stable")[: n - counts.sum()]] += 1
    corners = np.repeat(np.arange(len(counts)), counts)
    rows, columns = linear_sum_assignment(probabilities[:, corners], maximize=True)
    return float(probabilities[rows, corners[columns]].mean())
