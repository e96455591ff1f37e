"""The image files below a folder or a URL, each once, however many links lead to it.

Names are kept, not paths: a million of them take a tenth of a gigabyte, as many `Path` objects four times that.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from secondguess.images.decode import EXTENSIONS
from secondguess.images.remote import Store

__all__ = ["Found", "find_files", "subfolders"]


@dataclass
class Found:
    """What lies below a folder, by names relative to it with "/" between their parts; nothing hidden, all sorted.

    Attributes:
        images: the images by the folder directly below that they lie in, "" for those that lie in none.
        others: the number of files that are not named like images.
        repeated: links to a folder or an image that is counted under another name, or to a folder around the link.
        odd: what is named like an image but is no file, such as a pipe or a device.
        stamps: in an object store, for each image a number that changes with its content.
    """

    images: dict[str, list[str]] = field(default_factory=dict)
    others: int = 0
    repeated: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    stamps: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, *, is_file: bool) -> None:
        """Count one thing."""
        if not _is_named_image(name):
            self.others += 1
        elif is_file:
            self.images.setdefault(name.partition("/")[0] if "/" in name else "", []).append(name)
        else:
            self.odd.append(name)

    def sort(self) -> Found:
        """Bring every list into the order of names."""
        for names in (*self.images.values(), self.repeated, self.odd):
            names.sort()
        return self


def find_files(folder: Path | Store) -> Found:
    """Walk a folder and whatever its links lead to, or one of an object store; no file is opened.

    What really lies in the folder comes before what links lead to, and folders come before files: which name of an
    image counts does not depend on the order of names. A link to a folder around the link is not followed. Object
    stores have no links.
    """
    if isinstance(folder, Store):
        return _find_in_store(folder)
    walk = _Walk(folder)
    walk.enter("")
    while walk.links:
        links, walk.links = sorted(walk.links), []
        for link in links:
            walk.follow(link)
    for link in sorted(walk.file_links):
        walk.count_link(link)
    return walk.found.sort()


def subfolders(folder: Path | Store) -> list[str]:
    """The names of the folders directly in a folder, hidden ones left out, sorted."""
    if isinstance(folder, Store):
        return sorted(entry.name for entry in folder.top if entry.is_folder and not _is_hidden(entry.name))
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not _is_hidden(entry.name))


def _find_in_store(store: Store) -> Found:
    """Level by level, the folders of a level at once where the store can do that."""
    found = Found()
    inside, level = [""], iter([store.top])
    while inside:
        deeper: list[str] = []
        for folder, entries in zip(inside, level, strict=True):
            prefix = f"{folder}/" if folder else ""
            for entry in entries:
                if _is_hidden(entry.name):
                    continue
                if entry.is_folder:
                    deeper.append(prefix + entry.name)
                    continue
                found.add(prefix + entry.name, is_file=True)
                if _is_named_image(entry.name):
                    found.stamps[prefix + entry.name] = entry.stamp
        inside, level = deeper, store.inside(deeper)
    return found.sort()


class _Walk:
    """A walk under way: what really lies in a folder is counted, links are put aside for later."""

    def __init__(self, root: Path) -> None:
        self.found = Found()
        self.links: list[str] = []
        self.file_links: list[str] = []
        self._root = root
        self._folders: set[Path] = set()  # real paths of the folders that were walked
        self._targets: set[Path] = set()  # real paths of the images that links led to

    def enter(self, inside: str) -> None:
        pending = [(inside, self._real(inside))]
        while pending:
            inside, real = pending.pop()
            if real in self._folders:
                continue
            self._folders.add(real)
            prefix = f"{inside}/" if inside else ""
            with os.scandir(self._root / inside) as entries:
                for entry in entries:
                    if _is_hidden(entry.name):
                        continue
                    if entry.is_symlink():
                        self.links.append(prefix + entry.name)
                    elif entry.is_dir():
                        pending.append((prefix + entry.name, real / entry.name))
                    else:
                        self.found.add(prefix + entry.name, is_file=entry.is_file())

    def follow(self, link: str) -> None:
        """Enter the folder that a link leads to, unless it was walked already or contains the link."""
        real = self._real(link)
        if not real.is_dir():
            self.file_links.append(link)
        elif real in self._folders or self._real(link.rpartition("/")[0]).is_relative_to(real):
            self.found.repeated.append(link)
        else:
            self.enter(link)

    def count_link(self, link: str) -> None:
        real = self._real(link)
        walked = real.parent in self._folders and not _is_hidden(real.name) and _is_named_image(real.name)
        if real.is_file() and _is_named_image(link) and (walked or real in self._targets):
            self.found.repeated.append(link)
        else:
            self._targets.add(real)
            # A link that leads nowhere counts, so that it is named as an image that cannot be read.
            self.found.add(link, is_file=real.is_file() or not real.exists())

    def _real(self, inside: str) -> Path:
        return Path(os.path.realpath(self._root / inside))  # Path.resolve refuses a link to itself


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def _is_named_image(name: str) -> bool:
    return name.lower().endswith(EXTENSIONS)
