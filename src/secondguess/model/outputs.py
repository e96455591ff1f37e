"""Reading a classifier's raw output: is it logits or probabilities, and is it sound?

Softmax is computed in float64 from float32 logits. In float32 a confident model's probabilities round to exactly 1 and
thousands of images tie; the logits still distinguish them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError

__all__ = [
    "TOLERANCE",
    "Convention",
    "NotFinite",
    "as_matrix",
    "detect",
    "naming",
    "restricted",
    "softmax",
    "to_probabilities",
]

Convention = Literal["logits", "probabilities"]
FEW = 64  # numbers
TOLERANCE = 5e-3  # bfloat16 models sum to one only about this well
NAMED = 5  # images


class NotFinite(UserError):
    """The model returned NaN or infinity.

    Args:
        rows: positions of the images, ascending.
        count: how many images it was asked about.
        names: of the images at `rows`, where these are known.
    """

    def __init__(self, rows: NDArray[np.int64], count: int, names: Sequence[str] = ()) -> None:
        self.rows, self.count = rows, count
        some = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
        super().__init__(
            f"The model returned NaN or infinity for {len(rows)} of {count} images{some and f' ({some})'}; check its "
            "weights and normalisation."
        )


@contextmanager
def naming(ids: Sequence[str] | None, first: int) -> Iterator[None]:
    """Name the images for which the model returns NaN or infinity in the block.

    Args:
        ids: of all images, or None where they have only their positions.
        first: the position of the first image that the model is asked about; before 0 there is noise.
    """
    try:
        yield
    except NotFinite as error:
        rows = [first + int(row) for row in error.rows]
        names = ["noise" if row < 0 else ids[row] if ids else f"image {row}" for row in rows]
        raise NotFinite(error.rows, error.count, list(dict.fromkeys(names))) from None


def softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Row-wise softmax (n, K) in float64."""
    if logits.size <= FEW and len(logits) == 1:  # NumPy takes longer to be called than to compute
        values: list[float] = logits[0].tolist()
        top = max(values)
        powers = [math.exp(value - top) for value in values]
        total = sum(powers)
        return np.array([[power / total for power in powers]])
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    np.exp(shifted, out=shifted)
    shifted /= shifted.sum(axis=1, keepdims=True)
    return shifted


def as_matrix(raw: NDArray[Any], count: int) -> NDArray[Any]:
    """Check the raw output of `count` images and bring it to (n, K) or, for one score per image, (n, 1)."""
    shape = raw.shape
    if raw.ndim == 1:
        raw = raw[:, None]
    elif raw.ndim > 2 and all(size == 1 for size in shape[2:]):
        raw = raw.reshape(shape[0], shape[1])
    if raw.ndim != 2 or len(raw) != count or raw.shape[1] == 0:
        raise UserError(
            f"The model returned an array of shape {shape} for {count} images; "
            f"({count}, K) with one score per class was expected."
        )
    if not np.isfinite(raw).all():
        raise NotFinite(np.flatnonzero(~np.isfinite(raw).all(axis=1)), count)
    return raw


def detect(raw: NDArray[Any]) -> Convention:
    """Logits or probabilities, judged by the values (n, K); an error when they are neither."""
    low, high = float(raw.min()), float(raw.max())
    if low < -TOLERANCE or high > 1 + TOLERANCE:
        return "logits"
    if raw.shape[1] == 1 or np.abs(raw.sum(axis=1, dtype=np.float64) - 1).max() <= TOLERANCE:
        return "probabilities"
    sums = raw.sum(axis=1, dtype=np.float64)
    raise UserError(
        f"The model's outputs lie between {low:.3g} and {high:.3g} but its rows sum to {sums.min():.3g} to "
        f"{sums.max():.3g}: neither probabilities of exclusive classes nor, it seems, logits; "
        "say output_kind='logits' (--output-kind logits) if they are logits."
    )


def to_probabilities(
    raw: NDArray[Any], convention: Convention
) -> tuple[NDArray[np.float64], NDArray[np.float32] | None]:
    """Probabilities (n, K) float64 and, if the model gives them, logits (n, K) float32.

    A single score per image is that of the second of two classes: a probability p becomes (1 - p, p), a logit l becomes
    (0, l).
    """
    if convention == "logits":
        if raw.shape[1] == 1:
            raw = np.concatenate([np.zeros_like(raw), raw], axis=1)
        logits = raw.astype(np.float32, copy=False)
        return softmax(logits), logits
    values = raw.astype(np.float64)
    if values.shape[1] == 1:
        values = np.concatenate([1 - values, values], axis=1)
    sums = values.sum(axis=1, keepdims=True)
    if values.min() < -TOLERANCE or np.abs(sums - 1).max() > TOLERANCE:
        raise UserError(
            f"Probabilities were expected, but the model returned values from {values.min():.3g} to {values.max():.3g} "
            f"with rows that sum to {sums.min():.3g} to {sums.max():.3g}; say output_kind='logits' "
            "(--output-kind logits) if these are logits."
        )
    values = values.clip(0, None)
    return values / values.sum(axis=1, keepdims=True), None


def restricted(
    probabilities: NDArray[np.float64], logits: NDArray[np.float32] | None, kept: list[int]
) -> tuple[NDArray[np.float64], NDArray[np.float32] | None]:
    """Probabilities and logits of some of the classes only, by their places; the probabilities sum to 1 again."""
    if logits is not None:
        return softmax(logits[:, kept]), logits[:, kept]
    some = probabilities[:, kept]
    sums = some.sum(axis=1, keepdims=True)
    return np.divide(some, sums, out=np.full_like(some, 1 / len(kept)), where=sums > 0), None
