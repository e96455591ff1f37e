"""Files here or in an object store: the same bytes behind a path or behind a URL (`s3://`, `gs://`, `file://`, ...).

URLs are opened by fsspec, which finds credentials and endpoints as its file systems do (environment, configuration
files). Only what is asked for is fetched: headers of archives and tables, then the images of a batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from secondguess.errors import UserError, require

__all__ = ["Place", "file_name", "files_at", "is_url", "open_place", "settled", "stamp"]

Place = Path | str  # a path, or a URL
WRITTEN = ("ETag", "etag", "mtime", "created")  # in the words of several file systems
URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


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


def files_at(url: str, suffixes: tuple[str, ...]) -> list[str]:
    """The URLs of the files with one of the suffixes that lie at a URL: itself, or those directly below it, sorted."""
    if url.endswith(suffixes):
        return [url]
    with _explained(url):
        system, path = require("fsspec", "remote").core.url_to_fs(url)
        found = [one["name"] for one in system.ls(path, detail=True) if one["type"] == "file"]
        return sorted(system.unstrip_protocol(name) for name in found if name.endswith(suffixes))


def stamp(place: Place) -> tuple[Any, ...]:
    """What changes with the content of a file, without reading it: its size, and when or as what it was written."""
    if isinstance(place, Path):
        found = place.stat()
        return found.st_size, found.st_mtime_ns
    with _explained(place):
        system, path = require("fsspec", "remote").core.url_to_fs(place)
        known = system.info(path)
        return known["size"], *(str(known[name]) for name in WRITTEN if name in known)


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
