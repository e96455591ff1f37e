"""Textures made by formula from a seed; they show no object.

Each texture is a field t(x, y) in [0, 1] between two random colours (grey levels, for grey images):

    noise           white noise under a Gaussian filter of random width, from none to a quarter of the image
    gratings        (1 + sin(2π f (x cos a + y sin a) + φ)) / 2, from one wave across the image to one every four pixels
    checkerboards   cells of random size, turned by a random angle
    blobs           a few Gaussian bumps

Frequencies and widths are drawn on a logarithmic scale, so that coarse and fine structures are equally frequent.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["TEXTURES", "texture"]

Field = NDArray[np.float64]
LEAST_CONTRAST = 0.3


def texture(name: str, shape: tuple[int, int, int], rng: np.random.Generator) -> NDArray[np.float32]:
    """Draw one texture.

    Args:
        name: one of `TEXTURES`.
        shape: (C, H, W).
        rng: where everything random comes from.

    Returns:
        An image (C, H, W) in [0, 1].
    """
    field = TEXTURES[name](shape[1], shape[2], rng)
    dark, bright = _colours(shape[0], rng)
    image: NDArray[np.float64] = dark[:, None, None] + (bright - dark)[:, None, None] * field
    return image.astype(np.float32).clip(0, 1)


def _noise(height: int, width: int, rng: np.random.Generator) -> Field:
    from scipy.ndimage import gaussian_filter

    spread = _between(0.3, max(height, width) / 4, rng)
    return _stretched(gaussian_filter(rng.random((height, width)), spread, mode="wrap"))


def _gratings(height: int, width: int, rng: np.random.Generator) -> Field:
    along, _ = _turned(height, width, rng)
    longest = max(height, width)
    wave = _between(min(4, longest), longest, rng)
    return (1 + np.sin(2 * np.pi * (along / wave + rng.random()))) / 2


def _checkerboards(height: int, width: int, rng: np.random.Generator) -> Field:
    along, across = _turned(height, width, rng)
    cell = _between(1.5, max(height, width) / 3, rng)
    shift = rng.random(2)
    return (np.floor(along / cell + shift[0]) + np.floor(across / cell + shift[1])) % 2


def _blobs(height: int, width: int, rng: np.random.Generator) -> Field:
    row, column = np.mgrid[0:height, 0:width]
    field = np.zeros((height, width))
    for _ in range(rng.integers(2, 9)):
        y, x = rng.random(2) * (height, width)
        spread = _between(0.04, 0.25, rng) * max(height, width)
        field += np.exp(-((row - y) ** 2 + (column - x) ** 2) / (2 * spread**2))
    return _stretched(field)


def _turned(height: int, width: int, rng: np.random.Generator) -> tuple[Field, Field]:
    """Coordinates in pixels along and across a random direction."""
    row, column = np.mgrid[0:height, 0:width].astype(np.float64)
    angle = rng.uniform(0, np.pi)
    return column * np.cos(angle) + row * np.sin(angle), row * np.cos(angle) - column * np.sin(angle)


def _between(low: float, high: float, rng: np.random.Generator) -> float:
    """A number between two others, uniform on a logarithmic scale."""
    return float(np.exp(rng.uniform(np.log(low), np.log(max(low, high)))))


def _stretched(field: Field) -> Field:
    """The field with its values spread over [0, 1]; a flat one stays flat."""
    low, high = field.min(), field.max()
    return (field - low) / (high - low) if high > low else np.zeros_like(field)


def _colours(channels: int, rng: np.random.Generator) -> tuple[Field, Field]:
    """Two colours (C,) that differ enough, in their strongest channel, to be distinguished."""
    dark, bright = rng.random((2, channels))
    while np.abs(bright - dark).max() < LEAST_CONTRAST:
        dark, bright = rng.random((2, channels))
    return dark, bright


TEXTURES: dict[str, Callable[[int, int, np.random.Generator], Field]] = {
    "noise": _noise,
    "gratings": _gratings,
    "checkerboards": _checkerboards,
    "blobs": _blobs,
}
