"""Atomic writing of files: an interruption leaves the old file or the new one, never a part of one."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from secondguess.errors import UserError

__all__ = [
    "atomic_path",
    "draft_mark",
    "make_folder",
    "sweep",
    "sync_folder",
    "write_bytes",
    "write_json",
    "write_text",
]

DRAFT = re.compile(r"^\..*draft-([0-9a-f]{8})-(\d+)-")
_swept: set[tuple[int, str]] = set()


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it is flushed to disk and renamed to `path`.

    The temporary file lies in the same folder, because a rename is atomic only within one file system. If the block
    raises, it is removed and an existing `path` stays as it was. What a killed process could not remove is removed by
    the next one that writes into the folder.
    """
    path = Path(path)
    make_folder(path.parent)
    sweep(path.parent)
    temporary = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.{draft_mark()}", suffix=path.suffix)
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


def draft_mark() -> str:
    """What the name of a draft holds: which machine (or container) and process it belongs to."""
    return f"draft-{_machine()}-{os.getpid()}-"


def sweep(folder: Path) -> None:
    """Remove the drafts that killed processes of this machine left in a folder; once in the life of a process."""
    key = (os.getpid(), str(folder.absolute()))
    if key in _swept:
        return
    _swept.add(key)
    for entry in list(os.scandir(folder)):
        if (found := DRAFT.search(entry.name)) and found[1] == _machine() and not _is_alive(int(found[2])):
            with suppress(OSError):
                shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else Path(entry.path).unlink()


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


@cache
def _machine() -> str:
    """A digest of the machine and the space in which process ids are counted, as containers have their own."""
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:  # not Linux
        space = ""
    return hashlib.blake2b(f"{socket.gethostname()} {space}".encode(), digest_size=4).hexdigest()


def _is_alive(pid: int) -> bool:
    if os.name != "posix":  # where there is no way to ask that does no harm
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it exists and belongs to another user
        return True
    return True
