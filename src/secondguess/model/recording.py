"""What a pass over images records, and where it goes while it fills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess._text import amount
from secondguess.errors import UserError
from secondguess.model.cache import Cache, Draft
from secondguess.model.needs import Trace

__all__ = ["SCORE", "Item", "Sinks", "sample_chunk"]

SCORE = "score"  # an item whose array (n, 1 + m) has the seconds that an image took, and its scores
SAMPLE_IMAGES, SAMPLE_BYTES = 128, 64 << 20
DRAWING = 2  # which way of drawing dropout masks made a cached array


@dataclass(frozen=True)
class Item:
    """One array that a pass records: `what` is probabilities, logits, trace or samples.

    On workers it may also be a score, `layer` then being the fingerprint of who gives it.
    """

    what: str
    layer: str = ""
    trace: Trace | None = None
    count: int = 0
    seed: int = 0

    def key(self) -> dict[str, Any]:
        """What the array depends on, beside the model and the images."""
        key = {
            "what": self.what,
            "layer": self.layer,
            "reduce": self.trace.reduce if self.trace else "",
            "count": self.count,
            "seed": self.seed,
        }
        return key | {"drawing": DRAWING} if self.what == "samples" else key


class Sinks:
    """The arrays of a pass while they fill: memory-mapped drafts with a cache, plain memory without."""

    def __init__(self, cache: Cache | None, keys: Mapping[Item, dict[str, Any]], rows: int, limit: int) -> None:
        self._cache, self._keys, self._rows, self._limit = cache, keys, rows, limit
        self._drafts: dict[Item, Draft] = {}
        self._arrays: dict[Item, NDArray[Any]] = {}

    def write(self, item: Item, rows: slice, values: NDArray[Any]) -> None:
        """Put the values of some rows in their place."""
        if item not in self._arrays:
            self._arrays[item] = self._allocate(item, (self._rows, *values.shape[1:]), values.dtype)
        self._arrays[item][rows] = values

    def keep(self) -> dict[Item, NDArray[Any]]:
        """The full arrays, read-only; drafts become entries of the cache."""
        for array in self._arrays.values():
            array.setflags(write=False)
        return {
            item: self._drafts[item].keep() if item in self._drafts else array for item, array in self._arrays.items()
        }

    def drop(self) -> None:
        """Forget what was written."""
        self.forget(list(self._arrays))

    def forget(self, items: Sequence[Item]) -> None:
        """Forget what was written of some items."""
        for item in items:
            self._arrays.pop(item, None)
            if (draft := self._drafts.pop(item, None)) is not None:
                draft.drop()

    def _allocate(self, item: Item, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        if self._cache is not None:
            self._drafts[item] = self._cache.draft(self._keys[item], shape, dtype)
            return self._drafts[item].array
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        held = size + sum(array.nbytes for array in self._arrays.values())
        if held > self._limit:
            raise UserError(
                f"The observation takes {amount(held)}, more than the memory limit of "
                f"{amount(self._limit)}; give Classifier(..., cache=FOLDER) and it goes to memory-mapped files."
            )
        return np.empty(shape, dtype)


def sample_chunk(shape: tuple[int, ...]) -> int:
    """How many images get their dropout samples in one batch.

    It depends on the shape of an image only, and so the masks depend neither on the batch size nor on the
    number of samples; the images of a chunk take at most 64 MiB.
    """
    return max(1, min(SAMPLE_IMAGES, SAMPLE_BYTES // (4 * prod(shape))))
