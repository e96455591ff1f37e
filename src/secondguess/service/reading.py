"""From the body of a request to images (n, C, H, W), or to a sentence about what is wrong with it.

Three forms are understood: a multipart form with one or several files, a picture as the body itself (`image/...`), and
JSON, `{"image": [[...]]}` or `{"images": [...]}` with numbers from 0 to 1 (or up to `"scale": 255`). Pictures are
resized to what the model takes; arrays must have its shape. The names of files are ignored.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.images import as_batch, read
from secondguess.images.decode import BadImage, read_header
from secondguess.images.fitting import Resizing
from secondguess.images.sources import Floats, Shape
from secondguess.service.limits import Limits, Refused

if TYPE_CHECKING:
    from starlette.datastructures import Headers

__all__ = ["from_json", "from_pictures", "uploaded"]

FORMATS = "PNG, JPEG, WebP, BMP, GIF or TIFF"


async def uploaded(headers: Headers, body: bytes, limits: Limits) -> list[bytes]:
    """The files of a multipart form."""
    from python_multipart.exceptions import FormParserError
    from starlette.datastructures import UploadFile
    from starlette.formparsers import MultiPartException, MultiPartParser

    async def stream() -> AsyncIterator[bytes]:
        yield body
        yield b""

    parser = MultiPartParser(headers, stream(), max_files=limits.images, max_fields=0, max_part_size=limits.body)  # type: ignore[arg-type]
    try:
        form = await parser.parse()
    except MultiPartException as error:
        if "Too many files" in error.message:
            raise _too_many(limits) from None
        if "Too many fields" in error.message:
            raise Refused(422, "The form has a field that is no file; send images only, as files.") from None
        raise Refused(400, "The form could not be read; send multipart/form-data with the images as files.") from None
    except (FormParserError, KeyError, ValueError, AssertionError):
        raise Refused(400, "The form could not be read; send multipart/form-data with the images as files.") from None
    try:
        files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
        if not files:
            raise Refused(422, "The form holds no file; send one image or several.")
        return [await file.read() for file in files]
    finally:
        await form.close()


def from_pictures(files: Sequence[bytes], shape: Shape, resize: Resizing, limits: Limits) -> Floats:
    """Picture files as the model takes them."""
    if len(files) > limits.images:
        raise _too_many(limits)
    return np.stack([_from_picture(file, place, shape, resize, limits) for place, file in enumerate(files, start=1)])


def from_json(body: bytes, shape: Shape, limits: Limits) -> Floats:
    """The arrays of a JSON object as the model takes them."""
    known = _parsed(body)
    given = [name for name in ("image", "images") if name in known]
    if len(given) != 1 or known.keys() - {"image", "images", "scale"}:
        raise Refused(422, 'The JSON object must hold "image" or "images", and may hold "scale"; nothing else.')
    scale = known.get("scale", 1)
    if scale not in (1, 255) or isinstance(scale, bool):
        raise Refused(422, 'The "scale" must be 1 or 255: the largest value that a pixel can have.')
    value = known[given[0]]
    if given[0] == "images":
        if not isinstance(value, list) or not value:
            raise Refused(422, 'There is no image in "images"; give a list of arrays.')
        if len(value) > limits.images:
            raise _too_many(limits)
    array = _numbers(value)
    if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= scale):
        raise Refused(
            422,
            f'Some numbers are not between 0 and {scale}; give them from 0 to 1, or up to 255 with "scale": 255.',
        )
    pixels = (array / scale).astype(np.float32)
    try:
        return as_batch(list(pixels) if given[0] == "images" else [pixels], shape)
    except UserError as error:
        raise Refused(422, str(error)) from None


def _parsed(body: bytes) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise Refused(422, f"The JSON holds {constant}; every pixel must be a number.")

    try:
        known = json.loads(body, parse_constant=refuse)
    except (ValueError, RecursionError):  # bytes that are no UTF-8 are a ValueError too
        raise Refused(400, "The body is not valid JSON.") from None
    if not isinstance(known, dict):
        raise Refused(422, 'The body must be a JSON object: {"image": ...} or {"images": [...]}.')
    return known


def _numbers(value: Any) -> NDArray[np.float64]:
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError, RecursionError):
        raise Refused(422, "The rows of an image differ in length; give arrays without gaps.") from None
    if array.dtype.kind not in "iuf" or array.size == 0:
        raise Refused(422, "An image is an array of numbers; something else was given.")
    return array.astype(np.float64)


def _from_picture(file: bytes, place: int, shape: Shape, resize: Resizing, limits: Limits) -> Floats:
    name = f"image {place}"
    try:
        header = read_header(file, name)
        if max(header.height, header.width) > limits.side or header.height * header.width > limits.pixels:
            raise Refused(
                413,
                f"Image {place} has {header.width} x {header.height} pixels, but at most {limits.pixels:,} are allowed "
                f"and {limits.side:,} on a side; make it smaller.",
            )
        return read(file, shape, resize, name=name)
    except BadImage:
        raise Refused(422, f"Image {place} cannot be read; send a {FORMATS} file that is whole.") from None
    except UserError as error:
        raise Refused(422, str(error)) from None


def _too_many(limits: Limits) -> Refused:
    return Refused(413, f"More than {limits.images} images were sent in one request; send fewer at a time.")
