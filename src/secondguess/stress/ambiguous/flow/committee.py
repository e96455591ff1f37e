"""A committee that is trained to doubt: ordinary classifiers of several families, none of them the model under test.

Each family learns the images, and as many blends of two of them with the labels blended alike (mixup, Zhang et al.,
2018); labels are smoothed, and a temperature of at least 1 is fitted on held-out images. The committee's opinion is the
mean of its members' probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from secondguess.images import ImageSet
from secondguess.model.classifier import Classifier
from secondguess.model.needs import Needs
from secondguess.progress import Progress, Silent, Titled
from secondguess.training.temperature import fit_temperature

__all__ = ["Committee"]

Floats = NDArray[np.float64]
SMOOTHED = 0.05
BLENDS = 0.4  # parameter of the Beta distribution of a blend's weight, as in mixup
SMALLEST = 16  # pixels per side that convolutions without padding need


class Committee:
    """Probabilities of all classes from classifiers of several families.

    Args:
        families: architectures of the zoo; None takes three that suit the size of the images.
        epochs: of each member.
        seed: of everything random.
        device: where to compute.
    """

    def __init__(
        self, families: Sequence[str] | None = None, *, epochs: int = 8, seed: int = 0, device: str = "auto"
    ) -> None:
        self.families, self.epochs, self.seed, self.device = families, epochs, seed, device
        self._members: list[tuple[Classifier, float]] = []

    def fit(self, train: ImageSet, held_out: ImageSet, *, progress: Progress | None = None) -> Self:
        """Train every family on `train` and make it as unsure as it should be on `held_out`."""
        from secondguess import zoo
        from secondguess.training import train as learn

        large = min(train.shape[1:]) >= SMALLEST
        names = self.families or (["lenet", "simple_cnn", "fully_connected"] if large else ["fully_connected"])
        mixed = _Mixed(train, self.seed)
        self._members = []
        for number, name in enumerate(names):
            seed = self.seed + number
            model = zoo.make(name, num_classes=train.num_classes, input_shape=train.shape, seed=seed)
            report = Titled(progress or Silent(), f"Training a judge ({name})")
            learn(model, mixed, mixed.labels, epochs=self.epochs, seed=seed, device=self.device, progress=report)
            member = Classifier(model, name=name, device=self.device, output_kind="logits")
            logits = member.observe(held_out, Needs(logits=True)).logits
            temperature = 1.0 if logits is None else max(1.0, fit_temperature(logits, held_out.labels))
            self._members.append((member, temperature))
        return self

    def judge(self, images: ImageSet) -> Floats:
        """The members' mean probabilities (n, K)."""
        opinions = []
        for member, temperature in self._members:
            logits = np.asarray(member.observe(images, Needs(logits=True)).logits, dtype=np.float64) / temperature
            odds = np.exp(logits - logits.max(axis=1, keepdims=True))
            opinions.append(odds / odds.sum(axis=1, keepdims=True))
        return np.asarray(np.mean(opinions, axis=0))


class _Mixed:
    """The images, followed by a blend of each with another one; computed when they are read."""

    def __init__(self, train: ImageSet, seed: int) -> None:
        rng = np.random.default_rng([seed, len(train)])
        self._images = train.images
        self._partner, self._weight = rng.permutation(len(train)), rng.beta(BLENDS, BLENDS, len(train))
        sharp = np.eye(train.num_classes)[train.labels] * (1 - SMOOTHED) + SMOOTHED / train.num_classes
        weight = self._weight[:, None]
        self.labels: Floats = np.concatenate([sharp, weight * sharp + (1 - weight) * sharp[self._partner]])

    def __len__(self) -> int:
        return 2 * len(self._partner)

    def __getitem__(self, index: Any, /) -> NDArray[np.float32]:
        places = np.arange(len(self))[index]
        own = places % len(self._partner)
        weight = np.where(places < len(self._partner), 1.0, self._weight[own])[:, None, None, None]
        blended = weight * self._images[own] + (1 - weight) * self._images[self._partner[own]]
        return np.asarray(blended, dtype=np.float32)
