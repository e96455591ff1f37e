"""The usual normalisations of images, tried on a model: which one fits best?

The order of the model's classes may be wrong at the same time. An answer therefore counts as right if it is the output
that belongs to the label, where outputs are assigned to labels by the answers to the other half of the images, if that
makes clearly more answers right than the order as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.metrics.interval import Interval, wilson
from secondguess.model.classifier import Classifier
from secondguess.progress import Progress

if TYPE_CHECKING:
    from secondguess.images import ImageSet

__all__ = ["CLEARLY", "Candidate", "assigned", "best_of", "fits_better", "try_normalisations"]

# Another order of the classes counts from so much more accuracy, and from that accuracy on.
CLEARLY, CONVINCING = 0.1, 0.5
OWN = "as described"
TINY = 1e-12

# Name, mean and std of pixels in [0, 1], for grey and for colour images.
USUAL: dict[int, dict[str, tuple[tuple[float, ...], tuple[float, ...]]]] = {
    1: {
        "none": ((0.0,), (1.0,)),
        "pixels from 0 to 255": ((0.0,), (1 / 255,)),
        "pixels from -1 to 1": ((0.5,), (0.5,)),
        "MNIST": ((0.1307,), (0.3081,)),
        "Fashion-MNIST": ((0.2860,), (0.3530,)),
        "ImageNet, grey": ((0.449,), (0.226,)),
    },
    3: {
        "none": ((0.0,), (1.0,)),
        "pixels from 0 to 255": ((0.0,), (1 / 255,)),
        "pixels from -1 to 1": ((0.5,), (0.5,)),
        "ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        "CIFAR-10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        "MNIST": ((0.1307,), (0.3081,)),
    },
}


@dataclass(frozen=True)
class Candidate:
    """How a model does with one normalisation.

    Attributes:
        name: what the normalisation is called.
        mean: subtracted from pixels in [0, 1].
        std: what the difference is divided by.
        accuracy: the share of right answers with the classes in the order they have.
        fitting: the share of right answers with the order that fits best; the same in most cases.
        confidence: the mean confidence.
        nll: the mean negative log-likelihood, with the order that fits best.
        balanced: as `fitting`, every label counting alike: what always gives the same answer does badly here.
    """

    name: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    accuracy: Interval
    fitting: float
    confidence: float
    nll: float
    balanced: float
    probabilities: NDArray[np.float64] = field(repr=False)
    hits: NDArray[np.bool_] = field(repr=False)
    losses: NDArray[np.float64] = field(repr=False)

    @property
    def predictions(self) -> NDArray[np.int64]:
        """(n,) the classes that the model gives."""
        return np.asarray(self.probabilities.argmax(axis=1), dtype=np.int64)

    def to_dict(self) -> dict[str, Any]:
        """The numbers."""
        return {
            "name": self.name,
            "mean": list(self.mean),
            "std": list(self.std),
            "accuracy": self.accuracy.value,
            "accuracy_best_order": self.fitting,
            "confidence": self.confidence,
            "nll": self.nll,
        }


def try_normalisations(
    classifier: Classifier, images: ImageSet, labels: NDArray[np.int64], progress: Progress
) -> list[Candidate]:
    """How the model does with its own normalisation, which comes first, and with the usual ones."""
    own = classifier.description
    usual = USUAL.get(images.shape[0], {})
    same = [name for name, (mean, std) in usual.items() if _equal(mean, own.mean) and _equal(std, own.std)]
    trials = {same[0] if same else OWN: (own.mean, own.std)}
    trials |= {name: values for name, values in usual.items() if name not in same}
    found = []
    with progress.task("Trying normalisations", len(trials)) as advance:
        for done, (name, (mean, std)) in enumerate(trials.items(), 1):
            seen = Classifier.open(classifier, mean=mean, std=std).observe(images)
            found.append(_candidate(name, mean, std, seen.probabilities, labels))
            advance(done, len(trials))
    return found


def best_of(found: list[Candidate]) -> Candidate:
    """The candidate with the smallest log-loss among those that are as accurate as the most accurate one.

    Those that do clearly worse than another where every label counts alike are no candidates.
    """
    limit = max(one.balanced for one in found) - CLEARLY
    fair = [one for one in found if one.balanced >= limit]
    top = max(fair, key=lambda one: one.fitting)
    return min((one for one in fair if fits_better(top, one) != "accuracy"), key=lambda one: one.nll)


def fits_better(one: Candidate, other: Candidate) -> str:
    """What is better about `one` than about `other` beyond doubt: `accuracy`, `confidence`, or nothing.

    What is right more often because it gives the most frequent label more often is not better.
    """
    if one.balanced < other.balanced - CLEARLY:
        return ""
    gained, lost = int((one.hits & ~other.hits).sum()), int((other.hits & ~one.hits).sum())
    surely = gained - lost > 4 * np.sqrt(gained + lost)  # McNemar's test at about p = 1e-4
    if surely and one.fitting - other.fitting >= 0.02:
        return "accuracy"
    drop = other.losses - one.losses
    spread = drop.std() / np.sqrt(len(drop))
    if lost <= gained and drop.mean() > max(4 * spread, 0.2 * other.nll, 0.02):
        return "confidence"
    return ""


def assigned(
    predictions: NDArray[np.int64], labels: NDArray[np.int64], outputs: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which output belongs to which label, by the answers.

    Args:
        predictions: (n,) the outputs that the model chose.
        labels: (n,) what the images show.
        outputs: how many outputs the model has, at least as many as labels.

    Returns:
        (n,) the output that belongs to each image's label, found on the half that the image is not in; and for every
        label the output, found on all images.
    """
    half = np.arange(len(labels)) % 2
    expected = np.empty(len(labels), dtype=np.int64)
    for part in (0, 1):
        expected[half == part] = _assignment(predictions[half != part], labels[half != part], outputs)[
            labels[half == part]
        ]
    return expected, _assignment(predictions, labels, outputs)


def _assignment(predictions: NDArray[np.int64], labels: NDArray[np.int64], outputs: int) -> NDArray[np.int64]:
    """(outputs,) the output for each label that makes most answers right; the same number where answers say nothing."""
    from scipy.optimize import linear_sum_assignment

    counts = np.zeros((outputs, outputs))
    np.add.at(counts, (labels, predictions), 1)
    _, columns = linear_sum_assignment(counts + 1e-6 * np.eye(outputs), maximize=True)
    return np.asarray(columns, dtype=np.int64)


def _candidate(
    name: str,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    probabilities: NDArray[np.float64],
    labels: NDArray[np.int64],
) -> Candidate:
    predictions, rows = probabilities.argmax(axis=1), np.arange(len(labels))
    hits, expected = predictions == labels, labels
    if labels.max() < probabilities.shape[1]:
        other, _ = assigned(predictions, labels, probabilities.shape[1])
        if (predictions == other).mean() > max(hits.mean() + CLEARLY, CONVINCING):
            expected = other
    known = expected < probabilities.shape[1]
    chances = np.where(known, probabilities[rows, np.where(known, expected, 0)], 0)
    losses = -np.log(np.maximum(chances, TINY))
    return Candidate(
        name=name,
        mean=tuple(mean),
        std=tuple(std),
        accuracy=wilson(int(hits.sum()), len(labels)),
        fitting=float((predictions == expected).mean()),
        confidence=float(probabilities.max(axis=1).mean()),
        nll=float(losses.mean()),
        balanced=float(np.mean([(predictions == expected)[labels == label].mean() for label in np.unique(labels)])),
        probabilities=probabilities,
        hits=predictions == expected,
        losses=losses,
    )


def _equal(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    longest = max(len(one), len(other))
    if not {len(one), len(other)} <= {1, longest}:
        return False
    return bool(np.allclose(np.broadcast_to(one, longest), np.broadcast_to(other, longest), atol=2e-3))
