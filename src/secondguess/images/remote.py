"""Files here or in an object store: the same bytes behind a path or behind a URL (`s3://`, `gs://`, `file://`, ...).

URLs are opened by fsspec, which finds credentials and endpoints as its file systems do (environment, configuration
files). Only what is asked for is fetched: lists of names, headers of archives and tables, then the images of a batch.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

from secondguess.errors import UserError, require

__all__ = ["Entry", "Place", "Store", "below", "file_name", "is_url", "local_path", "open_place", "settled", "stamp"]

Place = Path | str  # a path, or a URL
WRITTEN = ("ETag", "etag", "mtime", "created")  # in the words of several file systems
URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
LISTED = 16  # folders that a store is asked about at once


def is_url(text: str) -> bool:
    """Whether a text names something in an object store, or in any file system of fsspec."""
    return URL.match(text) is not None


def file_name(place: Place) -> str:
    """The last part of a path or URL."""
    return PurePosixPath(place).name if isinstance(place, str) else place.name


def settled(place: Place) -> Place:
    """The place as another process finds it."""
    return place if isinstance(place, str) else place.absolute()


def open_place(place: Place) -> BinaryIO:
    """Open a file for reading; it can be sought in."""
    if isinstance(place, Path):
        return place.open("rb")
    with _explained(place):
        opened: BinaryIO = require("fsspec", "remote").open(place, "rb").open()
        return opened


def below(place: Place, name: str) -> Place:
    """What has that name in a folder or at a URL."""
    if isinstance(place, Path):
        return place / name
    return f"{place}{name}" if place.endswith("/") else f"{place}/{name}"


def local_path(url: str) -> Path | None:
    """The path of what lies on a disk of this machine (`file://`, `local://`); None for any other URL."""
    with _explained(url):
        system, path = require("fsspec", "remote").core.url_to_fs(url)
        return Path(path) if "file" in _names(system) else None


class Entry(NamedTuple):
    """Something directly in a folder of a store.

    Attributes:
        name: within that folder.
        is_folder: whether it holds others.
        stamp: of a file, a number that changes with its content.
    """

    name: str
    is_folder: bool
    stamp: int


class Store:
    """A folder of an object store, or of any file system of fsspec; `store / name` is one in it.

    Args:
        url: of the folder.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        with _explained(url):
            self._system, path = require("fsspec", "remote").core.url_to_fs(url)
        self._path = path.rstrip("/")

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> Store:
        return Store(str(below(self.url, name)))

    @cached_property
    def top(self) -> list[Entry]:
        """What lies directly in it, in no order; asked for once."""
        return self._list("")

    def files(self, suffix: str) -> list[str]:
        """The URLs of the files with that suffix that lie directly in it, sorted."""
        names = sorted(entry.name for entry in self.top if not entry.is_folder and entry.name.endswith(suffix))
        return [str(below(self.url, name)) for name in names]

    def inside(self, folders: Sequence[str]) -> Iterator[list[Entry]]:
        """Yield what lies in each of the folders in it, in their order; those of one in no order."""
        at_once = LISTED if getattr(self._system, "async_impl", False) else 1  # others need not be safe in threads
        with ThreadPoolExecutor(at_once, "secondguess-list") as pool:
            yield from pool.map(self._list, folders)

    def read(self, names: Sequence[str], most: int | None = None) -> list[bytes | None]:
        """The contents of files, fetched at once where the store can do that; None for one that is not there.

        Args:
            names: relative to the store's folder.
            most: bytes from the beginning of each; None for all.
        """
        # From 0: where nothing is said of the beginning, s3fs asks for the size of each file first.
        with _explained(self.url):
            found = self._system.cat_ranges([self._at(name) for name in names], 0, most, on_error="return")
        pairs = zip(names, found, strict=True)
        return [self._again(name) if isinstance(content, Exception) else content for name, content in pairs]

    def _again(self, name: str) -> bytes | None:
        """A file of which no part could be read: there may be none of an empty one.

        Raises:
            UserError: it cannot be fetched. That a network fails or credentials have run out is no fault of an image,
                which might be left out.
        """
        with _explained(str(below(self.url, name))):
            try:
                content: bytes = self._system.cat_file(self._at(name))
            except FileNotFoundError:
                return None
            return content

    def _list(self, folder: str) -> list[Entry]:
        path = self._at(folder)
        self._system.invalidate_cache(path)  # what was there before
        with _explained(str(below(self.url, folder)) if folder else self.url):
            entries = [
                Entry(_last(one["name"]), one["type"] == "directory", _digest(_stamp(one)))
                for one in self._system.ls(path, detail=True)
                if one["name"].strip("/") != path.strip("/")  # an empty object that stands for the folder itself
            ]
        self._system.invalidate_cache(path)  # it would remember all that it knows of each file
        return entries

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}" if name else self._path or "/"


def stamp(place: Place) -> tuple[Any, ...]:
    """What changes with the content of a file, without reading it: its size, and when or as what it was written."""
    if isinstance(place, Path):
        found = place.stat()
        return found.st_size, found.st_mtime_ns
    with _explained(place):
        system, path = require("fsspec", "remote").core.url_to_fs(place)
        return _stamp(system.info(path))


def _stamp(known: dict[str, Any]) -> tuple[Any, ...]:
    """Of what a file system knows of a file."""
    return known.get("size"), *(str(known[name]) for name in WRITTEN if name in known)


def _digest(what: tuple[Any, ...]) -> int:
    return int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=8).digest(), "little")


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]


def _names(system: Any) -> tuple[str, ...]:
    """The protocols of a file system."""
    return (system.protocol,) if isinstance(system.protocol, str) else tuple(system.protocol)


@contextmanager
def _explained(url: str) -> Iterator[None]:
    """One sentence for what a file system raises."""
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(f"There is nothing at {url}; give the URL of a file, or of a folder of them.") from error
    except ImportError as error:  # fsspec names the package that is missing
        raise UserError(f"{url} cannot be opened: {error}.") from error
    except Exception as error:  # every file system has its own errors
        raise UserError(f"{url} cannot be opened ({_first_line(error)}); check the address and the access.") from error


def _first_line(error: Any) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
