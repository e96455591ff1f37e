"""Reading a classifier's output and layers inside a torch graph: what `outputs` and `Trace.apply` do, for tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from secondguess.model.needs import GRID_WIDTH, Trace

__all__ = ["read_output", "reduce_trace"]


def read_output(
    raw: torch.Tensor, *, logits: bool, kept: Sequence[int] | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The raw output of a model as probabilities (n, K) and as values (n, K), both in double precision.

    Args:
        raw: (n, K), or (n, 1) for the second of two classes.
        logits: whether it is logits, rather than probabilities.
        kept: the places of the classes that the softmax is restricted to; all if left out.
    """
    values = raw.flatten(1).double()
    if values.shape[1] == 1:
        values = torch.cat([torch.zeros_like(values) if logits else 1 - values, values], dim=1)
    if kept is not None:
        values = values[:, list(kept)]
    if logits:
        return values.softmax(1), values
    shares = values.clamp_min(0)
    if kept is not None:  # all the others may be impossible
        shares = torch.where(shares.sum(1, True) > 0, shares, torch.ones_like(shares))
    return shares / shares.sum(1, True), values


def reduce_trace(trace: Trace, values: torch.Tensor) -> torch.Tensor:
    """What `Trace.apply` does, for a tensor."""
    if trace.reduce == "grid" and values.ndim > 3:
        side = trace._side(tuple(values.shape[1:]))
        for axis in range(2, values.ndim):
            values = _cells(values, axis, side)
    if values.ndim == 3 and trace.reduce != "flatten":
        values = values.mean(1)
    elif trace.reduce == "mean" and values.ndim > 3:
        values = values.mean(tuple(range(2, values.ndim)))
    values = values.flatten(1)
    return _cells(values, 1, GRID_WIDTH) if trace.reduce == "grid" else values


def _cells(values: torch.Tensor, axis: int, most: int) -> torch.Tensor:
    """Means over at most `most` runs of neighbours along an axis, by a product with a matrix of their shares."""
    size = values.shape[axis]
    if size <= most:
        return values
    starts = np.arange(most) * size // most
    runs = np.repeat(np.arange(most), np.diff(starts, append=size))
    shares = np.zeros((size, most), dtype=np.float32)
    shares[np.arange(size), runs] = 1
    shares /= shares.sum(axis=0)
    return (values.movedim(axis, -1) @ torch.from_numpy(shares).to(values.device)).movedim(-1, axis)
