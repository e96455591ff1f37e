"""A stand-in with gradients for a model that has none.

A small network learns to predict what the model predicts; images that fool it often fool the model too (Papernot et al.
2017). It learns from the model's probabilities, which carry more information than its decisions.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from torch import nn

from secondguess.devices import isolated_rng, seed_rng
from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.model.classifier import Classifier
from secondguess.planning import Pace, paced
from secondguess.progress import Progress, Silent, Titled
from secondguess.stress.adversarial.search import Ints, pieces
from secondguess.training import train

__all__ = ["pace_of_surrogate", "train_surrogate"]

BATCH_SIZE = 32
TIMED, CLASSES = 4 * BATCH_SIZE, 10  # images, and their classes, on which the training is timed
MOST_VALUES = 1 << 28  # of the pixels in memory: 1 GiB


def train_surrogate(
    classifier: Classifier,
    images: ImageSet,
    *,
    seed: int,
    chunk: int,
    epochs: int = 20,
    progress: Progress | None = None,
) -> Classifier:
    """Train a network to answer as `classifier` does on `images`, which need no labels."""
    progress = progress or Silent()
    images = images.head(max(1, MOST_VALUES // math.prod(images.shape)), seed=seed)
    rows, probabilities = _answers(classifier, images, chunk, progress)
    if len(np.unique(probabilities.argmax(axis=1))) < 2:
        raise UserError(
            f"{classifier.name} gives no gradients, and no surrogate can learn to replace it, because it predicts the "
            f"same for all {len(rows)} images; give Adversarial(surrogate=...) a differentiable classifier of its "
            "classes, or surrogate_images=... that it tells apart."
        )
    with isolated_rng():
        seed_rng(seed)
        network = _network(images.shape, probabilities.shape[1])
    pixels = images.take(rows).materialise()  # once: image files would be decoded again in every epoch
    titled = Titled(progress, "Training a surrogate")
    train(network, pixels, probabilities, epochs=epochs, batch_size=BATCH_SIZE, seed=seed, progress=titled)
    return Classifier(network, output_kind="logits", name=f"surrogate of {classifier.name}")


def pace_of_surrogate(pace: Pace, shape: tuple[int, int, int]) -> float:
    """Seconds for an image (C, H, W) in a step of the training of a surrogate, measured on a few."""
    rng = np.random.default_rng(0)
    images, answers = rng.random((TIMED, *shape), dtype=np.float32), np.full((TIMED, CLASSES), 1 / CLASSES)
    network = _network(shape, CLASSES)

    def epoch(count: int) -> None:
        train(network, images[:count], answers[:count], epochs=1, batch_size=BATCH_SIZE, seed=0)

    return paced(epoch, BATCH_SIZE, TIMED, pace.clock)


def _answers(
    classifier: Classifier, images: ImageSet, chunk: int, progress: Progress
) -> tuple[Ints, NDArray[np.float64]]:
    """The positions of the images that the classifier accepts, and its probabilities for them."""
    reasons = [""] * len(images)
    answers: list[tuple[Ints, NDArray[np.float64]]] = []
    with progress.task("Asking the model for a surrogate", len(images)) as advance:
        for start in range(0, len(images), chunk):
            some = np.arange(start, min(start + chunk, len(images)))
            answers += pieces(lambda part: classifier.predict(images.take(part)), some, reasons)
            advance(start + len(some), len(images))
    if not answers:
        raise UserError(f"{classifier.name} cannot classify any of the {len(images)} images: {reasons[0]}")
    rows, probabilities = zip(*answers, strict=True)
    return np.concatenate(rows), np.concatenate(probabilities)


def _network(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Two convolutions and two dense layers, for images of any size."""
    height, width = (max(1, min(7, side // 4)) for side in shape[1:])
    return nn.Sequential(
        nn.Conv2d(shape[0], 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d((height, width)),
        nn.Flatten(),
        nn.Linear(64 * height * width, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )
