"""Conversion of images in any form (files, Pillow, NumPy, torch) to float32 (n, C, H, W) in [0, 1].

A classifier, a guard and the service know the shape (C, H, W) of their images and pass it, so that the meaning of an
array is certain: (3, 32, 32) is one image to a model of colour images, and three to a model of grey ones. Where no
shape is known, this rule holds for every caller:

* four axes are n images, with the channels on the axis of size 1 or 3, the second or the last;
* three axes are n grey images (n, H, W), unless the first axis is 3 or the last is 1 or 3: that might as well be one
  image, and is refused;
* two axes are one grey image (H, W);
* in a list every element is one image, (H, W), (C, H, W) or (H, W, C), or a batch with four axes.

Pictures (Pillow's, files, bytes) are brought to the shape; arrays must have it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.images.decode import GIVEN, decode, from_picture, is_picture
from secondguess.images.fitting import Resizing, check_resize, fit_image
from secondguess.images.image_set import ImageSet
from secondguess.images.sources import ArraySource, Floats, ImageSource, Shape, channel_axis, check_range

__all__ = ["as_batch", "as_source", "read"]


def read(image: Any, shape: Shape | None = None, resize: Resizing = "stretch", *, name: str = "") -> Floats:
    """Read one picture as float32 (C, H, W) in [0, 1].

    Args:
        image: a path, the bytes of an image file, such a file opened in binary mode, or a picture of Pillow's.
        shape: the (C, H, W) to bring it to; as it is, (1, H, W) if it is grey and (3, H, W) if not, where left out.
        resize: how a picture of other proportions is brought to the shape: "stretch", "crop" or "pad".
        name: what to call the picture in an error.

    Raises:
        BadImage: it cannot be read.
    """
    name = name or (os.fspath(image) if isinstance(image, str | os.PathLike) else GIVEN)
    image = _content(image) if _is_opened(image) else image
    pixels = from_picture(image, name) if is_picture(image) else decode(image, name)
    return pixels if shape is None else fit_image(pixels, shape, check_resize(resize))


def as_batch(
    images: Any, shape: Shape | None = None, resize: Resizing = "stretch", *, who: str = "The model"
) -> Floats:
    """One image or several as float32 (n, C, H, W) in [0, 1]; the module's description has the rules.

    Args:
        images: an array or a torch tensor, uint8 (0..255) or floats in [0, 1]; a picture of Pillow's; a path, the bytes
            of an image file, or one opened in binary mode; a list of these; an `ImageSet` or an image source.
        shape: the (C, H, W) of an image, where it is known.
        resize: how pictures of other proportions are brought to the shape: "stretch", "crop" or "pad".
        who: takes images of this shape, in the words of an error.
    """
    if type(images) is np.ndarray and images.dtype == np.float32 and images.shape[1:] == shape:
        return _checked(images)  # nothing to convert: the fast path of a guard
    source = as_source(images, shape, resize, who=who)
    return source[0 : len(source)]


def as_source(
    images: Any, shape: Shape | None = None, resize: Resizing = "stretch", *, who: str = "The model"
) -> ImageSource:
    """The same images as a source, which reads a few at a time: arrays are neither copied nor converted as a whole.

    The arguments are those of `as_batch`.
    """
    source = _source(images, shape, resize, who)
    if len(source) == 0:
        raise UserError("There are no images to look at: the set is empty.")
    if shape is not None and tuple(source.shape) != tuple(shape):
        raise UserError(_mismatch(who, shape, f"these are {tuple(source.shape)}"))
    return source


def _source(images: Any, shape: Shape | None, resize: Resizing, who: str) -> ImageSource:
    if isinstance(images, ImageSet):
        return images.images
    if isinstance(images, ImageSource):
        return images
    if _is_file(images):
        return ArraySource(read(images, shape, resize)[None], "NCHW")
    if isinstance(images, Sequence) and not _holds_numbers(images):
        parts = [_one(image, place, shape, resize, who) for place, image in enumerate(images)]
        return ArraySource(_joined(parts), "NCHW")
    array = _array(images)
    return ArraySource(_in_order(array, shape, who) if shape else _by_rule(array), "NCHW")


def _is_file(image: Any) -> bool:
    """Whether this is a picture, or something that Pillow can read one from."""
    return isinstance(image, str | bytes | os.PathLike | Mapping) or is_picture(image) or _is_opened(image)


def _is_opened(image: Any) -> bool:
    """Whether this is an opened file, or the like, such as an upload of a web framework."""
    return callable(getattr(image, "read", None)) and not is_picture(image)


def _content(opened: Any) -> bytes:
    found = opened.read()
    if not isinstance(found, bytes):
        raise UserError(
            f"Reading a {type(opened).__name__} gave a {type(found).__name__}, not bytes; open the file in binary "
            "mode, or give what it holds (of an upload, await its read())."
        )
    return found


def _one(image: Any, place: int, shape: Shape | None, resize: Resizing, who: str) -> Floats:
    """An element of a list: one image, or a batch with four axes."""
    if _is_file(image):
        named = isinstance(image, str | os.PathLike)
        return read(image, shape, resize, name="" if named else f"{GIVEN} at position {place} of the list")[None]
    if isinstance(image, ImageSet | ImageSource):
        return as_batch(image, shape, resize, who=who)
    array = _array(image)
    if array.ndim > 3:
        return as_batch(array, shape, resize, who=who)
    if shape and array.shape not in _forms(shape):
        raise UserError(_mismatch(who, shape, f"an image of shape {array.shape} was given"))
    if array.ndim < 2:
        raise UserError(f"An image of shape {array.shape} was given; (H, W), (C, H, W) or (H, W, C) is needed.")
    return as_batch(array[None] if array.ndim == 3 else array[None, None], shape, resize, who=who)


def _forms(shape: Shape) -> set[tuple[int, ...]]:
    """The shapes that an array with one image of shape (C, H, W) may have."""
    channels, height, width = shape
    return {(channels, height, width), (height, width, channels)} | ({(height, width)} if channels == 1 else set())


def _joined(batches: list[Floats]) -> Floats:
    if not batches:
        raise UserError("There are no images to look at: the list is empty.")
    shapes = sorted({batch.shape[1:] for batch in batches})
    if len(shapes) > 1:
        raise UserError(
            f"The images of the list differ in shape ({shapes[0]} and {shapes[1]}, channels, height, width); bring "
            "them to one, or say which shape is needed, to which pictures are then resized."
        )
    return np.concatenate(batches)


def _array(images: Any) -> NDArray[Any]:
    try:
        array = images.detach().cpu().numpy() if hasattr(images, "detach") else np.asanyarray(images)
    except ValueError as error:
        raise UserError(f"The images do not form one array ({error}); bring them to one size.") from error
    if array.dtype != np.uint8 and array.dtype.kind != "f":
        raise UserError(
            f"Images of dtype {array.dtype} were given; give uint8 (0 to 255) or floats from 0 to 1, or pictures."
        )
    return array


def _holds_numbers(images: Sequence[Any]) -> bool:
    """Whether nested lists hold the pixels themselves."""
    first = images[0] if len(images) else None
    return isinstance(first, int | float | np.number) or (isinstance(first, list | tuple) and _holds_numbers(first))


def _in_order(array: NDArray[Any], shape: Shape, who: str) -> NDArray[Any]:
    """An array of images of a known shape (C, H, W) as (n, C, H, W)."""
    channels, height, width = shape = (int(shape[0]), int(shape[1]), int(shape[2]))
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
    raise UserError(_mismatch(who, shape, f"an array of shape {array.shape} was given"))


def _mismatch(who: str, shape: Shape, given: str) -> str:
    return (
        f"{who} takes images of shape {tuple(shape)} (channels, height, width), but {given}; load them with "
        f"size={tuple(shape[1:])} and channels={shape[0]}, or give pictures, which are resized here."
    )


def _by_rule(array: NDArray[Any]) -> NDArray[Any]:
    """An array of images of unknown shape as (n, C, H, W)."""
    if array.ndim == 2:
        return array[None, None]
    if array.ndim == 3 and (array.shape[0] == 3 or array.shape[2] in (1, 3)):
        raise UserError(
            f"An array of shape {array.shape} may be one image or {array.shape[0]} grey ones; give four axes "
            "(array[None] for one image, array[:, None] for grey ones), or the shape of an image: "
            "Classifier(..., input_shape=...)."
        )
    axis = channel_axis(array.shape, "auto")
    if axis is None:
        return array[:, None]
    return np.moveaxis(array, axis, 1)


def _checked(batch: Floats) -> Floats:
    if len(batch) == 0:
        raise UserError("There are no images to look at: the set is empty.")
    check_range(batch)
    return batch
