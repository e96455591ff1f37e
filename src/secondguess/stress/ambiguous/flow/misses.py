"""Near misses: compositions of two classes, as far as anybody has looked, that lean to one or divide the judges.

To be of two classes and no third is rare where nature keeps them apart, so what has that is not thrown away for its
lean. A near miss is noised again to half of the way, which keeps its coarse shape, and composed anew from there, with
the lean that it had in mind: for half of the steps another image of the same two classes. It takes the place of the
first one, so that every seed of noise gives one image at the most. A near miss that the next round has no room for is
given up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["NearMisses"]

TRIES = 3  # after which a near miss is given up


@dataclass(frozen=True)
class NearMisses:
    """Near misses of a round.

    Attributes:
        images: uint8 (n, C, H, W).
        pair: int64 (n, 2), their classes.
        lean: float64 (n,), the logit of the share of the first class, as far as the judges have looked.
        tries: int64 (n,), how often each was composed anew.
    """

    images: NDArray[np.uint8]
    pair: NDArray[np.int64]
    lean: NDArray[np.float64]
    tries: NDArray[np.int64]

    @classmethod
    def none(cls, shape: tuple[int, int, int]) -> Self:
        """Not one."""
        counts = np.zeros(0, dtype=np.int64)
        return cls(np.zeros((0, *shape), np.uint8), np.zeros((0, 2), np.int64), np.zeros(0), counts)

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Some of them."""
        return type(self)(self.images[rows], self.pair[rows], self.lean[rows], self.tries[rows])

    def among(self, pairs: list[tuple[int, int]], most: list[int]) -> Self:
        """Those of these pairs that lean least, and no more of each than `most`."""
        order = np.argsort(np.abs(self.lean), kind="stable")
        mine = [order[(self.pair[order] == one).all(axis=1)] for one in pairs]
        return self.take(np.concatenate([rows[:number] for rows, number in zip(mine, most, strict=True)]))

    def open(self) -> Self:
        """Those that have not been tried too often."""
        return self.take(np.flatnonzero(self.tries < TRIES))
