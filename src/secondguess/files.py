"""Atomic writing of files: an interruption leaves the old file or the new one, never a part of one."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from secondguess.errors import UserError

__all__ = ["atomic_path", "make_folder", "sync_folder", "write_bytes", "write_json", "write_text"]


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it is flushed to disk and renamed to `path`.

    The temporary file lies in the same folder, because a rename is atomic only within one file system. If the block
    raises, it is removed and an existing `path` stays as it was.
    """
    path = Path(path)
    make_folder(path.parent)
    temporary = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
        temporary = Path(name)
        os.close(handle)
        yield temporary
        _sync(temporary)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise UserError(f"{path} could not be written: {error.strerror or error}.") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to `path` atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to `path` atomically, as UTF-8."""
    # A file name that is not UTF-8 reaches us as lone surrogates; written as \\udcXX it stays readable, and valid JSON.
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: str | os.PathLike[str], value: Any, *, indent: int | None = 2) -> None:
    """Write `value` as JSON to `path` atomically; NaN and infinity are refused, since JSON has neither."""
    write_text(path, json.dumps(value, indent=indent, allow_nan=False, ensure_ascii=False) + "\n")


def make_folder(path: str | os.PathLike[str]) -> Path:
    """Create a folder and its parents; raise a `UserError` if that is not possible."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise UserError(f"{path} is a file, but a folder is needed there; name another folder.") from error
    except OSError as error:
        raise UserError(f"The folder {path} could not be created: {error.strerror or error}.") from error
    return path


def sync_folder(path: Path) -> None:
    """Make a rename inside `path` survive a power cut (where the platform lets a folder be opened)."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:  # Windows cannot open a folder; there the rename itself is journalled
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    current = os.umask(0)
    os.umask(current)
    return current
