"""How accurate is a classifier on a mixture of nominal images and troubled ones? Every detector with every estimator.

A classifier is trained on nominal and ambiguous images. Its nominal test images are shared out: some teach the panel of
a guard, some validate, the others are operation. A window of operation has w images, round(share w) of one kind of
trouble and nominal ones else, drawn without replacement. What an estimator says of it is held against the truth:

* nominal, corrupted and attacked images: the prediction is right if it is the label of the image as it was;
* ambiguous images: if it is the label that was drawn from the soft label, as somebody who had to decide would have
  answered, and as the other tables of estimates have it;
* invalid images have no class: whatever is said of them is wrong.

A detector is a supervisor or the panel: one score an image. Three estimators take such a score: `thresholded` and
`calibrated` (see `score_estimators`), and `corrected`: alarms are scores above what 5% of the nominal validation images
exceed; their share is corrected for the rates of alarms among right and wrong predictions there (Rogan and Gladen, see
`secondguess.accuracy.passes`). The other estimators take the probabilities alone. All are fitted on nominal validation
images; those that take a score also on such images with rehearsed trouble among them.

What is rehearsed, one half for the panel to learn from and one for validation, is of other sorts than what comes in
operation: every other pair of classes, every other corruption, two attacks and generated invalid images, against the
pairs and corruptions between, two other attacks and another data set.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy import Estimator, OraclePasses, RulesAndConfidence, ThresholdedConfidence, standard_estimators
from secondguess.engine import TaskData
from secondguess.guard.panel import Panel, fit_panel
from secondguess.guard.recommended import recommended
from secondguess.guard.stress_split import (
    HELD_OUT_ATTACKS,
    LEARNT_ATTACKS,
    held_out_corruptions,
    invalid_images,
    learnt_corruptions,
)
from secondguess.guard.thresholds import Threshold
from secondguess.guard.verdicts import OF_STRESS
from secondguess.images import ImageSet
from secondguess.images.fitting import conform
from secondguess.model.classifier import Classifier
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.stress import Adversarial, Corrupted
from secondguess.stress.corruptions import FASHION_MNIST_C, MNIST_C
from secondguess.supervisors import Supervisor, SupervisorSet, make_all
from secondguess_lab.studies.tasks.ambiguity import ambiguous_sets, trained
from secondguess_lab.studies.tasks.mixture_windows import Combination, Look, try_all, windows_of
from secondguess_lab.studies.tasks.opening import joined, opened, training_images
from secondguess_lab.studies.tasks.score_estimators import Alarm, CalibratedScore, Remembered, ThresholdedScore
from secondguess_lab.studies.tasks.supervisors import MEMORY, configured

__all__ = ["estimate_mixtures"]

ANOMALIES = tuple(OF_STRESS)
MIXES = {"mnist_c": MNIST_C, "fashion_mnist_c": FASHION_MNIST_C}
RATE = 0.05  # of false alarms, for the estimator that counts alarms
LARGEST = 1e30  # what an infinite score counts as
PANEL, NOBODY, REFEREES = "panel", "(probabilities)", "(other classifiers)"


def estimate_mixtures(
    *,
    data: TaskData,
    other: TaskData,
    kept: Sequence[TaskData],
    generator: str,
    name: str,
    mix: str,
    architecture: str,
    epochs: int,
    models: int,
    supervisors: Sequence[str],
    parameters: Mapping[str, Mapping[str, Any]],
    sizes: Mapping[str, int],
    rehearsed: float,
    shares: Sequence[float],
    windows: int,
    intervals: int,
    resamples: int,
    generation: Mapping[str, Any],
    seed: int,
) -> dict[str, Any]:
    """The errors of every combination on windows of operation of one classifier.

    Args:
        data: the nominal images.
        other: images that are invalid among them.
        kept: ambiguous images to train on and to test on, if they were made before; else none.
        generator: that makes them else.
        name: what the table calls the data.
        mix: whose corruptions are in operation, "mnist_c" or "fashion_mnist_c".
        architecture: a name of the zoo.
        epochs: of the classifiers; 0 for the architecture's own number.
        models: how many classifiers are trained together; one is in question, agreement is with the others.
        supervisors: their names; those of the panel are detectors of their own, too.
        parameters: of supervisors, where they differ from the defaults.
        sizes: `fitted` training images of the supervisors, `learnt` and `validation` nominal test images, `attacked`
            images, images in a `window`, images that are `timed`.
        rehearsed: the share of trouble in the validation images that have some.
        shares: of trouble in a window.
        windows: of every kind of anomaly and share.
        intervals: for how many of these windows an interval is made.
        resamples: of each interval.
        generation: of the ambiguous images, see `secondguess_lab.studies.tasks.ambiguity`.
        seed: of the run, and the number of the classifier in question.

    Returns:
        `combinations`: validation, estimator and detector of each of c; `cells`: trouble and share of each of s;
        arrays (c, s) over these: `error` the mean absolute one, `bias` the mean of estimate less truth, `covered` the
        share of intervals that hold the truth; `truth` (s,) the mean accuracy; `milliseconds` (c,) an image.
    """
    extra, ambiguous = ambiguous_sets(data, generator, generation, 0, kept)
    training = joined(training_images(opened(data)), extra)
    fleet = list(trained(data, architecture, extra, models, epochs, 0))
    classifiers = [
        Classifier(model, class_names=training.class_names, batch_size=1000, memory_limit=MEMORY)
        for model in (fleet[seed], *fleet[:seed], *fleet[seed + 1 :])
    ]
    sets = _sets(classifiers[0], data, other, ambiguous, mix, sizes, seed)
    pool = {key: sets[key] for key in ("nominal", *ANOMALIES)}
    drawn = list(windows_of({key: len(one) for key, one in pool.items()}, sizes["window"], shares, windows, seed))
    some = training.head(sizes["fitted"], seed=seed)
    jury, detectors = _detectors(classifiers[0], some, supervisors, parameters, architecture, seed)
    looks = {key: _looked(classifiers, images, jury, detectors) for key, images in sets.items()}
    panel = _add_panel(looks, jury, seed)
    costs = _costs(classifiers, sets["nominal"], jury, panel, detectors, sizes["timed"])
    fitted = _fitted(looks, costs, rehearsed, models - 1)
    found = try_all(fitted, [looks[key] for key in pool], drawn, intervals, resamples)
    about = {"data": name, "run": seed, "combinations": [list(one.names) for one in fitted]}
    return about | found | {"milliseconds": np.array([one.milliseconds for one in fitted])}


def _sets(
    classifier: Classifier,
    data: TaskData,
    other: TaskData,
    ambiguous: ImageSet,
    mix: str,
    sizes: Mapping[str, int],
    seed: int,
) -> dict[str, ImageSet]:
    """All images to look at: `learn`, `validate` and `nominal`, the trouble of each kind, and what is `rehearsed`."""
    test = opened(data).test
    order = np.random.default_rng([seed, 7]).permutation(len(test))
    parts = np.split(order, np.cumsum([sizes["learnt"], sizes["validation"]]))
    learn, validate, nominal = (test.take(part) for part in parts)
    first, second = _by_pairs(ambiguous)

    def attacked(attacks: Sequence[str], images: ImageSet, offset: int) -> ImageSet:
        attack = Adversarial(attacks, limit=sizes["attacked"], chunk_size=1000)
        made = attack.make(images, classifier=classifier, seed=seed + offset)
        return made.take(np.flatnonzero(made.columns["success"] & (made.columns["epsilon"] > 0)))

    between = [one for one in MIXES[mix] if one in held_out_corruptions()]
    return {
        "learn": learn,
        "validate": validate,
        "nominal": nominal,
        "ambiguous": second.head(len(nominal)),
        "corrupted": Corrupted(between).make(nominal, seed=seed + 100),
        "adversarial": attacked(HELD_OUT_ATTACKS, nominal, 100),
        "invalid": _classless(conform(opened(other).test.head(len(nominal)), nominal.shape)),
        "rehearsed ambiguous": first.head(len(learn)),
        "rehearsed corrupted": Corrupted(learnt_corruptions()).make(learn, seed=seed),
        "rehearsed adversarial": attacked(LEARNT_ATTACKS, learn, 0),
        "rehearsed invalid": invalid_images(learn, seed=seed),
    }


def _classless(images: ImageSet) -> ImageSet:
    """Images whose own classes are none of the classifier's: no prediction is right."""
    return replace(images, labels=np.full(len(images), -1))


