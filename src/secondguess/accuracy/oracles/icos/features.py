"""The features of the rules on training data: pixels, cells of pixels, or the activations of a layer.

The paper takes every pixel of every colour plane. On 28 x 28 grey levels that gives rules that a person can inspect; a
photo has too many pixels for a tree to be grown in reasonable time, and a rule about one of 150,000 of them means
nothing. So by default images of more than 1,024 numbers are reduced to means over square cells, the smallest that keep
within that. A `Trace` takes a layer of the classifier instead: better rules on photos, which can be printed but not
drawn.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.needs import Trace
from secondguess.model.observation import Observation

__all__ = ["Features", "cell_for", "cell_means", "feature_matrix", "feature_name", "grid_of"]

Features = Literal["auto"] | int | Trace
Shape = tuple[int, int, int]

MOST = 1024
BATCH, BATCH_VALUES = 1024, 1 << 22  # images at a time, and values if they are large


def cell_for(features: Features, shape: Shape) -> int:
    """The side of a cell in pixels for images (C, H, W): as given, or the smallest with at most 1,024 cells."""
    if isinstance(features, int):
        if isinstance(features, bool) or not 1 <= features <= max(shape[1:]):
            raise UserError(
                f"A cell of {features} pixels was asked for, but the images are {shape[1]} x {shape[2]}; "
                "features is 'auto', a Trace, or a side in pixels that fits, where 1 takes every pixel."
            )
        return features
    if features != "auto":
        raise UserError(f"features is 'auto', a side of cells in pixels, or a Trace, not {features!r}.")
    return next(
        cell
        for cell in range(1, max(shape[1:]) + 1)
        if int(np.prod(grid_of(shape, cell))) <= MOST or cell == max(shape[1:])
    )


def grid_of(shape: Shape, cell: int) -> Shape:
    """The shape (C, rows, columns) of images (C, H, W) in cells; those at the lower and right edge may be smaller."""
    return shape[0], -(-shape[1] // cell), -(-shape[2] // cell)


def cell_means(images: NDArray[np.float32], cell: int) -> NDArray[np.float32]:
    """Images (n, C, H, W) as means over cells, flattened plane by plane: (n, d)."""
    if cell > 1:
        for axis in (2, 3):
            starts = np.arange(0, images.shape[axis], cell)
            lengths = np.diff(starts, append=images.shape[axis]).astype(np.float32)
            sums = np.add.reduceat(images, starts, axis=axis, dtype=np.float32)
            images = np.asarray(sums / lengths.reshape((-1, 1) if axis == 2 else (-1,)), dtype=np.float32)
    return images.reshape(len(images), -1)


def feature_matrix(seen: Observation, features: Features) -> NDArray[np.float32]:
    """The features that the rules use, (n, d) float32."""
    if isinstance(features, Trace):
        return np.asarray(seen.trace(features), dtype=np.float32)
    images = seen.require_images("A feature of pixels")
    cell = cell_for(features, images.shape)
    matrix = np.empty((len(images), int(np.prod(grid_of(images.shape, cell)))), dtype=np.float32)
    batch = max(1, min(BATCH, BATCH_VALUES // int(np.prod(images.shape))))
    for start in range(0, len(images), batch):
        matrix[start : start + batch] = cell_means(images.images[start : start + batch], cell)
    return matrix


def feature_name(index: int, features: Features, shape: Shape) -> str:
    """What to call a column of the matrix: `pixel[row, column]`, with the plane in front where there are several."""
    if isinstance(features, Trace):
        return f"{features.layer}[{index}]"
    cell = cell_for(features, shape)
    plane, row, column = (int(part) for part in np.unravel_index(index, grid_of(shape, cell)))
    where = f"{row}, {column}" if shape[0] == 1 else f"{plane}, {row}, {column}"
    return f"{'pixel' if cell == 1 else 'cell'}[{where}]"
