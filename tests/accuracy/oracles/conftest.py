from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from secondguess.accuracy.oracles import registry
from secondguess.images import ImageSet, load
from secondguess.model.observation import Observation


@pytest.fixture
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten afterwards."""
    registry.names()
    monkeypatch.setattr(registry.REGISTRY, "known", dict(registry.REGISTRY.known))


@pytest.fixture(scope="session")
def digits() -> tuple[Observation, Observation, Observation]:
    """Training, validation and operation on 8 x 8 digits, as seen by a classifier that is often wrong.

    The classifier is the nearest class mean of noisy images, so that it fails on images that a tree can still tell.
    """
    data = load("digits")
    training = data.train
    validation, operation = data.test.split(0.5, seed=1)
    pixels = training.materialise().reshape(len(training), -1)
    means = np.stack([pixels[training.labels == k].mean(axis=0) for k in range(10)])

    def see(images: ImageSet, seed: int) -> Observation:
        flat = images.materialise().reshape(len(images), -1)
        noisy = flat + np.random.default_rng(seed).normal(0, 0.35, flat.shape)
        logits = -3 * ((noisy[:, None] - means) ** 2).sum(axis=2)
        exp = np.exp(logits - logits.max(axis=1, keepdims=True))
        return Observation(exp / exp.sum(axis=1, keepdims=True), images=images)

    return see(training, 0), see(validation, 1), see(operation, 2)


@pytest.fixture
def evidence() -> Callable[..., Observation]:
    """`evidence(predictions, labels=None, classes=3, **further)`: images of noise with these predictions."""

    def make(
        predictions: list[int],
        labels: list[int] | None = None,
        classes: int = 3,
        shape: tuple[int, ...] = (1, 4, 4),
        **further,
    ) -> Observation:
        predicted: NDArray[np.int64] = np.array(predictions)
        probabilities = np.full((len(predicted), classes), 0.1 / (classes - 1))
        probabilities[np.arange(len(predicted)), predicted] = 0.9
        names = further.pop("class_names", tuple(map(str, range(classes))))
        pixels = np.random.default_rng(0).random((len(predicted), *shape), dtype=np.float32)
        images = ImageSet.from_arrays(
            pixels, labels if labels is not None else [-1] * len(predicted), class_names=names, layout="NCHW", **further
        )
        return Observation(probabilities, class_names=names, images=images)

    return make
