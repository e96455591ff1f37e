"""How a guard is fitted: which images are used for what, and in which order.

    train         the supervisors (and the autoencoders behind ambiguous images)
    calibration   one half: the panel, with stress sets made of these images
                  other half: the threshold, and nothing else; then the report, with stress sets of other sorts

The promise of a false-alarm rate holds because no image of the second half is used for anything before.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.guard.actions import Actions
from secondguess.guard.cascade import Cascade, fit_cascade
from secondguess.guard.panel import Panel, fit_panel
from secondguess.guard.pipeline import DecisionPipeline, Settings
from secondguess.guard.report import GuardReport, Seen, summarise
from secondguess.guard.stress_split import StressSplit
from secondguess.guard.thresholds import Calibration, Threshold, smallest_sample
from secondguess.guard.verdicts import OF_STRESS, decide
from secondguess.progress import Progress, Titled
from secondguess.supervisors import SupervisorSet

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier

__all__ = ["Parts", "calibrate", "fit_pipeline", "split_images"]

Floats = NDArray[np.float64]
SORTS = {"corrupted": "corruption", "adversarial": "attack", "invalid": "source"}


@dataclass(frozen=True)
class Parts:
    """Which images are used for what.

    Attributes:
        train: the supervisors.
        learn: the panel.
        calibrate: the threshold.
        notes: remarks on the split.
    """

    train: ImageSet
    learn: ImageSet
    calibrate: ImageSet
    notes: tuple[str, ...] = ()


def split_images(train: ImageSet, calibration: ImageSet | None, *, seed: int, most: int | None) -> Parts:
    """Split the images; without calibration images, a third of the training images is used instead.

    Args:
        train: what the classifier was trained on.
        calibration: nominal images that it was not trained on.
        seed: of the shares.
        most: the most training images that supervisors are fitted on.
    """
    notes: tuple[str, ...] = ()
    if calibration is None:
        notes = (
            "The threshold was calibrated on images split off from the training images; if the classifier was trained "
            "on these too, it is surer of them than of new ones and there will be more false alarms than promised.",
        )
        warnings.warn(f"{notes[0]} Give images that it has not seen as validation.", stacklevel=3)
        train, calibration = train.split(2 / 3, seed=seed, stratify=False)
    if train.shape != calibration.shape:
        raise UserError(
            f"The training images have the shape {train.shape}, but the calibration images {calibration.shape}; give "
            "both as the classifier takes them."
        )
    if len(calibration) < 4:
        raise UserError(f"{len(calibration)} calibration images were given; a guard needs hundreds of nominal images.")
    learn, calibrate = calibration.split(0.5, seed=seed, stratify=False)
    if most is not None and len(train) > most:
        train = train.head(most, seed=seed)
    return Parts(train, learn, calibrate, notes)


def fit_pipeline(
    classifier: Classifier,
    supervisors: SupervisorSet,
    parts: Parts,
    stress: StressSplit | None,
    settings: Settings,
    actions: Actions,
    *,
    seed: int,
    progress: Progress,
) -> tuple[DecisionPipeline, GuardReport]:
    """Fit the supervisors on training images, the panel on nominal images and stress sets, then the threshold.

    Returns:
        The pipeline, and its report, from stress sets that were not used for fitting.
    """
    fitted, panel, cascade = _learn(classifier, supervisors, parts, stress, settings, seed, progress)
    observed = classifier.observe(parts.calibrate, fitted.needs)
    scores = fitted.score(observed)
    statistics, _ = _combined(panel, cascade, scores)
    pipeline = DecisionPipeline(
        labels=fitted.labels,
        class_names=observed.class_names,
        panel=panel,
        calibration=calibrate(statistics, observed.predictions, settings),
        cascade=cascade,
        false_alarms=settings.false_alarms,
        min_probability=settings.min_probability,
        actions=actions,
        supervisors=fitted,
    )
    return pipeline, _report(classifier, pipeline, scores, stress, parts.notes)


def calibrate(statistics: Floats, classes: NDArray[np.int64], settings: Settings) -> Calibration:
    """The calibration of statistics (n,) of nominal images with these predicted classes (n,)."""
    return Calibration.of(
        statistics, classes if settings.per_class else None, minimum=smallest_sample(settings.false_alarms)
    )


def _learn(
    classifier: Classifier,
    supervisors: SupervisorSet,
    parts: Parts,
    stress: StressSplit | None,
    settings: Settings,
    seed: int,
    progress: Progress,
) -> tuple[SupervisorSet, Panel, Cascade | None]:
    needs = supervisors.needs
    seen = classifier.observe(parts.train, needs, progress=Titled(progress, "Observing the training images"))
    fitted = supervisors.fit(seen, parts.train.labels if parts.train.is_labelled else None)
    nominal = classifier.observe(parts.learn, needs)
    scores = fitted.score(nominal)
    anomalies = {
        OF_STRESS[kind]: fitted.score(classifier.observe(images, needs))
        for kind, images in ({} if stress is None else stress.learn).items()
    }
    panel = fit_panel(scores, anomalies, rule=settings.rule, seed=seed)
    if settings.latency_ms is None:
        return fitted, panel, None
    costs = fitted.costs(nominal)
    return (
        fitted,
        panel,
        fit_cascade(scores, anomalies, costs, settings.latency_ms, rule=settings.rule, seed=seed),
    )


def _combined(panel: Panel, cascade: Cascade | None, scores: Floats) -> tuple[Floats, Floats]:
    """Statistics (n,) and probabilities of anomalies (n, t), from scores (n, m) that are all known."""
    return panel.combine(scores) if cascade is None else cascade.combine_scores(panel, scores)[1:]


def _report(
    classifier: Classifier,
    pipeline: DecisionPipeline,
    nominal: Floats,
    stress: StressSplit | None,
    notes: tuple[str, ...],
) -> GuardReport:
    """Evaluate a pipeline on the stress sets that were not used for fitting.

    Args:
        classifier: the system under test.
        pipeline: judges.
        nominal: (n, m) scores of the calibration images.
        stress: with the stress sets.
        notes: for the report.
    """
    panel, cascade, rate = pipeline.panel, pipeline.cascade, pipeline.false_alarms
    statistics, _ = _combined(panel, cascade, nominal)
    everybody = None if cascade is None else Threshold.at(panel.combine(nominal)[0], rate)
    seen: dict[str, Seen] = {}
    for kind, images in ({} if stress is None else stress.test).items():
        observation = classifier.observe(images, pipeline.supervisors.needs)
        scores = pipeline.supervisors.score(observation)
        found, chances = _combined(panel, cascade, scores)
        alarms = pipeline.calibration.p_values(found, observation.predictions) <= rate
        codes = decide(alarms, chances, panel.anomalies, pipeline.min_probability)
        whole = None if everybody is None else everybody.alarms(panel.combine(scores)[0])
        seen[kind] = summarise(kind, statistics, found, codes, _sorts(kind, images.columns), whole)
    grey = None
    if cascade is not None:
        first, _ = cascade.first.combine(nominal[:, cascade.cheap])
        grey = float((first > cascade.limit).mean())
    extra = () if stress is None else stress.notes
    return GuardReport(rate, pipeline.calibration.realised(rate), len(nominal), seen, grey, (*notes, *extra))


def _sorts(kind: str, columns: Mapping[str, NDArray[Any]]) -> NDArray[Any] | None:
    return columns.get(SORTS.get(kind, ""))
