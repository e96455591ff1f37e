"""Estimators of accuracy that take a score, and what stands for detectors and classifiers that have spoken before.

The estimators of `secondguess.accuracy` read the model's own confidence. Here any score, larger where a prediction is
more suspicious, takes its place; it lies in a column of the images. With V the validation images and O those of
operation:

* thresholded: the share of O with a score of at most t, where as many of V lie above t as the classifier has errors
  there (Garg et al., ICLR 2022; with 1 - confidence it is `ThresholdedConfidence`);
* calibrated: the mean over O of P(right | score), by isotonic regression on V (with 1 - confidence it is
  `AverageConfidence("isotonic")`). Its mean over V is the accuracy on V, so the difference of confidences of such a
  score is the same thing.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy import Estimator
from secondguess.accuracy.base import EstimatorSettings, Rows
from secondguess.accuracy.oracles import Oracle, Verdicts
from secondguess.images import ImageSet
from secondguess.model.observation import Observation

__all__ = ["Alarm", "CalibratedScore", "Remembered", "ThresholdedScore"]


class _ScoreEstimator(Estimator):
    """An estimator that reads one score an image.

    Args:
        column: of the images, with a score that is larger where a prediction is more suspicious.
        **settings: of every estimator: `resamples`, `level` and `seed`.
    """

    def __init__(self, column: str, **settings: Unpack[EstimatorSettings]) -> None:
        super().__init__(**settings)
        self.column = column

    def _see(self, seen: Observation) -> Rows:
        return seen.columns[self.column], seen.predictions


class ThresholdedScore(_ScoreEstimator):
    """The share of images below the score above which the validation images would be the errors."""

    name = "thresholded"

    def _learn(self, seen: Rows, labels: NDArray[np.int64]) -> float:
        scores, predictions = seen
        errors = int((predictions != labels).sum())
        return float(np.sort(scores)[-1 - errors]) if errors < len(scores) else -np.inf

    def _value(self, learnt: float, seen: Rows) -> float:
        return float((seen[0] <= learnt).mean())


class CalibratedScore(_ScoreEstimator):
    """The mean probability that a prediction with such a score is right."""

    name = "calibrated"

    def _learn(self, seen: Rows, labels: NDArray[np.int64]) -> Any:
        from sklearn.isotonic import IsotonicRegression

        regression = IsotonicRegression(y_min=0, y_max=1, increasing=False, out_of_bounds="clip")
        return regression.fit(seen[0], seen[1] == labels)

    def _value(self, learnt: Any, seen: Rows) -> float:
        return float(learnt.predict(seen[0]).mean())


class Alarm(Oracle):
    """Judges wrong what has a score above the limit.

    Args:
        column: of the images, with the scores.
        limit: above which a score is an alarm.
    """

    name = "corrected"
    requires_fit = False

    def __init__(self, column: str, limit: float) -> None:
        self.column = column
        self.limit = limit

    def _judge(self, operation: Observation) -> Verdicts:
        return Verdicts.make(operation.columns[self.column] > self.limit)


class Remembered:
    """A classifier whose predictions are in a column of the images.

    Args:
        column: which.
    """

    def __init__(self, column: str) -> None:
        self.name = self.column = column

    def observe(self, images: ImageSet) -> Observation:
        """Certain about what it once predicted."""
        return Observation(np.eye(images.num_classes)[images.columns[self.column]])
