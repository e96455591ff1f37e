"""Folders of IDX files, the format in which MNIST is published.

A file starts with two zero bytes, a type code (0x08 = unsigned byte), the number of dimensions, and each
dimension as a big-endian 32-bit integer; the data follow. Plain files are memory-mapped, gzipped ones are
read.
"""

from __future__ import annotations

import gzip
import os
import re
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.archives import check_unpacked
from secondguess.errors import UserError
from secondguess.images.image_set import ImageSet
from secondguess.images.labels import infer_class_names

__all__ = ["has_idx", "read_idx"]

NAME = re.compile(r"(?:^|.*[-_.])(train|t10k|test|val)[-_.](images|labels)[-.]idx[134]-ubyte(?:\.gz)?$", re.IGNORECASE)
SPLITS = {"train": "train", "t10k": "test", "test": "test", "val": "val"}
UNSIGNED_BYTE = 0x08
START = 64  # bytes, more than a header has


def has_idx(folder: Path) -> bool:
    """Whether a folder holds IDX files."""
    with os.scandir(folder) as entries:
        return any(NAME.match(entry.name) and entry.is_file() for entry in entries)


def read_idx(folder: Path) -> dict[str, ImageSet]:
    """The splits in a folder of IDX files such as `train-images-idx3-ubyte.gz`; labels may be missing."""
    found: dict[tuple[str, str], Path] = {}
    for file in sorted(folder.iterdir(), reverse=True):  # in this order a plain file replaces its gzipped copy
        match = NAME.match(file.name)
        if match and file.is_file():  # a pipe could keep us waiting for ever
            key = (SPLITS[match[1].lower()], match[2].lower())
            other = found.setdefault(key, file)
            if other.name.removesuffix(".gz") != file.name.removesuffix(".gz"):
                raise UserError(f"{other.name} and {file.name} in {folder} hold the same split; keep one of them.")
            found[key] = file
    images = {split: _read_array(file) for (split, kind), file in found.items() if kind == "images"}
    labels = {split: _read_array(file) for (split, kind), file in found.items() if kind == "labels"}
    if not images:
        raise UserError(f"The folder {folder} holds IDX labels but no images; add the images file.")
    class_names = infer_class_names(labels.values())
    return {
        split: ImageSet.from_arrays(
            array, labels.get(split), class_names=class_names, name=f"{folder.name}/{split}", layout="NHWC"
        )
        for split, array in sorted(images.items())
    }


def _read_array(path: Path) -> NDArray[np.uint8]:
    """The array in one IDX file, memory-mapped unless it is gzipped."""
    if path.suffix == ".gz":
        try:
            data = _unpacked(path)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{path} is not a complete gzip file ({error}); fetch it again.") from error
        shape, offset, size = _header(path, data[:START])
        _check_size(path, len(data), size)
        return np.frombuffer(data, dtype=np.uint8, offset=offset).reshape(shape)
    with path.open("rb") as file:
        shape, offset, size = _header(path, file.read(START))
    _check_size(path, path.stat().st_size, size)
    return np.memmap(path, dtype=np.uint8, mode="r", offset=offset, shape=shape)


def _unpacked(path: Path) -> bytes:
    """The content of a gzipped file, as far as its header says, or a byte more where it goes on."""
    with gzip.open(path) as file:
        start = file.read(START)
        size = _header(path, start)[2]
        check_unpacked(path, size)
        return start + file.read(max(size + 1 - len(start), 0))


def _header(path: Path, start: bytes) -> tuple[tuple[int, ...], int, int]:
    """The shape in the header, where the data begin, and the size of the whole file."""
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] != UNSIGNED_BYTE or not 1 <= start[3] <= 4:
        raise UserError(
            f"{path} starts with the bytes {start[:4].hex(' ')}, which is not an IDX file of unsigned bytes "
            "(00 00 08 and the number of dimensions); fetch it again."
        )
    offset = 4 + 4 * start[3]
    if len(start) < offset:
        raise UserError(f"{path} is truncated within its header; fetch it again.")
    shape = struct.unpack(f">{start[3]}I", start[4:offset])
    return shape, offset, offset + int(np.prod(shape, dtype=object))


def _check_size(path: Path, size: int, expected: int) -> None:
    if size != expected:
        raise UserError(f"{path} holds {size} bytes, but its header says {expected}; it is damaged, fetch it again.")
