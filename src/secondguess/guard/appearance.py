"""What the pixels of an image say about the kind of an anomaly: sharpness, noise, colour, frequencies, blocks.

The scores of supervisors say how strange an image is to the model, and less about why: blur, an attack and a picture
of something else all lower the same logits. The pixels themselves tell these apart. With g (H, W) the mean over the
channels of an image, and D the second difference g[i, j] - g[i, j+1] - g[i+1, j] + g[i+1, j+1], the features are

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

Everything is computed of pixels rounded to 8 bits: a verdict must not depend on what no image file can hold. Each image
is looked at by itself, so that the batch it came in does not matter.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from secondguess.images import ImageSet

__all__ = ["FEATURES", "appearance", "appearance_of"]

Floats = NDArray[np.float64]

BANDS = 5
BLOCK = 8  # pixels per side of what JPEG compresses together
FEATURES: tuple[str, ...] = (
    "brightness", "contrast", "clipped", "colour", "tint", "edges", "sharpness", "spikes", "noise", "colour_noise",
    "flat", "blocks", "direction", *(f"band_{number}" for number in range(1, BANDS + 1)),
)  # fmt: skip
CHUNK = 256  # images that are read at a time
LEVEL = 1 / 255  # below which differences are rounding; added before every logarithm


def appearance(images: NDArray[np.floating]) -> Floats:
    """The features (n, len(FEATURES)) of images (n, C, H, W) in [0, 1]."""
    pixels = np.rint(np.asarray(images, dtype=np.float32) * np.float32(255)) * np.float32(LEVEL)
    grey = pixels.mean(axis=1)
    across, down = np.diff(grey, axis=2), np.diff(grey, axis=1)
    laplacian = _laplacian(grey)
    spread = laplacian.std(axis=(1, 2))
    squares = np.square(across).mean(axis=(1, 2)), np.square(down).mean(axis=(1, 2))
    columns = [
        grey.mean(axis=(1, 2)),
        _log(grey.std(axis=(1, 2))),
        ((pixels < LEVEL / 2) | (pixels > 1 - LEVEL / 2)).mean(axis=(1, 2, 3)),
        pixels.std(axis=1).mean(axis=(1, 2)),
        pixels.mean(axis=(2, 3)).std(axis=1),
        _log((np.abs(across).mean(axis=(1, 2)) + np.abs(down).mean(axis=(1, 2))) / 2),
        _log(spread),
        np.log(((laplacian / np.maximum(spread, LEVEL)[:, None, None]) ** 4).mean(axis=(1, 2)) + 1),
        _log(_noise(grey)),
        _log(_noise(pixels[:, 0] - pixels[:, -1])),
        ((np.abs(across) < LEVEL / 2).mean(axis=(1, 2)) + (np.abs(down) < LEVEL / 2).mean(axis=(1, 2))) / 2,
        _blocks(across, down),
        np.abs(np.log((squares[0] + LEVEL**2) / (squares[1] + LEVEL**2))),
        *_bands(grey).T,
    ]
    return np.stack(columns, axis=1).astype(np.float64)


def appearance_of(images: ImageSet) -> Floats:
    """The features of an image set, of which a few images are read at a time."""
    parts = np.array_split(np.arange(len(images)), max(1, -(-len(images) // CHUNK)))
    return np.concatenate([appearance(images.images[part]) for part in parts])


def _log(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.log(values + np.float32(LEVEL))


def _laplacian(grey: NDArray[np.float32]) -> NDArray[np.float32]:
    """The sum of the four neighbours less four times the pixel, of what has four neighbours."""
    inner = grey[:, 1:-1, 1:-1]
    return grey[:, :-2, 1:-1] + grey[:, 2:, 1:-1] + grey[:, 1:-1, :-2] + grey[:, 1:-1, 2:] - 4 * inner


def _noise(grey: NDArray[np.float32]) -> NDArray[np.float32]:
    """The median size of D, (n,); edges and slopes hardly move it."""
    second = grey[:, :-1, :-1] - grey[:, :-1, 1:] - grey[:, 1:, :-1] + grey[:, 1:, 1:]
    return np.asarray(np.median(np.abs(second).reshape(len(grey), -1), axis=1))


def _blocks(across: NDArray[np.float32], down: NDArray[np.float32]) -> NDArray[np.float32]:
    """How much larger the steps at the borders of blocks are, as the logarithm of a ratio; 0 for tiny images."""
    ratios = np.zeros(len(across), dtype=np.float32)
    for steps in (np.abs(across).mean(axis=1), np.abs(down).mean(axis=2)):
        border = np.arange(1, steps.shape[1] + 1) % BLOCK == 0
        if border.any():
            ratios += _log(steps[:, border].mean(axis=1)) - _log(steps[:, ~border].mean(axis=1))
    return ratios / np.float32(2)


def _bands(grey: NDArray[np.float32]) -> Floats:
    """Log shares (n, BANDS) of the spectrum, without its mean, in rings around frequency 0."""
    power = np.abs(np.fft.rfft2(grey - grey.mean(axis=(1, 2), keepdims=True))) ** 2
    found = power.reshape(len(grey), -1) @ _rings(*grey.shape[1:])
    floor = grey[0].size * LEVEL**2 / 12 * BANDS  # what rounding to 8 bits leaves
    return np.asarray(np.log((found + floor) / (found.sum(axis=1, keepdims=True) + BANDS * floor)))


@lru_cache(maxsize=8)
def _rings(height: int, width: int) -> Floats:
    """How often each frequency (H * (W // 2 + 1), BANDS) counts in which ring; most of them have a mirror image."""
    across = np.fft.rfftfreq(width)
    radius = np.hypot(np.fft.fftfreq(height)[:, None], across) / 0.5
    ring = np.minimum((radius * BANDS).astype(np.int64), BANDS - 1)
    twice = np.broadcast_to(np.where((across == 0) | (across == 0.5), 1.0, 2.0), ring.shape)
    return np.asarray(np.eye(BANDS)[ring.ravel()] * twice.reshape(-1, 1))
