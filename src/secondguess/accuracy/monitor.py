"""What `secondguess estimate` learns before the first image of operation arrives, and what it says then.

Images whose labels are known go through the model once; the oracle and the estimators learn from them, and every
estimator is tried on shifts made of the validation images. All that is left for operation is to ask them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from secondguess.accuracy import (
    Estimate,
    Estimator,
    Trial,
    cross_check,
    standard_estimators,
)
from secondguess.accuracy.oracles.icos import Icos, InputRules
from secondguess.environment import versions
from secondguess.errors import UserError
from secondguess.images import ImageSet, load, load_images
from secondguess.metrics import wilson
from secondguess.model.classifier import Classifier
from secondguess.model.observation import Observation
from secondguess.progress import Progress
from secondguess.stress.ambiguous import PixelBlend

__all__ = ["AccuracyMonitor", "look", "make_monitor"]

BASELINES, RECOMMENDED = ("validation_accuracy", "average_confidence"), "rules_and_confidence"
HELD_OUT = 0.2  # of the training images, where there are no validation images
FEWEST = 10  # labelled validation images


@dataclass(frozen=True, eq=False)
class AccuracyMonitor:
    """All that has been learnt before the first image arrives.

    Attributes:
        classifier: the model in question.
        training: what rules were learnt from.
        validation: what estimators were calibrated on.
        oracle: fitted on both.
        estimators: fitted on the validation images, in the order of the table.
        trust: how each did under shifts made on purpose, by its name.
        notes: what the user should know, one sentence each.
        held_out: whether the validation images were taken from the training images.
        seed: of everything random.
    """

    classifier: Classifier
    training: Observation
    validation: Observation
    oracle: Icos
    estimators: list[Estimator]
    trust: dict[str, tuple[Trial, ...]]
    notes: tuple[str, ...]
    held_out: bool
    seed: int

    def report(self, operation: Observation) -> dict[str, Any]:
        """What is found on images, as JSON can hold it."""
        estimates = [one.estimate(operation).with_trust(self.trust[one.name]) for one in self.estimators]
        labels = operation.labels
        known = labels is not None and bool((labels >= 0).all())
        images = operation.require_images("A report")
        truth = wilson(int(operation.correct.sum()), len(operation)) if known else None
        return {
            "model": {"name": self.classifier.name, "fingerprint": self.classifier.fingerprint},
            "seed": self.seed,
            "versions": versions(),
            "training": _card(self.training),
            "validation": _card(self.validation) | {"held_out_of_training": self.held_out},
            "operation": _card(operation) | {"skipped": list(images.skipped)},
            "notes": [*self.notes, *self._coverage(operation), *images.notes],
            "estimates": [_described(one) for one in estimates],
            "truth": None if truth is None else {"value": truth.value, "low": truth.low, "high": truth.high},
            "oracle": {
                "name": self.oracle.name,
                "pixel_rules": len(self.oracle.pixel_rules),
                "contributions": [
                    {"kind": one.kind, "violations": one.violations, "credited": one.credited}
                    for one in self.oracle.contributions(operation)
                ],
            },
            "judged_wrong": list(_judged(self.oracle, operation)),
        }

    def _coverage(self, operation: Observation) -> list[str]:
        if self.oracle.rules is None:
            return []
        covered = self.oracle.rules.coverage(operation.require_images("The rules"))
        return [f"The rules say something about {covered:.1%} of the images."]


def make_monitor(
    classifier: Classifier,
    train: str,
    validation: str | None,
    rules: Path | None,
    limit: int,
    seed: int,
    loading: dict[str, Any],
    progress: Progress,
    *,
    folder: str | None = None,
) -> AccuracyMonitor:
    """Load what has labels, look at it, fit the oracle and the estimators, and try these.

    `folder` is where images of operation arrive as files, which rules by column cannot judge.
    """
    loaded = load(train, **loading)
    images = _labelled(replace(loaded.train or loaded.test, name=train), "--train")
    classifier.class_names = classifier.class_names or images.class_names
    known = None if rules is None else InputRules.load(rules, classifier.class_names)
    if known is not None and folder is not None:
        _refuse_columns(known, folder)
    learning, checking, notes = _halves(images, validation, limit, seed, loading)
    checking, more = _with_metadata(checking, known)
    trained, validated = (look(classifier, one, progress) for one in (learning, checking))
    with progress.task("Learning and trying estimators", 3) as advance:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always", UserWarning)
            oracle = Icos(known, seed=seed).fit(trained, validated)
        advance(1, 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # what there is to say was said of the whole validation set
            estimators = _fitted(oracle, trained, validated, seed)
            advance(2, 3)
            trust = cross_check(
                estimators,
                validated,
                training=trained,
                classifier=classifier,
                ambiguous=_ambiguous(learning, len(checking), seed),
                seed=seed,
            )
        advance(3, 3)
    notes += (*more, *(str(one.message) for one in heard))
    return AccuracyMonitor(classifier, trained, validated, oracle, estimators, trust, notes, validation is None, seed)


def _refuse_columns(rules: InputRules, folder: str) -> None:
    """Files in a folder have paths but no metadata: tell so before anything is learnt."""
    for one in rules.partitions:
        if one.column is not None:
            raise UserError(
                f"The partition {one.name!r} of the rules looks at the column {one.column!r}, but image files in the "
                f"folder {folder} have no columns; give it ids instead, patterns for their paths within the folder, "
                'as in ids = ["camera1/*"].'
            )


def _fitted(oracle: Icos, training: Observation, validation: Observation, seed: int) -> list[Estimator]:
    """All estimators, the oracle's mistakes measured on images that it was not fitted on."""
    return [one.fit(validation, training) for one in standard_estimators(oracle.rules, [oracle], seed=seed)]


