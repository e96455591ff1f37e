"""Estimators that read the model's own confidence, and the trivial baseline that does not.

With c the largest probability of an image, V the validation images and O those of operation:

* validation accuracy: acc(V). Hard to beat as long as nothing has changed, and unable to detect any change.
* average confidence: mean over O of c after temperature scaling on V (Guo et al., ICML 2017), or after isotonic
  regression of correctness on c (as in confidence-based performance estimation, NannyML, there one class at a time).
* difference of confidences (Guillory et al., ICCV 2021): acc(V) + mean_O c - mean_V c.
* average thresholded confidence (Garg et al., ICLR 2022): the share of O with a score of at least t, where t leaves as
  many validation images below it as the model has errors there. The score is c, or the negative entropy. Where several
  validation images have the score t, as with a saturated softmax, no t leaves exactly so many below; then images with
  that very score count by the fraction that makes the share on V the accuracy there.

All of them assume that confidence means what it meant on the validation images: they detect harder images, as far as
the model's confidence shows them, and no change in the meaning of the labels.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy._scaling import log_scores, softened
from secondguess.accuracy.base import Estimator, EstimatorSettings, Rows
from secondguess.accuracy.registry import register
from secondguess.errors import UserError
from secondguess.metrics import wilson
from secondguess.model.observation import Observation

__all__ = ["AverageConfidence", "DifferenceOfConfidences", "ThresholdedConfidence", "ValidationAccuracy"]


@register
class ValidationAccuracy(Estimator):
    """The accuracy on the validation images, whatever happens in operation: the baseline of every table.

    It is a plain proportion, so its interval is the score interval (Wilson).
    """

    name = "validation_accuracy"

    def _see(self, seen: Observation) -> Rows:
        return (seen.predictions,)

    def _learn(self, seen: Rows, labels: NDArray[np.int64]) -> float:
        return float((seen[0] == labels).mean())

    def _value(self, learnt: float, seen: Rows) -> float:
        return learnt

    def _bounds(self, learnt: float, value: float, seen: Rows) -> tuple[float, float]:
        known = wilson(self._right, len(self._labels), self.level)
        return known.low, known.high


@register
class AverageConfidence(Estimator):
    """The mean calibrated confidence.

    Args:
        calibration: `"temperature"`, `"isotonic"`, or None for the model's probabilities as they are.
        **settings: of every estimator: `resamples`, `level` and `seed`.
    """

    name = "average_confidence"

    def __init__(
        self,
        calibration: Literal["temperature", "isotonic"] | None = "temperature",
        **settings: Unpack[EstimatorSettings],
    ) -> None:
        super().__init__(**settings)
        if calibration not in ("temperature", "isotonic", None):
            raise UserError(f"Confidence is calibrated by 'temperature', 'isotonic' or None, not by {calibration!r}.")
        self.calibration = calibration
        self.name += {"temperature": "", "isotonic": "_isotonic", None: "_raw"}[calibration]

    @classmethod
    def by_name(cls, detail: str) -> dict[str, Any]:
        """What follows the name says how confidence is calibrated: `temperature`, `isotonic` or `raw`."""
        return {"calibration": None if detail == "raw" else detail} if detail else {}

    def _see(self, seen: Observation) -> Rows:
        return (log_scores(seen),)

    def _learn(self, seen: Rows, labels: NDArray[np.int64]) -> Any:
        (scores,) = seen
        if self.calibration == "temperature":
            from secondguess.training import fit_temperature

            return fit_temperature(scores, labels)
        if self.calibration == "isotonic":
            from sklearn.isotonic import IsotonicRegression

            right = scores.argmax(axis=1) == labels
            return IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(_confidence(scores, 1.0), right)
        return 1.0

    def _value(self, learnt: Any, seen: Rows) -> float:
        if self.calibration == "isotonic":
            return float(learnt.predict(_confidence(seen[0], 1.0)).mean())
        return float(_confidence(seen[0], learnt).mean())

    def _details(self, learnt: Any, seen: Rows) -> dict[str, float]:
        return {"temperature": float(learnt)} if self.calibration == "temperature" else {}


@register
class DifferenceOfConfidences(Estimator):
    """Validation accuracy, corrected by how much the mean confidence has changed."""

    name = "difference_of_confidences"

    def _see(self, seen: Observation) -> Rows:
        return seen.confidences, seen.predictions

    def _learn(self, seen: Rows, labels: NDArray[np.int64]) -> float:
        confidences, predictions = seen
        return float((predictions == labels).mean() - confidences.mean())

    def _value(self, learnt: float, seen: Rows) -> float:
        return learnt + float(seen[0].mean())


class Threshold(NamedTuple):
    """The score above which images count as right, and how much one with that very score counts."""

    score: float
    at: float


@register
class ThresholdedConfidence(Estimator):
    """The share of images above the score below which the validation images would be the errors.

    Args:
        score: `"confidence"` or `"entropy"` (its negative).
        **settings: of every estimator: `resamples`, `level` and `seed`.
    """

    name = "thresholded_confidence"

    def __init__(
        self, score: Literal["confidence", "entropy"] = "confidence", **settings: Unpack[EstimatorSettings]
    ) -> None:
        super().__init__(**settings)
        if score not in ("confidence", "entropy"):
            raise UserError(f"The score to threshold is 'confidence' or 'entropy', not {score!r}.")
        self.score = score
        self.name = f"thresholded_{score}"

    @classmethod
    def by_name(cls, detail: str) -> dict[str, Any]:
        """What follows the name is the score."""
        return {"score": detail} if detail else {}

    def _see(self, seen: Observation) -> Rows:
        if self.score == "confidence":
            return seen.confidences, seen.predictions
        inside = seen.probabilities
        return (inside * np.log(np.maximum(inside, np.finfo(float).tiny))).sum(axis=1), seen.predictions

    def _learn(self, seen: Rows, labels: NDArray[np.int64]) -> Threshold:
        scores, predictions = seen
        right = int((predictions == labels).sum())
        if not right:
            return Threshold(np.inf, 0.0)
        score = float(np.sort(scores)[-right])  # without ties it and all above it count as right
        return Threshold(score, float((right - (scores > score).sum()) / (scores == score).sum()))

    def _value(self, learnt: Threshold, seen: Rows) -> float:
        return float((seen[0] > learnt.score).mean() + learnt.at * (seen[0] == learnt.score).mean())


def _confidence(scores: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    return softened(scores, temperature).max(axis=1)
