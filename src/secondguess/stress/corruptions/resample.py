"""Where the pixels of a bent, turned or enlarged image come from. All interpolation is linear."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from secondguess.stress.corruptions.registry import Work

__all__ = ["grid", "pick", "sample", "warp", "zoom", "zoom_matrix"]


def grid(images: Work) -> tuple[Work, Work]:
    """The column and the row of every pixel, each (H, W)."""
    row, column = np.mgrid[0 : images.shape[2], 0 : images.shape[3]].astype(np.float64)
    return column, row


def sample(images: Work, x: Work, y: Work) -> Work:
    """Read images (n, C, H, W) at columns x and rows y, each (n, H, W) or (1, H, W).

    Bilinear; outside, everything is black, so that the outermost pixels fade out over one pixel.
    """
    height, width = images.shape[2:]
    x0, y0 = np.floor(x), np.floor(y)
    result = np.zeros_like(images)
    for yi in (y0, y0 + 1):
        for xi in (x0, x0 + 1):
            inside = (xi >= 0) & (xi < width) & (yi >= 0) & (yi < height)
            weight = np.where(inside, (1 - np.abs(x - xi)) * (1 - np.abs(y - yi)), 0.0)
            row, column = (yi.clip(0, height - 1).astype(np.intp), xi.clip(0, width - 1).astype(np.intp))
            result += weight[:, None] * pick(images, row * width + column)
    return result


def pick(images: Work, places: NDArray[np.intp]) -> Work:
    """The pixels of images (n, C, H, W) at places row W + column, (n, H, W) or (1, H, W)."""
    n, channels, height, width = images.shape
    first = np.arange(n)[:, None, None] * (channels * height * width)
    found = np.empty_like(images)
    for channel in range(channels):  # flat positions: an index for every axis takes several times as long
        np.take(images, places + first + channel * height * width, out=found[:, channel], mode="clip")
    return found


def warp(images: Work, linear: NDArray[np.float64]) -> Work:
    """Resample with linear maps (n, 2, 2), or one (2, 2), from output to input (column, row), the centre fixed."""
    height, width = images.shape[2:]
    centre = np.array([[(width - 1) / 2], [(height - 1) / 2]])
    offsets = np.stack(grid(images)).reshape(2, -1) - centre
    positions = (linear.reshape(-1, 2, 2) @ offsets + centre).reshape(-1, 2, height, width)
    return sample(images, positions[:, 0], positions[:, 1])


def zoom(images: Work, factor: float) -> Work:
    """Enlarge the middle of images (..., H, W) to the full frame."""
    rows, columns = (zoom_matrix(size, factor) for size in images.shape[-2:])
    return rows @ images @ columns.T


def zoom_matrix(size: int, factor: float) -> Work:
    """Which input pixels (columns) make which output pixel (rows) when the middle of a line is enlarged.

    The published recipe: cut out the middle ceil(size / factor) pixels, enlarge them so that first and last pixel stay
    first and last, and trim the result to the old size.
    """
    kept = math.ceil(size / factor)
    enlarged = round(kept * factor)
    position = np.arange(size) + (enlarged - size) // 2
    source = position * ((kept - 1) / max(enlarged - 1, 1)) + (size - kept) // 2
    return np.maximum(0.0, 1 - np.abs(source[:, None] - np.arange(size)))
