"""Networks for 1x8x8 images that are small enough to be looked through, each with one thing that may go wrong."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class TinyCNN(nn.Module):
    """Convolution, batch-norm with real statistics, one ReLU called twice, dropout before the head."""

    def __init__(self, classes: int = 3, dropout: float = 0.5) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.relu = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.flatten = nn.Flatten()
        self.hidden = nn.Linear(16, 8)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(8, classes)
        with torch.no_grad():
            self.bn.running_mean.uniform_(-0.5, 0.5)
            self.bn.running_var.uniform_(0.5, 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.flatten(self.pool(self.relu(self.bn(self.conv(x)))))
        return self.head(self.drop(self.relu(self.hidden(x))))


class InPlace(nn.Module):
    """A ReLU that overwrites the output of the layer before it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(4 * 36, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.relu(self.conv(x)).flatten(1))


class Functional(nn.Module):
    """ReLU and pooling are functions: the head is fed something that no module returns."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.head = nn.Linear(4, 3)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.conv(x)).mean((2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x))


class Residual(nn.Module):
    """Two convolutions, one with a stride, around a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.block = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.gelu(self.norm(self.stem(x)))
        x = functional.max_pool2d(x + self.block(x), 2)
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Attention(nn.Module):
    """Four patches as tokens, one block of self-attention, the mean over the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 8, 4, stride=4)
        self.position = nn.Parameter(torch.randn(1, 4, 8))
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.position
        query, key, value = self.qkv(self.norm(tokens)).reshape(-1, 4, 3, 2, 4).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(-1, 4, 8)
        return self.head(self.drop(tokens + mixed).mean(1))


def seeded(kind: type[nn.Module], seed: int = 0, **options: object) -> nn.Module:
    """Build a network with the weights of `seed`, in eval mode; its logits are seen not to be probabilities."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = kind(**options).eval()
        model.head.bias += torch.linspace(-2, 2, len(model.head.bias))
    return model


def assert_close(a: np.ndarray, b: np.ndarray) -> None:
    """Equal but for what another runtime rounds."""
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
