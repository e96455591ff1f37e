"""Which supervisor sees which kind of trouble? Table 2 of Weiss, Garcia Gomez and Tonella (2023).

A classifier is trained on nominal and ambiguous images; supervisors are fitted on the same images, and score nominal
test images and ambiguous, adversarial, corrupted and invalid ones. A run is a classifier of its own, with its own
ensemble, autoencoder and attacks.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn

from secondguess.engine import TaskData
from secondguess.images import ImageSet
from secondguess.images.fitting import conform
from secondguess.metrics import auroc
from secondguess.model.classifier import Classifier
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.stress import Adversarial, Corrupted
from secondguess.stress.corrupted import Mix
from secondguess.supervisors import Supervisor, make_all
from secondguess_lab.studies.tasks.ambiguity import ambiguous_sets, trained
from secondguess_lab.studies.tasks.opening import joined, opened, training_images

__all__ = ["Scored", "configured", "fixed_sets", "score_each", "score_run", "score_supervisors"]

MEMORY = 64 << 30  # traces of all layers that a Dissector looks at, for 80,000 images


def score_supervisors(
    *,
    data: TaskData,
    other: TaskData,
    kept: Sequence[TaskData],
    name: str,
    mix: Mix,
    architecture: str,
    epochs: int,
    supervisors: Sequence[str],
    parameters: Mapping[str, Mapping[str, Any]],
    attacked: int,
    limit: int,
    generation: Mapping[str, Any],
    seed: int,
    attacks_see: str = "logits",
) -> dict[str, Any]:
    """One row for every supervisor: AUROC of nominal test images against each other set.

    Args:
        data: the nominal images.
        other: images that are invalid among them.
        kept: ambiguous images to train on and to test on, if they were made before; else none.
        name: what the table calls the data.
        mix: of corruptions, "mnist_c" or "fashion_mnist_c".
        architecture: a name of the zoo.
        epochs: of the classifier; 0 for the architecture's own number.
        supervisors: their names.
        parameters: of supervisors, where they differ from the defaults.
        attacked: how many images are attacked.
        limit: how many test images of each set are looked at; 0 for all.
        generation: of the ambiguous images, see `secondguess_lab.studies.tasks.ambiguity`.
        seed: of the run.
        attacks_see: "logits", or "softmax" in their place, as in the paper's code.
    """
    extra, ambiguous = ambiguous_sets(data, "ambiguess", generation, 0, kept)
    training = joined(training_images(opened(data)), extra)
    model = trained(data, architecture, extra, 1, epochs, seed)[0]
    sets = {"ambiguous": ambiguous} | _fixed_sets(data, other, mix)
    if limit:
        sets = {key: images.head(limit) for key, images in sets.items()}
    panel = [configured(one, parameters, architecture, seed) for one in make_all(list(supervisors))]
    about = {"data": name, "architecture": architecture, "run": seed}
    attack = Adversarial(limit=attacked, chunk_size=1000, legacy=attacks_see == "softmax")
    found = score_run(model, panel, training, sets, attack, seed=seed)
    return {"rows": [about | {"supervisor": one.supervisor.name} | one.aurocs for one in found]}


class Scored(NamedTuple):
    """What one supervisor achieved.

    Attributes:
        supervisor: fitted.
        aurocs: of nominal images against each other set.
        fit_seconds: for fitting; about 0 where it was fitted before or needs none.
        score_seconds: for scoring all sets.
    """

    supervisor: Supervisor
    aurocs: dict[str, float]
    fit_seconds: float
    score_seconds: float


def score_run(
    model: nn.Module,
    panel: Sequence[Supervisor],
    training: ImageSet,
    sets: Mapping[str, ImageSet],
    attack: Adversarial,
    *,
    seed: int,
) -> Iterator[Scored]:
    """Every supervisor of a panel on one classifier, one after the other.

    Args:
        model: the classifier.
        panel: who is already fitted stays so, the others are fitted.
        training: images that the classifier was trained on, for fitting.
        sets: images by name, `nominal` among them; adversarial ones are made of these and added.
        attack: of the nominal images.
        seed: of the attack.
    """
    classifier = Classifier(model, class_names=training.class_names, batch_size=1000, memory_limit=MEMORY)
    sets = dict(sets) | {"adversarial": attack.make(sets["nominal"], classifier=classifier, seed=seed)}
    learnt = classifier.observe(training, _needs(one for one in panel if one.requires_fit))
    seen = {key: classifier.observe(images, _needs(panel)) for key, images in sets.items()}
    return score_each(panel, learnt, seen, training.labels)


def score_each(
    panel: Iterable[Supervisor],
    learnt: Observation,
    seen: Mapping[str, Observation],
    labels: NDArray[np.int64] | None = None,
) -> Iterator[Scored]:
    """Fit supervisors and score observations with them, one supervisor after the other.

    Args:
        panel: who is already fitted stays so.
        learnt: of n images, for fitting.
        seen: what is scored, by name, `nominal` among it.
        labels: (n,) of the images for fitting.
    """
    for supervisor in panel:
        began = time.perf_counter()
        if supervisor.requires_fit and not supervisor.is_fitted:
            supervisor.fit(learnt, labels)
        fitted = time.perf_counter()
        scores = {key: supervisor.score(observation) for key, observation in seen.items()}
        ended = time.perf_counter()
        nominal = scores.pop("nominal")
        aurocs = {key: auroc(nominal, values) for key, values in scores.items()}
        yield Scored(supervisor, aurocs, fitted - began, ended - fitted)


def fixed_sets(nominal: ImageSet, other: ImageSet, mix: Mix) -> dict[str, ImageSet]:
    """The sets that neither a classifier nor a generator has a part in: nominal, corrupted and invalid images.

    Args:
        nominal: test images.
        other: images that are invalid among them.
        mix: of corruptions.
    """
    return {
        "nominal": nominal,
        "corrupted": Corrupted(mix=mix).make(nominal, seed=0),
        "invalid": conform(other, nominal.shape),
    }


@lru_cache(maxsize=2)
def _fixed_sets(data: TaskData, other: TaskData, mix: Mix) -> dict[str, ImageSet]:
    return fixed_sets(opened(data).test, opened(other).test, mix)


def configured(
    supervisor: Supervisor, parameters: Mapping[str, Mapping[str, Any]], architecture: str, seed: int
) -> Supervisor:
    """An unfitted supervisor with a study's parameters, and with a seed and an architecture where it has these.

    Args:
        supervisor: to start from.
        parameters: by the names of supervisors.
        architecture: a name of the zoo, for its networks.
        seed: of everything random.
    """
    known = supervisor.params()
    given = {key: value for key, value in (("seed", seed), ("architecture", architecture)) if key in known}
    return supervisor.clone(**given | dict(parameters.get(supervisor.name, {})))


def _needs(panel: Iterable[Supervisor]) -> Needs:
    return Needs.union(panel)
