"""A bound on the error of a float32 matrix product, the rows and the settings for which it holds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.supervisors._traces import row_blocks

if TYPE_CHECKING:
    import torch

__all__ = ["REACH", "at_least", "largest", "rounding", "rows_in_reach", "stated_precision"]

FURTHEST = 1e17  # beyond this norm, squares leave the range of float32
REACH = 4e16  # of a row: from any centre of such rows, it is then well within FURTHEST
Precision = Literal["high", "highest"]


def rounding(dimension: int, device: torch.device) -> float:
    """A bound on the error of half a squared distance, relative to the squared norms: d products summed, and a shift.

    Tensor cores truncate where a processor rounds, and read eleven bits of each number that they multiply.
    """
    if device.type != "cpu":
        return 1.01 * ((dimension + 8) * 2.0**-23 + 2.0**-10)
    return 1.01 * (dimension + 8) * 2.0**-24


def largest(lengths: torch.Tensor) -> float:
    """The largest norm, if all of them can be computed with."""
    found = float(lengths.max())
    if not found < FURTHEST:
        raise UserError(
            f"The traces hold a value that is not a number, infinite or beyond {FURTHEST:g}, where distances are "
            "meaningless; find the images or the layer that cause it, and leave them out."
        )
    return found


def rows_in_reach(matrix: NDArray[np.float32]) -> NDArray[np.bool_] | None:
    """Which rows of a matrix (n, d) are finite and no longer than REACH, (n,); None if all of them are.

    The matrix may be memory-mapped: it is read once, a block at a time, and never copied as a whole.
    """
    near = np.ones(len(matrix), dtype=bool)
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in row_blocks(*matrix.shape):
            near[rows] = np.linalg.norm(matrix[rows], axis=1) <= REACH  # NaN is not
    return None if near.all() else near


class _Held:
    """The precision of float32 products, which is one for the whole process, on loan to any number of threads.

    While several threads want different ones, the best holds: every bound that is true of TF32 is true of full
    products. The last thread to leave restores the setting that the first found.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: list[Precision] = []
        self._before = "highest"

    @contextmanager
    def __call__(self, wanted: Precision) -> Iterator[None]:
        import torch

        with self._lock:
            if not self._wanted:
                self._before = torch.get_float32_matmul_precision()
            self._wanted.append(wanted)
            self._set()
        try:
            yield
        finally:
            with self._lock:
                self._wanted.remove(wanted)
                self._set()

    def _set(self) -> None:
        import torch

        best = "highest" if "highest" in self._wanted else "high"
        torch.set_float32_matmul_precision(best if self._wanted else self._before)


at_least = _Held()


def stated_precision(device: torch.device) -> AbstractContextManager[None]:
    """Full float32 products on a processor and TF32 or better on CUDA, as `rounding` assumes, whatever the caller set.

    Any number of threads may be inside at once; the setting of the caller is given back when the last has left.
    """
    return at_least("high" if device.type == "cuda" else "highest")
