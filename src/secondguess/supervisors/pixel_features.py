"""What the pixels of an image say about it, whatever a model answers: sharpness, noise, colour, frequencies, blocks.

With g (H, W) the mean over the channels of an image, and D the second difference
g[i, j] - g[i, j+1] - g[i+1, j] + g[i+1, j+1], the features are

| name         | value                                                       | what it shows                    |
|--------------|-------------------------------------------------------------|----------------------------------|
| brightness   | mean g                                                      | fog, snow, night                 |
| contrast     | log standard deviation of g                                 | fog, haze                        |
| clipped      | share of values at 0 or 1                                   | glare, drawings, salt and pepper |
| colour       | mean over pixels of the deviation over channels             | grey or gaudy pictures           |
| tint         | deviation of the channels' means                            | a cast                           |
| edges        | log mean absolute difference of neighbours                  | blur, texture                    |
| sharpness    | log standard deviation of the Laplacian of g                | blur, noise                      |
| spikes       | log kurtosis of the Laplacian                               | impulses, single lines           |
| noise        | log median of abs(D)                                        | noise of the sensor              |
| colour_noise | the same of the first channel less the last                 | noise that channels do not share |
| flat         | share of neighbours that are equal                          | blocks, drawn backgrounds        |
| blocks       | log ratio of steps at every eighth row and column to others | JPEG                             |
| direction    | abs log ratio of horizontal to vertical squared steps       | motion blur, stripes             |
| band_1..5    | log share of the spectrum of g in rings of equal width      | what blur removes and noise adds |

Everything is computed of pixels rounded to 8 bits: an answer must not depend on what no image file can hold. Each image
is looked at by itself, so that the batch it came in does not matter.

The formulas stand here once, for arrays and for tensors: NumPy and torch agree on most operations, and `Arrays` and its
twin in `appearance` on the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError

if TYPE_CHECKING:
    from secondguess.images import ImageSource

__all__ = ["FEATURES", "Arrays", "features", "features_of", "pixel_features", "rings"]

Floats = NDArray[np.float64]

BANDS = 5
BLOCK = 8  # pixels per side of what JPEG compresses together
FEATURES: tuple[str, ...] = (
    "brightness", "contrast", "clipped", "colour", "tint", "edges", "sharpness", "spikes", "noise", "colour_noise",
    "flat", "blocks", "direction", *(f"band_{number}" for number in range(1, BANDS + 1)),
)  # fmt: skip
NUMBERS = 1 << 18  # pixels that are read at a time: what fits a cache
LEVEL = 1 / 255  # below which differences are rounding; added before every logarithm
EQUAL = 0.4 * LEVEL  # between grey values that are the same and those that one level in one of two channels parts
SMALLEST = 3  # pixels per side
ASIDE = 1e-3  # of a level: halves, such as white over two, must not be rounded by the last digit of a normalisation


class Arrays:
    """The operations that NumPy and torch call differently, for NumPy."""

    log, round, where = np.log, np.round, np.where

    @staticmethod
    def stack(columns: Sequence[Any]) -> Any:
        """Columns (n,) side by side, (n, k)."""
        return np.stack(columns, axis=1)

    @staticmethod
    def median(values: Any) -> Any:
        """Of rows (n, k)."""
        return np.median(values, axis=1)

    @staticmethod
    def in_rings(grey: Any) -> Any:
        """The power of the spectrum (n, BANDS) of grey images (n, H, W), in rings around frequency 0."""
        power = np.abs(np.fft.rfft2(grey)) ** 2
        return power.reshape(len(grey), -1) @ rings(*grey.shape[1:])


def pixel_features(images: NDArray[np.floating]) -> Floats:
    """The features (n, len(FEATURES)) of images (n, C, H, W) in [0, 1]."""
    if min(images.shape[2:]) < SMALLEST:
        raise UserError(
            f"Sharpness and noise take images of {SMALLEST}x{SMALLEST} pixels at least; these have "
            f"{images.shape[2]}x{images.shape[3]}: load them larger (size=...)."
        )
    return np.asarray(features(np.asarray(images, dtype=np.float64), Arrays))


def features_of(images: ImageSource | NDArray[np.floating], rows: NDArray[np.int64] | None = None) -> Floats:
    """The features of many images, or of some of them, of which a few are read at a time."""
    rows = np.arange(len(images)) if rows is None else rows
    parts = np.array_split(rows, -(-len(rows) * math.prod(images.shape[-3:]) // NUMBERS))
    return np.concatenate([pixel_features(images[part]) for part in parts])


def features(images: Any, on: Any) -> Any:
    """The features (n, len(FEATURES)) of an array or a tensor (n, C, H, W).

    Args:
        images: in [0, 1].
        on: what NumPy and torch call differently: `Arrays`, or its twin for tensors.
    """
    pixels = on.round(images * 255 + ASIDE) / 255
    grey = pixels.mean(axis=1)
    across, down = grey[:, :, 1:] - grey[:, :, :-1], grey[:, 1:] - grey[:, :-1]
    laplacian = (
        grey[:, :-2, 1:-1] + grey[:, 2:, 1:-1] + grey[:, 1:-1, :-2] + grey[:, 1:-1, 2:] - 4 * grey[:, 1:-1, 1:-1]
    )
    spread = _deviation(laplacian, (1, 2))
    centred = grey - grey.mean(axis=(1, 2))[:, None, None]
    columns = [
        grey.mean(axis=(1, 2)),
        on.log(_deviation(grey, (1, 2)) + LEVEL),
        on.where((pixels < LEVEL / 2) | (pixels > 1 - LEVEL / 2), 1.0, 0.0).mean(axis=(1, 2, 3)),
        _deviation(pixels, 1).mean(axis=(1, 2)),
        _deviation(pixels.mean(axis=(2, 3)), 1),
        on.log((abs(across).mean(axis=(1, 2)) + abs(down).mean(axis=(1, 2))) / 2 + LEVEL),
        on.log(spread + LEVEL),
        on.log((((laplacian / spread.clip(LEVEL)[:, None, None]) ** 2) ** 2).mean(axis=(1, 2)) + 1),
        on.log(_noise(grey, on) + LEVEL),
        on.log(_noise(pixels[:, 0] - pixels[:, -1], on) + LEVEL),
        (_equal(across, on) + _equal(down, on)) / 2,
        (_blocks(abs(across).mean(axis=1), on) + _blocks(abs(down).mean(axis=2), on)) / 2,
        abs(on.log(((across**2).mean(axis=(1, 2)) + LEVEL**2) / ((down**2).mean(axis=(1, 2)) + LEVEL**2))),
        *_bands(centred, on),
    ]
    return on.stack(columns)


def _deviation(values: Any, axes: int | tuple[int, ...]) -> Any:
    """The standard deviation over some axes."""
    centred = values - values.mean(axis=axes, keepdims=True)
    return (centred**2).mean(axis=axes) ** 0.5


def _noise(grey: Any, on: Any) -> Any:
    """The median size of D, (n,); edges and slopes hardly move it."""
    second = grey[:, :-1, :-1] - grey[:, :-1, 1:] - grey[:, 1:, :-1] + grey[:, 1:, 1:]
    return on.median(abs(second).reshape(-1, second.shape[1] * second.shape[2]))


def _equal(steps: Any, on: Any) -> Any:
    """The share (n,) of steps that are none."""
    return on.where(abs(steps) < EQUAL, 1.0, 0.0).mean(axis=(1, 2))


def _blocks(steps: Any, on: Any) -> Any:
    """How much larger the mean steps (n, k) at the borders of blocks are, as the log of a ratio; 0 for tiny images."""
    border = steps[:, BLOCK - 1 :: BLOCK]
    count, borders = steps.shape[1], border.shape[1]
    if not borders:
        return 0 * steps[:, 0]
    others = (steps.sum(axis=1) - border.sum(axis=1)) / (count - borders)
    return on.log(border.mean(axis=1) + LEVEL) - on.log(others + LEVEL)


def _bands(centred: Any, on: Any) -> list[Any]:
    """The log share (n,) of each ring of the spectrum, without its mean."""
    floor = centred.shape[1] * centred.shape[2] * LEVEL**2 / 12 * BANDS  # what rounding to 8 bits leaves
    found = on.in_rings(centred)
    total = found.sum(axis=1) + BANDS * floor
    return [on.log((found[:, number] + floor) / total) for number in range(BANDS)]


@lru_cache(maxsize=8)
def rings(height: int, width: int) -> Floats:
    """How often each frequency (H * (W // 2 + 1), BANDS) counts in which ring; most of them have a mirror image."""
    across = np.fft.rfftfreq(width)
    radius = np.hypot(np.fft.fftfreq(height)[:, None], across) / 0.5
    ring = np.minimum((radius * BANDS).astype(np.int64), BANDS - 1)
    twice = np.broadcast_to(np.where((across == 0) | (across == 0.5), 1.0, 2.0), ring.shape)
    return np.asarray(np.eye(BANDS)[ring.ravel()] * twice.reshape(-1, 1))
