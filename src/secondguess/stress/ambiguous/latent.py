"""The ambiguous region of latent space, and how points are drawn from it.

The confined latent space (CLS) is a rectangle between the two class clusters. It is cut into equal cells; each cell is
judged at its centre, the anchor:

* label          (p1, p2) of the anchor, from the discriminator's two logits
* ambiguity      weight 0 if |p1 - p2| > delta_max
* diversity      else the Frobenius norm of the decoder's Jacobian there: cells in which images change fast are drawn
  more often

Cells are drawn in proportion to their weight, one uniform point in each, and a point is kept if |p1 - p2| < delta_max
at the point itself (the final filter).

Where the paper and the authors' code differ, `mode="paper"` follows the paper with the code's defects corrected, and
`mode="legacy"` follows the code:

| | paper | legacy |
|---|---|---|
| label | sigmoid(l1), sigmoid(l2), normalised | softmax(l1, l2) |
| CLS, horizontally | between the cluster means, [-3, 3] | [-1, 1]: the means moved two standard deviations inwards |
| weight | norm of the Jacobian dD/dz | norm of the gradient of sum D(z)^2 |
| cell that is drawn | the weighted one | the transposed one: the weight of (i, j) is used at (j, i) |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.func import jvp

from secondguess.stress.ambiguous.autoencoders import CENTRE, RaaeFleet

__all__ = ["Draw", "Grid", "Mode", "draw", "labels", "survey"]

Mode = Literal["paper", "legacy"]
HEIGHT = 5.0  # standard deviations above and below the cluster means
INWARDS = {"paper": 0.0, "legacy": 2.0}


@dataclass(frozen=True)
class Grid:
    """The surveyed cells of every member: S x S of them, i along x and j along y.

    Attributes:
        anchors: (M, S, S, 2) centres.
        p1: (M, S, S) probability of the first class there.
        weights: (M, S, S), zero where the anchor is not ambiguous enough.
        cell: (width, height) of a cell.
    """

    anchors: Tensor
    p1: Tensor
    weights: Tensor
    cell: tuple[float, float]


@dataclass(frozen=True)
class Draw:
    """Points drawn for every member.

    Attributes:
        z: (M, n, 2).
        p1: (M, n) probability of the first class at the point itself.
        kept: (M, n) whether the point passes the final filter.
    """

    z: Tensor
    p1: Tensor
    kept: Tensor


def labels(fleet: RaaeFleet, z: Tensor, mode: Mode = "paper") -> Tensor:
    """The probability (M, n) of the first class at latent points (M, n, 2)."""
    logits = fleet.class_logits(z)
    if mode == "legacy":
        return logits.softmax(dim=-1)[..., 0]
    # sigma(l1) / (sigma(l1) + sigma(l2)) in logarithms: both sigmoids vanish far away from the data.
    return torch.nn.functional.logsigmoid(logits).softmax(dim=-1)[..., 0]


@torch.no_grad()
def survey(fleet: RaaeFleet, *, delta_max: float, cells: int = 50, mode: Mode = "paper") -> Grid:
    """Judge every cell of the confined latent space of every member, all at once."""
    right = CENTRE - INWARDS[mode]
    x = _centres(-right, right, cells)
    y = _centres(-HEIGHT, HEIGHT, cells)
    plane = torch.stack(torch.meshgrid(x, y, indexing="ij"), dim=-1).to(fleet.device)
    anchors = plane.expand(len(fleet), cells, cells, 2)
    flat = anchors.reshape(len(fleet), cells * cells, 2).clone()
    p1 = labels(fleet, flat, mode)
    speed = _brightness_gradient(fleet, flat) if mode == "legacy" else _jacobian_norm(fleet, flat)
    ambiguous = (2 * p1 - 1).abs() <= delta_max
    weights = torch.where(ambiguous, speed, torch.zeros_like(speed))
    shape = (len(fleet), cells, cells)
    return Grid(anchors, p1.reshape(shape), weights.reshape(shape), (2 * right / cells, 2 * HEIGHT / cells))


@torch.no_grad()
def draw(
    fleet: RaaeFleet, grid: Grid, count: int, *, delta_max: float, generator: torch.Generator, mode: Mode = "paper"
) -> Draw:
    """Draw `count` points for every member; members without an ambiguous cell get points that are not kept."""
    members, cells = grid.weights.shape[:2]
    weights = grid.weights.reshape(members, -1)
    empty = weights.sum(dim=1) <= 0
    safe = torch.where(empty[:, None], torch.ones_like(weights), weights)
    chosen = torch.multinomial(safe, count, replacement=True, generator=generator)
    i, j = chosen // cells, chosen % cells
    if mode == "legacy":
        i, j = j, i
    member = torch.arange(members, device=fleet.device)[:, None]
    offset = torch.rand(members, count, 2, device=fleet.device, generator=generator) - 0.5
    z = grid.anchors[member, i, j] + offset * torch.tensor(grid.cell, device=fleet.device)
    p1 = labels(fleet, z, mode)
    return Draw(z, p1, ((2 * p1 - 1).abs() < delta_max) & ~empty[:, None])


def _centres(low: float, high: float, cells: int) -> Tensor:
    return low + (torch.arange(cells) + 0.5) * (high - low) / cells


def _jacobian_norm(fleet: RaaeFleet, z: Tensor) -> Tensor:
    """Frobenius norm (M, n) of dD/dz: two forward-mode derivatives, one for each latent axis."""
    squares = torch.zeros(z.shape[:2], device=z.device)
    for axis in range(z.shape[-1]):
        tangent = torch.zeros_like(z)
        tangent[..., axis] = 1.0
        change = jvp(fleet.decode, (z,), (tangent,))[1]
        squares += change.square().flatten(2).sum(dim=2)
    return squares.sqrt()


def _brightness_gradient(fleet: RaaeFleet, z: Tensor) -> Tensor:
    """Norm (M, n) of the gradient of the image's squared length, which is what the authors' code weights with."""
    with torch.enable_grad():
        point = z.detach().clone().requires_grad_()
        (gradient,) = torch.autograd.grad(fleet.decode(point).square().sum(), point)
    return gradient.norm(dim=-1)
