"""A bound on the error of a float32 matrix product, and the settings under which it holds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Literal

from secondguess.errors import UserError

if TYPE_CHECKING:
    import torch

__all__ = ["at_least", "largest", "rounding", "stated_precision"]

FURTHEST = 1e17  # beyond this norm, squares leave the range of float32
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
