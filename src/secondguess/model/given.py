"""Arrays that were given as what a model said: checked, and brought to what an observation holds.

They may be memory-mapped and larger than memory: numbers are looked at some rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.needs import Trace
from secondguess.model.outputs import TOLERANCE, to_probabilities

__all__ = [
    "as_array",
    "as_whole",
    "blocks_of",
    "check_logits",
    "check_probabilities",
    "converted",
    "split_traces",
]

NUMBERS = 1 << 20  # looked at in one go: 8 MiB in double precision
EPSILON = float(np.finfo(np.float64).eps)  # times K: how far rounding takes a sum from one


def as_array(values: Any) -> Any:
    """The values as an array, without a copy where they are one; None stays None."""
    if values is None or isinstance(values, np.ndarray):
        return values
    return values.detach().cpu().numpy() if hasattr(values, "detach") else np.asarray(values)


def as_whole(values: Any, name: str) -> NDArray[np.int64]:
    """Whole numbers, one for each image; a `UserError` with their name where they are none."""
    array = as_array(values)
    if array.dtype.kind not in "iu":
        raise UserError(f"The {name} are of dtype {array.dtype}; give one whole number per image.")
    return np.asarray(array, dtype=np.int64)


def check_probabilities(values: NDArray[Any], name: str, instead: str) -> bool:
    """Raise a `UserError` unless all rows (..., K) are positive and sum to about one.

    Args:
        values: to be looked at.
        name: of the values.
        instead: what to give where they are logits.

    Returns:
        Whether they are float64, not negative, and sum to one as well as float64 can say: nothing is left to be done.
    """
    _check_numbers(values, name)
    if not values.size:
        return values.dtype == np.float64
    low, high, least, most = np.inf, -np.inf, np.inf, -np.inf
    for rows in blocks_of(values):
        sums = values[rows].sum(axis=-1, dtype=np.float64)
        # `np.minimum` hands a NaN on, `min` may lose it.
        low, high = np.minimum(low, values[rows].min()), np.maximum(high, values[rows].max())
        least, most = np.minimum(least, sums.min()), np.maximum(most, sums.max())
    if not (low >= -TOLERANCE and most - 1 <= TOLERANCE and 1 - least <= TOLERANCE):  # NaN is false
        raise UserError(
            f"The {name} run from {low:.3g} to {high:.3g} and rows sum to {least:.3g} to {most:.3g}; none may be "
            f"negative, and every row must sum to 1. Where these are logits, give {instead}."
        )
    return bool(values.dtype == np.float64 and low >= 0 and max(most - 1, 1 - least) <= EPSILON * values.shape[-1])


def check_logits(values: NDArray[Any]) -> None:
    """Raise a `UserError` unless all logits (n, K) are finite in single precision, in which a softmax reads them."""
    _check_numbers(values, "logits")
    for rows in blocks_of(values):
        with np.errstate(over="ignore"):
            finite = np.isfinite(values[rows].astype(np.float32, copy=False)).all(axis=1)
        if not finite.all():
            raise UserError(
                f"The logits of image {rows.start + int(finite.argmin())} hold NaN or infinity, or what single "
                "precision cannot hold; leave such images out, and where a class cannot be, give a logit far below the "
                "others."
            )


def _check_numbers(values: NDArray[Any], name: str) -> None:
    if values.dtype.kind not in "biuf":
        raise UserError(f"The {name} are of dtype {values.dtype}; give numbers.")


def converted(values: NDArray[Any]) -> NDArray[np.float64]:
    """Probabilities (n, K) as a classifier's own are read; besides the result, some rows at a time are copied."""
    found = np.empty(values.shape)
    for rows in blocks_of(values):
        given = np.ascontiguousarray(values[rows])  # NumPy's sums depend on the order in memory
        found[rows] = to_probabilities(given, "probabilities")[0]
        if given.dtype == np.float64:  # whatever is beside a row, it stays as it is if nothing is wrong with it
            sound = (given >= 0).all(axis=1) & (np.abs(given.sum(axis=1) - 1) <= EPSILON * given.shape[1])
            found[rows][sound] = given[sound]
    return found


def blocks_of(values: NDArray[Any]) -> Iterator[slice]:
    """Consecutive slices of the rows of an array (n, ...), which may be memory-mapped and larger than memory."""
    step = max(1, NUMBERS * len(values) // max(1, values.size))
    return (slice(start, min(start + step, len(values))) for start in range(0, len(values), step))


def split_traces(traces: Mapping[Any, Any]) -> tuple[dict[str, NDArray[np.float32]], dict[Trace, NDArray[np.float32]]]:
    """Raw outputs of layers by name, and all traces by `Trace`, those outputs among them."""
    outputs, reduced = {}, {}
    for key, values in traces.items():
        if isinstance(key, Trace):
            reduced[key] = as_array(values)
        else:
            # Doubles are not rounded: a supervisor centres them first, so that traces far from zero keep their digits.
            array = as_array(values)
            outputs[key] = array if array.dtype.kind == "f" else array.astype(np.float32)
            reduced[Trace(key)] = Trace(key).apply(outputs[key])
    return outputs, reduced
