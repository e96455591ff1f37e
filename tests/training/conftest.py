from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from secondguess.devices import isolated_rng, seed_rng


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def _with_seed(build: Callable[[], nn.Module]) -> Callable[[int], nn.Module]:
    def make(seed: int) -> nn.Module:
        with isolated_rng():
            seed_rng(seed)
            return build()

    return make


MODELS = {
    "dense": _with_seed(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 3))),
    "convolutional": _with_seed(
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 6, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(6, 3),
        )
    ),
    # No bias before a batch norm: its true gradient is zero, and Adam turns the rounding noise into steps.
    "normalised": _with_seed(
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(36, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3),
        )
    ),
    "dropout": _with_seed(
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(144, 3))
    ),
}  # fmt: skip


@pytest.fixture
def models() -> dict[str, Callable[[int], nn.Module]]:
    return MODELS


@pytest.fixture(scope="session")
def blobs() -> tuple[np.ndarray, np.ndarray]:
    """90 images 1x8x8 of three classes: a bright bar at the top, in the middle or at the bottom, in noise."""
    rng = np.random.default_rng(7)
    labels = np.arange(90) % 3
    images = rng.uniform(0, 0.6, size=(90, 1, 8, 8)).astype(np.float32)
    for image, label in zip(images, labels, strict=True):
        image[0, 3 * label : 3 * label + 2] += 0.4
    return images, labels
