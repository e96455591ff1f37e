"""The image files below a folder, each once, however many links lead to it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from secondguess.images.decode import EXTENSIONS

__all__ = ["Found", "find_files"]


@dataclass
class Found:
    """What lies below a folder; nothing hidden, and every list in sorted order.

    Attributes:
        images: the paths of the images.
        others: the number of files that are not named like images.
        repeated: links to a folder or an image that is counted under another path, or to a folder around the link.
        odd: what is named like an image but is no file, such as a pipe or a device.
    """

    images: list[Path] = field(default_factory=list)
    others: int = 0
    repeated: list[Path] = field(default_factory=list)
    odd: list[Path] = field(default_factory=list)


def find_files(folder: Path) -> Found:
    """Walk a folder and whatever its links lead to; no file is opened.

    What really lies in the folder comes before what links lead to, and folders come before files: which path of an
    image counts does not depend on the order of names. A link to a folder around the link is not followed.
    """
    walk = _Walk()
    walk.enter(folder)
    while walk.links:
        links, walk.links = sorted(walk.links, key=Path.as_posix), []
        for link in links:
            walk.follow(link)
    for link in sorted(walk.file_links, key=Path.as_posix):
        walk.count_link(link)
    for paths in (walk.found.images, walk.found.repeated, walk.found.odd):
        paths.sort(key=Path.as_posix)
    return walk.found


class _Walk:
    """A walk under way: what really lies in a folder is counted, links are put aside for later."""

    def __init__(self) -> None:
        self.found = Found()
        self.links: list[Path] = []
        self.file_links: list[Path] = []
        self._folders: set[Path] = set()  # real paths of the folders that were walked
        self._targets: set[Path] = set()  # real paths of the images that links led to

    def enter(self, folder: Path) -> None:
        pending = [(folder, _real(folder))]
        while pending:
            path, real = pending.pop()
            if real in self._folders:
                continue
            self._folders.add(real)
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_symlink():
                        self.links.append(path / entry.name)
                    elif entry.is_dir():
                        pending.append((path / entry.name, real / entry.name))
                    else:
                        self._count(path / entry.name, is_file=entry.is_file())

    def follow(self, link: Path) -> None:
        """Enter the folder that a link leads to, unless it was walked already or contains the link."""
        real = _real(link)
        if not real.is_dir():
            self.file_links.append(link)
        elif real in self._folders or _real(link.parent).is_relative_to(real):
            self.found.repeated.append(link)
        else:
            self.enter(link)

    def count_link(self, link: Path) -> None:
        real = _real(link)
        walked = real.parent in self._folders and not real.name.startswith(".") and _is_named_image(real)
        if real.is_file() and _is_named_image(link) and (walked or real in self._targets):
            self.found.repeated.append(link)
        else:
            self._targets.add(real)
            # A link that leads nowhere counts, so that it is named as an image that cannot be read.
            self._count(link, is_file=real.is_file() or not real.exists())

    def _count(self, path: Path, *, is_file: bool) -> None:
        if not _is_named_image(path):
            self.found.others += 1
        elif is_file:
            self.found.images.append(path)
        else:
            self.found.odd.append(path)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve refuses a link to itself


def _is_named_image(path: Path) -> bool:
    return path.name.lower().endswith(EXTENSIONS)
