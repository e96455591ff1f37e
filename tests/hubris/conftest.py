from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from secondguess import Classifier, Dataset, load
from secondguess.images import ImageSet
from secondguess.stress.ambiguous import PixelBlend


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load("digits")


@pytest.fixture(scope="session")
def blends(digits: Dataset) -> ImageSet:
    """Blends of three pairs of digits, with dials from .05 to .95."""
    return PixelBlend(pairs=[(9, 8), (3, 8), (1, 7)], delta_max=0.9).generate(digits.train, 300).images


def trained(digits: Dataset, steps: int, labels: tuple[int, ...] = tuple(range(10))) -> nn.Module:
    torch.set_num_threads(1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, len(labels)))
        chosen = digits.train.take(np.isin(digits.train.labels, labels))
        which = torch.tensor([labels.index(label) for label in chosen.labels])
        images = torch.from_numpy(chosen.materialise())
        optimiser = torch.optim.Adam(model.parameters(), 1e-2)
        for _ in range(steps):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(images), which).backward()
            optimiser.step()
    return model.eval()


@pytest.fixture(scope="session")
def models(digits: Dataset) -> dict[str, Classifier]:
    """A hasty and a thorough model of ten classes, and one of nine against eight alone."""
    return {
        "hasty": Classifier(trained(digits, 25), name="hasty", device="cpu"),
        "thorough": Classifier(trained(digits, 150), name="thorough", device="cpu"),
        "binary": Classifier(trained(digits, 60, (9, 8)), name="binary", device="cpu"),
    }
