"""Image corruptions at the published parameters of MNIST-C and Fashion-MNIST-C.

Each corruption is a function of images v (n, C, H, W) in [0, 1], a parameter c and a random generator, applied to all
images at once. As in the published sets the result is clipped, scaled to 0..255 and truncated to whole grey levels.

Sources: Mu and Gilmer, "MNIST-C" (2019); Weiss and Tonella, "Fashion-MNIST-C" (2022); severities after Hendrycks and
Dietterich (2019). The random signs and noise are seeded here; in the published sets they were not.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError

__all__ = ["CORRUPTIONS", "Corruption", "corrupt", "find"]

Floats = NDArray[np.float32]
Work = NDArray[np.float64]


@dataclass(frozen=True)
class Corruption:
    """One way to spoil an image.

    Attributes:
        apply: (images, parameter, generator) -> images.
        levels: the parameter at severities 1 to 5.
        default: the severity that the published data sets use.
    """

    apply: Callable[[Work, float, np.random.Generator], Work]
    levels: tuple[float, float, float, float, float]
    default: int


def corrupt(images: Floats, name: str, *, severity: int | None = None, seed: int | Sequence[int] = 0) -> Floats:
    """Corrupt images (n, C, H, W) in [0, 1].

    Args:
        images: float32, at least one.
        name: one of `CORRUPTIONS`.
        severity: 1 (mild) to 5; the published default if left out.
        seed: same seed, same noise; several numbers make one seed.

    Returns:
        Images of the same shape whose values are whole multiples of 1/255.
    """
    corruption = find(name)
    severity = corruption.default if severity is None else severity
    if severity not in range(1, 6):
        raise UserError(f"The severity of a corruption is a whole number from 1 to 5, not {severity!r}.")
    seeds = [seed] if isinstance(seed, int) else list(seed)
    rng = np.random.default_rng([*seeds, *name.encode("ascii")])
    spoilt = corruption.apply(images.astype(np.float64), corruption.levels[severity - 1], rng)
    # 1e-9 absorbs rounding: 0.2 * 255 is a hair below 51, and truncation would turn that into 50.
    levels = np.floor(spoilt.clip(0, 1) * 255 + 1e-9)
    return (levels / 255).astype(np.float32)


def find(name: str) -> Corruption:
    """The corruption of that name."""
    if name not in CORRUPTIONS:
        close = difflib.get_close_matches(name, CORRUPTIONS, n=2) or list(CORRUPTIONS)
        raise UserError(f"There is no corruption {name!r}; there is {', '.join(close)}.")
    return CORRUPTIONS[name]


def _shot_noise(images: Work, rate: float, rng: np.random.Generator) -> Work:
    """Photon noise: Poisson(c v) / c."""
    return rng.poisson(images * rate) / rate


def _impulse_noise(images: Work, share: float, rng: np.random.Generator) -> Work:
    """Salt and pepper: each pixel, with probability c, becomes black or white."""
    hit = rng.random(images.shape) < share
    white = rng.random(images.shape) < 0.5
    return np.where(hit, white.astype(np.float64), images)


def _rotate(images: Work, angle: float, rng: np.random.Generator) -> Work:
    """Turned about the centre by +c or -c radians, the sign drawn for each image."""
    left = rng.random(len(images)) < 0.5
    turned = np.empty_like(images)
    for rows, sign in ((left, 1.0), (~left, -1.0)):
        cos, sin = np.cos(sign * angle), np.sin(sign * angle)
        turned[rows] = warp(images[rows], np.array([[cos, -sin], [sin, cos]]))
    return turned


def _contrast(images: Work, factor: float, rng: np.random.Generator) -> Work:
    """Pulled towards the mean of the image: (v - mean) c + mean, for each channel."""
    mean = images.mean(axis=(2, 3), keepdims=True)
    return (images - mean) * factor + mean


def warp(images: Work, linear: NDArray[np.float64]) -> Work:
    """Resample with a linear map from output to input coordinates (column, row) that leaves the centre fixed.

    Bilinear, black outside. The map is the same for all images, so neighbours and weights are found once.
    """
    height, width = images.shape[2:]
    centre = np.array([(width - 1) / 2, (height - 1) / 2])
    row, column = np.mgrid[0:height, 0:width]
    x, y = np.tensordot(linear, np.stack([column - centre[0], row - centre[1]]), axes=1) + centre[:, None, None]
    x0, y0 = np.floor(x).astype(int), np.floor(y).astype(int)
    result = np.zeros_like(images)
    for dy in (0, 1):
        for dx in (0, 1):
            xi, yi = x0 + dx, y0 + dy
            weight = (1 - np.abs(x - xi)) * (1 - np.abs(y - yi))
            inside = (xi >= 0) & (xi < width) & (yi >= 0) & (yi < height)
            values = images[:, :, yi.clip(0, height - 1), xi.clip(0, width - 1)]
            result += np.where(inside, weight, 0.0) * values
    return result


CORRUPTIONS: dict[str, Corruption] = {
    "shot_noise": Corruption(_shot_noise, (60, 25, 12, 5, 3), default=5),
    "impulse_noise": Corruption(_impulse_noise, (0.03, 0.06, 0.09, 0.17, 0.27), default=4),
    "rotate": Corruption(_rotate, (0.2, 0.4, 0.6, 0.8, 1.0), default=2),
    "contrast": Corruption(_contrast, (0.4, 0.3, 0.2, 0.1, 0.05), default=4),
}
