"""Files of fitted parts under the names of their content: NAME-DIGEST.safetensors.

A folder that holds several parts has a card that names them. Written first, parts never replace those that the card of
before names, so that an interrupted save leaves the old folder as it was; with the new card in place, `swept` removes
what only the old one named.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Protocol

from secondguess.errors import UserError
from secondguess.files import make_folder

__all__ = ["as_file", "checked_part", "content_digest", "store_part", "sweep_parts"]

PART = re.compile(r"(?:\w+/)?[\w.@%+-]+?(?:-([0-9a-f]{16}))?\.safetensors")  # older folders have no digests


class Part(Protocol):
    """What can be saved as one file."""

    def save(self, path: Path) -> object:
        """Write the file."""


def content_digest(content: bytes) -> str:
    """What stands in the name of a file with this content."""
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def as_file(label: str) -> str:
    """A label as a part of a file's name."""
    return re.sub(r"[^\w.@%+]", "_", label)


def store_part(folder: Path, name: str, part: Part) -> str:
    """Save a part under the name of its content, and return that name.

    Args:
        folder: that of all parts.
        name: of the file, without suffix; perhaps in a folder below, such as `supervisors/entropy`.
        part: to save.
    """
    place = folder / name
    draft = make_folder(place.parent) / f".{place.name}.safetensors"
    try:
        part.save(draft)
        named = place.with_name(f"{place.name}-{content_digest(draft.read_bytes())}.safetensors")
        draft.replace(named)
    finally:
        draft.unlink(missing_ok=True)
    return named.relative_to(folder).as_posix()


def checked_part(folder: Path, name: str, *, card: str, what: str) -> Path:
    """The path of a file, if it is inside the folder and holds what its name says.

    Args:
        folder: that of all parts.
        name: as `store_part` returned it, from the card.
        card: the name of the card.
        what: the parts make, such as "guard".
    """
    path, match = folder / name, PART.fullmatch(name)
    if match is None:
        raise UserError(f"{folder / card} names the file {name!r}, which is no file of a {what}; fit the {what} again.")
    if not path.is_file():
        raise UserError(f"{path} is missing; copy the whole folder, or fit the {what} again.")
    if match[1] is not None and content_digest(path.read_bytes()) != match[1]:
        raise UserError(f"{path} is damaged: its content is not what its name says; fit the {what} again.")
    return path


def sweep_parts(folder: Path, patterns: Iterable[str], named: Collection[str]) -> None:
    """Remove files and folders that match the patterns and are not named: those of an older card."""
    for path in [path for pattern in patterns for path in folder.glob(pattern)]:
        if path.relative_to(folder).as_posix() not in named:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
