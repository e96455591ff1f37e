"""Images as short rows of numbers, for distances between them: pixels, or means over cells where images are large."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secondguess.images.sources import Floats, ImageSource

__all__ = ["SIDE", "coarse", "coarse_rows"]

SIDE = 64  # pixels on the longer side up to which every pixel counts
BLOCK_VALUES = 1 << 22  # pixels read at a time


def coarse(images: Floats) -> Floats:
    """Images (n, C, H, W) flattened, (n, d); those of more than 64 pixels a side as means over square cells first."""
    cell = -(-max(images.shape[2:]) // SIDE)
    if cell > 1:
        for axis in (2, 3):
            starts = np.arange(0, images.shape[axis], cell)
            lengths = np.diff(starts, append=images.shape[axis]).astype(np.float32)
            sums = np.add.reduceat(images, starts, axis=axis, dtype=np.float32)
            images = np.asarray(sums / lengths.reshape((-1, 1) if axis == 2 else (-1,)), dtype=np.float32)
    return images.reshape(len(images), -1)


def coarse_rows(source: ImageSource, rows: NDArray[np.int64]) -> Floats:
    """The images at these positions as `coarse` gives them, read a few at a time."""
    step = max(1, BLOCK_VALUES // int(np.prod(source.shape)))
    return np.concatenate([coarse(source[rows[start : start + step]]) for start in range(0, len(rows), step)])
