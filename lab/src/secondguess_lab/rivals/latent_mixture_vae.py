"""A variational autoencoder, and the calibration that gives its blurry images the grey levels of real ones.

For an image x with pixels in [0, 1], a Gaussian encoder q(z|x) = N(μ(x), diag σ²(x)) and a decoder D,

    loss(x) = Σ_pixels BCE(x, D(z)) + KL(q(z|x) || N(0, I)),   z ~ q(z|x)

averaged over a batch; the encoder sees pixels with the mean and the deviation of the training images taken out. The
dense layers, the dimension of z and the schedule are those behind AmbiguousMNIST (Mukhoti et al. 2021): 512, 256, 32,
256, 512; Adam with 1e-3, times 0.2 after 25, 50 and 65 of 74 epochs (after those fractions of the epochs asked for).

Departure: images in colour or larger than 32 pixels get a convolutional encoder and decoder.

Decoded images are paler and blurrier than real ones, so they are brought to `clamp(gain x + offset, 0, 1)`. The
authors match mean and deviation and then stretch manually, 1.20 u - 0.15, until the histogram is that of MNIST.
`GreyLevels.fit` solves for the gain and the offset with which the *clamped* images have the mean and the deviation of
real ones, which holds for any data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from secondguess.devices import isolated_rng, seed_rng
from secondguess.images import ImageSource

__all__ = ["GreyLevels", "Vae", "decode", "encode", "train_vae"]

Floats = NDArray[np.float32]
LATENT = 32
LARGEST_DENSE = 32  # pixels a side
SCHEDULE = (25 / 74, 50 / 74, 65 / 74)
SAMPLE = 2000  # images on which means and deviations are measured
BATCH = 512  # images decoded or encoded at a time


class Vae(nn.Module):
    """Encoder and decoder.

    Args:
        shape: (C, H, W) of the images.
        mean: of the training images' pixels.
        deviation: their standard deviation.
    """

    def __init__(self, shape: tuple[int, int, int], mean: float, deviation: float) -> None:
        super().__init__()
        self.mean, self.deviation = mean, deviation
        channels, height, width = shape
        pixels = math.prod(shape)
        if channels == 1 and max(height, width) <= LARGEST_DENSE:
            self.encoder: nn.Module = nn.Sequential(
                nn.Flatten(), nn.Linear(pixels, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU()
            )
            self.decoder: nn.Module = nn.Sequential(
                nn.Linear(LATENT, 256),
                nn.ReLU(),
                nn.Linear(256, 512),
                nn.ReLU(),
                nn.Linear(512, pixels),
                nn.Unflatten(1, shape),
            )
        else:
            small = (math.ceil(height / 4), math.ceil(width / 4))
            self.encoder = _convolutional_encoder(channels, small)
            self.decoder = _convolutional_decoder(channels, small)
        self.centre, self.log_variance = nn.Linear(256, LATENT), nn.Linear(256, LATENT)
        self.height, self.width = height, width

    def encode(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Means and log-variances (n, 32) of images (n, C, H, W)."""
        features = self.encoder((images - self.mean) / self.deviation)
        return self.centre(features), self.log_variance(features)

    def decode(self, z: Tensor) -> Tensor:
        """Logits of pixels (n, C, H, W) of latent points (n, 32)."""
        logits: Tensor = self.decoder(z)
        return logits[:, :, : self.height, : self.width]

    def loss(self, images: Tensor) -> Tensor:
        """The mean over images (n, C, H, W) of reconstruction error plus divergence from the prior."""
        centre, log_variance = self.encode(images)
        z = centre + torch.randn_like(centre) * (log_variance / 2).exp()
        error = binary_cross_entropy_with_logits(self.decode(z), images, reduction="sum")
        divergence = (centre.square() + log_variance.exp() - log_variance - 1).sum() / 2
        return (error + divergence) / len(images)


