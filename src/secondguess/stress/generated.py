"""Images that are made on demand, so that a set of any size takes no memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from secondguess.images.sources import Floats, ImageSource, Shape, Source

__all__ = ["GeneratedSource", "alternate"]


class GeneratedSource(Source):
    """A source of images that a function makes.

    Args:
        count: number of images n.
        shape: (C, H, W) of each.
        make: positions (m,) -> images (m, C, H, W) in [0, 1]; always the same for the same position.
    """

    def __init__(self, count: int, shape: Shape, make: Callable[[NDArray[np.int64]], Floats]) -> None:
        self.shape = shape
        self._count = count
        self._make = make

    def __len__(self) -> int:
        """The number of images n."""
        return self._count

    def _read(self, rows: slice | NDArray[np.int64]) -> Floats:
        positions = np.arange(self._count)[rows]
        if not len(positions):
            return np.zeros((0, *self.shape), dtype=np.float32)
        return np.ascontiguousarray(self._make(positions), dtype=np.float32)


def alternate(sources: Sequence[ImageSource], count: int) -> GeneratedSource:
    """Take turns: image i is image i // k of source i mod k, for k sources of one shape and `count` images."""

    def make(positions: NDArray[np.int64]) -> Floats:
        images = np.empty((len(positions), *sources[0].shape), dtype=np.float32)
        for turn, source in enumerate(sources):
            mine = positions % len(sources) == turn
            images[mine] = source[positions[mine] // len(sources)]
        return images

    return GeneratedSource(count, sources[0].shape, make)
