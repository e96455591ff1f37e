"""Decoding one image file with Pillow, carefully.

Rotation in the EXIF header is applied, 16-bit grey is scaled by 65535, floats by 255 unless all are at most 1 (as
arrays of floats are), palettes are resolved, and transparent pixels are composited on black. An image larger than
Pillow's decompression-bomb limit is refused before a pixel is decoded, and only plain raster formats are tried, so that
no file makes Pillow start another program.
"""

from __future__ import annotations

import io
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from secondguess.errors import UserError
from secondguess.images.sources import ArraySource, Floats, unit

__all__ = ["EXTENSIONS", "BadImage", "Header", "decode", "from_picture", "is_picture", "read_header"]

EXTENSIONS = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
GIVEN = "the picture given"  # begins the name of one that came from memory
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
GREY_MODES = frozenset({"1", "L", "LA", "La", "F", "I", "I;16", "I;16L", "I;16B", "I;16N"})
SIDEWAYS = frozenset({5, 6, 7, 8})  # EXIF orientations that swap height and width


class BadImage(UserError):
    """One image cannot be used; the message names it."""


@dataclass(frozen=True)
class Header:
    """What is known of an image before it is decoded."""

    grey: bool
    height: int
    width: int


def read_header(cell: Any, name: str) -> Header:
    """Read the header of an image (`decode` describes the arguments); its size is that after rotation."""
    encoded = _encoded(cell, name)
    if encoded is None:
        channels, height, width = _from_numbers(cell, name).shape
        return Header(channels == 1, height, width)
    with _opened(encoded, name) as image:
        width, height = image.size
        # To find EXIF data behind the pixels Pillow decodes a whole PNG; PNG files rarely have them there.
        has_exif = image.format != "PNG" or "exif" in image.info
        if has_exif and image.getexif().get(ExifTags.Base.Orientation) in SIDEWAYS:
            width, height = height, width
        return Header(image.mode in GREY_MODES, height, width)


def decode(cell: Any, name: str) -> Floats:
    """Decode an image to float32 (1, H, W) when it is grey, (3, H, W) when it has colours.

    Args:
        cell: a path; the bytes of an image file; a mapping with one of the two under "bytes" or "path", as
            Hugging Face stores images; or nested numbers (H, W), (H, W, C) or (C, H, W), 0..255 when whole
            and 0..1 otherwise.
        name: what to call the image in an error.

    Raises:
        BadImage: the image cannot be read.
    """
    encoded = _encoded(cell, name)
    if encoded is None:
        return _from_numbers(cell, name)
    with _opened(encoded, name) as image:
        return _to_floats(ImageOps.exif_transpose(image))


def is_picture(value: Any) -> bool:
    """Whether this is an image of Pillow's."""
    return isinstance(value, Image.Image)


def from_picture(image: Image.Image, name: str = "the picture") -> Floats:
    """A picture of Pillow's by the rules of `decode`: float32 (1, H, W) or (3, H, W) in [0, 1]."""
    with _reported(name):
        return _to_floats(ImageOps.exif_transpose(image))


def _encoded(cell: Any, name: str) -> Path | bytes | None:
    """The image file behind a cell, or None if the cell holds the pixels themselves."""
    if isinstance(cell, Mapping):
        cell = cell.get("bytes") or cell.get("path")
    if cell is None:
        raise BadImage(f"The image at {name} is missing; remove its row or name, or leave it out with --skip-bad.")
    if isinstance(cell, str):
        return Path(cell)
    return cell if isinstance(cell, Path | bytes) else None


@contextmanager
def _opened(file: Path | bytes, name: str) -> Iterator[Image.Image]:
    """Open an image; any error raised before the block ends becomes a `BadImage`."""
    with _reported(name), Image.open(_readable(file), formats=FORMATS) as image:
        limit = Image.MAX_IMAGE_PIXELS
        if limit is not None and image.width * image.height > limit:
            raise Image.DecompressionBombError(f"{image.width}x{image.height} pixels")
        yield image


def _readable(file: Path | bytes) -> Path | io.BytesIO:
    """What Pillow opens; never a pipe or a device, which could keep it waiting for ever."""
    if isinstance(file, bytes):
        return io.BytesIO(file)
    if not stat.S_ISREG(file.stat().st_mode):
        raise ValueError("it is no file")
    return file


@contextmanager
def _reported(name: str) -> Iterator[None]:
    """Turn any error raised in the block into a `BadImage`."""
    try:
        yield
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BadImage(
            f"{_subject(name)} is larger than the {Image.MAX_IMAGE_PIXELS} pixels that are safe to decode; make it "
            f"smaller, or leave it out{_by_option(name, ' with --skip-bad')}."
        ) from error
    except Exception as error:  # on broken bytes Pillow's decoders raise exceptions of any type
        raise BadImage(
            f"{_subject(name)} could not be read ({_reason(error)}); repair or remove it"
            f"{_by_option(name, ', or leave out unreadable images with --skip-bad')}."
        ) from error


def _subject(name: str) -> str:
    return f"{name[0].upper()}{name[1:]}" if name.startswith(GIVEN) else f"The image at {name}"


def _by_option(name: str, advice: str) -> str:
    """What helps with files alone: pictures in memory came through no command."""
    return "" if name.startswith(GIVEN) else advice


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image in a known format"
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _to_floats(image: Image.Image) -> Floats:
    if image.mode.startswith("I"):
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            raise ValueError("pixel values beyond 16 bits")
        return unit(values[None], 65535)
    if image.mode == "F":
        values = np.asarray(image)
        if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= 255):
            raise ValueError("pixel values that are no numbers from 0 to 1, or to 255")
        return unit(values[None], 1 if values.max() <= 1 else 255)
    grey = image.mode in GREY_MODES
    if image.has_transparency_data:
        rgba = np.asarray(image.convert("RGBA")).transpose(2, 0, 1) / np.float32(255)
        return np.ascontiguousarray((rgba[:3] * rgba[3:])[: 1 if grey else 3], dtype=np.float32)
    pixels = np.asarray(image.convert("L" if grey else "RGB"))
    pixels = pixels[None] if grey else pixels.transpose(2, 0, 1)
    return unit(pixels, 255)


def _from_numbers(cell: Any, name: str) -> Floats:
    try:
        values = np.asarray(cell)
        if values.dtype.kind in "iu":
            if values.min() < 0 or values.max() > 255:
                raise ValueError("whole numbers outside 0..255")
            values = values.astype(np.uint8)
        return ArraySource(values[None])[0]
    except (UserError, ValueError) as error:
        raise BadImage(f"The image at {name} is not a rectangle of pixels ({error}).") from error
