"""Mean and covariance of matrices that need not fit into memory, and the directions in which they vary at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["blocks", "mean_and_covariance", "varying"]

Floats = NDArray[np.float64]

_BLOCK_CELLS = 2**22  # 32 MiB of float64
_NOISE = 1e-10  # of the variance: in float32 traces, what varies 1e-5 as much as the widest may be rounding


def blocks(rows: int, columns: int) -> Iterator[slice]:
    """Consecutive slices of so few rows that a float64 copy of one stays small."""
    step = max(1, _BLOCK_CELLS // max(1, columns))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def mean_and_covariance(*matrices: NDArray[np.floating[Any]]) -> tuple[Floats, Floats]:
    """Mean (d,) and covariance (d, d), divided by n, of matrices (n, d_i) taken side by side.

    In float64 and in two passes, mean first: traces have a large mean and a small spread.
    """
    rows, columns = len(matrices[0]), sum(matrix.shape[1] for matrix in matrices)

    def values() -> Iterator[Floats]:
        for block in blocks(rows, columns):
            yield np.concatenate([matrix[block] for matrix in matrices], axis=1, dtype=np.float64)

    mean = sum((block.sum(axis=0) for block in values()), np.zeros(columns)) / rows
    squares = np.zeros((columns, columns))
    for block in values():
        centred = block - mean
        squares += centred.T @ centred
    return mean, squares / rows


def varying(covariance: Floats, scale: float | None = None) -> tuple[Floats, Floats]:
    """The eigenvalues (r,), falling, and eigenvectors (d, r) of a covariance that are more than rounding.

    Args:
        covariance: (d, d), symmetric.
        scale: the variance against which rounding is measured; the largest eigenvalue if left out.
    """
    eigenvalues, eigenvectors = np.linalg.eigh(covariance)
    limit = _NOISE * (max(eigenvalues[-1], 0.0) if scale is None else scale)
    kept = eigenvalues > limit
    return eigenvalues[kept][::-1], eigenvectors[:, kept][:, ::-1]
