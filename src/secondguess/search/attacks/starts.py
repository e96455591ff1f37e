"""Where a walk begins: the nearest image that the model decides otherwise.

Nearest by Euclidean distance of the pixels, among images whose decisions are known anyway, so that a start costs no
query. Where there is none, uniform noise is tried, as the Boundary Attack does; noise alone is a poor start, because
many models give one and the same class to all of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from secondguess.images import ImageSource
from secondguess.search.attacks.decisions import UNUSABLE, Decisions
from secondguess.search.attacks.noise import Noise
from secondguess.search.attacks.walk import Walk, pixelwise

__all__ = ["Starts"]

MOST = 4096  # candidates; more hardly come nearer, and every image is compared with each
MOST_BYTES = 1 << 30
DRAWS = 50  # of noise
TILE = 512


@dataclass(frozen=True)
class Starts:
    """Images with known decisions.

    Attributes:
        images: (c, C, H, W) float32.
        classes: (c,) int64.
    """

    images: Tensor
    classes: Tensor

    @classmethod
    def choose(cls, source: ImageSource, classes: NDArray[np.int64], seed: int) -> Starts:
        """Take all images of a source that have a decision, or of a large one an equal share of each at random."""
        most = min(MOST, max(1, MOST_BYTES // (4 * int(np.prod(source.shape)))))
        rows = np.flatnonzero(classes != UNUSABLE)
        if len(rows) > most:
            order = rows[np.random.default_rng(seed).permutation(len(rows))]
            ranks = np.empty(len(classes), dtype=np.int64)
            for one in np.unique(classes[rows]):
                mine = order[classes[order] == one]
                ranks[mine] = np.arange(len(mine))
            rows = np.sort(order[np.argsort(ranks[order], kind="stable")[:most]])
        return cls(torch.from_numpy(source[rows]), torch.from_numpy(classes[rows]))

    def joined(self, other: Starts) -> Starts:
        """The images of both."""
        return Starts(torch.cat([self.images, other.images]), torch.cat([self.classes, other.classes]))

    def begin(self, walk: Walk, decide: Decisions, noise: Noise) -> None:
        """Give every image of a walk its nearest start, or noise; `found` says which images have one."""
        nearest = self.nearest(walk.images, walk.classes)
        has = nearest >= 0
        taken = self.images[nearest.clamp_min(0).cpu()].to(walk.images.device)
        walk.counterexamples = torch.where(pixelwise(has, taken), taken, walk.images)
        walk.found = has
        for _ in range(DRAWS):
            waiting = (~walk.found & (decide.left(walk.rows) > 0)).nonzero()[:, 0]
            if not len(waiting):
                return
            part = walk.take(waiting)
            drawn = part.draw(noise.uniform, tuple(part.images.shape[1:]))
            part.found = part.changed(drawn, decide)
            part.counterexamples = torch.where(pixelwise(part.found, drawn), drawn, part.images)
            walk.put(waiting, part)

    def nearest(self, images: Tensor, classes: Tensor) -> Tensor:
        """(m,) int64 place of the nearest start of another class for images (m, C, H, W), or -1."""
        flat = images.flatten(1)
        best = torch.full((len(flat),), torch.inf, device=flat.device)
        place = torch.full_like(classes, -1)
        for first in range(0, len(self.classes), TILE):
            tile = self.images[first : first + TILE].to(flat.device).flatten(1)
            others = self.classes[first : first + TILE].to(flat.device)
            squares = torch.cdist(flat, tile, compute_mode="use_mm_for_euclid_dist")
            squares.masked_fill_(classes[:, None] == others, torch.inf)
            values, winners = squares.min(dim=1)
            nearer = values < best
            best = torch.where(nearer, values, best)
            place = torch.where(nearer, winners + first, place)
        return place
