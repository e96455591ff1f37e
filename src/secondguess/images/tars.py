"""WebDataset shards: tar archives whose neighbouring members belong together.

    train-000000.tar:   0001.jpg 0001.cls   0002.jpg 0002.cls   ...

Members whose names agree up to the first dot of their last part are one example. It has an image (`.jpg`, `.png`, ...)
and may have a label: `.cls` or `.txt` with a number or a name, or `.json` with one under `label` or `cls`. Loading
reads the headers of the members and the labels; images stay in the archive, and are read from their place in it when
they are wanted. Archives are plain tar files: in a compressed one nothing has a place.
"""

from __future__ import annotations

import copy
import json
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.images.dataset import files_by_split
from secondguess.images.decode import EXTENSIONS
from secondguess.images.encoded import HEADERS, Options, StoredSource, choose_shape, without_bad
from secondguess.images.fitting import Resizing
from secondguess.images.image_set import ImageSet
from secondguess.images.labels import infer_class_names
from secondguess.images.remote import Place, Store, open_place, settled
from secondguess.images.sources import Shape

__all__ = ["TarSource", "read_tars", "tars_at", "tars_in"]

LABELS = ("cls", "txt", "json")
LARGEST_LABEL = 1 << 20  # bytes of a member that may hold a label


@dataclass
class _Example:
    """Where the image of an example lies, and what is said of it."""

    key: str
    file: int = -1
    offset: int = 0
    size: int = 0
    label: Any = None


class TarSource(StoredSource):
    """The images in tar archives.

    Args:
        files: the archives.
        examples: the images in them.
        shape: the (C, H, W) that every image is given.
        resize: how, see `secondguess.images.fitting`.
    """

    def __init__(
        self,
        files: Sequence[Place],
        examples: Sequence[_Example],
        shape: Shape = (1, 1, 1),
        resize: Resizing = "stretch",
    ) -> None:
        super().__init__(shape, resize)
        self._files = tuple(files)
        self._at = np.array([(one.file, one.offset, one.size) for one in examples], dtype=np.int64).reshape(-1, 3)
        self._keys = np.array([one.key for one in examples])

    def __len__(self) -> int:
        """The number of images n."""
        return len(self._at)

    @property
    def files(self) -> tuple[Place, ...]:
        """The archives that hold the images."""
        return tuple(self._files[number] for number in np.unique(self._at[:, 0]))

    def cells(self, rows: NDArray[np.int64]) -> Iterator[tuple[Any, str]]:
        """The encoded images at `rows`; each archive is opened at most once for one call."""
        with ExitStack() as stack:
            opened: dict[int, BinaryIO] = {}
            for row in rows.tolist():
                number, offset, size = self._at[row].tolist()
                if number not in opened:
                    opened[number] = stack.enter_context(open_place(self._files[number]))
                opened[number].seek(offset)
                yield opened[number].read(size), f"{self._keys[row]} in {self._files[number]}"

    def part(self, rows: NDArray[np.int64]) -> TarSource:
        """The same archives, by their absolute paths, and the places of the images at `rows` (m,) in them."""
        some = copy.copy(self)
        some._files = tuple(settled(file) for file in self._files)
        some._at, some._keys = self._at[rows], self._keys[rows]
        return some


def tars_in(folder: Path) -> list[Path]:
    """The archives of a folder that holds nothing else but files; beside folders of images they are no shards."""
    found: list[Path] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir() or entry.name.lower().endswith(EXTENSIONS):
                return []
            if entry.name.endswith(".tar") and entry.is_file():
                found.append(Path(entry.path))
    return sorted(found)


def tars_at(store: Store) -> list[str]:
    """The URLs of the archives in an object store, by the same rule."""
    if any(entry.is_folder or entry.name.lower().endswith(EXTENSIONS) for entry in store.top):
        return []
    return store.files(".tar")


def read_tars(files: Sequence[Place], name: str, options: Options) -> dict[str, ImageSet]:
    """The splits in tar archives, identified by their names (`train-000000.tar`).

    Args:
        files: the archives, in order.
        name: what to call the data set.
        options: how images become images of one shape.
    """
    groups = files_by_split(files, name)
    found = {key: _examples(some) for key, some in groups.items()}
    labels = {key: _labels(examples) for key, examples in found.items()}
    class_names = infer_class_names(labels.values())
    sources = {key: TarSource(groups[key], examples, resize=options.resize) for key, examples in found.items()}
    inspected = (cell for source in sources.values() for cell in source.cells(np.arange(min(len(source), HEADERS))))
    shape, notes = choose_shape(inspected, options)
    parts = {}
    for key, source in sources.items():
        source.shape = shape
        made = ImageSet.from_source(
            source,
            labels[key],
            class_names=class_names,
            name=name if key == "all" else f"{name}/{key}",
            ids=[one.key for one in found[key]],
        )
        parts[key] = without_bad(replace(made, notes=notes)) if options.skip_bad else replace(made, notes=notes)
    return parts


def _examples(files: Sequence[Place]) -> list[_Example]:
    """The examples with an image, in the order in which they begin."""
    examples: list[_Example] = []
    for number, file in enumerate(files):
        current = _Example("")
        for key, suffix, member, content in _members(file):
            if key != current.key:
                current = _Example(key)
                examples.append(current)
            if f".{suffix}" in EXTENSIONS:
                current.file, current.offset, current.size = number, member.offset_data, member.size
            elif suffix in LABELS and current.label is None:
                current.label = _label(content, suffix, f"{member.name} in {file}")
    found = [one for one in examples if one.file >= 0]
    if not found:
        raise UserError(f"There is no image in {files[0]}; its members should be called 0001.jpg, 0001.cls and so on.")
    return found


def _members(file: Place) -> Iterator[tuple[str, str, tarfile.TarInfo, bytes]]:
    """The key, the suffix, the header and, if it may be a label, the content of every file in an archive."""
    with open_place(file) as opened:
        try:
            with tarfile.open(fileobj=opened, mode="r:") as archive:
                for member in archive:
                    folder, _, last = member.name.rpartition("/")
                    stem, _, suffix = last.partition(".")
                    if not member.isfile() or not stem or not suffix:
                        continue
                    suffix, content = suffix.lower(), b""
                    if suffix in LABELS and member.size <= LARGEST_LABEL:
                        read = archive.extractfile(member)
                        content = read.read() if read is not None else b""
                    yield f"{folder}/{stem}" if folder else stem, suffix, member, content
                    archive.members = []  # type: ignore[attr-defined]  # it would remember all of them
        except (tarfile.TarError, EOFError) as error:
            raise UserError(
                f"{file} is not a complete tar archive ({error}); give a plain one, not a compressed one."
            ) from error


def _label(content: bytes, suffix: str, name: str) -> Any:
    try:
        text = content.decode("utf-8").strip()
        if suffix != "json":
            return text
        found = json.loads(text)
        return found.get("label", found.get("cls")) if isinstance(found, dict) else None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name} is no label that could be read ({error}).") from error


def _labels(examples: Sequence[_Example]) -> NDArray[Any] | None:
    """Numbers where all labels are, else names, "" for none; None where no example has a label."""
    given = [one.label for one in examples]
    if all(label is None for label in given):
        return None
    texts = ["" if label is None else str(label) for label in given]
    if all(re.fullmatch(r"-?\d{1,9}", text) for text in texts if text):
        return np.array([int(text) if text else -1 for text in texts])
    return np.array(texts)
