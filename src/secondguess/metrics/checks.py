"""Input validation of the metrics: every array is checked here, once, and converted to one dtype.

Probabilities may leave [0, 1] by `RANGE_SLACK`, which rounding can do, and are then clipped; their rows may
miss a sum of 1 by `SUM_SLACK`, because a softmax in float16 is off by up to 0.0004 and one in bfloat16 by up
to 0.003. Rows are not rescaled.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.errors import UserError

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

RANGE_SLACK = 1e-6
SUM_SLACK = 5e-3


def floats(values: ArrayLike, name: str) -> Floats:
    """Return `values` as float64; raise a `UserError` if they are not numbers."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"The {name} are not an array of numbers ({error}); give a NumPy array of floats.") from error


def integers(values: ArrayLike, name: str) -> Ints:
    """Return the 1-D integer array `values` as int64; floats are refused, even when they are whole."""
    array = np.asarray(values)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise UserError(
            f"The {name} have dtype {array.dtype} and shape {array.shape}; give one integer for each "
            f"example, an array of shape (n,)."
        )
    return array.astype(np.int64, copy=False)


def scores(values: ArrayLike, name: str) -> Floats:
    """Return a set of scores as (n,) float64: not empty, no NaN; infinities are legal."""
    array = floats(values, f"{name} scores")
    if array.ndim != 1:
        raise UserError(f"The {name} scores have shape {array.shape}; give one score for each example, shape (n,).")
    if array.size == 0:
        raise UserError(f"The {name} scores are empty; give at least one score.")
    missing = int(np.isnan(array).sum())
    if missing:
        raise UserError(
            f"The {name} scores hold {missing} NaN among {array.size} values; drop those examples or "
            f"give each a score (infinities are legal)."
        )
    return array


def distributions(values: ArrayLike, name: str = "probabilities") -> Floats:
    """Return (n, K) float64 rows that are probability distributions, clipped to [0, 1]."""
    array = floats(values, name)
    if array.ndim != 2 or array.shape[0] == 0 or array.shape[1] == 0:
        raise UserError(f"The {name} have shape {array.shape}; give one row for each example, shape (n, classes).")
    if not np.isfinite(array).all():
        raise UserError(f"The {name} hold NaN or infinite values; give finite values in [0, 1].")
    low, high = float(array.min()), float(array.max())
    if low < -RANGE_SLACK or high > 1 + RANGE_SLACK:
        raise UserError(
            f"The {name} run from {low:.4g} to {high:.4g}, outside [0, 1]; if these are logits, apply softmax first."
        )
    sums = array.sum(axis=1)
    worst = float(sums[np.argmax(np.abs(sums - 1))])
    if abs(worst - 1) > SUM_SLACK:
        raise UserError(f"A row of the {name} sums to {worst:.4g}, not to 1; normalise every row over the classes.")
    return np.clip(array, 0, 1) if low < 0 or high > 1 else array


def known(probabilities: ArrayLike, labels: ArrayLike) -> tuple[Floats, Ints]:
    """Return the (m, K) probabilities and (m,) labels of the m examples whose label is known."""
    rows = distributions(probabilities)
    truth = integers(labels, "labels")
    same_length(rows, truth, "probabilities")
    below(truth, rows.shape[1], "labels")
    mask = truth >= 0
    at_least_one(mask)
    return (rows, truth) if mask.all() else (rows[mask], truth[mask])


def known_pairs(predictions: ArrayLike, labels: ArrayLike) -> tuple[Ints, Ints]:
    """Return the (m,) predictions and (m,) labels of the m examples whose label is known."""
    guessed, truth = integers(predictions, "predictions"), integers(labels, "labels")
    same_length(guessed, truth, "predictions")
    if (guessed < 0).any():
        raise UserError(f"The predictions hold {guessed.min()}; give class numbers from 0 on.")
    mask = truth >= 0
    at_least_one(mask)
    return guessed[mask], truth[mask]


def same_length(first: NDArray[np.generic], labels: NDArray[np.generic], name: str) -> None:
    """Refuse two arrays that do not describe the same examples."""
    if len(first) != len(labels):
        raise UserError(f"There are {len(first)} {name} but {len(labels)} labels; give both for the same examples.")


def below(classes: Ints, num_classes: int, name: str) -> None:
    """Refuse a class number that the classifier does not have."""
    if classes.size and classes.max() >= num_classes:
        raise UserError(
            f"The {name} hold class {classes.max()}, but there are {num_classes} classes; give numbers from "
            f"0 to {num_classes - 1}, or a negative label for unknown."
        )


def at_least_one(mask: NDArray[np.bool_]) -> None:
    """Refuse a set of examples of which none has a known label."""
    if not mask.any():
        raise UserError(f"None of the {mask.size} labels is known (0 or above); give at least one labelled example.")


def positive(value: int, name: str) -> int:
    """Return `value` if it is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise UserError(f"{name} is {value!r}; give a whole number of at least 1.")
    return int(value)
