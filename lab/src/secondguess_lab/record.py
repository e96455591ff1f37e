"""The provenance of a record: how it was made, with which code, on which machine, with which settings."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from secondguess.environment import versions
from secondguess.files import write_json
from secondguess.images import Dataset

__all__ = ["commit", "hardware", "provenance", "say", "write"]

BEGAN = time.perf_counter()  # of the process, as good as that of the experiment it runs


def provenance(settings: Mapping[str, Any], data: Dataset | None = None) -> dict[str, Any]:
    """The head of a record.

    Args:
        settings: what was varied, or could have been.
        data: what it was measured on, if it is one data set.

    Returns:
        A dictionary with `command`, `commit`, `hardware`, `versions`, `settings`, `seconds` so far and, where
        given, the name and fingerprint of `data`.
    """
    head = {
        "command": shlex.join(["python", *map(_relative, sys.argv)]),
        "commit": commit(),
        "hardware": hardware(),
        "versions": versions(),
        "settings": {key: _plain(value) for key, value in settings.items()},
        "seconds": time.perf_counter() - BEGAN,
    }
    if data is None:
        return head
    return head | {"data": {"name": Path(data.name).stem, "fingerprint": data.fingerprint}}


def commit() -> str | None:
    """The commit of the code that runs, with `-dirty` if files differ from it; None outside a repository.

    SECONDGUESS_COMMIT comes first: a tree that was copied to a machine with a GPU does not know its own.
    """
    if given := os.environ.get("SECONDGUESS_COMMIT"):
        return given
    words = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def hardware() -> str:
    """The GPU if there is one, else the kind of processor and the number of cores."""
    import torch

    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    return f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads"


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record, in full precision, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, dict(record), indent=1)


def say(what: object) -> None:
    """A line on standard output, at once."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def _relative(word: str) -> str:
    """A word of the command without the folders of the machine it ran on."""
    path = Path(word)
    if not path.is_absolute():
        return word
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path.name


def _plain(value: Any) -> Any:
    return _relative(str(value)) if isinstance(value, (Path, str)) else value
