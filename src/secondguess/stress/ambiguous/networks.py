"""The three networks of a two-class regularised adversarial autoencoder (rAAE).

| network       | maps                                  | dense layers              | ends in        |
|---------------|---------------------------------------|---------------------------|----------------|
| encoder       | image -> z in R^2                     | 128, 128, 2               | nothing        |
| decoder       | z -> image                            | 128, 128, pixels          | sigmoid        |
| discriminator | z and the class -> one logit          | 128, 128, 1               | nothing        |

LeakyReLU with slope 0.3 and dropout 0.1 follow every hidden layer (Weiss, García Gómez, Tonella 2023; the slope is
Keras' default, ten and more times PyTorch's). Weights begin Glorot-uniform, biases at zero.

Departure: images in colour or larger than 32 pixels get a convolutional encoder and decoder of the same interface; a
dense net would need millions of weights for them and learn no shapes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

__all__ = ["LATENT", "Raae"]

LATENT = 2  # the confined latent space and its grid are a plane
HIDDEN = 128
SLOPE = 0.3
DROPOUT = 0.1
LARGEST_DENSE = 32  # pixels per side


class Raae(nn.Module):
    """Encoder, decoder and label-conditional discriminator.

    Args:
        shape: (C, H, W) of the images.
        codes: how many entries the one-hot class has in the discriminator's input.
        seed: of the initial weights.
    """

    def __init__(self, shape: tuple[int, int, int], codes: int, seed: int) -> None:
        super().__init__()
        channels, height, width = shape
        if channels == 1 and max(height, width) <= LARGEST_DENSE:
            pixels = math.prod(shape)
            self.encoder: nn.Module = nn.Sequential(nn.Flatten(), *_dense(pixels, LATENT))
            self.decoder: nn.Module = nn.Sequential(*_dense(LATENT, pixels), nn.Sigmoid(), nn.Unflatten(1, shape))
        else:
            self.encoder = _convolutional_encoder(shape)
            self.decoder = _ConvolutionalDecoder(shape)
        self.discriminator = nn.Sequential(*_dense(LATENT + codes, 1))
        _initialise(self, seed)


def _dense(inputs: int, outputs: int) -> list[nn.Module]:
    return [
        nn.Linear(inputs, HIDDEN),
        nn.LeakyReLU(SLOPE),
        nn.Dropout(DROPOUT),
        nn.Linear(HIDDEN, HIDDEN),
        nn.LeakyReLU(SLOPE),
        nn.Dropout(DROPOUT),
        nn.Linear(HIDDEN, outputs),
    ]


def _convolutional_encoder(shape: tuple[int, int, int]) -> nn.Module:
    channels, height, width = shape
    small = (math.ceil(height / 4), math.ceil(width / 4))
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, stride=2, padding=1),
        nn.LeakyReLU(SLOPE),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.LeakyReLU(SLOPE),
        nn.Flatten(),
        nn.Linear(64 * small[0] * small[1], HIDDEN),
        nn.LeakyReLU(SLOPE),
        nn.Dropout(DROPOUT),
        nn.Linear(HIDDEN, LATENT),
    )


class _ConvolutionalDecoder(nn.Module):
    """Dense to a quarter of the size, then two upsampling convolutions, cut to the size of the images."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        super().__init__()
        channels, self.height, self.width = shape
        small = (math.ceil(self.height / 4), math.ceil(self.width / 4))
        self.layers = nn.Sequential(
            nn.Linear(LATENT, HIDDEN),
            nn.LeakyReLU(SLOPE),
            nn.Dropout(DROPOUT),
            nn.Linear(HIDDEN, 64 * small[0] * small[1]),
            nn.LeakyReLU(SLOPE),
            nn.Unflatten(1, (64, *small)),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(64, 32, 3, padding=1),
            nn.LeakyReLU(SLOPE),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(32, channels, 3, padding=1),
            nn.Sigmoid(),
        )

    def forward(self, z: Tensor) -> Tensor:
        """Map (n, 2) to (n, C, H, W)."""
        image: Tensor = self.layers(z)
        return image[:, :, : self.height, : self.width]


def _initialise(module: nn.Module, seed: int) -> None:
    """Glorot-uniform weights and zero biases, drawn from a generator of their own."""
    generator = torch.Generator().manual_seed(seed)
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight, generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
