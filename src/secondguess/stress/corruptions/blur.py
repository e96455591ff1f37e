"""Blurs: bad lenses, frosted glass, moving cameras.

Widths are in pixels whatever the size of the image: MNIST-C took them over from ImageNet-C, so the same numbers are
published for 28 and for 224 pixels.
"""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from secondguess.stress.corruptions.registry import Work, corruption
from secondguess.stress.corruptions.resample import pick, zoom

__all__ = ["defocus_blur", "gaussian_blur", "glass_blur", "motion_blur", "smear", "zoom_blur"]

# How strongly the Gaussian of `gaussian_blur` and `glass_blur` acts (down the columns, along the rows). The published
# grey sets blur down the columns only, because their call took the width of a grey image for its channels; a model
# evaluated on MNIST-C has seen exactly that, so it stays. Colour images are blurred both ways, as in ImageNet-C.
GREY_AXES, COLOUR_AXES = (1.0, 0.0), (1.0, 1.0)


@corruption(1, 2, 3, 4, 6, default=2)
def gaussian_blur(images: Work, rng: np.random.Generator, sigma: float) -> Work:
    """Gaussian of width c; of grey images down the columns only (a published quirk)."""
    axes = GREY_AXES if images.shape[1] == 1 else COLOUR_AXES
    return ndimage.gaussian_filter(images, (0, 0, sigma * axes[0], sigma * axes[1]), mode="nearest", truncate=4)


@corruption((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2), default=1)
def glass_blur(images: Work, rng: np.random.Generator, sigma: float, reach: int, sweeps: int) -> Work:
    """Frosted glass: blur, swap pixels with neighbours, blur again.

    A sweep goes over the pixels from bottom right to top left; each changes places, with probability 1/2, with the
    pixel dy rows and dx columns on, dy and dx drawn from -reach..reach-1. The sweeps move indices, for all images at
    once.
    """
    n, channels, height, width = images.shape
    blurred = np.floor(gaussian_blur(images, rng, sigma) * 255 + 1e-9) / 255
    rows, columns = range(height - reach, reach, -1), range(width - reach, reach, -1)
    partners = (2 * reach) ** 2
    drawn = np.floor(rng.random((n, sweeps, len(rows), len(columns))) * 2 * partners).astype(np.intp)
    dy, dx = np.divmod(drawn, 2 * reach)
    step = np.where(drawn < partners, (dy - reach) * width + dx - reach, 0).transpose(1, 2, 3, 0).copy()
    source = np.repeat(np.arange(height * width)[:, None], n, axis=1)
    each = np.arange(n)
    for sweep in range(sweeps):
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                here = row * width + column
                there = here + step[sweep, i, j]
                moved = source[there, each]
                source[there, each] = source[here]
                source[here] = moved
    shuffled = np.take_along_axis(blurred.reshape(n, channels, -1), source.T[:, None], axis=2)
    return gaussian_blur(shuffled.reshape(images.shape), rng, sigma)


@corruption((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5), default=1)
def defocus_blur(images: Work, rng: np.random.Generator, radius: int, smoothing: float) -> Work:
    """The mean over a disk of radius c1 whose edge is smoothed by a Gaussian of width c2."""
    return ndimage.correlate(images, disk(radius, smoothing)[None, None], mode="mirror")


def disk(radius: int, smoothing: float) -> Work:
    """The kernel (k, k) of `defocus_blur`, k = 17 or 2 radius + 1; its edge is smoothed over 3 or 5 pixels."""
    half, taps = (8, np.arange(-1, 2)) if radius <= 8 else (radius, np.arange(-2, 3))
    y, x = np.ogrid[-half : half + 1, -half : half + 1]
    kernel = (x**2 + y**2 <= radius**2).astype(np.float64)
    soft = np.exp(-(taps**2) / (2 * smoothing**2))
    for axis in (0, 1):
        kernel = ndimage.correlate1d(kernel, soft / soft.sum(), axis=axis, mode="mirror")
    return kernel / (x**2 + y**2 <= radius**2).sum()


@corruption((10, 3), (15, 5), (15, 8), (15, 12), (20, 15), default=1)
def motion_blur(images: Work, rng: np.random.Generator, radius: int, sigma: float) -> Work:
    """Smeared in a direction between -45 and 45 degrees, drawn for each image."""
    return smear(images, np.deg2rad(90 * rng.random(len(images)) - 45), radius, sigma)


def smear(images: Work, angle: Work, radius: int, sigma: float) -> Work:
    """ImageMagick's motion blur of each image in its own direction, in radians (n,), rounded to whole grey levels.

    A one-sided Gaussian of 2 radius + 1 taps: out(y, x) is the weighted sum of in(y + ceil(i sin - 1/2),
    x + ceil(i cos - 1/2)), i = 0, 1, ..., where positions outside are replaced by the nearest pixel.
    """
    height, width = images.shape[2:]
    taps = np.arange(2 * radius + 1)
    weights = np.exp(-(taps**2) / (2 * sigma**2))
    result = np.zeros_like(images)
    for tap, weight in zip(taps, weights / weights.sum(), strict=True):
        dy, dx = (np.ceil(tap * part(angle)[:, None] - 0.5).astype(np.intp) for part in (np.sin, np.cos))
        rows = (np.arange(height) + dy).clip(0, height - 1)
        columns = (np.arange(width) + dx).clip(0, width - 1)
        result += weight * pick(images, rows[:, :, None] * width + columns[:, None, :])
    return np.rint(result * 255) / 255


@corruption((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03), default=5)
def zoom_blur(images: Work, rng: np.random.Generator, largest: float, step: float) -> Work:
    """The mean of the image and of its enlargements by 1, 1 + c2, 1 + 2 c2, ... below c1."""
    factors = np.arange(1, largest, step)
    return (images + sum(zoom(images, float(factor)) for factor in factors)) / (len(factors) + 1)
