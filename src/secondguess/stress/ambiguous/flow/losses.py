"""What a flow thinks of images: how well it denoises them as each class.

For an image x, a class c, a time t and noise z the flow's own training loss, |v(x_t, t, c) - (x - z)|^2 / pixels, is
small where x is likely as an image of c: a weighted integral of it over t bounds -log p(x | c). The same noise serves
all images and all classes, so that most of the noise cancels between classes and the rest is a constant that
calibration removes; noise comes in pairs z and -z, which cancels its linear part. Where images may be mirrored, every
second pair looks at the mirror image: the network's errors there are partly others.
"""

from __future__ import annotations

import torch
from torch import Tensor

from secondguess.progress import Advance
from secondguess.stress.ambiguous.flow.sampling import Field, noise_of

__all__ = ["TIMES", "NoiseBank", "denoising_losses"]

TIMES = (0.25, 0.37, 0.49, 0.61, 0.73, 0.85)  # nearer to 0 nothing is left of the image, nearer to 1 nothing to guess


class NoiseBank:
    """Noise for every time and draw, (T, R, C, H, W), in antithetic pairs.

    Args:
        shape: (C, H, W).
        draws: R, even.
        seed: of the noise.
        device: where it is wanted.
        times: (T,).
    """

    def __init__(
        self, shape: tuple[int, ...], draws: int, seed: int, device: torch.device, times: tuple[float, ...] = TIMES
    ) -> None:
        half = noise_of(len(times) * draws // 2, shape, seed, device)
        pairs = torch.stack([half, -half], dim=1)
        self.noise = pairs.reshape(len(times), draws, *shape)
        self.times = torch.tensor(times, device=device)


def denoising_losses(
    field: Field,
    x: Tensor,
    wanted: Tensor,
    bank: NoiseBank,
    draws: slice,
    *,
    batch_size: int,
    mirrored: bool = False,
    advance: Advance | None = None,
) -> Tensor:
    """Mean losses (n, K, T) over some draws; NaN where they are not wanted.

    Args:
        field: velocities.
        x: (n, C, H, W) in [-1, 1].
        wanted: bool (n, K), which classes of which images.
        bank: times and noise.
        draws: which of its draws.
        batch_size: velocities at a time.
        mirrored: whether every second pair of draws looks at the mirror image.
        advance: called with the (image, class) pairs done and their total.
    """
    times, noise = bank.times, bank.noise[:, draws]
    result = torch.full((*wanted.shape, len(times)), torch.nan, device=x.device)
    index = wanted.nonzero()
    for start in range(0, len(index), batch_size):
        rows, classes = index[start : start + batch_size].T
        sides = (x[rows], x[rows].flip(3)) if mirrored else (x[rows],)
        for place, t in enumerate(times):
            total = torch.zeros(len(rows), device=x.device)
            for number, z in enumerate(noise[place], start=draws.start or 0):
                clean = sides[number // 2 % len(sides)]
                velocity = field((1 - t) * z + t * clean, t.expand(len(rows)), classes)
                total += (velocity - (clean - z)).square().mean(dim=(1, 2, 3))
            result[rows, classes, place] = total / noise.shape[1]
        if advance is not None:
            advance(min(start + batch_size, len(index)), len(index))
    return result
