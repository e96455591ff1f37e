"""Images whose share of two classes is known: blends of two real images, and real ones as they are.

A share is the weight of an image's pixels. What it would be in an image that is no blend nobody knows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Mixtures", "known_mixtures"]

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Mixtures:
    """Images between two classes, or of one of them.

    Attributes:
        images: uint8 (n, C, H, W).
        pair: int64 (n, 2), the classes.
        share: float64 (n,), of the first class: 0 and 1 for real images.
    """

    images: Bytes
    pair: NDArray[np.int64]
    share: NDArray[np.float64]

    def take(self, rows: slice) -> Mixtures:
        """Some of them."""
        return Mixtures(self.images[rows], self.pair[rows], self.share[rows])


def known_mixtures(images: Bytes, labels: NDArray[np.int64], count: int, seed: int) -> Mixtures:
    """As many blends as real images, `count` of each, between any two classes that have images.

    Args:
        images: uint8 (m, C, H, W), real ones.
        labels: int64 (m,), their classes, at least two.
        count: how many of each kind.
        seed: of what is blended with what.
    """
    rng, present = np.random.default_rng(seed), np.unique(labels)
    pair = np.stack([rng.choice(present, 2, replace=False) for _ in range(2 * count)])
    rows = np.array([[rng.choice(np.flatnonzero(labels == one)) for one in both] for both in pair])
    share = np.where(np.arange(2 * count) // 2 % 2, rng.integers(0, 2, 2 * count), rng.uniform(size=2 * count))
    weight = share.astype(np.float32)[:, None, None, None]
    blended = weight * images[rows[:, 0]] + (1 - weight) * images[rows[:, 1]]
    return Mixtures(np.rint(blended).astype(np.uint8), pair, share)
