"""Digital: brightness, contrast and colour, and what files do to images."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from secondguess.stress.corruptions.registry import Work, corruption

__all__ = [
    "brightness",
    "contrast",
    "identity",
    "inverse",
    "jpeg_compression",
    "luma",
    "pixelate",
    "quantize",
    "saturate",
]

LUMA = np.array([0.2125, 0.7154, 0.0721])  # perceived brightness of red, green and blue (Rec. 709)


def luma(images: Work) -> Work:
    """The images in shades of grey (n, H, W)."""
    if images.shape[1] == len(LUMA):
        return np.tensordot(images, LUMA, axes=(1, 0))
    return images.mean(axis=1)


@corruption(0.1, 0.2, 0.3, 0.4, 0.5, default=5)
def brightness(images: Work, rng: np.random.Generator, amount: float) -> Work:
    """The value of HSV raised to clip(V + c); hue and saturation stay. On grey images clip(v + c)."""
    value = images.max(axis=1, keepdims=True)
    raised = (value + amount).clip(0, 1)
    return np.where(value > 0, images * raised / np.where(value > 0, value, 1), raised)


@corruption(0.4, 0.3, 0.2, 0.1, 0.05, default=4)
def contrast(images: Work, rng: np.random.Generator, factor: float) -> Work:
    """Pulled towards the mean of the image: (v - mean) c + mean, for each channel."""
    mean = images.mean(axis=(2, 3), keepdims=True)
    return (images - mean) * factor + mean


@corruption((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2), default=5)
def saturate(images: Work, rng: np.random.Generator, factor: float, offset: float) -> Work:
    """The saturation S of HSV becomes clip(c1 S + c2), as in ImageNet-C; on grey images V does, too (published quirk).

    MNIST-C takes a grey image for a colour one with H = S = 0, maps all of H, S and V, and takes the luma of the
    result: at the default that is 0.97708 clip(20 v + 0.2, 0, 1).
    """
    if images.shape[1] != 3:
        tint = 1 - min(offset, 1) * _lack(min(offset, 1))
        return (images * factor + offset).clip(0, 1) * (LUMA @ tint)
    value = images.max(axis=1, keepdims=True)
    chroma = value - images.min(axis=1, keepdims=True)
    lack = np.where(chroma > 0, (value - images) / np.where(chroma > 0, chroma, 1), _lack(0)[:, None, None])
    saturation = chroma / np.where(value > 0, value, 1)
    return value * (1 - (saturation * factor + offset).clip(0, 1) * lack)


def _lack(hue: float) -> Work:
    """How much red, green and blue a fully saturated hue lacks: (0, 1, 1) for red."""
    return 1 - (np.abs((6 * hue + np.array([0, 4, 2])) % 6 - 3) - 1).clip(0, 1)


@corruption()
def inverse(images: Work, rng: np.random.Generator) -> Work:
    """The negative, 1 - v."""
    return 1 - images


@corruption(5, 4, 3, 2, 1, default=5)
def quantize(images: Work, rng: np.random.Generator, bits: int) -> Work:
    """Rounded to 2^c levels from 0 to 1."""
    top = 2**bits - 1
    return np.rint(images * top) / top


@corruption(25, 18, 15, 10, 7, default=5)
def jpeg_compression(images: Work, rng: np.random.Generator, quality: int) -> Work:
    """Saved as JPEG of quality c and read again."""
    channels, height, width = images.shape[1:]
    grey = channels != 3
    levels = np.rint(images * 255).astype(np.uint8)
    pictures = levels.reshape(-1, height, width) if grey else np.ascontiguousarray(levels.transpose(0, 2, 3, 1))
    decoded = np.stack([_through_jpeg(picture, quality) for picture in pictures]) / 255
    return decoded.reshape(images.shape) if grey else decoded.transpose(0, 3, 1, 2)


def _through_jpeg(picture: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=quality)
    with Image.open(file) as saved:
        return np.asarray(saved)


@corruption(0.6, 0.5, 0.4, 0.3, 0.25, default=3)
def pixelate(images: Work, rng: np.random.Generator, share: float) -> Work:
    """Shrunk to c of its size and enlarged again, with Pillow's box filter."""
    result = np.rint(images * 255)
    for axis in (3, 2):  # Pillow does the rows first and rounds in between
        size = images.shape[axis]
        small = max(1, int(size * share))
        shrunk = np.moveaxis(result, axis, -1) @ box_matrix(size, small).T
        result = np.moveaxis(np.floor(shrunk + 0.5 + 1e-9), -1, axis)
    for axis in (2, 3):
        size = images.shape[axis]
        result = np.moveaxis(np.moveaxis(result, axis, -1) @ box_matrix(result.shape[axis], size).T, -1, axis)
    return result / 255


def box_matrix(size: int, wanted: int) -> Work:
    """Which pixels of a line (columns) Pillow averages to which pixels (rows) when it resizes with its box filter.

    Whether a pixel exactly at the end of a box counts depends on Pillow's rounding, so the weights are read off what it
    makes of the unit matrix.
    """
    unit = Image.fromarray(np.eye(size, dtype=np.float32))
    inside = np.asarray(unit.resize((size, wanted), Image.Resampling.BOX)) > 0
    return inside / inside.sum(axis=1, keepdims=True)


@corruption()
def identity(images: Work, rng: np.random.Generator) -> Work:
    """Nothing happens: the baseline."""
    return images
