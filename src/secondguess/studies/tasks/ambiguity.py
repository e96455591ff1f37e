"""How ambiguous are ambiguous images? Table 1 of Weiss, Garcia Gomez and Tonella (2023), and what its Table 2 needs.

Classifiers are trained on nominal images ("clean") or on these and ambiguous ones with hard labels ("mixed"), and look
at nominal and ambiguous test images. The ambiguous images come from AmbiGuess as published ("ambiguess"), from
AmbiGuess with our check of realism ("ambiguess, realistic"), or from mixtures in the latent space of a variational
autoencoder ("latent mixture"), the recipe of the paper's baseline.

What several tasks need (ambiguous images, trained classifiers) is made once a process and remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from secondguess import zoo
from secondguess.classifier import Classifier
from secondguess.data import Dataset, ImageSet
from secondguess.engine import Source
from secondguess.metrics import ambiguity
from secondguess.metrics.interval import Interval
from secondguess.observation import Observation
from secondguess.stress.ambiguous import AmbiGuess, LatentMixture
from secondguess.stress.ambiguous.pairs import choose_pairs
from secondguess.studies.tasks.opening import joined, opened, training_images
from secondguess.training import Fleet, train_fleet

__all__ = ["Generation", "ambiguous_sets", "measure_ambiguity", "trained"]

Training = Literal["clean", "mixed"]
Generation = Mapping[str, Any]
DELTA_TRAINING, DELTA_TEST = 0.4, 0.25


def measure_ambiguity(
    *,
    data: Source,
    name: str,
    generator: str,
    architecture: str,
    training: Training,
    members: int,
    epochs: int,
    generation: Generation,
    seed: int,
) -> dict[str, Any]:
    """One row for every classifier of one architecture that was trained in one way.

    Args:
        data: the nominal images.
        name: what the table calls them.
        generator: "ambiguess", "ambiguess, realistic" or "latent mixture".
        architecture: a name of the zoo.
        training: "clean" or "mixed".
        members: how many classifiers.
        epochs: of each; 0 for the architecture's own number.
        generation: see `ambiguous_sets`.
        seed: of everything random.
    """
    opened_data = opened(data)
    extra, test = ambiguous_sets(data, generator, _frozen(generation), seed)
    fleet = trained(data, architecture, extra if training == "mixed" else None, members, epochs, seed)
    about = {"data": name, "generator": generator, "architecture": architecture, "training": training}
    return {"rows": [about | {"member": k} | _measured(model, opened_data, test) for k, model in enumerate(fleet)]}


def ambiguous_sets(
    data: Source, generator: str, generation: tuple[tuple[str, Any], ...], seed: int
) -> tuple[ImageSet, ImageSet]:
    """Ambiguous images to train on and to test on.

    Args:
        data: the nominal images.
        generator: see `measure_ambiguity`.
        generation: `train` and `test` images; `pairs` and `autoencoders` of AmbiGuess, `autoencoder_epochs` of its
            training; `mixture_epochs` of the autoencoder of latent mixtures and `judge_epochs` of the networks that
            judge these; as sorted pairs.
        seed: of everything random.
    """
    of = dict(generation)
    if generator == "latent mixture":
        return _latent_mixtures(data, of["train"], of["test"], of["mixture_epochs"], of["judge_epochs"], seed)
    realism = {"ambiguess": False, "ambiguess, realistic": True}[generator]
    return _drawn(
        data, of["pairs"], of["autoencoders"], of["autoencoder_epochs"], of["train"], of["test"], realism, seed
    )


@lru_cache(maxsize=4)
def _drawn(
    data: Source, pairs: str, autoencoders: int, epochs: int, train: int, test: int, realism: bool, seed: int
) -> tuple[ImageSet, ImageSet]:
    images = training_images(opened(data))
    trained_autoencoders = _autoencoders(data, pairs, autoencoders, epochs, seed)

    def made(count: int, delta: float, offset: int) -> ImageSet:
        generator = AmbiGuess(pairs=_pairs(pairs), autoencoders=autoencoders, delta_max=delta, realism=realism)
        return generator.generate(images, count, seed=seed + offset, trained=trained_autoencoders).images

    return made(train, DELTA_TRAINING, 2), made(test, DELTA_TEST, 1)


@lru_cache(maxsize=2)
def _autoencoders(data: Source, pairs: str, autoencoders: int, epochs: int, seed: int) -> Any:
    images = training_images(opened(data))
    generator = AmbiGuess(pairs=_pairs(pairs), autoencoders=autoencoders, epochs=epochs)
    return generator.train(images, choose_pairs(images, _pairs(pairs), seed=seed), seed=seed)


@lru_cache(maxsize=2)
def _latent_mixtures(
    data: Source, train: int, test: int, epochs: int, judge_epochs: int, seed: int
) -> tuple[ImageSet, ImageSet]:
    images = training_images(opened(data))
    generator = LatentMixture(epochs=epochs, member_epochs=judge_epochs)
    made = generator.generate(images, train + test, seed=seed).images
    share = test / (train + test)
    held_out, rest = made.split(share, seed=seed, stratify=False)
    return rest, held_out


@lru_cache(maxsize=4)
def trained(data: Source, architecture: str, extra: ImageSet | None, members: int, epochs: int, seed: int) -> Fleet:
    """Classifiers of one architecture, trained on the nominal images and on `extra` ones."""
    images = training_images(opened(data))
    classes = len(images.class_names)
    whole = images if extra is None else joined(images, extra)
    recipe = zoo.describe(architecture).recipe
    return train_fleet(
        lambda member: zoo.make(architecture, num_classes=classes, seed=member),
        members,
        whole.materialise(),
        whole.labels,
        epochs=epochs or recipe.epochs,
        batch_size=recipe.batch_size,
        lr=recipe.lr,
        seed=seed,
    )


def _measured(model: Any, data: Dataset, test: ImageSet) -> dict[str, Any]:
    """Accuracies and entropies of one classifier, by the names of the table's columns."""
    classifier = Classifier(model, batch_size=1000)
    nominal, ambiguous = classifier.observe(data.test), classifier.observe(test)
    assert test.soft_labels is not None  # generators give some
    pair = ambiguity.top_pair_accuracy(ambiguous.probabilities, test.soft_labels)
    return {
        "nominal": _columns(nominal, data.test),
        "ambiguous": _columns(ambiguous, test) | ({"top-pair": pair.value} if isinstance(pair, Interval) else {}),
    }


def _columns(seen: Observation, images: ImageSet) -> dict[str, float]:
    return {
        "top-1": ambiguity.top_k_accuracy(seen.probabilities, images.labels, 1).value,
        "top-2": ambiguity.top_k_accuracy(seen.probabilities, images.labels, 2).value,
        "entropy": ambiguity.mean_entropy(seen.probabilities),
    }


def _frozen(generation: Generation) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(generation.items()))


def _pairs(text: str) -> str | list[tuple[int, int]]:
    """Pairs of classes as a setting spells them: "all", "confused", or such as "3-8 4-9"."""
    if text in ("all", "confused"):
        return text
    return [(int(one), int(other)) for one, _, other in (pair.partition("-") for pair in text.split())]