def _by_pairs(ambiguous: ImageSet) -> tuple[ImageSet, ImageSet]:
    """Images between every other pair of classes, and between the others; of a single pair every other image."""
    assert ambiguous.soft_labels is not None  # generators give some
    classes = np.sort(np.argsort(ambiguous.soft_labels, axis=1)[:, -2:], axis=1)
    found, place = np.unique(classes @ [ambiguous.num_classes, 1], return_inverse=True)
    turn = place % 2 if len(found) > 1 else np.arange(len(ambiguous)) % 2
    return ambiguous.take(np.flatnonzero(turn == 0)), ambiguous.take(np.flatnonzero(turn == 1))


def _detectors(
    classifier: Classifier,
    training: ImageSet,
    names: Sequence[str],
    parameters: Mapping[str, Mapping[str, Any]],
    architecture: str,
    seed: int,
) -> tuple[SupervisorSet, dict[str, Supervisor]]:
    """The fitted supervisors of the panel, and all supervisors by name, those of the panel among them."""

    def ready(supervisors: Sequence[Supervisor]) -> list[Supervisor]:
        return [configured(one, parameters, architecture, seed) for one in supervisors]

    jury = SupervisorSet(ready(recommended(classifier)))
    alone = ready([one for one in make_all(list(names)) if one.name not in jury.labels])
    fitting = [one.needs for one in (*jury.supervisors, *alone) if one.requires_fit]
    learnt = classifier.observe(training, Needs.union(fitting))
    jury = jury.fit(learnt, training.labels)
    for one in alone:
        if one.requires_fit:
            one.fit(learnt, training.labels)
    return jury, dict(zip(jury.labels, jury.supervisors, strict=True)) | {one.name: one for one in alone}


