"""Geometry: turned, sheared, shrunk, shifted, bent and mirrored images; what comes in from outside is black.

Maps run from output to input coordinates (column, row) and leave the centre of the image where it is; at 28 x 28 pixels
that is the (13.5, 13.5) of the published sets. Lengths that MNIST-C gives for 28 pixels are fractions of the image.
"""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from secondguess.stress.corruptions.registry import Work, corruption
from secondguess.stress.corruptions.resample import grid, sample, warp

__all__ = [
    "elastic_transform",
    "flip_sides",
    "flip_up_down",
    "rotate",
    "scale",
    "shear",
    "translate",
    "turn_left",
    "turn_right",
]

FASHION = "Fashion-MNIST-C"


@corruption(0.2, 0.4, 0.6, 0.8, 1.0, default=2)
def rotate(images: Work, rng: np.random.Generator, angle: float) -> Work:
    """Turned about the centre by +c or -c radians, the sign drawn for each image."""
    signed = angle * _signs(rng, len(images))
    cos, sin = np.cos(signed), np.sin(signed)
    return warp(images, np.stack([cos, -sin, sin, cos], axis=1))


@corruption(0.2, 0.4, 0.6, 0.8, 1.0, default=2)
def shear(images: Work, rng: np.random.Generator, angle: float) -> Work:
    """Columns pushed sideways by +c or -c radians: the map [[1, -sin c], [0, cos c]].

    That is the shear of scikit-image up to 0.19, with which the published sets were made; later ones differ.
    """
    signed = angle * _signs(rng, len(images))
    one, zero = np.ones(len(images)), np.zeros(len(images))
    return warp(images, np.stack([one, -np.sin(signed), zero, np.cos(signed)], axis=1))


@corruption(1 / 0.9, 1 / 0.8, 1 / 0.7, 1 / 0.6, 1 / 0.5, default=3)
def scale(images: Work, rng: np.random.Generator, factor: float) -> Work:
    """Shrunk to 1/c of its size, in the middle of a black frame."""
    return warp(images, factor * np.eye(2))


@corruption(1, 2, 3, 4, 5, default=3)
def translate(images: Work, rng: np.random.Generator, pixels: float) -> Work:
    """Shifted along both axes by c 28ths of the image, at least one pixel; two signs drawn for each image."""
    column, row = grid(images)
    height, width = column.shape
    signs = _signs(rng, (len(images), 2))[..., None, None]
    dx, dy = (max(1, round(pixels * size / 28)) for size in (width, height))
    return sample(images, column + dx * signs[:, 0], row + dy * signs[:, 1])


@corruption((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02), default=1)
def elastic_transform(images: Work, rng: np.random.Generator, reach: float, smoothness: float, affine: float) -> Work:
    """A random affine map, then a random smooth displacement of every pixel; all lengths in sides of the image.

    The affine map moves three corners of a square around the centre by up to c3 each way; the displacement is uniform
    noise, smoothed by a Gaussian of width c2 and stretched by c1.
    """
    n, (column, row) = len(images), grid(images)
    height, width = column.shape
    side = min(height, width)
    drawn = 2 * rng.random((n, 6 + 2 * column.size)) - 1

    centre = np.array([width // 2, height // 2])
    corners = centre + max(1, side // 3) * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = corners + affine * side * drawn[:, :6].reshape(n, 3, 2)
    back = np.linalg.solve(np.concatenate([moved, np.ones((n, 3, 1))], axis=2), np.broadcast_to(corners, (n, 3, 2)))
    pixels = np.stack([column, row, np.ones_like(row)], axis=-1).reshape(-1, 3)
    x, y = (pixels @ back).transpose(2, 0, 1).reshape(2, n, height, width)
    bent = sample(images, x, y)

    noise = drawn[:, 6:].reshape(n, 2, height, width)
    sigma = smoothness * side
    # As products with matrices: a Gaussian nearly as wide as the image has several times more taps than it has pixels.
    smooth = {size: ndimage.gaussian_filter1d(np.eye(size), sigma, axis=0, truncate=3) for size in (height, width)}
    shift = reach * side * (smooth[height] @ noise @ smooth[width].T)
    x, y = column + shift[:, 0], row + shift[:, 1]
    inside = (x >= 0) & (x <= width - 1) & (y >= 0) & (y <= height - 1)
    return sample(bent, x, y) * inside[:, None]


@corruption(source=FASHION)
def flip_sides(images: Work, rng: np.random.Generator) -> Work:
    """Mirrored left to right."""
    return images[..., ::-1]


@corruption(source=FASHION)
def flip_up_down(images: Work, rng: np.random.Generator) -> Work:
    """Mirrored top to bottom."""
    return images[..., ::-1, :]


@corruption(source=FASHION)
def turn_right(images: Work, rng: np.random.Generator) -> Work:
    """A quarter turn clockwise about the centre; an oblong image is cut at its frame."""
    return warp(images, np.array([[0.0, 1.0], [-1.0, 0.0]]))


@corruption(source=FASHION)
def turn_left(images: Work, rng: np.random.Generator) -> Work:
    """A quarter turn counter-clockwise about the centre; an oblong image is cut at its frame."""
    return warp(images, np.array([[0.0, -1.0], [1.0, 0.0]]))


def _signs(rng: np.random.Generator, shape: int | tuple[int, ...]) -> Work:
    """+1 or -1, each half of the time."""
    return np.where(rng.random(shape) < 0.5, 1.0, -1.0)
