"""Images in whatever form a program holds them, as float32 (n, C, H, W) in [0, 1].

A guard knows the shape (C, H, W) of its classifier's images, so what other code must guess is certain here: (3, 28, 28)
is one colour image for a classifier of colour images, and three grey ones for a classifier of grey images.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Floats", "Shape", "as_images"]

Floats = NDArray[np.float32]
Shape = tuple[int, int, int]


def as_images(images: Any, shape: Shape) -> Floats:
    """One image or several as (n, C, H, W).

    Args:
        images: a torch tensor or an array, uint8 or floats in [0, 1], of shape (n, C, H, W), (n, H, W, C), or for grey
            images (n, H, W), or without the n for a single image; a picture of Pillow's or a list of such, which are
            brought to the shape; a list of arrays; an `ImageSet` or an image source.
        shape: the (C, H, W) of an image.
    """
    if type(images) is np.ndarray and images.dtype == np.float32 and images.shape[1:] == shape:
        return _checked(images)  # what a caller in a hurry gives
    if hasattr(images, "detach"):
        images = images.detach().cpu().numpy()
    elif hasattr(images, "materialise"):  # an image set
        images = images.materialise()
    elif hasattr(images, "fingerprint"):  # an image source
        images = images[0 : len(images)]
    elif _is_picture(images):
        return _from_picture(images, shape)[None]
    elif isinstance(images, Sequence) and len(images) and not isinstance(images, str | bytes):
        return np.concatenate([as_images(one, shape) for one in images])
    array = np.asarray(images)
    if array.dtype == np.uint8:
        array = array / np.float32(255)
    elif array.dtype.kind != "f":
        raise UserError(f"Images of type {array.dtype} were given; give uint8 (0 to 255) or floats from 0 to 1.")
    return _checked(np.ascontiguousarray(_in_order(array, shape), dtype=np.float32))


def _in_order(array: NDArray[Any], shape: Shape) -> NDArray[Any]:
    """The array as (n, C, H, W)."""
    channels, height, width = shape
    last = (height, width, channels)
    if array.shape[1:] == shape:
        return array
    if array.shape == shape:
        return array[None]
    if array.shape[1:] == last:
        return np.moveaxis(array, 3, 1)
    if array.shape == last:
        return np.moveaxis(array, 2, 0)[None]
    if channels == 1 and array.shape[-2:] == (height, width) and array.ndim <= 3:
        return array.reshape(-1, *shape)
    raise UserError(
        f"An array of shape {array.shape} was given, but images of shape {shape} (channels, height, width) are needed, "
        "one or several; resize them first, or give pictures of Pillow's, which are resized here."
    )


def _checked(array: Floats) -> Floats:
    if len(array) == 0:
        raise UserError("There are no images to judge: the array is empty.")
    low, high = float(array.min()), float(array.max())
    if not (low >= 0 and high <= 1):  # NaN compares as false
        raise UserError(
            f"The images run from {low:.6g} to {high:.6g}, but must be finite and lie in [0, 1]; divide them by their "
            "largest possible value, or give uint8."
        )
    return array


def _is_picture(value: Any) -> bool:
    return hasattr(value, "mode") and hasattr(value, "getexif")


def _from_picture(picture: Image, shape: Shape) -> Floats:
    """A picture of Pillow's, rotated as its header says, on black where transparent, in the shape (C, H, W)."""
    from PIL import ImageOps

    from secondguess.images.decode import decode
    from secondguess.images.fitting import fit_image

    file = io.BytesIO()
    upright = ImageOps.exif_transpose(picture)
    if upright.mode not in ("1", "L", "LA", "I", "I;16", "P", "RGB", "RGBA"):
        upright = upright.convert("RGB")
    upright.save(file, "PNG", compress_level=0)  # so that pixels are read here as they are read everywhere else
    return fit_image(decode(file.getvalue(), "the picture"), shape, "stretch")
