"""Oracles on the networks for MNIST: Tables 6-8 and Figures 6, 7, 10 and 11 of Guerriero et al. (2023).

All images, training and test, are split into training, validation and operation, unstratified, both times with
scikit-learn's seed 0 as the authors do; networks are fed pixels as they are, 0..255. A task is one network with its
oracles: it says for every operational image what was predicted and who objects. Partitions and the votes of the other
networks are then a matter of rows (`verdicts`), and so are draws of images (`secondguess_lab.studies.papers.oracles`).

Swapped labels: a network trained and validated on labels with a and b swapped is the same network with two outputs
exchanged, and so are its tree and its densities: only what compares with the outside world changes, input rules and the
truth. So `swapped` exchanges outputs instead of training again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from secondguess import zoo
from secondguess.accuracy.oracles.cross_reference import majority
from secondguess.accuracy.oracles.icos import CRITERIA, Icos, InputRules, PixelRules
from secondguess.accuracy.oracles.icos.features import feature_matrix
from secondguess.accuracy.oracles.selfchecker import SelfChecker
from secondguess.engine import TaskData
from secondguess.images import Dataset, ImageSet
from secondguess.model.classifier import Classifier
from secondguess.model.needs import Needs, Trace
from secondguess.model.observation import Observation
from secondguess.training import train
from secondguess_lab.studies.tasks.opening import joined, opened, training_images

__all__ = [
    "classifier_of",
    "look",
    "objections_of",
    "selfchecker_of",
    "split",
    "swapped",
    "train_network",
    "verdicts",
]

WIDEST = 512  # layers with more numbers an image (B's 9,216 and C's 5,880) have no density worth the name as they are
LEVELS = 255
CLASSES = 10

Mask = NDArray[np.bool_]


def look(*, data: TaskData, network: str, training: int, validation: int, epochs: int, seed: int) -> dict[str, Any]:
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
    learning, checking, operating = split(opened(data), training, validation)
    classifier = classifier_of(train_network(network, learning, epochs=epochs, seed=seed), learning)
    checker = selfchecker_of(classifier)
    needs = checker.needs | Needs(logits=True)
    known, held_out, operation = (classifier.observe(one, needs) for one in (learning, checking, operating))
    icos = Icos(seed=seed).fit(known, held_out)
    checker.fit(known, held_out)
    return {
        "network": network,
        "validation_accuracy": float(held_out.correct.mean()),
        "labels": operating.labels,
        "predictions": operation.predictions,
        **objections_of(icos, operation),
        "selfchecker": checker.judge(operation).judged_wrong,
    }


def split(data: Dataset, training: int, validation: int) -> tuple[ImageSet, ImageSet, ImageSet]:
    """Images to train on and to validate on, of the sizes asked for, and all others, which are operation."""
    from sklearn.model_selection import train_test_split

    images = joined(training_images(data), data.test)
    first, rest = train_test_split(np.arange(len(images)), train_size=training, random_state=0)
    second, third = train_test_split(rest, train_size=validation, random_state=0)
    return images.take(first), images.take(second), images.take(third)


def train_network(name: str, images: ImageSet, *, seed: int, epochs: int = 0, device: str = "auto") -> nn.Module:
    """A network of the paper, trained on pixels as they are.

    Args:
        name: "icos_a", "icos_b" or "icos_c".
        images: to train on.
        seed: of everything random.
        epochs: 0 for the paper's number.
        device: to train on.
    """
    recipe = zoo.get(name).recipe.as_kwargs() | ({"epochs": epochs} if epochs else {})
    model = zoo.make(name, seed=seed)
    train(model, images.materialise() * LEVELS, images.labels, **recipe, seed=seed, device=device)
    return model


def classifier_of(model: nn.Module, images: ImageSet) -> Classifier:
    """The classifier that feeds a network of `train_network` pixels as they are, for images such as these."""
    return Classifier(model, std=1 / LEVELS, class_names=images.class_names, input_shape=images.shape)


def selfchecker_of(classifier: Classifier, device: str = "auto", *, wide: bool = False) -> SelfChecker:
    """An unfitted SelfChecker that looks at every activation and pooling, flattened where that is narrow.

    Args:
        classifier: to look into.
        device: where densities are computed.
        wide: whether flattened layers wider than `WIDEST` are looked at, too, reduced to as many principal components.
    """
    traces = []
    for layer in classifier.layers():
        if layer.kind in ("ReLU", "Tanh", "MaxPool2d", "AvgPool2d"):
            traces.append(Trace(layer.name, "mean"))
        elif layer.kind == "Flatten" and (wide or layer.shape[0] <= WIDEST):
            traces.append(Trace(layer.name))
    return SelfChecker(tuple(traces), components=WIDEST if wide else None, device=device)


def objections_of(icos: Icos, operation: Observation) -> dict[str, Mask]:
    """What of ICOS objects to each of n predictions, input rules apart.

    Returns:
        Masks (n,): `pixel_rules`, selected by criterion 1, `forest`, and the rules that `criterion_2` and `criterion_3`
        select.
    """
    masks = icos.violations(operation).masks
    found = {"pixel_rules": masks["training data"], "forest": masks["algorithm"]}
    values = feature_matrix(operation, icos.features)
    for criterion in (2, 3):
        rules = PixelRules(icos.tree_, **CRITERIA[criterion])
        found[f"criterion_{criterion}"] = rules.violated(values, operation.predictions) >= 0
    return found


def verdicts(
    labels: NDArray[np.int64],
    predictions: NDArray[np.int64],
    objections: Mapping[str, Mask],
    others: Sequence[NDArray[np.int64]],
    data: str = "mnist",
) -> dict[str, NDArray[np.int64]]:
    """Everybody's verdicts (n,) about n predictions of a network: 1 wrong, 0 right, -1 undecided.

    Args:
        labels: (n,) true ones, from which the partitions of input rules are told, as in the paper.
        predictions: (n,) of the network.
        objections: masks (n,) as `objections_of` names them, and `selfchecker`.
        others: predictions (n,) of the other networks, for cross-referencing.
        data: whose partitions the input rules have, "mnist" or "cifar10".
    """
    pixels, forest = objections["pixel_rules"], objections["forest"]
    found = {"icos_without_input_rules": pixels | forest, "selfchecker": objections["selfchecker"]}
    for name in ("fine", "equal"):
        rules = _breaks_input_rules(f"{data}_{name}", labels, predictions)
        found |= {f"input_rules_{name}": rules, f"icos_{name}": rules | pixels | forest}
        for criterion in (2, 3):
            found[f"icos_{name}_criterion_{criterion}"] = rules | objections[f"criterion_{criterion}"] | forest
    winner = majority(np.stack([predictions, *others], axis=1), CLASSES)
    crossed = np.where(winner < 0, -1, winner != predictions)
    return {name: mask.astype(np.int64) for name, mask in found.items()} | {"cross_reference": crossed}


def swapped(pair: tuple[int, int] | None) -> NDArray[np.int64]:
    """Of each class (10,), the one that a network which learnt swapped labels says instead."""
    order = np.arange(CLASSES)
    if pair:
        order[list(pair)] = order[list(pair)][::-1]
    return order


def _breaks_input_rules(name: str, labels: NDArray[np.int64], predictions: NDArray[np.int64]) -> Mask:
    """Whether the predicted class cannot occur in the partition of the label."""
    allowed = InputRules.example(name).allowed([str(label) for label in range(CLASSES)])  # (partitions, classes)
    partition = allowed.argmax(axis=0)[labels]
    return ~allowed[partition, predictions]
