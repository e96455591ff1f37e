"""Does a model give the same answer twice? What is cached, calibrated or promised of it depends on that."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from secondguess.model.classifier import Classifier

__all__ = ["compare", "warn_if_random"]

FEW = 32  # images
TOLERANCE = 1e-3  # of a probability; kernels that add in another order differ far less


def warn_if_random(classifier: Classifier, images: Any) -> None:
    """Ask about a few images twice, and warn if the answers differ; a classifier is asked only once.

    Args:
        classifier: the model.
        images: in any form that `Classifier.observe` takes.
    """
    if classifier.is_repeatable is not None:
        return
    few = classifier.normalised(classifier.source(images)[:FEW])
    compare(classifier, *(classifier.read(classifier.backend.forward(few)[0], len(few))[0] for _ in range(2)))


def compare(classifier: Classifier, first: NDArray[np.float64], second: NDArray[np.float64]) -> None:
    """Remember whether two answers (n, K) of a classifier to the same images are equal, and warn if they are not."""
    if classifier.is_repeatable is not None:
        return
    difference = float(np.abs(first - second).max())
    classifier.is_repeatable = difference <= TOLERANCE
    if not classifier.is_repeatable:
        warnings.warn(
            f"{classifier.name} gives other probabilities when it is asked about the same images again (by up to "
            f"{difference:.2g}): numbers and promises about it hold on average at best. Switch off what is random in "
            "it, such as dropout.",
            stacklevel=3,
        )
