"""How accurate is the model now? From recorded predictions and confidences alone, without labels.

Records hold the predicted class of every image and its probability, which is all that two of the estimators of
`secondguess.accuracy` read: the difference of confidences and the thresholded confidence. They learn once from labelled
validation images. Both rely on the model's confidence, so they notice harder images only as far as the model does; see
docs/accuracy.md for what they cannot see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy import DifferenceOfConfidences, ThresholdedConfidence
from secondguess.images import ImageSet
from secondguess.model.observation import Observation

if TYPE_CHECKING:
    from secondguess.model.classifier import Classifier
    from secondguess.watch.stream import Estimate

__all__ = ["estimator_for", "recorded_observation"]

FEWEST = 30  # images, below which an estimate would say little
TITLES = {
    "difference_of_confidences": "difference of confidences",
    "thresholded_confidence": "thresholded confidence",
}


def estimator_for(classifier: Classifier, validation: ImageSet) -> Estimate:
    """The `estimate` of `Watch`, fitted on labelled images that the classifier was not trained on."""
    seen = classifier.observe(validation)
    known = recorded_observation(seen.predictions, seen.confidences, seen.num_classes, validation.labels)
    estimators = [one.fit(known) for one in (DifferenceOfConfidences(), ThresholdedConfidence())]

    def estimate(predictions: NDArray[np.int64], confidences: NDArray[np.float64]) -> list[dict[str, Any]]:
        if len(predictions) < FEWEST:
            return []
        recorded = recorded_observation(predictions, confidences, seen.num_classes)
        found = [one.estimate(recorded).to_dict() for one in estimators]
        return [
            {key: one[key] for key in ("value", "low", "high", "n")} | {"method": TITLES[one["method"]]}
            for one in found
        ]

    return estimate


def recorded_observation(
    predictions: NDArray[np.int64],
    confidences: NDArray[np.float64],
    classes: int,
    labels: NDArray[np.int64] | None = None,
) -> Observation:
    """An observation for estimators that read the largest probability only; the rest is spread evenly.

    Args:
        predictions: (n,) classes.
        confidences: (n,) their probabilities.
        classes: K.
        labels: (n,) where they are known.
    """
    rest = (1 - confidences) / max(1, classes - 1)
    probabilities = np.repeat(rest[:, None], classes, axis=1)
    probabilities[np.arange(len(predictions)), predictions] = confidences
    return Observation(probabilities, labels=labels)