def train_vae(
    images: ImageSource,
    *,
    epochs: int,
    batch_size: int = 128,
    seed: int = 0,
    device: torch.device,
    after_epoch: Callable[[int, int], None] | None = None,
) -> Vae:
    """Train on all the images; they are read batch by batch, in an order drawn anew every epoch.

    Args:
        images: n of them.
        epochs: 74 behind AmbiguousMNIST.
        batch_size: images per step.
        seed: of weights, order and noise; torch's global random state is left alone.
        device: where to train.
        after_epoch: called with (epochs done, epochs).
    """
    sample = _sample(images, seed)
    with isolated_rng(device), torch.enable_grad():
        seed_rng(seed, device)
        vae = Vae(images.shape, float(sample.mean()), max(float(sample.std()), 1e-6)).to(device).train()
        optimiser = torch.optim.Adam(vae.parameters(), lr=1e-3)
        milestones = [max(1, round(share * epochs)) for share in SCHEDULE]
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, milestones, gamma=0.2)
        for epoch in range(epochs):
            order = np.random.default_rng([seed, epoch]).permutation(len(images))
            for start in range(0, len(order), batch_size):
                batch = torch.from_numpy(images[order[start : start + batch_size]]).to(device)
                optimiser.zero_grad(set_to_none=True)
                torch.autograd.backward(vae.loss(batch))
                optimiser.step()
            schedule.step()
            if after_epoch:
                after_epoch(epoch + 1, epochs)
    return vae.eval()


@torch.no_grad()
def encode(vae: Vae, images: Floats) -> Tensor:
    """The latent means (n, 32) of images (n, C, H, W), on the autoencoder's device."""
    device = vae.centre.weight.device
    parts = torch.split(torch.from_numpy(images), BATCH)
    return torch.cat([vae.encode(part.to(device))[0] for part in parts])


@torch.no_grad()
def decode(vae: Vae, z: Tensor) -> Floats:
    """The images (n, C, H, W) at latent points (n, 32)."""
    return np.concatenate([vae.decode(part).sigmoid().cpu().numpy() for part in torch.split(z, BATCH)])


@dataclass(frozen=True)
class GreyLevels:
    """Grey levels of decoded images brought to those of real ones: x -> clamp(gain x + offset, 0, 1).

    Attributes:
        gain: how much the contrast grows.
        offset: added to every pixel.
    """

    gain: float
    offset: float

    @classmethod
    def fit(
        cls, vae: Vae, images: ImageSource, *, stretch: tuple[float, float] | None = None, seed: int = 0
    ) -> GreyLevels:
        """Fit to the reconstructions of (a sample of) the images.

        Args:
            vae: the autoencoder.
            images: its training images.
            stretch: (a, b) gives clamp(a u + b, 0, 1) instead, where u has the mean and the deviation of real images;
                (1.20, -0.15) made AmbiguousMNIST.
            seed: of the sample.
        """
        from scipy.optimize import least_squares

        real = _sample(images, seed)
        decoded = decode(vae, encode(vae, real))
        mean, deviation = float(real.mean()), float(real.std())
        gain = deviation / max(float(decoded.std()), 1e-6)
        offset = mean - gain * float(decoded.mean())
        if stretch is not None:
            return cls(stretch[0] * gain, stretch[0] * offset + stretch[1])

        def missed(candidate: NDArray[np.float64]) -> list[float]:
            clamped = np.clip(candidate[0] * decoded + candidate[1], 0, 1)
            return [float(clamped.mean()) - mean, float(clamped.std()) - deviation]

        return cls(*least_squares(missed, [gain, offset]).x.tolist())

    def __call__(self, decoded: Floats) -> NDArray[np.uint8]:
        """The images as 8-bit pixels."""
        return np.rint(255 * np.clip(self.gain * decoded + self.offset, 0, 1)).astype(np.uint8)


def _convolutional_encoder(channels: int, small: tuple[int, int]) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * math.prod(small), 256),
        nn.ReLU(),
    )


def _convolutional_decoder(channels: int, small: tuple[int, int]) -> nn.Module:
    return nn.Sequential(
        nn.Linear(LATENT, 256),
        nn.ReLU(),
        nn.Linear(256, 64 * math.prod(small)),
        nn.ReLU(),
        nn.Unflatten(1, (64, *small)),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(64, 32, 3, padding=1),
        nn.ReLU(),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(32, channels, 3, padding=1),
    )


def _sample(images: ImageSource, seed: int) -> Floats:
    rows = np.random.default_rng(seed).permutation(len(images))[:SAMPLE]
    return images[np.sort(rows)]
