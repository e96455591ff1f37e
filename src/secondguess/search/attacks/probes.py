"""Directions of the probes: random orthonormal bases of smooth images, from coarse to fine.

A direction is a row of a random orthonormal basis of the images on a small grid, enlarged bilinearly and brought to
length one. The grid has 4 x 4 points until every row of its basis was used, then 8 x 8, then 16 x 16 again and again,
each time with a new basis. A grid of side s has C s² rows for C channels: 48, 192, 768 for colour.

Orthogonal rather than independent, because signs of n · u_k for K rows of a basis of D dimensions show a unit vector n
up to the cosine sqrt(2K / πD), while for independent rows it is 1 / sqrt(1 + πD / 2K): .80 against .62 at K = D.

All images are given the same directions in the same round. They are made once per round, not once per image, and depend
on the seed alone.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

__all__ = ["Probes"]

Shape = tuple[int, int, int]


class Probes:
    """The directions of every round, for images of one shape.

    Args:
        shape: (C, H, W) of an image.
        grids: sides of the grids, in their order; a grid is never larger than the image.
        count: about how many directions a round has.
        seed: of the bases.
    """

    def __init__(self, shape: Shape, grids: tuple[int, ...], count: int, seed: int) -> None:
        channels, height, width = shape
        self.sides, self.seed = (height, width), seed
        self.bases = [(channels, min(grid, height), min(grid, width)) for grid in grids]
        self.rounds = [max(1, round(int(np.prod(basis)) / count)) for basis in self.bases]

    def of(self, number: int, device: torch.device) -> Tensor:
        """The directions of a round (from 0), float32 (K, C, H, W)."""
        which, within, rows = self._place(number)
        basis = _basis(*self.bases[min(which, len(self.bases) - 1)], self.seed, which)
        first, last = rows * within[0] // within[1], rows * (within[0] + 1) // within[1]
        drawn = basis[first:last].to(device)
        if drawn.shape[2:] != self.sides:
            drawn = interpolate(drawn, size=self.sides, mode="bilinear", align_corners=False)
        return drawn / torch.linalg.vector_norm(drawn, dim=(1, 2, 3), keepdim=True)

    def most(self) -> int:
        """The largest number of directions in a round."""
        return max(-(-int(np.prod(basis)) // rounds) for basis, rounds in zip(self.bases, self.rounds, strict=True))

    def _place(self, number: int) -> tuple[int, tuple[int, int], int]:
        """Which basis a round belongs to, (round within it, rounds of it), and how many rows it has."""
        which = 0
        while number >= (rounds := self.rounds[min(which, len(self.rounds) - 1)]):
            number -= rounds
            which += 1
        return which, (number, rounds), int(np.prod(self.bases[min(which, len(self.bases) - 1)]))


@lru_cache(maxsize=2)
def _basis(channels: int, height: int, width: int, seed: int, which: int) -> Tensor:
    """An orthonormal basis (D, C, h, w) of the images on a grid."""
    size = channels * height * width
    rotation, _ = np.linalg.qr(np.random.default_rng([seed, which]).standard_normal((size, size)))
    return torch.from_numpy(rotation.astype(np.float32)).reshape(size, channels, height, width)
