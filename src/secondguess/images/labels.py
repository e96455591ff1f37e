"""What a label array means: integers, names, one-hot rows or soft labels, with -1 for unknown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError

__all__ = ["check_soft", "infer_class_names", "parse_labels"]

SUM_TOLERANCE = 1e-4  # rows that went through float32 or four printed digits still sum to 1


def infer_class_names(arrays: Iterable[NDArray[Any] | None]) -> tuple[str, ...]:
    """Class names that cover all label arrays of a data set (its splits must agree on them).

    Strings name the classes themselves, in sorted order; integers 0..K-1 and matrices (n, K) give "0".."K-1";
    nothing but unknown labels gives ().
    """
    names: set[str] = set()
    count = 0
    for array in arrays:
        if array is None or array.size == 0:
            continue
        array = squeeze_column(array)
        if array.ndim == 2:
            count = max(count, array.shape[1])
        elif array.dtype.kind == "U":
            names.update(array.tolist())
        elif array.dtype.kind in "iufb" and np.all(np.isfinite(array)):
            count = max(count, int(array.max()) + 1)
    return tuple(sorted(names - {""})) or tuple(str(k) for k in range(count))


def parse_labels(
    values: Any, n: int, class_names: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    """Convert labels in any accepted form into integer labels (n,) and, where they are soft, probabilities (n, K).

    Args:
        values: None (all unknown), integers (n,) or (n, 1), strings (n,) out of `class_names` ("" = unknown),
            or a matrix (n, K) of one-hot or soft rows.
        n: the number of images.
        class_names: the K names.
    """
    if values is None:
        return np.full(n, -1, dtype=np.int64), None
    array = squeeze_column(np.asarray(values))
    if array.ndim not in (1, 2) or len(array) != n:
        raise UserError(f"{n} images but labels of shape {array.shape} were given; one label per image is needed.")
    if array.dtype.kind == "U" and array.ndim == 1:
        return _from_names(array, class_names), None
    if array.dtype.kind not in "iufb":
        raise UserError(f"Labels of dtype {array.dtype} were given; use integers, strings or a matrix (n, K).")
    if array.ndim == 2:
        soft = check_soft(array, n, len(class_names))
        return soft.argmax(axis=1).astype(np.int64), None if np.all(soft.max(axis=1) == 1) else soft
    if array.dtype.kind == "f" and not np.all(np.isfinite(array) & (array == np.round(array))):
        raise UserError("The labels hold fractions or NaN; a label is a whole number from 0, or -1 for unknown.")
    return array.astype(np.int64), None


def check_soft(values: Any, n: int, k: int) -> NDArray[np.float64]:
    """Check that soft labels are n rows of k probabilities, and give them as float64."""
    soft = np.asarray(values)
    if soft.shape != (n, k) or soft.dtype.kind not in "iufb":
        raise UserError(
            f"Soft labels of shape {soft.shape} and dtype {soft.dtype} were given, but {n} images of {k} "
            f"classes need numbers of shape ({n}, {k})."
        )
    soft = soft.astype(np.float64)
    bad = ~((soft >= 0).all(axis=1) & (np.abs(soft.sum(axis=1) - 1) <= SUM_TOLERANCE))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise UserError(
            f"Row {row} of the soft labels sums to {soft[row].sum():.6g} (smallest entry "
            f"{soft[row].min():.6g}); each row must hold probabilities that sum to 1."
        )
    return soft


def squeeze_column(array: NDArray[Any]) -> NDArray[Any]:
    """Turn a column (n, 1), as MedMNIST stores its labels, into (n,)."""
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def _from_names(array: NDArray[np.str_], class_names: Sequence[str]) -> NDArray[np.int64]:
    number = {name: k for k, name in enumerate(class_names)} | {"": -1}
    missing = sorted(set(array.tolist()) - number.keys())
    if missing:
        raise UserError(f"The label {missing[0]!r} is not one of the classes {', '.join(class_names)}.")
    return np.array([number[name] for name in array.tolist()], dtype=np.int64)
