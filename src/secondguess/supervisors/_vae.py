"""The variational autoencoder of the supervisor `autoencoder`, and its training; see there for the formulas."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from secondguess.devices import isolated_rng, seed_rng
from secondguess.images import ImageSource
from secondguess.progress import Advance

__all__ = ["Vae", "divergence", "train"]

RESIDENT_BYTES = 1 << 30  # images up to this much are read once and kept, not read again in every epoch


class Vae(nn.Module):
    """Encoder and decoder.

    Args:
        shape: (C, H, W) of the images.
        latent: the number of latent dimensions.
    """

    def __init__(self, shape: tuple[int, int, int], latent: int) -> None:
        super().__init__()
        channels, self.height, self.width = shape
        small = (64, math.ceil(self.height / 4), math.ceil(self.width / 4))
        self.encoder = nn.Sequential(
            nn.Conv2d(channels, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(math.prod(small), 16),
            nn.ReLU(),
        )
        self.mean, self.log_variance = nn.Linear(16, latent), nn.Linear(16, latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, math.prod(small)),
            nn.ReLU(),
            nn.Unflatten(1, small),
            nn.ConvTranspose2d(64, 64, 3, stride=2, padding=1, output_padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(64, 32, 3, stride=2, padding=1, output_padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(32, channels, 3, padding=1),
        )
        for layer in self.modules():  # Keras' initialisation
            if isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
                nn.init.xavier_uniform_(layer.weight)
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.mean.weight.device

    def encode(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Means and log-variances (n, latent) of images (n, C, H, W)."""
        features = self.encoder(images.contiguous(memory_format=torch.channels_last))
        return self.mean(features), self.log_variance(features)

    def decode(self, z: Tensor) -> Tensor:
        """Logits of pixels (n, C, H, W) of latent points (n, latent)."""
        logits: Tensor = self.decoder(z)
        return logits[:, :, : self.height, : self.width]

    def loss(self, images: Tensor) -> Tensor:
        """The mean over images (n, C, H, W) of reconstruction error plus divergence from the prior."""
        mean, log_variance = self.encode(images)
        z = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        error = binary_cross_entropy_with_logits(self.decode(z), images, reduction="sum")
        return error / len(images) + divergence(mean, log_variance).mean()


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(mean, exp log_variance) || N(0, I)), (n,), of means and log-variances (n, latent)."""
    return (mean.square() + log_variance.exp() - log_variance - 1).sum(dim=1) / 2


def train(
    images: ImageSource,
    latent: int,
    epochs: int,
    batch_size: int,
    seed: int,
    device: torch.device,
    advance: Advance = lambda done, total: None,
) -> tuple[Vae, NDArray[np.float64]]:
    """Train on all the images, in an order drawn anew every epoch; torch's global random state is left alone.

    Returns:
        The network in eval mode, and the mean loss of every epoch (epochs,).
    """
    size = 4 * len(images) * math.prod(images.shape)
    pixels = images[:] if size <= RESIDENT_BYTES else images
    losses = np.zeros(epochs)
    steps = epochs * len(images)
    with isolated_rng(device), torch.enable_grad():
        seed_rng(seed, device)
        vae = Vae(images.shape, latent).to(device).train()
        vae.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimiser = torch.optim.Adam(vae.parameters(), lr=1e-3, eps=1e-7)
        for epoch in range(epochs):
            order = np.random.default_rng([seed, epoch]).permutation(len(images))
            total = torch.zeros((), device=device)
            for start in range(0, len(order), batch_size):
                rows = order[start : start + batch_size]
                loss = vae.loss(torch.from_numpy(pixels[rows]).to(device))
                optimiser.zero_grad(set_to_none=True)
                torch.autograd.backward(loss)
                optimiser.step()
                total += loss.detach() * len(rows)
                advance(epoch * len(images) + start + len(rows), steps)
            losses[epoch] = float(total) / len(order)
    return vae.eval(), losses
