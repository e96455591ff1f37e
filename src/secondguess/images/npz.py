"""NumPy archives (`.npz`).

An archive is a zip file of `.npy` members. A member that is stored without compression is mapped straight out
of the archive, so that a set larger than memory can be read; a compressed one is read into memory. Nothing is
unpickled.
"""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from secondguess._text import few
from secondguess.contracts.archives import check_archive
from secondguess.errors import UserError
from secondguess.images.image_set import ImageSet
from secondguess.images.labels import infer_class_names

__all__ = ["read_arrays", "read_npz"]

SPLIT_KEYS = {
    split: tuple(pair for name in names for pair in ((f"x_{name}", f"y_{name}"), (f"{name}_images", f"{name}_labels")))
    for split, names in {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}.items()
}
WHOLE_KEYS = (("images", "labels"), ("image", "label"), ("x", "y"))
KNOWN = {"p_label", "is_ambiguous", "class_names", "id"}
CHUNK = 1 << 20
LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, ..., length of the name, length of the extra field


def read_npz(path: Path) -> dict[str, ImageSet]:
    """The splits in an archive, or one part "all".

    Understood are x_train, y_train, x_test, y_test (and val or validation); train_images, train_labels, ...; images,
    labels; and image, label with p_label (n, K), is_ambiguous (n,) and id (n,), where further arrays (n,)
    become columns. Labels may be missing. `class_names` is optional.
    """
    with _damage_reported(path):
        archive = zipfile.ZipFile(path)
    with archive:
        check_archive(path, archive)
        return _read_parts(_Members(path, archive))


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an archive by name; those that are stored without compression are mapped, not read."""
    if not path.is_file():
        raise UserError(f"There is no file {path}; give an .npz file that numpy.savez has written.")
    with _damage_reported(path):
        archive = zipfile.ZipFile(path)
    with archive:
        members = _Members(path, archive)
        return {key: array for key in sorted(members.keys) if (array := members.get(key)) is not None}


@contextmanager
def _damage_reported(path: Path) -> Iterator[None]:
    try:
        yield
    except PermissionError:
        raise
    except (
        zipfile.BadZipFile,
        zlib.error,
        struct.error,
        EOFError,
        OSError,
        ValueError,
        RuntimeError,
    ) as error:
        raise UserError(f"{path} is not a complete NumPy archive ({error}); write it again.") from error


class _Members:
    """The arrays of an open archive by key, read on demand."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path = path
        self._archive = archive
        self._infos = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        self.keys = frozenset(self._infos)

    def get(self, key: str) -> NDArray[Any] | None:
        info = self._infos.get(key)
        if info is None:
            return None
        with _damage_reported(self.path):
            return self._read(key, info)

    def _read(self, key: str, info: zipfile.ZipInfo) -> NDArray[Any]:
        with self._archive.open(info) as member:
            shape, fortran, dtype = _npy_header(member)
            offset = member.tell()
        if dtype.hasobject:
            raise UserError(
                f"The array {key!r} in {self.path} holds Python objects, which are never unpickled; save it "
                "as plain numbers or strings."
            )
        size = math.prod(shape) * dtype.itemsize
        if offset + size != info.file_size:
            raise ValueError(f"{key} should hold {size} bytes but holds {info.file_size - offset}")
        if info.compress_type == zipfile.ZIP_STORED and size > 0:
            with self._archive.open(info) as member:  # what is mapped later is compared with its checksum now
                while member.read(CHUNK):
                    pass
            start = _data_offset(self.path, info) + offset
            return np.memmap(self.path, dtype, "r", start, shape, order="F" if fortran else "C")
        with self._archive.open(info) as member:
            return np.asarray(npy.read_array(member, allow_pickle=False))


def _npy_header(member: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy.read_magic(member)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(member)
    return shape, fortran, dtype


def _data_offset(path: Path, info: zipfile.ZipInfo) -> int:
    """Where the bytes of a member begin, which the directory of a zip file does not hold."""
    with path.open("rb") as file:
        file.seek(info.header_offset)
        signature, name, extra = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
    if signature != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"no local header for {info.filename}")
    return info.header_offset + LOCAL_HEADER.size + int(name) + int(extra)


def _read_parts(members: _Members) -> dict[str, ImageSet]:
    pairs = {split: pair for split in SPLIT_KEYS if (pair := _pair_of(split, members)) is not None}
    whole = next((pair for pair in WHOLE_KEYS if pair[0] in members.keys), None)
    if not pairs and whole is None:
        raise UserError(
            f"{members.path} holds {few(sorted(members.keys)) or 'no arrays'}, but x_test and "
            "y_test (with x_train, y_train), test_images and test_labels, or images and labels are needed."
        )
    if not pairs and whole is not None:
        pairs = {"all": whole}
    stem = members.path.stem
    soft = members.get("p_label") if "all" in pairs else None
    labels = {split: members.get(label_key) for split, (_, label_key) in pairs.items()}
    names = members.get("class_names")
    class_names = infer_class_names([*labels.values(), soft]) if names is None else tuple(map(str, names.tolist()))
    parts = {}
    for split, (image_key, label_key) in pairs.items():
        images = members.get(image_key)
        extras = _extras(members, {image_key, label_key}, images) if split == "all" else {}
        parts[split] = ImageSet.from_arrays(
            np.zeros(0) if images is None else images,
            labels[split],
            class_names=class_names,
            name=stem if split == "all" else f"{stem}/{split}",
            soft_labels=soft,
            **extras,
        )
    return parts


def _pair_of(split: str, members: _Members) -> tuple[str, str] | None:
    """The keys of the images and labels of a split, or None."""
    found = [pair for pair in SPLIT_KEYS[split] if pair[0] in members.keys]
    if len(found) > 1:
        raise UserError(f"{members.path} holds both {found[0][0]} and {found[1][0]}; leave one of them out.")
    return found[0] if found else None


def _extras(members: _Members, used: set[str], images: NDArray[Any] | None) -> dict[str, Any]:
    """The aligned arrays of an archive that holds one set."""
    n = 0 if images is None else len(images)
    ids = members.get("id")
    further = {key: members.get(key) for key in members.keys - used - KNOWN}
    return {
        "is_ambiguous": members.get("is_ambiguous"),
        "ids": None if ids is None else [str(value) for value in ids],
        "columns": {key: array for key, array in sorted(further.items()) if array is not None and array.shape == (n,)},
    }
