"""How ambiguous are ambiguous images? Table 1 of Weiss, Garcia Gomez and Tonella (2023), and what its Table 2 needs.

Classifiers are trained on nominal images ("clean") or on these and ambiguous ones with hard labels ("mixed"), and look
at nominal and ambiguous test images. The ambiguous images come from AmbiGuess as published ("ambiguess"), from
AmbiGuess with our check of realism ("ambiguess, realistic"), or from mixtures in the latent space of a variational
autoencoder ("latent mixture"), the recipe of the paper's baseline.

What several tasks need (ambiguous images, trained classifiers) is made once a process and remembered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import nn

from secondguess import zoo
from secondguess.engine import TaskData
from secondguess.images import ImageSet
from secondguess.metrics import ambiguity
from secondguess.model.classifier import Classifier
from secondguess.model.observation import Observation
from secondguess.progress import Progress
from secondguess.stress.ambiguous import AmbiGuess
from secondguess.stress.ambiguous.acceptance import TrainedFleet
from secondguess.stress.ambiguous.base import AmbiguousImages
from secondguess.stress.ambiguous.pairs import choose_pairs
from secondguess.training import Fleet, train_fleet
from secondguess_lab.rivals.latent_mixture import LatentMixture
from secondguess_lab.studies.tasks.opening import joined, opened, training_images

__all__ = [
    "Generation",
    "ambiguous_sets",
    "draw_ambiguous",
    "measure",
    "measure_ambiguity",
    "train_autoencoders",
    "train_classifiers",
    "trained",
]

Training = Literal["clean", "mixed"]
Generation = Mapping[str, Any]
Frozen = tuple[tuple[str, Any], ...]
DELTA_TRAINING, DELTA_TEST = 0.4, 0.25


def measure_ambiguity(
    *,
    data: TaskData,
    kept: Mapping[str, Sequence[TaskData]],
    name: str,
    generators: Sequence[str],
    architecture: str,
    training: Training,
    members: int,
    epochs: int,
    generation: Generation,
    seed: int,
) -> dict[str, Any]:
    """One row for every generator and every classifier of one architecture that was trained in one way.

    Args:
        data: the nominal images.
        kept: of each generator, see `ambiguous_sets`.
        name: what the table calls the data.
        generators: "ambiguess", "ambiguess, realistic" or "latent mixture", whose test images are looked at; with mixed
            training a single one, whose other images the classifiers learn from.
        architecture: a name of the zoo.
        training: "clean" or "mixed".
        members: how many classifiers.
        epochs: of each; 0 for the architecture's own number.
        generation: see `ambiguous_sets`.
        seed: of everything random.
    """
    sets = {one: ambiguous_sets(data, one, generation, seed, kept[one]) for one in generators}
    extra = None
    if training == "mixed":
        ((extra, _),) = sets.values()
    fleet = trained(data, architecture, extra, members, epochs, seed)
    about = {"data": name, "architecture": architecture, "training": training}
    nominal = opened(data).test
    return {
        "rows": [
            about | {"generator": generator, "member": number} | measure(model, nominal, test)
            for generator, (_, test) in sets.items()
            for number, model in enumerate(fleet)
        ]
    }


def ambiguous_sets(
    data: TaskData, generator: str, generation: Generation, seed: int, kept: Sequence[TaskData] = ()
) -> tuple[ImageSet, ImageSet]:
    """Ambiguous images to train on and to test on.

    Args:
        data: the nominal images.
        generator: "ambiguess", "ambiguess, realistic" or "latent mixture".
        generation: `train` and `test` images; `pairs` and `autoencoders` of AmbiGuess, `autoencoder_epochs` of its
            training, and, where they are given, `acceptance` and the `folder` that keeps what was trained;
            `mixture_epochs` of the autoencoder of latent mixtures and `judge_epochs` of the networks that judge these.
        seed: of everything random.
        kept: both sets, if they were made before; they are taken as they are.
    """
    if kept:
        extra, test = (opened(one).test for one in kept)
        return extra, test
    frozen = tuple(sorted(generation.items()))
    if generator == "latent mixture":
        return _latent_mixtures(data, frozen, seed)
    return _drawn(data, frozen, {"ambiguess": False, "ambiguess, realistic": True}[generator], seed)


def train_autoencoders(
    images: ImageSet, generation: Generation, *, seed: int, progress: Progress | None = None
) -> list[TrainedFleet]:
    """The autoencoders of AmbiGuess, from which `draw_ambiguous` draws with and without the check of realism.

    Args:
        images: to train on.
        generation: see `ambiguous_sets`.
        seed: of everything random.
        progress: what to tell how far it came.
    """
    generator = _ambiguess(generation)
    return generator.train(images, choose_pairs(images, generator.pairs, seed=seed), seed=seed, progress=progress)


def draw_ambiguous(
    images: ImageSet, autoencoders: Sequence[TrainedFleet], generation: Generation, *, realism: bool, seed: int
) -> tuple[AmbiguousImages, AmbiguousImages]:
    """Ambiguous images to train on and to test on, from trained autoencoders.

    Args:
        images: that the autoencoders were trained on.
        autoencoders: made by `train_autoencoders`.
        generation: see `ambiguous_sets`.
        realism: whether images are checked for it.
        seed: that the autoencoders were trained with.
    """

    def made(count: int, delta: float, offset: int) -> AmbiguousImages:
        generator = _ambiguess(generation, delta_max=delta, realism=realism)
        return generator.generate(images, count, seed=seed + offset, trained=autoencoders)

    return made(generation["train"], DELTA_TRAINING, 2), made(generation["test"], DELTA_TEST, 1)


@lru_cache(maxsize=4)
def _drawn(data: TaskData, generation: Frozen, realism: bool, seed: int) -> tuple[ImageSet, ImageSet]:
    images, autoencoders = training_images(opened(data)), _autoencoders(data, generation, seed)
    extra, test = draw_ambiguous(images, autoencoders, dict(generation), realism=realism, seed=seed)
    return extra.images, test.images


@lru_cache(maxsize=2)
def _autoencoders(data: TaskData, generation: Frozen, seed: int) -> list[TrainedFleet]:
    return train_autoencoders(training_images(opened(data)), dict(generation), seed=seed)


@lru_cache(maxsize=2)
def _latent_mixtures(data: TaskData, generation: Frozen, seed: int) -> tuple[ImageSet, ImageSet]:
    of, images = dict(generation), training_images(opened(data))
    generator = LatentMixture(epochs=of["mixture_epochs"], member_epochs=of["judge_epochs"])
    count = of["train"] + of["test"]
    made = generator.generate(images, count, seed=seed).images
    test, extra = made.split(of["test"] / count, seed=seed, stratify=False)
    return extra, test


@lru_cache(maxsize=4)
def trained(data: TaskData, architecture: str, extra: ImageSet | None, members: int, epochs: int, seed: int) -> Fleet:
    """Classifiers as `train_classifiers` trains them, remembered."""
    images = training_images(opened(data))
    return train_classifiers(images, architecture, extra, members=members, epochs=epochs, seed=seed)


def train_classifiers(
    images: ImageSet,
    architecture: str,
    extra: ImageSet | None,
    *,
    members: int,
    epochs: int,
    seed: int,
    soft: bool = False,
) -> Fleet:
    """Classifiers of one architecture, trained on nominal images and on `extra` ones.

    Args:
        images: the nominal ones.
        architecture: a name of the zoo.
        extra: ambiguous ones, if any.
        members: how many classifiers.
        epochs: of each; 0 for the architecture's own number.
        seed: of everything random.
        soft: whether they learn the soft labels of `extra` instead of the hard ones that were drawn from these.
    """
    classes = len(images.class_names)
    whole = images if extra is None else joined(images, extra)
    labels: NDArray[Any] = whole.labels
    if soft:
        assert extra is not None and extra.soft_labels is not None  # generators give some
        labels = np.concatenate([np.eye(classes)[images.labels], extra.soft_labels])
    recipe = zoo.get(architecture).recipe
    return train_fleet(
        lambda member: zoo.make(architecture, num_classes=classes, seed=member),
        members,
        whole.materialise(),
        labels,
        epochs=epochs or recipe.epochs,
        batch_size=recipe.batch_size,
        lr=recipe.lr,
        seed=seed,
    )


def measure(model: nn.Module, nominal: ImageSet, ambiguous: ImageSet) -> dict[str, dict[str, float]]:
    """Accuracies and entropies of one classifier on nominal and on ambiguous images, by the names of the columns."""
    classifier = Classifier(model, batch_size=1000)
    seen = classifier.observe(ambiguous)
    assert ambiguous.soft_labels is not None  # generators give some
    pair = {}
    if ambiguity.has_pairs(ambiguous.soft_labels):
        pair = {"top-pair": ambiguity.top_pair_accuracy(seen.probabilities, ambiguous.soft_labels)}
    return {
        "nominal": _columns(classifier.observe(nominal), nominal),
        "ambiguous": _columns(seen, ambiguous) | pair,
    }


def _columns(seen: Observation, images: ImageSet) -> dict[str, float]:
    return {
        "top-1": ambiguity.top_k_accuracy(seen.probabilities, images.labels, 1),
        "top-2": ambiguity.top_k_accuracy(seen.probabilities, images.labels, 2),
        "entropy": ambiguity.mean_entropy(seen.probabilities),
    }


def _ambiguess(generation: Generation, **settings: Any) -> AmbiGuess:
    given = {key: generation[key] for key in ("acceptance", "folder") if key in generation}
    return AmbiGuess(
        pairs=_pairs(generation["pairs"]),
        autoencoders=generation["autoencoders"],
        epochs=generation["autoencoder_epochs"],
        **given,
        **settings,
    )


def _pairs(text: str) -> str | list[tuple[int, int]]:
    """Pairs of classes as a setting spells them: "all", "confused", or such as "3-8 4-9"."""
    if text in ("all", "confused"):
        return text
    return [(int(one), int(other)) for one, _, other in (pair.partition("-") for pair in text.split())]