def _halves(
    images: ImageSet, validation: str | None, limit: int, seed: int, loading: dict[str, Any]
) -> tuple[ImageSet, ImageSet, tuple[str, ...]]:
    """The images to learn rules from, those to calibrate on, and what the user should know about them."""
    notes: tuple[str, ...] = ()
    if validation is None:
        checking, learning = images.split(HELD_OUT, seed=seed)
        checking = replace(checking, name=f"{images.name}, held out")
        notes = (
            f"No --validation was given, so {len(checking):,} of the {len(images):,} training images were held out "
            "for it: if the model was trained on these too, every estimate flatters it.",
        )
    else:
        sides = {"size": images.shape[1:], "channels": images.shape[0]}
        learning, loaded = images, replace(load_images(validation, **loading | sides), name=validation)
        if loaded.content_fingerprint == images.content_fingerprint:
            raise UserError(
                f"--train {images.name} and --validation {validation} are the same images; a model that has seen the "
                "validation images looks better than it is."
            )
        checking = _labelled(loaded, "--validation")
    if len(checking) < FEWEST:
        raise UserError(f"There are {len(checking)} labelled validation images; at least {FEWEST} are needed.")
    if len(learning) > limit:
        notes += (f"Rules were learnt from {limit:,} of {len(learning):,} training images; --limit changes that.",)
        learning = learning.head(limit, seed=seed)
    return learning, checking, notes


def _labelled(images: ImageSet, option: str) -> ImageSet:
    if not images.is_labelled:
        raise UserError(f"The images of {option} {images.name} have no labels; labelled ones are needed to learn from.")
    return images if (images.labels >= 0).all() else images.take(images.labels >= 0)


def _with_metadata(images: ImageSet, rules: InputRules | None) -> tuple[ImageSet, tuple[str, ...]]:
    """Validation images with empty entries where rules look for what they lack: rules then say nothing about them."""
    if rules is None:
        return images, (f"Without --rules, {RECOMMENDED} is the average confidence.",)
    wanted = {one.column for one in rules.partitions if one.column}
    nothing = {name: np.full(len(images), "") for name in wanted - images.columns.keys()}
    told = replace(images, columns={**images.columns, **nothing}, ids=images.ids or ("",) * len(images))
    if rules.coverage(told) > 0:
        return told, ()
    return told, (
        "No validation image is in a partition of the rules, so they could not be tried: whether to trust "
        f"{RECOMMENDED} is told as if there were none.",
    )


def _ambiguous(training: ImageSet, count: int, seed: int) -> ImageSet | None:
    """Images between two classes to try estimators on, or None where there are no two classes."""
    try:
        return PixelBlend().generate(training, count, seed=seed).images
    except UserError:
        return None


def look(classifier: Classifier, images: ImageSet, progress: Progress) -> Observation:
    """Let the classifier look at images once."""
    with progress.task(f"Looking at {images.name}", len(images)) as advance:
        return classifier.observe(images, progress=advance)


def _card(seen: Observation) -> dict[str, Any]:
    images = seen.require_images("A report")
    return {"name": images.name, "images": len(images), "shape": list(images.shape), "fingerprint": images.fingerprint}


def _described(one: Estimate) -> dict[str, Any]:
    return one.to_json() | {"baseline": one.method in BASELINES, "recommended": one.method == RECOMMENDED}


def _judged(oracle: Icos, operation: Observation) -> Iterator[dict[str, Any]]:
    """The predictions judged wrong, in the order of the images."""
    verdicts, names, ids = oracle.judge(operation), operation.class_names, operation.require_images("A report").ids
    for row in np.flatnonzero(verdicts.judged_wrong):
        advice = int(verdicts.advice[row])
        yield {
            "image": ids[row] if ids else f"image {row}",
            "predicted": names[operation.predictions[row]],
            "confidence": float(operation.confidences[row]),
            "advice": names[advice] if advice >= 0 else None,
            "reason": str(verdicts.reasons[row]),
        }
