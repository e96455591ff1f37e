"""What a float32 matrix product may be wrong by, and the settings under which that holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from secondguess.errors import UserError

if TYPE_CHECKING:
    import torch

__all__ = ["largest", "rounding", "stated_precision"]

FURTHEST = 1e17  # beyond this norm, squares leave the range of float32


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
            f"The traces hold a value that is not a number, infinite or beyond {FURTHEST:g}, where distances mean "
            "nothing; look for the images or the layer that cause it, and leave them out."
        )
    return found


@contextmanager
def stated_precision(device: torch.device) -> Iterator[None]:
    """Full float32 products on a processor and TF32 on CUDA, as `rounding` assumes, whatever the caller has set."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if device.type == "cuda" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
