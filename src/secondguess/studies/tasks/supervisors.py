"""Which supervisor sees which kind of trouble? Table 2 of Weiss, Garcia Gomez and Tonella (2023).

A classifier is trained on nominal and ambiguous images; supervisors are fitted on the same images, and score nominal
test images and ambiguous, adversarial, corrupted and invalid ones. A run is a classifier of its own, with its own
ensemble, autoencoder and attacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any

from secondguess.classifier import Classifier
from secondguess.data import ImageSet
from secondguess.data.fitting import conform
from secondguess.engine import Source
from secondguess.metrics import auroc
from secondguess.observation import Needs
from secondguess.stress import Adversarial, Corrupted
from secondguess.studies.tasks.ambiguity import ambiguous_sets, trained
from secondguess.studies.tasks.opening import joined, opened, training_images
from secondguess.supervisors import Supervisor, make

__all__ = ["score_supervisors"]

MEMORY = 64 << 30  # traces of all layers that a Dissector looks at, for 80,000 images


def score_supervisors(
    *,
    data: Source,
    other: Source,
    name: str,
    mix: str,
    architecture: str,
    epochs: int,
    supervisors: Sequence[str],
    parameters: Mapping[str, Mapping[str, Any]],
    attacked: int,
    limit: int,
    generation: Mapping[str, Any],
    seed: int,
) -> dict[str, Any]:
    """One row for every supervisor: AUROC of nominal test images against each other set.

    Args:
        data: the nominal images.
        other: images that are invalid among them.
        name: what the table calls the data.
        mix: of corruptions, "mnist_c" or "fashion_mnist_c".
        architecture: a name of the zoo.
        epochs: of the classifier; 0 for the architecture's own number.
        supervisors: their names.
        parameters: of supervisors, where they differ from the defaults.
        attacked: how many images are attacked.
        limit: how many test images of each set are looked at; 0 for all.
        generation: of the ambiguous images, see `secondguess.studies.tasks.ambiguity`.
        seed: of the run.
    """
    extra, ambiguous = ambiguous_sets(data, "ambiguess", tuple(sorted(generation.items())), 0)
    training = joined(training_images(opened(data)), extra)
    model = trained(data, architecture, extra, 1, epochs, seed)[0]
    classifier = Classifier(model, class_names=training.class_names, batch_size=1000, memory_limit=MEMORY)
    sets = {key: images.head(limit) if limit else images for key, images in _fixed_sets(data, other, mix).items()}
    sets["ambiguous"] = ambiguous.head(limit) if limit else ambiguous
    attack = Adversarial(limit=attacked, chunk_size=1000)
    sets["adversarial"] = attack.make(opened(data).test, classifier=classifier, seed=seed)
    panel = [_configured(one, parameters, architecture, seed) for one in make(list(supervisors))]
    about = {"data": name, "architecture": architecture, "run": seed}
    return {"rows": [about | row for row in _scored(classifier, panel, training, sets)]}


@lru_cache(maxsize=2)
def _fixed_sets(data: Source, other: Source, mix: Any) -> dict[str, ImageSet]:
    """The sets that no classifier has a part in."""
    nominal = opened(data).test
    return {
        "nominal": nominal,
        "corrupted": Corrupted(mix=mix).make(nominal, seed=0),
        "invalid": conform(opened(other).test, nominal.shape),
    }


def _configured(
    supervisor: Supervisor, parameters: Mapping[str, Mapping[str, Any]], architecture: str, seed: int
) -> Supervisor:
    """A supervisor with the study's parameters, and with the run's seed and architecture where it has these."""
    known = supervisor.params()
    given = {key: value for key, value in (("seed", seed), ("architecture", architecture)) if key in known}
    return supervisor.clone(**given | dict(parameters.get(supervisor.name, {})))


def _scored(
    classifier: Classifier, panel: Sequence[Supervisor], training: ImageSet, sets: Mapping[str, ImageSet]
) -> list[dict[str, Any]]:
    fitting = [one.needs for one in panel if one.requires_fit]
    learnt = classifier.observe(training, reduce(Needs.__or__, fitting, Needs()))
    needs = reduce(Needs.__or__, (one.needs for one in panel), Needs())
    seen = {key: classifier.observe(images, needs) for key, images in sets.items()}
    rows = []
    for supervisor in panel:
        if supervisor.requires_fit:
            supervisor.fit(learnt, training.labels)
        scores = {key: supervisor.score(observation) for key, observation in seen.items()}
        nominal = scores.pop("nominal")
        rows.append({"supervisor": supervisor.name} | {key: auroc(nominal, one) for key, one in scores.items()})
    return rows
