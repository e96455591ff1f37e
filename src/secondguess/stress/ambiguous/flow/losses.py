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
    noise = bank.noise[:, draws]
    times, repeated = noise.shape[:2]
    rows, classes = wanted.nonzero().T
    total = len(rows) * times * repeated
    losses = torch.empty(total, device=x.device)
    for start in range(0, total, batch_size):  # over images, classes, times and draws at once, to fill the batches
        stop = min(start + batch_size, total)
        which = torch.arange(start, stop, device=x.device)
        pair, place, number = which // (times * repeated), which // repeated % times, which % repeated
        t, z, clean = bank.times[place], noise[place, number], x[rows[pair]]
        if mirrored:
            odd = (number + (draws.start or 0)) // 2 % 2 == 1
            clean = torch.where(odd[:, None, None, None], clean.flip(3), clean)
        at = t[:, None, None, None]
        velocity = field((1 - at) * z + at * clean, t, classes[pair])
        losses[start:stop] = (velocity - (clean - z)).square().mean(dim=(1, 2, 3))
        if advance is not None:
            advance(stop // (times * repeated), len(rows))
    result = torch.full((*wanted.shape, times), torch.nan, device=x.device)
    result[rows, classes] = losses.view(len(rows), times, repeated).mean(dim=2)
    return result
