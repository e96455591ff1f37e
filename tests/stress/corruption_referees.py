"""What the tests of single corruptions share: images, grey levels, and referees that two of them need."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import scipy.ndimage
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Work = NDArray[np.float64]
Levels = NDArray[np.int64]
SHAPES = [(1, 28, 28), (3, 16, 16), (1, 9, 14), (3, 5, 4)]


def images(shape: tuple[int, int, int] = (1, 28, 28), n: int = 6, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape)).astype(np.float32) / np.float32(255)


def digits(n: int = 6, size: int = 28) -> Floats:
    """Bright rings on black: smooth, like handwriting, unlike noise."""
    row, column = np.mgrid[0:size, 0:size] - (size - 1) / 2
    radius = np.hypot(row * 1.3, column)
    rings = [np.exp(-(((radius - size * (0.15 + 0.03 * k)) / (size * 0.06)) ** 2)) for k in range(n)]
    return (np.rint(np.stack(rings)[:, None] * 255) / 255).astype(np.float32)


def exact(values: Floats) -> Work:
    return np.rint(values.astype(np.float64) * 255) / 255


def truncated(values: Work) -> Levels:
    """Grey levels 0..255 as in the published sets: clipped, scaled, cut to whole numbers."""
    return np.floor(np.clip(values, 0, 1) * 255 + 1e-9).astype(np.int64)


def levels(values: Floats) -> Levels:
    return np.rint(values * 255).astype(np.int64)


def assert_close(seen: Levels, wanted: Levels, *, same: float = 0.97) -> None:
    """Within one grey level: two roundings of the same real number can fall on both sides of a whole level."""
    assert np.abs(seen - wanted).max() <= 1
    assert (seen == wanted).mean() >= same


def planes_through(function: Callable[[Work], Work], given: Floats) -> Work:
    """Each channel (H, W) of each image through a function."""
    return np.stack([[function(plane) for plane in image] for image in exact(given)])


def smeared(image: Work, angle: float, radius: int, sigma: float) -> Work:
    """Motion blur of one image (C, H, W), pixel by pixel, rounded to grey levels."""
    weights = [math.exp(-(i**2) / (2 * sigma**2)) for i in range(2 * radius + 1)]
    _, height, width = image.shape
    out = np.zeros_like(image)
    for y, x in product(range(height), range(width)):
        for i, weight in enumerate(weights):
            row = min(max(y + math.ceil(i * math.sin(angle) - 0.5), 0), height - 1)
            column = min(max(x + math.ceil(i * math.cos(angle) - 0.5), 0), width - 1)
            out[:, y, x] += weight / sum(weights) * image[:, row, column]
    return np.rint(out * 255) / 255


def zoomed_by_scipy(plane: Work, factor: float) -> Work:
    size = np.array(plane.shape)
    kept = np.ceil(size / factor).astype(int)
    top, left = (size - kept) // 2
    large = scipy.ndimage.zoom(plane[top : top + kept[0], left : left + kept[1]], factor, order=1)
    top, left = (np.array(large.shape) - size) // 2
    return large[top : top + size[0], left : left + size[1]]
