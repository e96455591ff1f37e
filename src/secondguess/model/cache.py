"""A content-addressed store of arrays: the outputs of a model for a set of images are computed once.

An entry is a folder named by a digest of its key. The key holds everything the array depends on (weights, layer,
reduction, images), and is stored in the entry in full. An entry is read only if that stored key equals the requested
one and the array's own digest is right, so a stale, foreign or damaged entry is recomputed, never returned. It appears
under its name by one rename after all its bytes are written, so a killed process leaves no incomplete entry; what a
power cut keeps from the disk is found by its digest, so that nobody waits for the disk, entry after entry.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import DTypeLike, NDArray

from secondguess._text import amount
from secondguess.contracts.sealed import file_digest
from secondguess.errors import UserError
from secondguess.files import draft_mark, make_folder, sweep

__all__ = ["Cache", "Draft"]

FORMAT = 1
ARRAY, CARD = "array.npy", "entry.json"
Key = Mapping[str, Any]


class Cache:
    """Arrays by key, in the folder `path` only."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def get(self, key: Key) -> NDArray[Any] | None:
        """The stored array, memory-mapped and read-only, or None when there is no sound entry."""
        folder = self._folder(key)
        try:
            card = json.loads((folder / CARD).read_text("utf-8"))
            if card["format"] != FORMAT or card["key"] != _plain(key):
                return None
            if card["digest"] != file_digest(folder / ARRAY):
                return None
            return np.load(folder / ARRAY, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def draft(self, key: Key, shape: tuple[int, ...], dtype: DTypeLike) -> Draft:
        """A writable memory-mapped array that becomes the entry for `key` when it is kept."""
        make_folder(self.path)
        sweep(self.path)
        self._check_space(math.prod(shape) * np.dtype(dtype).itemsize)
        try:
            folder = Path(tempfile.mkdtemp(prefix=f".{draft_mark()}", dir=self.path))
            try:
                array = open_memmap(folder / ARRAY, "w+", dtype, shape)
            except OSError:  # a quota, or the largest file that a process may write, which free space does not show
                shutil.rmtree(folder, ignore_errors=True)
                raise
        except OSError as error:
            raise UserError(f"The cache folder {self.path} cannot be written to: {error.strerror or error}.") from error
        return Draft(folder, self._folder(key), _plain(key), array)

    def _check_space(self, size: int) -> None:
        """Refuse what does not fit: writing to a mapped file on a full disk kills the process without a message."""
        free = shutil.disk_usage(self.path).free
        if size > free:
            raise UserError(
                f"An array of {amount(size)} does not fit into the cache folder {self.path}, where "
                f"{amount(free)} are free; make room, name another folder or ask for less."
            )

    def _folder(self, key: Key) -> Path:
        text = json.dumps(_plain(key), sort_keys=True)
        return self.path / hashlib.blake2b(text.encode("utf-8"), digest_size=16).hexdigest()


class Draft:
    """An entry that is being written. `keep()` makes it visible; `drop()` removes it."""

    def __init__(self, folder: Path, target: Path, key: Any, array: NDArray[Any]) -> None:
        self.array = array
        self._folder, self._target, self._key = folder, target, key

    def keep(self) -> NDArray[Any]:
        """Publish under the final name, and return the array read-only."""
        card = {"format": FORMAT, "key": self._key, "digest": file_digest(self._folder / ARRAY)}
        try:
            (self._folder / CARD).write_text(json.dumps(card, allow_nan=False), "utf-8")
        except OSError as error:
            raise UserError(f"{self._folder / CARD} could not be written: {error.strerror or error}.") from error
        own = np.load(self._folder / ARRAY, mmap_mode="r", allow_pickle=False)
        self._publish()
        try:
            return np.load(self._target / ARRAY, mmap_mode="r", allow_pickle=False)
        except OSError:  # another process is just replacing the entry by its own
            return own

    def _publish(self) -> None:
        """Rename the draft to its final name; an entry that is there already, unsound or another's, makes way."""
        aside = self._folder.with_name(f"{self._folder.name}-old")
        with suppress(OSError):  # usually there is none
            self._target.rename(aside)
        try:
            self._folder.rename(self._target)
        except OSError:  # another process published the same content in between
            self.drop()
        shutil.rmtree(aside, ignore_errors=True)

    def drop(self) -> None:
        """Forget the draft."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _plain(key: Key) -> Any:
    """The key as JSON would give it back, so that a stored key can be compared with a requested one."""
    return json.loads(json.dumps(key, sort_keys=True))
