"""The default attack: estimate the normal of the boundary, then follow an arc towards its nearest point.

HopSkipJump (Chen, Jordan & Wainwright 2020) alternates two things at a point y of the boundary. It asks about K points
y + δ u_k around it and takes the covariance of answer and place for the boundary's normal,

    g = Σ_k (φ_k - mean φ) u_k,   φ_k = 1 where the decision is changed, else -1,

then steps along g and bisects back to the boundary. Departures, each for smaller distances at a thousand queries:

* The u_k are smooth: drawn on a coarse grid and enlarged bilinearly (QEBA, Li et al. 2020). What a network responds to
  is mostly smooth, and a normal in 192 dimensions is found with far fewer probes than one in 12,288. The grid becomes
  finer as the work goes on.
* The u_k are orthogonal, over many rounds (see `probes`), which is more informative about the normal than independence.
* The normals of earlier rounds are not discarded: the estimate is a sum in which a round counts `memory` times as
  much as the round after it. The boundary turns little from one round to the next.
* The step is an arc (see `walk`), which needs no step size and no search for one, and costs every image the same number
  of queries; images therefore stay in step and fill whole batches.
* The start is the nearest image that is decided otherwise, not noise (see `starts`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from secondguess.errors import UserError
from secondguess.search.attacks.base import Attack
from secondguess.search.attacks.decisions import Decisions
from secondguess.search.attacks.noise import Noise
from secondguess.search.attacks.probes import Probes
from secondguess.search.attacks.starts import DRAWS
from secondguess.search.attacks.walk import Walk, bisect_arc, bisect_chord, lengths, pixelwise

__all__ = ["HopSkipJump"]


@dataclass(frozen=True)
class HopSkipJump(Attack):
    """Smooth orthogonal probes, remembered normals, arcs.

    Args:
        probes: about how many points are asked about in a round.
        grids: sides of the grids on which probes are drawn, from coarse to fine.
        radius: of the probes around the counterexample, as a share of its distance from the image.
        memory: how much the normal of a round counts in the next.
        halvings: of the angle of an arc, and of the first chord.
    """

    name: ClassVar[str] = "hop_skip_jump"
    usual_budget: ClassVar[int | None] = 1000

    probes: int = 30
    grids: tuple[int, ...] = (4, 8, 16)
    radius: float = 0.05
    memory: float = 0.95
    halvings: int = 8

    def __post_init__(self) -> None:
        sound = self.probes > 1 and self.halvings > 0 and self.radius > 0 and 0 <= self.memory <= 1
        if not sound or not self.grids or min(self.grids) < 1:
            raise UserError(
                f"{self} cannot work; it needs at least 2 probes, 1 grid, 1 halving, a radius above 0 and a memory "
                "between 0 and 1."
            )

    @property
    def usual_queries(self) -> int:
        """The usual budget: the attack goes on as long as it may."""
        return 1000

    @property
    def least_queries(self) -> int:
        """A start, a chord and one round."""
        return 2 + DRAWS + 2 * self.halvings + 2 * self.probes

    def start(self, walk: Walk, decide: Decisions) -> None:
        """Go from the start to the boundary."""
        bisect_chord(walk, decide, self.halvings)
        walk.more["normals"] = torch.zeros_like(walk.images)
        walk.more["rounds"] = torch.zeros_like(walk.rows)

    def step(self, walk: Walk, decide: Decisions, noise: Noise) -> None:
        """One round: probes, then an arc."""
        number = int(walk.more["rounds"][0])  # the images of a walk are in the same round
        directions = self._plan(walk, noise.seed).of(number, walk.images.device)
        for part in walk.parts(decide.batch_size // len(directions)):  # so that their probes fit one batch
            normals = self._normals(part, directions, decide)
            part.more["normals"] = normals.add_(part.more["normals"], alpha=self.memory)
        walk.more["rounds"] = walk.more["rounds"] + 1
        bisect_arc(walk, walk.more["normals"], decide, self.halvings)

    def finished(self, walk: Walk, decide: Decisions) -> Tensor:
        """(m,) which images cannot afford another round."""
        return decide.left(walk.rows) < self._plan(walk, 0).most() + self.halvings

    def _plan(self, walk: Walk, seed: int) -> Probes:
        channels, height, width = walk.images.shape[1:]
        return Probes((channels, height, width), self.grids, self.probes, seed)

    def _normals(self, walk: Walk, directions: Tensor, decide: Decisions) -> Tensor:
        """Where the other decision lies, (m, C, H, W), as the answers of one round say."""
        reach = self.radius * lengths(walk.counterexamples - walk.images)
        points = torch.addcmul(walk.counterexamples[:, None], pixelwise(reach, directions[None]), directions).clamp_(
            0, 1
        )
        answers = walk.changed(points, decide).to(torch.float32)
        weights = (answers - answers.mean(dim=1, keepdim=True)) / reach[:, None].clamp_min(1e-12)
        # The weights sum to zero, so that the counterexample itself drops out of the sum over the points.
        return torch.bmm(weights[:, None], points.flatten(2)).reshape(walk.images.shape)
