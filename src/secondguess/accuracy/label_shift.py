"""Label shift: class frequencies have changed, but the images of each class have not.

If p(x | y) is unchanged, so is the recall r_j of every class, and the accuracy is sum_j q_j r_j with q the class
frequencies in operation. Those are found without labels in one of two ways:

* `"em"` (Saerens, Latinne and Decaestecker, Neural Computation 2002): maximum likelihood by repeated reweighting of
  calibrated probabilities, q_j <- mean over O of p_j q_j / pi_j, normalised. Probabilities are calibrated by a
  temperature first, and pi is their mean over the validation images, not the frequency of the labels (Alexandari,
  Kundaje and Shrikumar, ICML 2020): where the two differ by chance, EM would take it for a shift.
* `"bbse"` (Lipton, Wang and Smola, ICML 2018): with C_ij the share of validation images predicted as i of class j and m
  the frequencies of the predictions in operation, solve C w = m; q_j = w_j pi_j. Here w is the non-negative
  least-squares solution, so that q is a distribution even where C is nearly singular.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy._scaling import log_scores, softened
from secondguess.accuracy.base import Estimator, EstimatorSettings, Rows
from secondguess.accuracy.registry import register
from secondguess.errors import UserError
from secondguess.model.observation import Observation

__all__ = ["LabelShift", "class_frequencies_bbse", "class_frequencies_em"]

STEPS, CLOSE = 200, 1e-6


class Learnt(NamedTuple):
    """The confusions (K, K) as shares of all images, predicted by true class; for EM, temperature and pi (K,)."""

    confusion: NDArray[np.float64]
    temperature: float
    prior: NDArray[np.float64]


@register
class LabelShift(Estimator):
    """The recalls of the validation images, weighted by the class frequencies of operation.

    Args:
        method: how the frequencies are found, `"em"` or `"bbse"`.
        **settings: of every estimator: `resamples`, `level` and `seed`.
    """

    name = "label_shift"

    def __init__(self, method: Literal["em", "bbse"] = "em", **settings: Unpack[EstimatorSettings]) -> None:
        super().__init__(**settings)
        if method not in ("em", "bbse"):
            raise UserError(f"Class frequencies are found by 'em' or 'bbse', not by {method!r}.")
        self.method = method
        self.name = f"label_shift_{method}"

    @classmethod
    def by_name(cls, detail: str) -> dict[str, Any]:
        """What follows the name is the method."""
        return {"method": detail} if detail else {}

    def _see(self, seen: Observation) -> Rows:
        return (log_scores(seen),)

    def _learn(self, seen: Rows, labels: NDArray[np.int64]) -> Learnt:
        (scores,) = seen
        classes = scores.shape[1]
        cells = scores.argmax(axis=1) * classes + labels
        confusion = np.bincount(cells, minlength=classes**2).reshape(classes, classes) / len(labels)
        if self.method == "bbse":
            return Learnt(confusion, 1.0, confusion.sum(axis=0))
        from secondguess.training import fit_temperature

        temperature = fit_temperature(scores, labels)
        return Learnt(confusion, temperature, softened(scores, temperature).mean(axis=0))

    def _value(self, learnt: Learnt, seen: Rows) -> float:
        before = learnt.confusion.sum(axis=0)
        known = before > 0  # a class without validation images has no recall: that of the others is taken for it
        recall, share = learnt.confusion.diagonal()[known] / before[known], self._frequencies(learnt, seen[0])[known]
        return float(share @ recall / share.sum()) if share.sum() > 0 else float(recall.mean())

    def _frequencies(self, learnt: Learnt, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.method == "bbse":
            counts = np.bincount(scores.argmax(axis=1), minlength=scores.shape[1])
            return class_frequencies_bbse(learnt.confusion, counts / len(scores))
        return class_frequencies_em(softened(scores, learnt.temperature), learnt.prior)


def class_frequencies_em(probabilities: NDArray[np.float64], before: NDArray[np.float64]) -> NDArray[np.float64]:
    """The class frequencies (K,) that explain calibrated probabilities (n, K) of images without labels.

    Args:
        probabilities: calibrated where the class frequencies are `before`.
        before: (K,); a class with frequency 0 there keeps it.
    """
    ratio = np.divide(1.0, before, out=np.zeros_like(before), where=before > 0)
    now = before.copy()
    for _ in range(STEPS):
        weights = now * ratio
        total = probabilities @ weights
        inverse = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
        updated = weights * (inverse @ probabilities) / len(total)
        updated = _normalised(updated)
        if np.abs(updated - now).max() < CLOSE:
            return updated
        now = updated
    return now


def class_frequencies_bbse(confusion: NDArray[np.float64], predicted: NDArray[np.float64]) -> NDArray[np.float64]:
    """The class frequencies (K,) that explain the frequencies (K,) of predictions.

    Args:
        confusion: (K, K), the share of all labelled images predicted as row of class column.
        predicted: the share of images without labels predicted as each class.
    """
    from scipy.optimize import nnls

    weights, _ = nnls(confusion, predicted)
    return _normalised(weights * confusion.sum(axis=0))


def _normalised(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same shares (K,) with a sum of one; all zero where none is more."""
    return shares / shares.sum() if shares.sum() > 0 else shares
