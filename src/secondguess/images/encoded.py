"""Sources of images that are stored encoded, in files or tables, and decoded on demand."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.images.decode import BadImage, Header, decode, read_header
from secondguess.images.fitting import Resizing, check_resize, fit_image
from secondguess.images.image_set import ImageSet
from secondguess.images.parallel import in_parallel, one_ahead
from secondguess.images.remote import Place, Store, below, settled, stamp
from secondguess.images.sources import Floats, Shape, Source

__all__ = ["HEADERS", "EncodedSource", "FileSource", "Options", "StoredSource", "choose_shape", "evenly", "without_bad"]

HEADERS = 2000  # headers read at most, per split, to find the common size and whether there is colour
HEAD = 1 << 16  # bytes of a file at a URL in which its header is looked for
FETCHED = 16  # files at a URL that are asked for at once; as many wait to be decoded


@dataclass(frozen=True)
class Options:
    """How images of many sizes become images of one shape.

    Attributes:
        size: (height, width), one number for a square, or None for the most common size.
        channels: 1, 3, or None for grey only where all inspected images are grey.
        resize: how an image of other proportions is fitted, see `secondguess.images.fitting`.
        skip_bad: decode every image while loading and leave out those that cannot be read.
    """

    size: int | tuple[int, int] | None = None
    channels: int | None = None
    resize: Resizing = "stretch"
    skip_bad: bool = False

    def __post_init__(self) -> None:
        check_resize(self.resize)
        if self.channels not in (None, 1, 3):
            raise UserError(f"{self.channels} channels were asked for; use 1 (grey), 3 (colour) or neither.")
        if self.size is not None and (len(self.sides or ()) != 2 or min(self.sides or (0,)) < 1):
            raise UserError(f"The size {self.size!r} was asked for; give one number or (height, width), from 1.")

    @property
    def sides(self) -> tuple[int, int] | None:
        """The requested (height, width)."""
        return (self.size, self.size) if isinstance(self.size, int) else self.size


class EncodedSource(Source):
    """Images that are decoded and fitted to one shape whenever they are read.

    Args:
        shape: the (C, H, W) that every image is given.
        resize: how, see `secondguess.images.fitting`.
    """

    slow = True

    def __init__(self, shape: Shape, resize: Resizing) -> None:
        self.shape = shape
        self._resize = resize

    @abstractmethod
    def cells(self, rows: NDArray[np.int64]) -> Iterator[tuple[Any, str]]:
        """The encoded images at `rows` in that order, each with its name; see `secondguess.images.decode`."""

    def _read(self, rows: slice | NDArray[np.int64]) -> Floats:
        """Decode in parallel; the first image in order that cannot be read is the one that is reported."""
        positions = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        out = np.empty((len(positions), *self.shape), dtype=np.float32)

        def read(target: Floats, cell: Any, name: str) -> None:
            target[:] = fit_image(decode(cell, name), self.shape, self._resize)

        for _ in in_parallel(read, ((target, *cell) for target, cell in zip(out, self.cells(positions), strict=True))):
            pass
        return out

    def unreadable(self) -> dict[int, str]:
        """Decode every image and give the position and name of those that cannot be read."""
        bad = {}
        for start in range(0, len(self), HEADERS):
            rows = np.arange(start, min(start + HEADERS, len(self)))
            for row, name in zip(rows, in_parallel(_if_bad, self.cells(rows)), strict=True):
                if name is not None:
                    bad[int(row)] = name
        return bad


def _if_bad(cell: Any, name: str) -> str | None:
    """The name of an image that cannot be decoded; None of one that can."""
    try:
        decode(cell, name)
    except BadImage:
        return name
    return None


class StoredSource(EncodedSource):
    """Images that stay in files until they are read."""

    @property
    @abstractmethod
    def files(self) -> tuple[Place, ...]:
        """The files that hold the images."""

    def stamps(self) -> list[tuple[str, Any]]:
        """Each file with what changes with its content; no image is read for it."""
        return [(str(file), stamp(file)) for file in self.files]


class FileSource(StoredSource):
    """Image files, which may differ in size and mode.

    Args:
        files: the n paths, or names below `root`.
        shape: the (C, H, W) that every image is given.
        resize: how, see `secondguess.images.fitting`.
        root: the folder or the URL that the names are relative to.
        known: of files at a URL, (n,) numbers that change with their content.
    """

    def __init__(
        self,
        files: Sequence[str | Path],
        shape: Shape,
        resize: Resizing = "stretch",
        *,
        root: Place = Path(),
        known: NDArray[np.uint64] | None = None,
    ) -> None:
        super().__init__(shape, resize)
        self._names = tuple(os.fspath(file) for file in files)
        self._root = root
        self._known = known

    def __len__(self) -> int:
        """The number of images n."""
        return len(self._names)

    @property
    def files(self) -> tuple[Place, ...]:
        """The n paths or URLs."""
        return tuple(below(self._root, name) for name in self._names)

    def stamps(self) -> list[tuple[str, Any]]:
        """Each file with what changes with its content, which for a URL was listed with its name."""
        if self._known is None:
            return super().stamps()
        return [(str(file), one) for file, one in zip(self.files, self._known.tolist(), strict=True)]

    def cells(self, rows: NDArray[np.int64]) -> Iterator[tuple[Any, str]]:
        """The paths at `rows`, or what lies at the URLs; each with its path or URL as its name."""
        return self._cells(rows, None)

    def heads(self, rows: NDArray[np.int64]) -> Iterator[tuple[Any, str]]:
        """The same as far as a header needs it: of a URL the first bytes, and the rest only where these do not do."""
        for row, (cell, name) in zip(rows, self._cells(rows, HEAD), strict=True):
            enough = not isinstance(cell, bytes) or len(cell) < HEAD or _has_header(cell, name)
            yield (cell, name) if enough else next(self._cells(np.array([row]), None))

    def part(self, rows: NDArray[np.int64]) -> FileSource:
        """The files at `rows` (m,), below the absolute path of their folder."""
        known = None if self._known is None else self._known[rows]
        names = [self._names[row] for row in rows]
        return FileSource(names, self.shape, self._resize, root=settled(self._root), known=known)

    def _cells(self, rows: NDArray[np.int64], most: int | None) -> Iterator[tuple[Any, str]]:
        if isinstance(self._root, Path):
            for row in rows:
                path = self._root / self._names[row]
                yield path, str(path)
            return
        store = Store(self._root)
        names = [self._names[row] for row in rows]
        groups = [names[first : first + FETCHED] for first in range(0, len(names), FETCHED)]
        contents = one_ahead(partial(store.read, most=most), groups)
        for group, read in zip(groups, contents, strict=True):
            for name, content in zip(group, read, strict=True):
                yield content, str(below(self._root, name))


def _has_header(cell: bytes, name: str) -> bool:
    try:
        read_header(cell, name)
    except BadImage:
        return False
    return True


def evenly(n: int, most: int = HEADERS) -> NDArray[np.int64]:
    """At most `most` positions spread evenly over 0..n-1."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64))


