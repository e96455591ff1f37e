"""Resizing images and changing between grey and colour, lazily.

Resizing is Pillow's bilinear filter in floating point, whose support grows with the reduction, so that
shrinking averages instead of picking pixels. Colour becomes grey by the ITU-R BT.601 luma, as in Pillow.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from secondguess.errors import UserError
from secondguess.images.image_set import ImageSet
from secondguess.images.sources import Floats, ImageSource, Shape, Source, ViewSource

__all__ = ["ConformedSource", "Resizing", "check_resize", "conform", "fit_image"]

Resizing = Literal["stretch", "crop", "pad"]
LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)


def conform(image_set: ImageSet, shape: Shape, *, resize: Resizing = "stretch") -> ImageSet:
    """Make every image of a set fit a model's input; the set itself where it already does.

    Args:
        image_set: the set.
        shape: the (C, H, W) wanted.
        resize: "stretch" changes the proportions, "crop" keeps the centre, "pad" adds black borders.
    """
    check_resize(resize)
    shape = (int(shape[0]), int(shape[1]), int(shape[2]))
    if shape == image_set.shape:
        return image_set
    return replace(image_set, images=ConformedSource(image_set.images, shape, resize))


def check_resize(resize: str) -> Resizing:
    """Return `fit` if it is a known way of fitting; raise a `UserError` otherwise."""
    if resize not in get_args(Resizing):
        raise UserError(f"The way of resizing {resize!r} is not known; use one of {', '.join(get_args(Resizing))}.")
    return cast("Resizing", resize)


class ConformedSource(Source):
    """The images of another source in another shape.

    Args:
        source: where the images come from.
        shape: the (C, H, W) wanted; C may differ from the source's only between 1 and 3.
        resize: see `conform`.
    """

    def __init__(self, source: ImageSource, shape: Shape, resize: Resizing) -> None:
        _check_shapes(source.shape, shape)
        self._source = source
        self._resize = resize
        self.shape = shape

    def __len__(self) -> int:
        """The number of images n."""
        return len(self._source)

    def _read(self, rows: slice | NDArray[np.int64]) -> Floats:
        images = self._source[rows]
        out = np.empty((len(images), *self.shape), dtype=np.float32)
        for target, image in zip(out, images, strict=True):
            target[:] = fit_image(image, self.shape, self._resize)
        return out

    def part(self, rows: NDArray[np.int64]) -> Source:
        """The images at `rows` (m,) of the source below, to be brought to the same shape."""
        return ConformedSource(ViewSource(self._source, rows), self.shape, self._resize)


def fit_image(image: Floats, shape: Shape, resize: Resizing) -> Floats:
    """Fit one image (c, h, w) into (C, H, W); one that has the right size already is not resampled."""
    channels, height, width = shape
    if image.shape[0] == 3 and channels == 1:
        image = np.einsum("chw,c->hw", image, LUMA)[None]
    if image.shape[1:] != (height, width):
        image = np.stack([_resize(plane, height, width, resize) for plane in image])
    if image.shape[0] == 1 and channels == 3:
        image = np.repeat(image, 3, axis=0)
    return np.clip(image, 0, 1)


def _resize(plane: Floats, height: int, width: int, resize: Resizing) -> Floats:
    h, w = plane.shape
    picture = Image.fromarray(np.ascontiguousarray(plane))
    bilinear = Image.Resampling.BILINEAR
    if resize == "stretch":
        return np.asarray(picture.resize((width, height), bilinear))
    if resize == "crop":
        scale = max(height / h, width / w)
        half_w, half_h = min(w, width / scale) / 2, min(h, height / scale) / 2
        box = (w / 2 - half_w, h / 2 - half_h, w / 2 + half_w, h / 2 + half_h)
        return np.asarray(picture.resize((width, height), bilinear, box=box))
    scale = min(height / h, width / w)
    inner_h, inner_w = max(1, round(h * scale)), max(1, round(w * scale))
    top, left = (height - inner_h) // 2, (width - inner_w) // 2
    canvas = np.zeros((height, width), dtype=np.float32)
    canvas[top : top + inner_h, left : left + inner_w] = np.asarray(picture.resize((inner_w, inner_h), bilinear))
    return canvas


def _check_shapes(old: Shape, new: Shape) -> None:
    if min(new) < 1:
        raise UserError(f"Images of shape {new} were asked for; channels, height and width must be at least 1.")
    if old[0] != new[0] and {old[0], new[0]} != {1, 3}:
        raise UserError(
            f"Images with {old[0]} channels cannot be turned into images with {new[0]}; only grey (1) and "
            "colour (3) can be changed into each other."
        )
