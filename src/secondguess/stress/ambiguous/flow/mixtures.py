"""Images whose share of two classes is known: mixtures of two real images, and real ones as they are.

Half of the mixtures are laid over each other; the others lie side by side, cut along a line in any direction and joined
with a soft edge. Classifiers may have learnt from blends, as a committee has that is trained to doubt; from cuts nobody
has. A share is the mean weight of an image's pixels. What it would be in an image that is no mixture nobody knows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

__all__ = ["Mixtures", "blend_weights", "cut_weights", "known_mixtures"]

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
EDGE = 0.04  # of the size of an image, how soft the edge of a cut is
HALVINGS = 30  # of the interval in which the place of a cut is looked for
FARTHEST = 2.0  # of that place from the middle, in sizes of an image


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
    share: Floats

    def take(self, rows: slice) -> Mixtures:
        """Some of them."""
        return Mixtures(self.images[rows], self.pair[rows], self.share[rows])


def known_mixtures(images: Bytes, labels: NDArray[np.int64], count: int, seed: int, *, blends: bool = True) -> Mixtures:
    """As many mixtures as real images, `count` of each, between any two classes that have images.

    Args:
        images: uint8 (m, C, H, W), real ones.
        labels: int64 (m,), their classes, at least two.
        count: how many of each kind.
        seed: of what is mixed with what.
        blends: whether half of the mixtures are blends; all are cuts otherwise.
    """
    rng, present = np.random.default_rng(seed), np.unique(labels)
    pair = np.stack([rng.choice(present, 2, replace=False) for _ in range(2 * count)])
    rows = np.array([[rng.choice(np.flatnonzero(labels == one)) for one in both] for both in pair])
    number = np.arange(2 * count)
    real, cut = number // 2 % 2 == 1, number // 4 % 2 == 1  # each kind in both halves, even and odd rows
    share = np.where(real, rng.integers(0, 2, 2 * count), rng.uniform(size=2 * count))
    weight = np.broadcast_to(blend_weights(share), (2 * count, 1, *images.shape[2:])).copy()
    beside = (cut | (not blends)) & ~real
    weight[beside] = cut_weights(share[beside], images.shape[2:], rng)
    mixed = weight * images[rows[:, 0]] + (1 - weight) * images[rows[:, 1]]
    return Mixtures(np.rint(mixed).astype(np.uint8), pair, share)


def blend_weights(share: Floats) -> Floats:
    """Weights (n, 1, 1, 1) of the first image: its share (n,) everywhere."""
    return share[:, None, None, None]


def cut_weights(share: Floats, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Weights (n, 1, H, W) of the first image, which fall from 1 to 0 at a line; their means are its shares (n,)."""
    y, x = (np.arange(side) / max(shape) - 0.5 * side / max(shape) for side in shape)
    angle = rng.uniform(0, 2 * np.pi, len(share))[:, None, None]
    along = np.cos(angle) * x + np.sin(angle) * y[:, None]
    low, high = np.full(len(share), -FARTHEST), np.full(len(share), FARTHEST)
    weight = np.zeros(along.shape)
    for _ in range(HALVINGS):
        place = (low + high) / 2
        weight = expit((place[:, None, None] - along) / EDGE)
        less = weight.mean(axis=(1, 2)) < share
        low, high = np.where(less, place, low), np.where(less, high, place)
    return weight[:, None]