def choose_shape(cells: Iterable[tuple[Any, str]], options: Options) -> tuple[Shape, tuple[str, ...]]:
    """The one shape for a set of images, and a note if some of them have to be resized to it.

    What the options leave open is decided by the headers of `cells`: the most common size (of equally common
    ones the largest), and grey only if all are grey. Nothing is read if the options decide everything.
    """
    if options.sides and options.channels:
        return (options.channels, *options.sides), ()
    headers = list(_headers(cells, options.skip_bad))
    if not headers:
        raise UserError("No readable image was found; give images that a viewer can open.")
    sizes = Counter((header.height, header.width) for header in headers)
    height, width = options.sides or max(sizes, key=lambda size: (sizes[size], size[0] * size[1], size))
    channels = options.channels or (1 if all(header.grey for header in headers) else 3)
    notes: tuple[str, ...] = ()
    if options.sides is None and len(sizes) > 1:
        notes = (
            f"The images differ in size ({len(sizes)} sizes among {len(headers)} inspected): all are "
            f"brought to the most common one, {height}x{width} pixels (height x width), by {options.resize}.",
        )
    return (channels, height, width), notes


def _headers(cells: Iterable[tuple[Any, str]], skip_bad: bool) -> Iterator[Header]:
    for cell, name in cells:
        try:
            yield read_header(cell, name)
        except BadImage:
            if not skip_bad:
                raise


def without_bad(image_set: ImageSet) -> ImageSet:
    """Leave out the images that cannot be decoded, and remember their names in `skipped` and in a note."""
    source = image_set.images
    bad = source.unreadable() if isinstance(source, EncodedSource) else {}
    if not bad:
        return image_set
    if len(bad) == len(image_set):
        raise UserError(f"None of the {len(bad)} images of {image_set.name} could be read, so none is left.")
    kept = image_set.take(np.setdiff1d(np.arange(len(image_set)), list(bad)))
    names = tuple(bad.values())
    note = f"{len(names)} images that could not be read were left out."
    return replace(kept, skipped=kept.skipped + names, notes=(*kept.notes, note))
