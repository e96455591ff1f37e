"""Images whose patches have changed places: the same pixels, the same strokes close up, but nothing to recognise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["count_patches", "shuffle_patches"]

GRID = 7  # 4 x 4 pixels of a digit of 28 x 28: long enough for a stroke, too short for a digit


def count_patches(sides: Sequence[int]) -> int:
    """How many patches an image of (height, width) is cut into."""
    (rows, columns), _ = _cut(sides)
    return rows * columns


def shuffle_patches(images: NDArray[np.float32], keys: NDArray[np.float64]) -> NDArray[np.float32]:
    """Move each patch to the place of the next one in a cycle through all patches, so that none stays where it was.

    A patch is a seventh of the image high and wide, rounded down, and at least two pixels if the image has four. What
    is left over at the lower and right edge stays.

    Args:
        images: (m, C, H, W).
        keys: (m, p) random numbers, p = `count_patches((H, W))`; their order is the order of the cycle.
    """
    count, channels = images.shape[:2]
    (rows, columns), (height, width) = _cut(images.shape[2:])
    inside = (slice(None), slice(None), slice(rows * height), slice(columns * width))
    tiles = images[inside].reshape(count, channels, rows, height, columns, width).transpose(0, 2, 4, 1, 3, 5)
    patches = tiles.reshape(count, rows * columns, channels, height, width)
    cycle = np.argsort(keys, axis=1)
    image = np.arange(count)[:, None]
    moved = np.empty_like(patches)
    moved[image, np.roll(cycle, -1, axis=1)] = patches[image, cycle]
    result = images.copy()
    result[inside] = (
        moved.reshape(count, rows, columns, channels, height, width)
        .transpose(0, 3, 1, 4, 2, 5)
        .reshape(count, channels, rows * height, columns * width)
    )
    return result


def _cut(sides: Sequence[int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """The numbers of patches down and across, and the (height, width) of a patch."""
    height, width = (max(2, side // GRID) if side >= 4 else 1 for side in sides)
    return (sides[0] // height, sides[1] // width), (height, width)
