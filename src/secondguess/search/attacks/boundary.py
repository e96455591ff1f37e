"""The Boundary Attack of the paper: a random walk along the boundary (Brendel, Rauber & Bethge 2018).

As foolbox 2 does it, which the paper used with 1,000 iterations. With u = (x - y) / r, a candidate is

    s = x + ((y - x) + δ r η) / sqrt(1 + δ²)      η normal noise without its part along u, of length one: on the sphere
    z = s + (ε r + (||x - s|| - r))⁺ (x - s) / ||x - s||      a step ε towards x, and what clipping has added

An iteration asks about 25 candidates and moves to the first that is decided otherwise, if its *mean absolute* distance
is smaller. In every tenth the s are asked about too, and the steps are adapted: both grow (shrink) by 1.5 when more
than .5 (fewer than .2) of the last 100 s are decided otherwise, ε alone by the same rule for the last 30 z. A window
that has led to a change is emptied. An image ends when ε falls below 1e-7 for the second time; the first time the steps
are reset. What is returned is the smallest mean absolute distance of all points asked about.

Departures: it starts at the nearest image decided otherwise, not at noise, with which many images fail. All 25
candidates are asked about at once (foolbox 2 does so too, with a number that depends on the speed of the machine). The
3,450 questions with which it measures that speed are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from secondguess.search.attacks.base import Attack
from secondguess.search.attacks.decisions import Decisions
from secondguess.search.attacks.noise import Noise
from secondguess.search.attacks.starts import DRAWS
from secondguess.search.attacks.walk import Walk, bisect_chord, differ, lengths, pixelwise

__all__ = ["Boundary"]

FACTOR = 1.5
MANY, FEW = 0.5, 0.2
WINDOWS = {"spheres": 100, "steps": 30}
SMALLEST = 1e-7


@dataclass(frozen=True)
class Boundary(Attack):
    """A random walk along the boundary.

    Args:
        iterations: how many times an image may move.
        candidates: points asked about in an iteration.
        sphere_step: δ at the beginning.
        source_step: ε at the beginning.
        halvings: of the chord from the start to the boundary.
    """

    name: ClassVar[str] = "boundary"

    iterations: int = 1000  # the paper's; the other defaults are foolbox's
    candidates: int = 25
    sphere_step: float = 0.01
    source_step: float = 0.01
    halvings: int = 10

    @property
    def usual_queries(self) -> int:
        """All iterations, and the extra questions of every tenth."""
        return int(1.1 * self.iterations * self.candidates)

    @property
    def least_queries(self) -> int:
        """A start, a chord and one iteration."""
        return 2 + DRAWS + self.halvings + 2 * self.candidates

    def start(self, walk: Walk, decide: Decisions) -> None:
        """Go from the start to the boundary."""
        bisect_chord(walk, decide, self.halvings)
        ones = torch.ones(len(walk), device=walk.images.device)
        walk.more |= {"here": walk.counterexamples.clone(), "nearest": _mae(walk.counterexamples, walk.images)}
        walk.more |= {"sphere_step": self.sphere_step * ones, "source_step": self.source_step * ones}
        walk.more |= {"iteration": torch.zeros_like(walk.rows), "resets": torch.zeros_like(walk.rows)}
        for name, size in WINDOWS.items():
            walk.more[name] = torch.zeros(len(walk), size, device=ones.device)
            walk.more[f"{name}.count"] = torch.zeros_like(walk.rows)

    def step(self, walk: Walk, decide: Decisions, noise: Noise) -> None:
        """One iteration, for a few images at a time, so that their candidates fit one batch."""
        adapt = int(walk.more["iteration"][0]) % 10 == 0  # the images of a walk are at the same iteration
        for part in walk.parts(decide.batch_size // self.candidates):
            self._move(part, decide, noise, adapt=adapt)
        walk.more["iteration"] = walk.more["iteration"] + 1

    def finished(self, walk: Walk, decide: Decisions) -> Tensor:
        """(m,) which images have made all iterations, have converged, or cannot afford another iteration."""
        more = walk.more
        over = (more["iteration"] >= self.iterations) | (more["resets"] > 1)
        return over | (decide.left(walk.rows) < 2 * self.candidates)

    def _move(self, walk: Walk, decide: Decisions, noise: Noise, *, adapt: bool) -> None:
        spheres, steps = self._candidates(walk, noise)
        on_sphere = torch.ones(steps.shape[:2], dtype=torch.bool, device=steps.device)
        if adapt:
            on_sphere = self._asked(walk, spheres, on_sphere, decide)
        changed = self._asked(walk, steps, on_sphere, decide)
        if adapt:
            self._remember(walk, "spheres", on_sphere, torch.ones_like(on_sphere))
            self._remember(walk, "steps", changed, on_sphere)
            self._adapt(walk)
        first = changed.to(torch.uint8).argmax(dim=1)
        chosen = steps[torch.arange(len(walk), device=first.device), first]
        nearer = changed.any(dim=1) & (_mae(chosen, walk.images) < _mae(walk.more["here"], walk.images))
        walk.more["here"] = torch.where(pixelwise(nearer, chosen), chosen, walk.more["here"])

    def _candidates(self, walk: Walk, noise: Noise) -> tuple[Tensor, Tensor]:
        """Points on the sphere and after the step towards the image, each (m, k, C, H, W)."""
        images, here = walk.images[:, None], walk.more["here"][:, None]
        away = here - images
        radius = lengths(walk.more["here"] - walk.images)
        eta = walk.draw(noise.normal, (self.candidates, *walk.images.shape[1:]))
        along = (eta * away).sum(dim=(2, 3, 4), keepdim=True) / pixelwise(radius**2, eta)
        eta.sub_(along * away)
        eta.mul_(pixelwise(walk.more["sphere_step"] * radius, eta) / _norms(eta)).add_(away)
        eta.div_(pixelwise((1 + walk.more["sphere_step"] ** 2).sqrt(), eta))
        spheres = eta.add_(images).clamp_(0, 1)
        back = images - spheres
        distance = _norms(back)
        reach = pixelwise(walk.more["source_step"] * radius, back) + distance - pixelwise(radius, back)
        steps = back.mul_(reach.clamp_min(0) / distance.clamp_min(1e-12)).add_(spheres).clamp_(0, 1)
        return spheres, steps

    def _asked(self, walk: Walk, points: Tensor, which: Tensor, decide: Decisions) -> Tensor:
        """(m, k) which of `points` at the mask `which` are decided otherwise; the nearest of all is kept."""
        image, place = which.nonzero(as_tuple=True)
        asked = points[image, place]
        changed = torch.zeros_like(which)
        changed[image, place] = differ(decide.classes(asked, walk.rows[image]), walk.classes[image])
        far = (points - walk.images[:, None]).abs_().mean(dim=(2, 3, 4)).masked_fill_(~changed, torch.inf)
        value, best = far.min(dim=1)
        nearer = value < walk.more["nearest"]
        candidate = points[torch.arange(len(walk), device=best.device), best]
        walk.counterexamples = torch.where(pixelwise(nearer, candidate), candidate, walk.counterexamples)
        walk.more["nearest"] = torch.where(nearer, value, walk.more["nearest"])
        return changed

    def _remember(self, walk: Walk, name: str, outcomes: Tensor, which: Tensor) -> None:
        """Write outcomes (m, k) at the mask `which` into the window, one after another."""
        count = walk.more[f"{name}.count"]
        places = (count[:, None] + which.cumsum(dim=1) - 1) % WINDOWS[name]
        image, column = which.nonzero(as_tuple=True)
        window = walk.more[name].clone()
        window[image, places[image, column]] = outcomes[image, column].to(window.dtype)
        walk.more[name] = window
        walk.more[f"{name}.count"] = count + which.sum(dim=1)

    def _adapt(self, walk: Walk) -> None:
        more = walk.more
        for name, adapted in (("spheres", ("sphere_step", "source_step")), ("steps", ("source_step",))):
            share = more[name].mean(dim=1)
            full = more[f"{name}.count"] >= WINDOWS[name]
            grow, shrink = full & (share > MANY), full & (share < FEW)
            factor = torch.where(grow, FACTOR, torch.where(shrink, 1 / FACTOR, 1.0))
            for step in adapted:
                more[step] = more[step] * factor
            more[f"{name}.count"] = torch.where(grow | shrink, 0, more[f"{name}.count"])
        converged = more["source_step"] < SMALLEST
        more["resets"] = more["resets"] + converged.long()
        for step, begin in (("sphere_step", self.sphere_step), ("source_step", self.source_step)):
            more[step] = torch.where(converged, begin, more[step])


def _mae(points: Tensor, images: Tensor) -> Tensor:
    return (points - images).abs().flatten(1).mean(dim=1)


def _norms(vectors: Tensor) -> Tensor:
    """Lengths of vectors (m, k, C, H, W), in a shape that divides them."""
    return torch.linalg.vector_norm(vectors, dim=(2, 3, 4), keepdim=True)
