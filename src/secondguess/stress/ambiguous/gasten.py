"""One classifier as the judge of a generator: GASTeN and its second version.

GASTeN (Cunha, Soares, Restivo, Teixeira, "GASTeN: Generative adversarial stress test networks", 2023) searches for
images at the decision boundary of one given classifier C: its loss is the confusion distance mean abs(C(G(z)) - 1/2),
in the second version (Teixeira, Gomes, Soares, van Rijn 2024) the Gaussian likelihood around 1/2. What is ambiguous to
one classifier need not be ambiguous to another: images made so test this classifier, not others.

`ClassifierJudge` turns any torch module into such a judge. Where none is given, a small one is trained: two
convolutions 3 x 3 with f and 2 f filters, each followed by a maximum over 2 x 2, and a linear layer, with no other
non-linearity, as in the authors' experiments.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from secondguess.devices import isolated_rng, pick_device, seed_rng
from secondguess.images import ImageSet
from secondguess.stress.ambiguous.estimator import balanced_rows
from secondguess.training import train as train_model

__all__ = ["ClassifierJudge", "small_judge"]


class ClassifierJudge(nn.Module):
    """A classifier, frozen, that judges between some of its classes.

    Args:
        model: images (n, C, H, W) in [0, 1] -> logits (n, K).
        columns: of these logits, those of the classes to judge between; all if left out.
    """

    def __init__(self, model: nn.Module, columns: Sequence[int] | None = None) -> None:
        super().__init__()
        self.model = model.eval().requires_grad_(requires_grad=False)
        self.columns: Tensor | None
        self.register_buffer("columns", None if columns is None else torch.tensor(list(columns)))

    def forward(self, images: Tensor) -> Tensor:
        """Probabilities (1, n, k) of the k classes; other classes are left out of the softmax."""
        logits: Tensor = self.model(images)
        if self.columns is not None:
            logits = logits.index_select(1, self.columns)
        return torch.softmax(logits, dim=1)[None]


def small_judge(
    train: ImageSet,
    classes: Sequence[int],
    *,
    filters: int = 4,
    epochs: int = 3,
    seed: int = 0,
    device: str = "auto",
) -> ClassifierJudge:
    """Train a small classifier of the classes.

    Args:
        train: labelled images.
        classes: the labels it tells apart, in the order of its probabilities.
        filters: f; 1, 2 and 4 for MNIST and 4, 8 and 16 for Fashion-MNIST in the paper.
        epochs: 1 to 3 in the paper.
        seed: of weights and order.
        device: where to train.
    """
    rows, which = balanced_rows(train, classes, seed)
    channels, height, width = train.shape
    with isolated_rng():
        seed_rng(seed)
        model = nn.Sequential(
            nn.Conv2d(channels, filters, 3, padding=1),
            nn.MaxPool2d(2),
            nn.Conv2d(filters, 2 * filters, 3, padding=1),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(2 * filters * (height // 4) * (width // 4), len(classes)),
        )
    used, place = np.unique(rows, return_inverse=True)
    images = np.ascontiguousarray(train.images[used])[place]
    train_model(model, images, which, epochs=epochs, batch_size=64, seed=seed, device=device)
    return ClassifierJudge(model).to(pick_device(device))
