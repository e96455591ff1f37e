"""Weather: fog, snow and splashes of mud. All channels of an image get the same weather.

Widths are in pixels, as published for both 28 and 224 pixels (MNIST-C took them over from ImageNet-C).
"""

from __future__ import annotations

import numpy as np
from scipy import ndimage, special

from secondguess.stress.corruptions.blur import smear
from secondguess.stress.corruptions.digital import luma
from secondguess.stress.corruptions.registry import Work, corruption
from secondguess.stress.corruptions.resample import zoom

__all__ = ["clouds", "fog", "snow", "spatter"]

CLOUD_SIDE = 256  # pixels of the map of which an image sees the top left corner
CLOUD_BLOCK = 4  # maps at a time, which then stay in the cache of a processor
MUD = np.array([63, 42, 20]) / 255  # of ImageNet-C; on grey images MNIST-C takes the first


@corruption((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4), default=5)
def fog(images: Work, rng: np.random.Generator, thickness: float, decay: float) -> Work:
    """(v + c1 F) vmax / (vmax + c1), F a map of clouds in [0, 1] and vmax the brightest value of the image."""
    height, width = images.shape[2:]
    brightest = images.max(axis=(1, 2, 3), keepdims=True)
    seen = np.empty((len(images), 1, height, width))
    for start in range(0, len(images), CLOUD_BLOCK):
        block = seen[start : start + CLOUD_BLOCK]
        block[:, 0] = clouds(rng, len(block), max(height, width), decay)[:, :height, :width]
    return (images + thickness * seen) * brightest / (brightest + thickness)


def clouds(rng: np.random.Generator, n: int, side: int, decay: float) -> Work:
    """Plasma fractals (n, s, s) in [0, 1] by the diamond-square algorithm; s is a power of 2, at least `side`.

    Starting from a single point, the middle of every square, then of every diamond, becomes the mean of its four
    corners (wrapped around the edges) plus a U(-1, 1) times a squared amplitude, which begins at 100 and falls by the
    factor `decay` each time the squares are halved. Each point of the array holds its noise until it is its turn.
    """
    size = max(CLOUD_SIDE, 1 << (side - 1).bit_length())
    heights = rng.random((n, size, size))
    heights *= 2
    heights -= 1
    heights[:, 0, 0] = 0
    step, amplitude = size, 100.0
    while step > 1:
        half = step // 2
        corners, centres = heights[:, ::step, ::step], heights[:, half::step, half::step]
        pairs = corners + np.roll(corners, -1, axis=1)
        _settle(centres, pairs + np.roll(pairs, -1, axis=2), amplitude)
        across = corners + np.roll(corners, -1, axis=2) + centres + np.roll(centres, 1, axis=1)
        along = corners + np.roll(corners, -1, axis=1) + centres + np.roll(centres, 1, axis=2)
        _settle(heights[:, ::step, half::step], across, amplitude)
        _settle(heights[:, half::step, ::step], along, amplitude)
        step, amplitude = half, amplitude / decay
    heights -= heights.min(axis=(1, 2), keepdims=True)
    heights /= heights.max(axis=(1, 2), keepdims=True)
    return heights


def _settle(points: Work, neighbours: Work, amplitude: float) -> None:
    """Turn the noise at some points into their heights, in place."""
    points *= amplitude**2
    points += neighbours / 4


@corruption(
    (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
    (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
    (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
    (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
    (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    default=5,
)
def snow(
    images: Work,
    rng: np.random.Generator,
    mean: float,
    deviation: float,
    size: float,
    threshold: float,
    radius: int,
    sigma: float,
    clarity: float,
) -> Work:
    """Flakes falling between -135 and -45 degrees over a paler image, and the same flakes turned by 180 degrees.

    Flakes are N(c1, c2) noise enlarged by c3, of which what is above c4 is smeared by (c5, c6); the image is
    c7 v + (1 - c7) max(v, 1.5 grey + 0.5).
    """
    n, _, height, width = images.shape
    # The direction comes from a normal number too, by its distribution function: one call draws all.
    drawn = rng.standard_normal((n, height * width + 1))
    angle = np.deg2rad(90 * special.ndtr(drawn[:, -1]) - 135)
    layer = zoom(mean + deviation * drawn[:, :-1].reshape(n, 1, height, width), size).clip(0, 1)
    layer = np.floor(np.where(layer < threshold, 0, layer) * 255) / 255
    flakes = smear(layer, angle, radius, sigma)
    paler = clarity * images + (1 - clarity) * np.maximum(images, 1.5 * luma(images)[:, None] + 0.5)
    return paler + flakes + flakes[..., ::-1, ::-1]


@corruption(
    (0.65, 0.3, 4, 0.69, 0.6),
    (0.65, 0.3, 3, 0.68, 0.6),
    (0.65, 0.3, 2, 0.68, 0.5),
    (0.65, 0.3, 1, 0.65, 1.5),
    (0.67, 0.4, 1, 0.65, 1.5),
    default=4,
)
def spatter(
    images: Work, rng: np.random.Generator, mean: float, deviation: float, sigma: float, threshold: float, edge: float
) -> Work:
    """Splashes of mud: v (1 - m) + m mud, brown on colour images and grey 63 on grey ones.

    m is 1 where N(c1, c2) noise, smoothed by a Gaussian of width c3, exceeds c4; then smoothed by c5 and cut off below
    0.8.
    """
    n, channels, height, width = images.shape
    liquid = mean + deviation * rng.standard_normal((n, height, width))
    liquid = ndimage.gaussian_filter(liquid, (0, sigma, sigma), mode="nearest", truncate=4)
    cover = ndimage.gaussian_filter(
        (liquid > threshold).astype(np.float64), (0, edge, edge), mode="nearest", truncate=4
    )
    cover = np.where(cover < 0.8, 0, cover)[:, None]
    colour = MUD[:, None, None] if channels == 3 else MUD[0]
    return images * (1 - cover) + cover * colour
