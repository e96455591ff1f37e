"""Temperature scaling (Guo, Pleiss, Sun, Weinberger, On calibration of modern neural networks, ICML 2017).

One number T > 0 divides all logits, p = softmax(z / T), and is chosen to minimise the negative log-likelihood
on held-out data. With b = 1 / T the loss

    L(b) = mean_i [ logsumexp(b z_i) − b q_i·z_i ],      L'(b) = mean_i [ softmax(b z_i)·z_i − q_i·z_i ]

is convex, so the root of L' is the only minimum and is found by bracketing it: no step size, no starting
value. The bracket is one of log b, because a softmax that is saturated needs a T of hundreds or thousands.

L needs logsumexp(b z_i) of every image at every b that is tried, of which no smaller statistic than the logits is
enough. So parts of the images contribute their logits, n × K numbers, and T is exactly that of all of them at once,
however they were cut; sums of L'(b) over parts would need another pass over all parts for each b.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.merging import Kept, merged
from secondguess.errors import UserError
from secondguess.training._examples import check_labels

__all__ = ["apply_temperature", "fit_temperature", "merged_temperature", "temperature_part"]

LOWEST, HIGHEST = 0.01, 10_000.0


def fit_temperature(logits: NDArray[Any], labels: NDArray[Any]) -> float:
    """Find the temperature with the lowest negative log-likelihood.

    Args:
        logits: (n, K), of images that the model was not trained on.
        labels: int (n,), or soft (n, K).

    Returns:
        T in [0.01, 10,000]. A bound is returned where the likelihood keeps improving beyond it: 0.01 for logits
        that are never wrong (any smaller T is better still), 10,000 for logits that are worse than equal ones. Where
        all logits of every row are equal, T does not matter and is 1.

    Raises:
        UserError: for logits that are not (n, K) finite numbers with K ≥ 2, or labels that do not fit them.
    """
    from scipy.optimize import brentq

    logits = _check_logits(logits)
    target_logits = _expected(logits, labels)
    centred = logits - logits.max(axis=1, keepdims=True)  # softmax(b z) with no overflow, whatever b
    target = float(np.mean(target_logits - logits.max(axis=1)))

    def slope(log_inverse: float) -> float:
        weights = np.exp(np.exp(log_inverse) * centred)
        return float(np.mean((weights * centred).sum(axis=1) / weights.sum(axis=1))) - target

    hottest, coldest = -np.log(HIGHEST), -np.log(LOWEST)
    if np.ptp(logits, axis=1).max() == 0:
        return 1.0
    if slope(coldest) <= 0:
        return LOWEST
    if slope(hottest) >= 0:
        return HIGHEST
    return float(np.exp(-brentq(slope, hottest, coldest, xtol=1e-12)))


def temperature_part(logits: NDArray[Any], labels: NDArray[Any]) -> Kept:
    """What some of the images contribute to a temperature, to be merged with what others do.

    Args:
        logits: (n, K), as for `fit_temperature`.
        labels: int (n,), or soft (n, K).
    """
    _expected(_check_logits(logits), labels)  # what is wrong is said where the part is
    return Kept({"logits": np.asarray(logits), "labels": np.asarray(labels)})


def merged_temperature(parts: Iterable[Kept]) -> float:
    """The temperature of all images of which `temperature_part` made parts, at least one; see `fit_temperature`."""
    arrays = merged(parts).arrays
    return fit_temperature(arrays["logits"], arrays["labels"])


def apply_temperature(logits: NDArray[Any], temperature: float) -> NDArray[np.float64]:
    """The probabilities softmax(logits / temperature), float64 (n, K)."""
    if not (np.isfinite(temperature) and temperature > 0):
        raise UserError(f"The temperature is {temperature}, but it must be a number greater than 0.")
    logits = _check_logits(logits)
    weights = np.exp((logits - logits.max(axis=1, keepdims=True)) / temperature)
    probabilities: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return probabilities


def _check_logits(logits: NDArray[Any]) -> NDArray[np.float64]:
    logits = np.asarray(logits, dtype=np.float64)
    if logits.ndim != 2 or len(logits) == 0 or logits.shape[1] < 2:
        raise UserError(f"The logits have the shape {logits.shape}, but (n, K) with n ≥ 1 and K ≥ 2 is needed.")
    if not np.isfinite(logits).all():
        raise UserError("The logits contain NaN or infinity; a temperature needs finite logits.")
    return logits


def _expected(logits: NDArray[np.float64], labels: NDArray[Any]) -> NDArray[np.float64]:
    """The logit of the label (or its mean under the soft label), (n,)."""
    labels = check_labels(labels, len(logits))
    if labels.ndim == 2:
        if labels.shape != logits.shape:
            raise UserError(f"The soft labels have the shape {labels.shape}, but the logits {logits.shape}.")
        return np.average(logits, axis=1, weights=labels)
    if labels.max() >= logits.shape[1]:
        raise UserError(f"The labels go up to {labels.max()}, but the logits have {logits.shape[1]} columns.")
    return np.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
