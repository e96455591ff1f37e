"""Sampling from a flow, one class at a time or several at once.

Sampling integrates dx = v dt from noise at t = 0 to an image at t = 1. For classes c with shares s_c that sum to one,

    v = v(none) + w [ sum_c s_c v(c) - v(none) ]

with the guidance w: 1 follows the mean of the conditional velocities, more than 1 moves away from images of any class.
The mean of two velocities is not the velocity of any mixture or product of the two densities, except for Gaussians of
equal covariance (then it is that of the Gaussian with the mean of the means); what it yields is judged, never assumed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from secondguess.training._examples import derive_seed

__all__ = ["Field", "Method", "Streams", "composed", "integrate", "noise_of"]

Field = Callable[[Tensor, Tensor, Tensor], Tensor]  # (x, t, classes) -> velocity
Method = Literal["adams", "heun", "euler"]


def composed(
    field: Field, nothing: int, x: Tensor, t: Tensor, parts: Tensor, shares: Tensor, guidance: float
) -> Tensor:
    """The guided velocity (n, C, H, W) of classes `parts` (n, m) with `shares` (n, m), in one pass over the field."""
    count, several = parts.shape
    guided = guidance != 1.0
    asked = torch.cat([parts.T.reshape(-1), torch.full((count * guided,), nothing, device=x.device, dtype=parts.dtype)])
    copies = several + guided
    velocities = field(x.repeat(copies, 1, 1, 1), t.repeat(copies), asked)
    velocities = velocities.reshape(copies, *x.shape)
    mean = (velocities[:several] * shares.T[:, :, None, None, None].to(x.dtype)).sum(dim=0)
    return velocities[-1] + guidance * (mean - velocities[-1]) if guided else mean


def integrate(
    field: Field,
    nothing: int,
    noise: Tensor,
    parts: Tensor,
    shares: Tensor,
    *,
    guidance: float = 2.0,
    until: float = 1.0,
    steps: int = 20,
    method: Method = "adams",
) -> Tensor:
    """Images (n, C, H, W) of noise (n, C, H, W).

    Args:
        field: velocities.
        nothing: the class that stands for none.
        noise: standard normal.
        parts: (n, m) classes of each image.
        shares: (n, m), their shares, which sum to one.
        guidance: w; 1 spares the velocity of no class.
        until: the time after which there is no guidance any more.
        steps: of the integration.
        method: `"euler"` looks once in a step; `"adams"` too, and extrapolates from the look before (Adams-Bashforth of
            second order); `"heun"` looks twice, with the guidance of the step's beginning.
    """
    x, before, last = noise, None, guidance
    times = torch.linspace(0, 1, steps + 1, device=noise.device)
    for step, (begin, end) in enumerate(pairwise(times)):
        w = guidance if step / steps < until else 1.0
        if w != last:  # the jump is no slope to extrapolate
            before, last = None, w
        now = composed(field, nothing, x, begin.expand(len(x)), parts, shares, w)
        slope = now if before is None or method != "adams" else 1.5 * now - 0.5 * before
        guess = x + (end - begin) * slope
        if method == "heun":
            then = composed(field, nothing, guess, end.expand(len(x)), parts, shares, w)
            guess = x + (end - begin) * (now + then) / 2
        x, before = guess, now
    return x


class Streams:
    """Standard normal noise for some of many images: that of an image depends on the seed and its place alone.

    `CHUNK` images share a generator, which draws for all of them whether they are asked for or not.

    Args:
        seed: of all images.
        rows: places of the images, beginning with a multiple of `CHUNK`.
    """

    CHUNK = 32

    def __init__(self, seed: int, rows: range) -> None:
        self._count = len(rows)
        numbers = range(rows.start // self.CHUNK, -(-rows.stop // self.CHUNK))
        self._generators = [torch.Generator().manual_seed(derive_seed(seed, number)) for number in numbers]

    def __call__(self, shape: tuple[int, ...]) -> Tensor:
        """The next noise (n, *shape) of the images, on the processor."""
        return torch.cat([torch.randn((self.CHUNK, *shape), generator=one) for one in self._generators])[: self._count]


def noise_of(count: int, shape: tuple[int, ...], seed: int, device: torch.device) -> Tensor:
    """Standard normal noise (n, *shape), the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((count, *shape), generator=generator).to(device)
