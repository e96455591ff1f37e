"""Where the pixels of an image set come from, read a few rows at a time.

A source gives random access to equally shaped images without holding them all: an array (in memory or mapped
from a file), a view on another source, or encoded images (see `secondguess.images.encoded`). Only the rows
asked for are converted to float32, so a set that is larger than memory streams in batches.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.images.parallel import in_parallel

__all__ = [
    "ArraySource",
    "Floats",
    "ImageSource",
    "Index",
    "Layout",
    "Shape",
    "Source",
    "ViewSource",
    "channel_axis",
    "check_range",
    "resolve_rows",
    "unit",
]

Shape = tuple[int, int, int]
Floats = NDArray[np.float32]
Index = slice | NDArray[np.int64] | int
Layout = Literal["auto", "NCHW", "NHWC"]

DIGEST = 16  # bytes
BLOCK_BYTES = 16 * 2**20  # what a pass over a whole source holds in memory at a time


@runtime_checkable
class ImageSource(Protocol):
    """Random access to n images of one shape."""

    @property
    def shape(self) -> Shape:
        """The shape (C, H, W) of one image."""

    def __len__(self) -> int:
        """The number of images n."""

    def __getitem__(self, index: Index) -> Floats:
        """Images in [0, 1]: (m, C, H, W) for a slice or an array of m positions, (C, H, W) for an int."""

    @property
    def fingerprint(self) -> str:
        """A digest of the content, the same whatever kind of source holds it."""


class Source(ABC):
    """What every source shares: a class that can `_read` rows becomes an `ImageSource`."""

    shape: Shape
    slow: bool = False  # whether it takes long to read, so that the next images are read while these are used

    @abstractmethod
    def __len__(self) -> int:
        """The number of images n."""

    @abstractmethod
    def _read(self, rows: slice | NDArray[np.int64]) -> Floats:
        """Read the images at `rows` (positions within 0..n-1) as contiguous float32 (m, C, H, W)."""

    def __getitem__(self, index: Index) -> Floats:
        """Read images in [0, 1]: (m, C, H, W) for a slice or m positions, (C, H, W) for an int."""
        if isinstance(index, int | np.integer):
            image: Floats = self._read(resolve_rows(np.array([index]), len(self)))[0]
            return image
        if isinstance(index, slice):
            return self._read(index)
        return self._read(resolve_rows(index, len(self)))

    def part(self, rows: NDArray[np.int64]) -> Source:
        """The images at `rows` (m,) as a source of their own, which can be sent to another process."""
        return ArraySource(self[rows], "NCHW")

    def block_rows(self) -> int:
        """Number of images that a pass over the whole source should read at a time."""
        return max(1, BLOCK_BYTES // (4 * int(np.prod(self.shape))))

    @property
    def fingerprint(self) -> str:
        """Digest (hex, 16 bytes of BLAKE2b) of the shape and of every image as little-endian float32.

        Hashing what a classifier is given, rather than how it is stored, makes the digest of a set the same
        in every file format that stores it without loss.
        """
        return self._digested[0] if self.slow else self._digest

    @property
    def digests(self) -> NDArray[np.uint8]:
        """The same of each image alone, (n, 16): by these it is found again in another set."""
        return self._digested[1] if self.slow else self._digest_of_each

    @cached_property
    def _digested(self) -> tuple[str, NDArray[np.uint8]]:
        """Both in one pass, of a source that takes long to read."""
        whole, each = self._whole(), bytearray()
        for block in self._contents():
            whole.update(block)
            each += self._of_each(block)
        return whole.hexdigest(), _matrix(bytes(each))

    @cached_property
    def _digest(self) -> str:
        """The digest of the whole alone; the next images are read while these are digested, without the global lock."""
        whole = self._whole()
        with ThreadPoolExecutor(1, "secondguess-digest") as beside:
            waiting: Future[None] | None = None
            for block in self._contents():
                if waiting is not None:
                    waiting.result()
                waiting = beside.submit(whole.update, block)
            if waiting is not None:
                waiting.result()
        return whole.hexdigest()

    @cached_property
    def _digest_of_each(self) -> NDArray[np.uint8]:
        return _matrix(b"".join(in_parallel(self._of_each, ((block,) for block in self._contents()))))

    def _contents(self) -> Iterator[Floats]:
        """What is digested, block by block."""
        step = self.block_rows()
        for first in range(0, len(self), step):
            yield np.ascontiguousarray(self[first : first + step], dtype="<f4")

    def _whole(self) -> Any:
        return hashlib.blake2b(repr((len(self), *self.shape)).encode(), digest_size=DIGEST)

    def _of_each(self, block: Floats) -> bytes:
        """The digests of some images, one after the other."""
        start, found = hashlib.blake2b(repr(self.shape).encode(), digest_size=DIGEST), bytearray()
        for image in block:
            one = start.copy()
            one.update(image)
            found += one.digest()
        return bytes(found)


def _matrix(digests: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(digests, dtype=np.uint8).reshape(-1, DIGEST)


def unit(values: NDArray[Any], largest: int) -> Floats:
    """Whole numbers 0..`largest` as contiguous float32 in [0, 1], correctly rounded."""
    out: Floats = np.divide(values, np.float32(largest), dtype=np.float32, order="C")
    return out


def check_range(pixels: NDArray[Any]) -> None:
    """Raise a `UserError` unless all numbers are finite and in [0, 1]."""
    low, high = float(pixels.min()), float(pixels.max())
    if low >= 0 and high <= 1:  # NaN compares as false
        return
    if not (np.isfinite(low) and np.isfinite(high)):
        raise UserError("The images hold NaN or infinity; give finite floats in [0, 1].")
    raise UserError(
        f"The images run from {low:.6g} to {high:.6g}, but must lie in [0, 1]; divide them by their "
        "largest possible value, or give uint8."
    )


def resolve_rows(index: object, n: int) -> NDArray[np.int64]:
    """Turn positions (negative ones count from the end) or a mask (n,) into positions within 0..n-1.

    Raises:
        IndexError: a position lies outside the set, or `index` holds no positions at all.
    """
    rows = np.asarray(index)
    if rows.dtype == bool and rows.shape == (n,):
        return np.flatnonzero(rows).astype(np.int64)
    if rows.size == 0:
        return np.zeros(0, dtype=np.int64)
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise IndexError(f"expected positions (m,) or a mask ({n},), got {rows.dtype} of shape {rows.shape}")
    rows = rows.astype(np.int64)
    if rows.min() < -n or rows.max() >= n:
        raise IndexError(f"positions run from {rows.min()} to {rows.max()}, but there are {n} images")
    return np.where(rows < 0, rows + n, rows)


class ArraySource(Source):
    """Images in one array, which may be a memory map.

    Args:
        array: uint8 (0..255) or floats in [0, 1], of shape (n, H, W), (n, H, W, C) or (n, C, H, W).
        layout: which axis of a 4-dimensional array holds the channels; "auto" takes the one of size 1 or 3.
    """

    def __init__(self, array: NDArray[np.uint8] | NDArray[np.floating], layout: Layout = "auto") -> None:
        if array.dtype != np.uint8 and array.dtype.kind != "f":
            raise UserError(
                f"Images of dtype {array.dtype} were given; convert them to uint8 (0..255) or float32 (0..1)."
            )
        self._array = array
        self._axis = channel_axis(array.shape, layout)
        if 0 in array.shape:
            raise UserError(f"The image array of shape {array.shape} is empty; at least one image is needed.")
        sides = list(array.shape[1:])
        channels = 1 if self._axis is None else sides.pop(self._axis - 1)
        self.shape = (channels, sides[0], sides[1])
        if array.dtype.kind == "f":
            self._check_range()

    def __len__(self) -> int:
        """The number of images n."""
        return int(self._array.shape[0])

    def _read(self, rows: slice | NDArray[np.int64]) -> Floats:
        block = self._array[rows]
        if self._axis is None:
            block = block[:, None]
        elif self._axis == 3:
            block = block.transpose(0, 3, 1, 2)
        if block.dtype == np.uint8:
            return unit(block, 255)
        return np.array(block, dtype=np.float32, order="C")

    def part(self, rows: NDArray[np.int64]) -> Source:
        """A copy of the images at `rows` (m,), stored as they are here."""
        return ArraySource(np.array(self._array[rows]), "NHWC" if self._axis == 3 else "NCHW")

    def _check_range(self) -> None:
        """Refuse floats that are not in [0, 1], one block at a time."""
        step = self.block_rows()
        for start in range(0, len(self), step):
            check_range(self._array[start : start + step])


def channel_axis(shape: tuple[int, ...], layout: Layout) -> int | None:
    """The axis of an image array (n, ...) that holds the channels: 1, 3, or None if there is none."""
    if layout not in ("auto", "NCHW", "NHWC"):
        raise UserError(f"The layout {layout!r} is not known; use 'auto', 'NCHW' or 'NHWC'.")
    if len(shape) == 3:
        return None
    if len(shape) != 4:
        raise UserError(
            f"An image array of shape {shape} was given, but (n, H, W), (n, H, W, C) or (n, C, H, W) is needed."
        )
    if layout != "auto":
        return layout.index("C")
    candidates = [axis for axis in (1, 3) if shape[axis] in (1, 3)]
    if len(candidates) != 1:
        raise UserError(
            f"It is ambiguous which axis of the image array {shape} holds the channels; "
            "pass layout='NCHW' or layout='NHWC' to ImageSet.from_arrays."
        )
    return candidates[0]


class ViewSource(Source):
    """Some rows of another source, in any order, without a copy. Where it is pickled, only these rows are.

    Args:
        source: the underlying source; a view on a view refers to the source below.
        rows: positions (m,) in `source`.
    """

    def __init__(self, source: ImageSource, rows: NDArray[np.int64]) -> None:
        if isinstance(source, ViewSource):
            rows = source._rows[rows]
            source = source._source
        self._source: ImageSource = source
        self._rows: NDArray[np.int64] = rows
        self.shape, self.slow = source.shape, getattr(source, "slow", False)

    def __len__(self) -> int:
        """The number of images m."""
        return len(self._rows)

    def _read(self, rows: slice | NDArray[np.int64]) -> Floats:
        return self._source[self._rows[rows]]

    def part(self, rows: NDArray[np.int64]) -> Source:
        """The images at `rows` (m,) of the source below."""
        chosen = self._rows[rows]
        if isinstance(self._source, Source):
            return self._source.part(chosen)
        return ArraySource(self._source[chosen], "NCHW")

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self.part(np.arange(len(self))),)


def _arrived(part: Source) -> Source:
    return part
