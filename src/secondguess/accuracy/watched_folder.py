"""Images that arrive in a folder: its current content, every file observed once.

These images are not sorted into classes, so folders below are not classes: an image's id is its path within the
folder, which rules can refer to. A file that is still being written cannot be read; it is tried again the next time.
Links to folders are not followed, nothing outside the folder is read, and a link to an image of the folder is not
counted beside it. What is named like an image but is no plain file within the folder (a pipe, a link that leads out or
nowhere) counts as unreadable.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.images.decode import EXTENSIONS, BadImage, read_header
from secondguess.images.encoded import FileSource
from secondguess.images.image_set import ImageSet
from secondguess.images.parallel import in_parallel
from secondguess.images.sources import ArraySource
from secondguess.model.observation import Observation
from secondguess.progress import Progress, Titled

if TYPE_CHECKING:
    from secondguess.accuracy.labelled_data import LearntFrom
    from secondguess.images.fitting import Resizing
    from secondguess.model.classifier import Classifier

__all__ = ["File", "WatchedFolder", "check_images", "count_images", "files_within", "holds_images"]

IN_MEMORY = 1 << 28  # numbers, a gigabyte
File = tuple[Path, int, int]  # where it is, when it was changed, how long it is


class WatchedFolder:
    """A folder of images without labels.

    Args:
        folder: all images in it and below, hidden ones left out.
        classifier: observes them.
        like: what they are brought to the shape of, and whose classes they have.
        resize: how, see `secondguess.images.fitting`.
        skip_bad: whether files that cannot be read are left out and named in `unreadable`.
    """

    def __init__(
        self,
        folder: Path,
        classifier: Classifier,
        like: LearntFrom,
        *,
        resize: Resizing = "stretch",
        skip_bad: bool = False,
    ) -> None:
        if not folder.is_dir():
            raise UserError(f"There is no folder {folder} for images to arrive in.")
        self.folder = folder
        self.unreadable: tuple[str, ...] = ()
        self._classifier, self._like, self._resize, self._skip_bad = classifier, like, resize, skip_bad
        self._seen: dict[File, NDArray[np.float64]] = {}

    def __len__(self) -> int:
        """The number of images at the last scan."""
        return len(self._seen)

    def scan(self, progress: Progress) -> bool:
        """Observe new images; return whether any were added, removed or changed since the last scan."""
        files, new = self._listed()
        gone = self._seen.keys() - set(files)
        seen: dict[File, NDArray[np.float64]] = {}
        if new:
            images = self._images(new)
            titled = Titled(progress, "Observing new images")
            probabilities = self._classifier.observe(images, progress=titled).probabilities
            seen = dict(zip(new, probabilities, strict=True))
        self._seen = {file: row for file, row in self._seen.items() if file not in gone} | seen
        return bool(new or gone)

    def images(self) -> ImageSet:
        """The images in the folder right now, none of them observed."""
        _, files = self._listed()
        if not files:
            raise UserError(self._empty())
        return replace(self._images(sorted(files)), skipped=self.unreadable)

    def forget_unreadable(self) -> None:
        """Forget the images that can no longer be read, so that the next scan tries them again."""
        files = list(self._seen)
        for row in FileSource([path for path, _, _ in files], self._like.shape, self._resize).unreadable():
            del self._seen[files[row]]

    def observation(self) -> Observation:
        """The observation of the images of the last scan; `BadImage` where one cannot be read any more.

        Those that were replaced or taken away since are left out: what was said of them is not of what lies there now.
        """
        if not self._seen:
            raise UserError(self._empty())
        files = sorted(self._seen)
        images = self._images(files)
        if len(files) * math.prod(images.shape) <= IN_MEMORY:  # several will read them
            images = replace(images, images=ArraySource(images.materialise(), "NCHW"))
        now = set(files_within(self.folder)[0])
        same = [row for row, file in enumerate(files) if file in now]
        if not same:
            raise BadImage(f"All images in {self.folder} have changed since they were observed.")
        if len(same) < len(files):
            images, files = images.take(np.array(same)), [files[row] for row in same]
        probabilities = np.stack([self._seen[file] for file in files])
        return Observation(probabilities, images=replace(images, skipped=self.unreadable))

    def _empty(self) -> str:
        return f"There is no image ({', '.join(EXTENSIONS)}) in the folder {self.folder}."

    def _listed(self) -> tuple[list[File], list[File]]:
        """All files of the folder, and those that are new and can be read."""
        files, odd = files_within(self.folder)
        if odd and not self._skip_bad:
            raise _not_within(odd[0], self.folder)
        new = self._readable([file for file in files if file not in self._seen])
        self.unreadable += odd
        return files, new

    def _readable(self, files: Sequence[File]) -> list[File]:
        self.unreadable = ()
        if not files or not self._skip_bad:
            return list(files)
        source = FileSource([path for path, _, _ in files], self._like.shape, self._resize)
        bad = source.unreadable()
        self.unreadable = tuple(bad.values())
        return [file for row, file in enumerate(files) if row not in bad]

    def _images(self, files: Sequence[File]) -> ImageSet:
        paths = [path for path, _, _ in files]
        return ImageSet(
            images=FileSource(paths, self._like.shape, self._resize),
            labels=np.full(len(paths), -1, dtype=np.int64),
            class_names=self._like.class_names,
            name=str(self.folder),
            ids=tuple(path.relative_to(self.folder).as_posix() for path in paths),
        )


def holds_images(folder: Path) -> bool:
    """Whether this is a folder with something in it or below that is named like an image, readable or not.

    Where nothing of it is readable, the first is named as an image that is not, which says more than that there is
    none.
    """
    if not folder.is_dir():
        return False
    files, odd = files_within(folder)
    return bool(files or odd)


def count_images(folder: Path) -> int:
    """How many image files are in a folder or below."""
    return len(files_within(folder)[0])


def check_images(folder: Path) -> None:
    """Raise a `BadImage` for the first file in a folder or below that is no image, as far as its header shows.

    No image is decoded, so that one that was cut off in the middle passes.
    """
    files, odd = files_within(folder)
    if odd:
        raise _not_within(odd[0], folder)
    for _ in in_parallel(read_header, ((path, str(path)) for path, _, _ in files)):
        pass


def _not_within(name: str, folder: Path) -> BadImage:
    return BadImage(
        f"The image {name} is not a file within the folder {folder}; put a copy there, or leave it out with --skip-bad."
    )


def files_within(folder: Path) -> tuple[list[File], tuple[str, ...]]:
    """The files within a folder that are named like images, and the names of what cannot be one."""
    found: dict[Path, File] = {}  # by its real path
    odd: list[str] = []
    home = folder.resolve()
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.lower().endswith(EXTENSIONS) and not name.startswith("."):
                path = Path(where, name)
                try:
                    status, real = path.stat(), path.resolve(strict=True)
                except OSError:  # a link to nothing or to itself, unless it was moved away since it was listed
                    odd += [str(path)] * os.path.lexists(path)
                    continue
                if not (real.is_relative_to(home) and stat.S_ISREG(status.st_mode)):
                    odd.append(str(path))
                elif real not in found or not path.is_symlink():  # of two links, the one that was listed first
                    found[real] = (path, status.st_mtime_ns, status.st_size)
    return sorted(found.values()), tuple(sorted(odd))
