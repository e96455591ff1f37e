"""The white-box attack: DeepFool to the boundary, then arcs along it with the true normal.

DeepFool (Moosavi-Dezfooli, Fawzi & Frossard 2016) linearises the model at the current point and goes to the nearest of
the linearised borders between the class c and another class j, again and again until the decision changes:

    step = (|f_j| / ||w_j||²) w_j,   f_j = logit_j - logit_c,   w_j = ∇ f_j,   j = argmin |f_j| / ||w_j||

It ends near the image, yet seldom at the nearest point of the boundary. From there on the attack is that of
`hop_skip_jump`, with the gradient of max_j f_j in place of an estimate of the normal. A gradient counts as one query,
its forward pass, however many classes are followed back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from secondguess.search.attacks.base import Attack
from secondguess.search.attacks.decisions import Decisions, decided
from secondguess.search.attacks.noise import Noise
from secondguess.search.attacks.walk import Walk, bisect_arc, bisect_chord, differ, lengths, pixelwise

__all__ = ["Gradient"]

TINY = 1e-12


@dataclass(frozen=True)
class Gradient(Attack):
    """DeepFool, then arcs.

    Args:
        steps: of DeepFool, at most.
        classes: the likeliest other classes whose borders DeepFool considers.
        overshoot: by which share of its length the change is made longer, to end beyond the border.
        rounds: arcs.
        halvings: of the angle of an arc, and of the chord before them.
    """

    name: ClassVar[str] = "gradient"
    needs_start: ClassVar[bool] = False
    needs_gradients: ClassVar[bool] = True

    steps: int = 50  # steps, classes and overshoot as in the authors' code
    classes: int = 9
    overshoot: float = 0.02
    rounds: int = 10
    halvings: int = 8

    @property
    def usual_queries(self) -> int:
        """A few steps, then all rounds."""
        return 5 + self.least_queries + (self.rounds - 1) * (self.halvings + 1)

    @property
    def least_queries(self) -> int:
        """All of DeepFool, the chord and one round."""
        return 3 + self.steps + 2 * self.halvings

    def start(self, walk: Walk, decide: Decisions) -> None:
        """Cross the border by DeepFool and come back to it; an image that never crosses it has no counterexample."""
        total = torch.zeros_like(walk.images)
        for _ in range(self.steps):
            waiting = (~walk.found).nonzero()[:, 0]
            if not len(waiting):
                break
            for first in range(0, len(waiting), decide.batch_size):
                chosen = waiting[first : first + decide.batch_size]
                part = walk.take(chosen)
                changed, step = self._deepfool(part, decide)
                total[chosen] += torch.where(pixelwise(changed, step), 0.0, step)
                moved = (part.images + (1 + self.overshoot) * total[chosen]).clamp_(0, 1)
                walk.counterexamples[chosen] = torch.where(pixelwise(changed, moved), part.counterexamples, moved)
                walk.found[chosen] = changed
        crossed = walk.found.nonzero()[:, 0]
        part = walk.take(crossed)
        bisect_chord(part, decide, self.halvings)
        walk.put(crossed, part)
        walk.more |= {"normals": torch.zeros_like(walk.images), "rounds": torch.zeros_like(walk.rows)}

    def step(self, walk: Walk, decide: Decisions, noise: Noise) -> None:
        """One arc towards the true normal."""
        for part in walk.parts(decide.batch_size):
            points, logits = _followed(part, decide)
            others = logits.scatter(1, part.classes[:, None], -torch.inf)
            lead = others.max(dim=1).values - logits.gather(1, part.classes[:, None])[:, 0]
            part.more["normals"] = _slope(lead, points)
        bisect_arc(walk, walk.more["normals"], decide, self.halvings)
        walk.more["rounds"] = walk.more["rounds"] + 1

    def finished(self, walk: Walk, decide: Decisions) -> Tensor:
        """(m,) which images have made all rounds, or cannot afford another."""
        return (walk.more["rounds"] >= self.rounds) | (decide.left(walk.rows) < self.halvings + 1)

    def _deepfool(self, walk: Walk, decide: Decisions) -> tuple[Tensor, Tensor]:
        """Whether the current points are decided otherwise (m,), and the next step (m, C, H, W)."""
        points, logits = _followed(walk, decide)
        own = walk.classes[:, None]
        others = logits.detach().scatter(1, own, -torch.inf).topk(min(self.classes, logits.shape[1] - 1), dim=1).indices
        leads = logits.gather(1, others) - logits.gather(1, own)
        nearest = torch.full((len(walk),), torch.inf, device=points.device)
        step = torch.zeros_like(points)
        for lead in leads.unbind(dim=1):
            slope = _slope(lead, points, again=True)
            steepness = lengths(slope).clamp_min(TINY)
            distance = (lead.detach().abs() + 1e-4) / steepness  # a little more, or it stops on the border itself
            nearer = distance < nearest
            step = torch.where(pixelwise(nearer, step), pixelwise(distance / steepness, slope) * slope, step)
            nearest = torch.where(nearer, distance, nearest)
        return differ(decided(logits), walk.classes), step


def _followed(walk: Walk, decide: Decisions) -> tuple[Tensor, Tensor]:
    """The counterexamples as points whose gradient can be asked for, and their logits (m, K)."""
    points = walk.counterexamples.detach().clone().requires_grad_()
    return points, decide.logits(points, walk.rows)


def _slope(lead: Tensor, points: Tensor, *, again: bool = False) -> Tensor:
    """The gradient (m, C, H, W) of lead (m,) at the points; 0 for an image where it is not finite.

    With `again`, other gradients can be asked for afterwards.
    """
    (slope,) = torch.autograd.grad(lead.sum(), points, retain_graph=again)
    return torch.where(pixelwise(slope.flatten(1).isfinite().all(dim=1), slope), slope, 0.0)
