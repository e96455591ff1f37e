"""Oracles on the networks for MNIST: Tables 6-8 and Figures 6, 7, 10 and 11 of Guerriero et al. (2023).

All images, training and test, are split into training, validation and operation, unstratified, both times with
scikit-learn's seed 0 as the authors do; networks are fed pixels as they are, 0..255. A task is one network with its
oracles: it says for every operational image what was predicted and who objects. Draws of operational images, partitions
and the other networks' votes are then a matter of rows (`secondguess.studies.papers.oracles`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from secondguess import zoo
from secondguess.classifier import Classifier
from secondguess.data import ImageSet
from secondguess.engine import Source
from secondguess.observation import Needs, Trace
from secondguess.oracles import Evidence
from secondguess.oracles.icos import CRITERIA, Icos, PixelRules
from secondguess.oracles.icos.features import feature_matrix
from secondguess.oracles.selfchecker import SelfChecker
from secondguess.studies.tasks.opening import joined, opened, training_images
from secondguess.training import train

__all__ = ["look"]

WIDEST = 512  # layers with more numbers an image (B's 9,216 and C's 5,880) have no density worth the name
LEVELS = 255


def look(*, data: Source, network: str, training: int, validation: int, epochs: int, seed: int) -> dict[str, Any]:
    """What one network and its oracles say about every operational image.

    Args:
        data: the images.
        network: "icos_a", "icos_b" or "icos_c".
        training: images to train on.
        validation: images on which oracles learn what mistakes look like.
        epochs: of the network; 0 for the paper's number.
        seed: of network, tree and forest.

    Returns:
        Arrays over the n operational images: `labels`, `predictions`, and who objects: `pixel_rules` (criterion 1),
        `criterion_2`, `criterion_3`, `forest` and `selfchecker`.
    """
    learning, checking, operating = _split(data, training, validation)
    recipe = zoo.describe(network).recipe.as_kwargs()
    model = zoo.make(network, seed=seed)
    train(
        model,
        learning.materialise() * LEVELS,
        learning.labels,
        **recipe | ({"epochs": epochs} if epochs else {}),
        seed=seed,
    )
    classifier = Classifier(model, std=1 / LEVELS, class_names=learning.class_names, input_shape=learning.shape)
    checker = SelfChecker(_activations(classifier))
    needs = checker.needs | Needs(logits=True)
    known, held_out, operation = (Evidence.of(classifier, one, needs) for one in (learning, checking, operating))
    icos = Icos(seed=seed).fit(known, held_out)
    checker.fit(known, held_out)
    masks = icos.violations(operation).masks
    objections = {"pixel_rules": masks["training data"], "forest": masks["algorithm"]}
    values = feature_matrix(operation, icos.features)
    for criterion in (2, 3):
        rules = PixelRules(icos.tree_, **CRITERIA[criterion])
        objections[f"criterion_{criterion}"] = rules.violated(values, operation.predictions) >= 0
    objections["selfchecker"] = checker.judge(operation).judged_wrong
    return {
        "network": network,
        "validation_accuracy": float(held_out.correct.mean()),
        "labels": operating.labels,
        "predictions": operation.predictions,
        **objections,
    }


def _split(data: Source, training: int, validation: int) -> tuple[ImageSet, ImageSet, ImageSet]:
    from sklearn.model_selection import train_test_split

    whole = opened(data)
    images = joined(training_images(whole), whole.test)
    first, rest = train_test_split(np.arange(len(images)), train_size=training, random_state=0)
    second, third = train_test_split(rest, train_size=validation, random_state=0)
    return images.take(first), images.take(second), images.take(third)


def _activations(classifier: Classifier) -> tuple[Trace, ...]:
    """What SelfChecker looks at: every activation and pooling, flattened where that is narrow."""
    traces = []
    for layer in classifier.layers():
        if layer.kind in ("ReLU", "Tanh", "MaxPool2d", "AvgPool2d"):
            traces.append(Trace(layer.name, "mean"))
        elif layer.kind == "Flatten" and layer.shape[0] <= WIDEST:
            traces.append(Trace(layer.name))
    return tuple(traces)
