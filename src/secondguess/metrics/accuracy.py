"""Accuracy and confusion of predicted classes.

Labels below 0 are unknown: those examples are left out everywhere, and a set with no known label is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from secondguess.errors import UserError
from secondguess.metrics import checks
from secondguess.metrics.checks import Floats, Ints
from secondguess.metrics.interval import Interval, wilson

__all__ = ["PerClass", "accuracy", "accuracy_interval", "confusion", "most_confused", "per_class"]


@dataclass(frozen=True, slots=True, eq=False)
class PerClass:
    """Recall and precision of every class.

    Attributes:
        recall: (K,) share of the examples of a class that are recognised; NaN without examples.
        precision: (K,) share of the predictions of a class that are right; NaN without predictions.
        support: (K,) int64, number of examples of the class.
    """

    recall: Floats
    precision: Floats
    support: Ints


def accuracy(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Return the share of right predictions.

    Args:
        predictions: (n,) predicted classes.
        labels: (n,) true classes; below 0 = unknown, left out.
    """
    return accuracy_interval(predictions, labels).value


def accuracy_interval(predictions: ArrayLike, labels: ArrayLike, *, level: float = 0.95) -> Interval:
    """Return the share of right predictions with its Wilson interval.

    Args:
        predictions: (n,) predicted classes.
        labels: (n,) true classes; below 0 = unknown, left out.
        level: nominal coverage of the interval.

    Returns:
        The interval; its `n` is the number of known labels.
    """
    guessed, truth = checks.known_pairs(predictions, labels)
    return wilson(int((guessed == truth).sum()), len(truth), level)


def confusion(predictions: ArrayLike, labels: ArrayLike, num_classes: int) -> Ints:
    """Count how often each true class is predicted as each class.

    Args:
        predictions: (n,) predicted classes.
        labels: (n,) true classes; below 0 = unknown, left out.
        num_classes: number of classes K.

    Returns:
        (K, K) int64; row = true class, column = predicted class.
    """
    num_classes = checks.positive(num_classes, "num_classes")
    guessed, truth = checks.known_pairs(predictions, labels)
    checks.below(guessed, num_classes, "predictions")
    checks.below(truth, num_classes, "labels")
    cells = np.bincount(truth * num_classes + guessed, minlength=num_classes**2)
    return cells.reshape(num_classes, num_classes).astype(np.int64, copy=False)


def per_class(confusion: ArrayLike) -> PerClass:
    """Return recall, precision and support of every class from a (K, K) confusion matrix (rows = truth).

    A ratio with a denominator of 0 is NaN, because neither 0 nor 1 would be correct: recall of a class without
    examples, precision of a class that is never predicted.
    """
    matrix = _square(confusion)
    hits, support, predicted = matrix.diagonal(), matrix.sum(axis=1), matrix.sum(axis=0)
    return PerClass(recall=_ratio(hits, support), precision=_ratio(hits, predicted), support=support)


def most_confused(confusion: ArrayLike, top: int = 5) -> list[tuple[int, int, int]]:
    """List the most frequent mistakes of a (K, K) confusion matrix (rows = truth).

    Returns:
        At most `top` triples (true class, predicted class, count), most frequent first, equal counts in the
        order of the classes; mistakes that never happened are not listed.
    """
    matrix = _square(confusion).copy()
    top = checks.positive(top, "top")
    np.fill_diagonal(matrix, 0)
    order = np.argsort(-matrix, axis=None, kind="stable")[:top]
    cells = (divmod(int(cell), len(matrix)) for cell in order)
    return [(i, j, int(matrix[i, j])) for i, j in cells if matrix[i, j] > 0]


def _square(confusion: ArrayLike) -> Ints:
    """Return a confusion matrix as (K, K) int64."""
    matrix = np.asarray(confusion)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise UserError(f"The confusion matrix has shape {matrix.shape}; give a square matrix, rows = truth.")
    if not np.issubdtype(matrix.dtype, np.integer) or (matrix < 0).any():
        raise UserError(
            f"The confusion matrix (dtype {matrix.dtype}) does not hold counts; give integers of 0 or above."
        )
    return matrix.astype(np.int64, copy=False)


def _ratio(numerator: Ints, denominator: Ints) -> Floats:
    """Return the ratio, NaN where the denominator is 0."""
    ratio = np.full(len(numerator), np.nan)
    np.divide(numerator, denominator, out=ratio, where=denominator > 0)
    return ratio