def _looked(
    models: Sequence[Classifier], images: ImageSet, jury: SupervisorSet, detectors: Mapping[str, Supervisor]
) -> Look:
    """What all detectors and the other classifiers say."""
    needs = Needs.union([Needs(logits=True), *detectors.values()])
    seen = models[0].observe(images, needs)
    panel = jury.score(seen)
    scores = dict(zip(jury.labels, panel.T, strict=True))
    scores |= {name: one.score(seen) for name, one in detectors.items() if name not in scores}
    columns: dict[str, NDArray[Any]] = {name: np.clip(one, -LARGEST, LARGEST) for name, one in scores.items()}
    columns |= {f"other {k}": one.observe(images).predictions for k, one in enumerate(models[1:], start=1)}
    return Look(Observation(seen.probabilities, seen.logits), columns, panel, images.labels)


def _add_panel(looks: Mapping[str, Look], jury: SupervisorSet, seed: int) -> Panel:
    """Teach a panel with every other rehearsed image, and let it judge all of them."""
    anomalies = {OF_STRESS[kind]: looks[f"rehearsed {kind}"].jury[0::2] for kind in ANOMALIES}
    panel = fit_panel(looks["learn"].jury, anomalies, seed=seed)
    for look in looks.values():
        look.columns[PANEL] = panel.combine(look.jury)[0]
    return panel


def _costs(
    models: Sequence[Classifier],
    images: ImageSet,
    jury: SupervisorSet,
    panel: Panel,
    detectors: Mapping[str, Supervisor],
    timed: int,
) -> dict[str, float]:
    """Milliseconds an image, the classifier's own pass included, for images that come many at a time."""
    first = models[0]
    ways: dict[str, Callable[[ImageSet], object]] = {
        NOBODY: lambda some: first.observe(some, Needs(logits=True)),
        REFEREES: lambda some: [one.observe(some) for one in models],
        PANEL: lambda some: panel.combine(jury.score(first.observe(some, jury.needs))),
    }
    for name, one in detectors.items():
        ways[name] = lambda some, one=one: one.score(first.observe(some, one.needs))  # type: ignore[misc]
    costs: dict[str, float] = {}
    for number, (name, way) in enumerate(ways.items()):
        seconds = []
        for repeat in range(2):  # the first is for whoever starts slowly
            # Never the same images twice: an ensemble remembers what it has seen.
            some = images.take(np.roll(np.arange(len(images)), -2 * number - repeat)[:timed])
            began = time.perf_counter()
            way(some)
            seconds.append(time.perf_counter() - began)
        costs[name] = 1e3 * min(seconds) / len(some)
    return costs


def _fitted(looks: Mapping[str, Look], costs: Mapping[str, float], rehearsed: float, others: int) -> list[Combination]:
    """Every estimator with every detector, fitted on validation images without and with trouble."""
    nominal = looks["validate"]
    made = [
        Combination(("nominal", one.name, asked), one, costs[asked])
        for one in standard_estimators(others=[cast(Classifier, Remembered(f"other {k + 1}")) for k in range(others)])
        # Without rules the one is the average confidence; the other is `thresholded` with two of the supervisors.
        if not isinstance(one, RulesAndConfidence | ThresholdedConfidence)
        for asked in [REFEREES if one.other_models else NOBODY]
    ]
    validations = {"nominal": nominal, "rehearsed": _with_trouble(looks, rehearsed)}
    for name in costs.keys() - {NOBODY, REFEREES}:
        limit = Threshold.at(nominal.columns[name], RATE).value
        for validation in validations:
            by_name: dict[str, Estimator] = {
                "thresholded": ThresholdedScore(name),
                "corrected": OraclePasses(Alarm(name, limit), corrected=True),
                "calibrated": CalibratedScore(name),
            }
            made += [Combination((validation, key, name), one, costs[name]) for key, one in by_name.items()]
    known = {key: look.observation() for key, look in validations.items()}
    for combination in made:
        combination.estimator.fit(known[combination.names[0]])
    return sorted(made, key=lambda one: one.names)


def _with_trouble(looks: Mapping[str, Look], share: float) -> Look:
    """Validation images and, as a share of all, equally many of each kind of anomaly that the panel did not learn from.

    Where no class is right, the label is one that was not predicted: estimators of scores ask for no more.
    """
    nominal = looks["validate"]
    count = round(len(nominal.labels) * share / (1 - share) / len(ANOMALIES))
    whole = Look.joined([nominal, *(looks[f"rehearsed {kind}"].take(slice(1, 2 * count, 2)) for kind in ANOMALIES)])
    wrong = (whole.seen.predictions + 1) % whole.seen.num_classes
    return replace(whole, labels=np.where(whole.labels < 0, wrong, whole.labels))
