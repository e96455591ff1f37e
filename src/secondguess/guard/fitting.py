"""How a guard is fitted: which images are used for what, and in which order.

    train         the supervisors (and the autoencoders behind ambiguous images)
    calibration   one half: the panel, with stress sets made of these images
                  other half: the threshold, and nothing else; then the report, with stress sets of other sorts

The promises of a false-alarm rate and of a risk hold because no image of the second half is used for anything before.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.guard.actions import Actions
from secondguess.guard.calibrating import calibrate, check_enough, check_labels, check_right
from secondguess.guard.cascade import Cascade, among, fit_cascade
from secondguess.guard.consistency import changes_that_keep, consistency
from secondguess.guard.naming import Examined, Naming, learn_names, looks_of
from secondguess.guard.panel import Panel, fit_panel
from secondguess.guard.pipeline import DecisionPipeline, Settings
from secondguess.guard.protect import Answers, Stressed, examples
from secondguess.guard.report import GuardReport, Seen, summarise
from secondguess.guard.risk import RiskControl
from secondguess.guard.stress_split import StressSplit
from secondguess.guard.unfinished import Unfinished
from secondguess.images.sources import ArraySource
from secondguess.metrics import MISTAKES, wilson
from secondguess.model.degenerate import find_degenerate
from secondguess.planning import OutOfTime, Plan
from secondguess.progress import Progress, Titled
from secondguess.supervisors import Supervisor, SupervisorSet

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier
    from secondguess.model.observation import Observation

__all__ = ["Parts", "fit_pipeline", "split_images"]

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

    def fewer(self, nominal: int | None, *, seed: int) -> Parts:
        """With so many nominal images, half of them for each use; None for all."""
        if nominal is None:
            return self
        learn = self.learn.head(nominal // 2, seed=seed)
        return replace(self, learn=learn, calibrate=self.calibrate.head(nominal - nominal // 2, seed=seed))


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
    stress: StressSplit | Callable[[], StressSplit] | None,
    settings: Settings,
    actions: Actions,
    *,
    seed: int,
    progress: Progress,
    plan: Plan | None = None,
    unfinished: Unfinished | None = None,
) -> tuple[DecisionPipeline, GuardReport]:
    """Fit the supervisors on training images, the panel on nominal images and stress sets, then the threshold.

    Returns:
        The pipeline, and its report, from stress sets that were not used for fitting.
    """
    work = _Work(unfinished.observing(classifier) if unfinished else classifier, progress, plan or Plan([]))
    left_out: list[str] = []
    fitted = _fitted(work, supervisors, parts.train, seed, unfinished or Unfinished(None, None), left_out)
    with work.plan.doing("nominal"):
        observed = work.observe(parts.calibrate, fitted, "calibration images")
        nominal = work.observe(parts.learn, fitted, "nominal images")
        named = stress is not None and settings.rule == "learnt"
        kept = changes_that_keep(parts.learn.images, nominal.probabilities, work.ask) if named else {}
    for seen, check in ((nominal, check_right), (observed, check_enough)):
        known = Answers.of_observation(seen)  # looked at before stress sets are made for minutes
        check_labels(known, settings)
        check(known, settings)
    split = stress() if callable(stress) else stress  # after what every guard needs: then it is known what time is left
    learnt = _learn(work, fitted, nominal, parts.learn, kept, split, settings, seed)
    panel, cascade = learnt.panel, learnt.cascade
    scores, answers = fitted.score(observed), Answers.of_observation(observed)
    statistics, _ = _combined(panel, cascade, scores)
    control = learnt.control(settings, cascade)
    found = calibrate(statistics, observed.predictions, answers, settings, control)
    pipeline = DecisionPipeline(
        labels=fitted.labels,
        class_names=observed.class_names,
        panel=panel,
        calibration=found.calibration,
        cascade=cascade,
        false_alarms=settings.false_alarms,
        limit=found.limit,
        min_probability=settings.min_probability,
        actions=actions,
        naming=learnt.naming,
        supervisors=fitted,
        control=control,
    )
    notes = (*parts.notes, *left_out)
    if settings.protect == "both" and not answers.known.any():
        notes += ("The validation images have no labels, so nothing is known of the model's own mistakes.",)
    everybody = None
    if cascade is not None:  # what the same promise would bring if all supervisors were always asked
        alone = learnt.control(settings, None)
        whole = calibrate(panel.combine(scores)[0], observed.predictions, answers, settings, alone)
        everybody = replace(pipeline, cascade=None, calibration=whole.calibration, limit=whole.limit)
    calibrated = parts.calibrate, scores, answers, observed.probabilities
    report = _report(work, pipeline, everybody, calibrated, split, notes)
    degenerate = find_degenerate(observed.probabilities, observed.labels)
    softmax = degenerate.text if degenerate else ""
    return pipeline, replace(report, softmax=softmax, **found.report(settings, statistics))


@dataclass(frozen=True, eq=False)
class _Learnt:
    """What the first half of the calibration images has taught.

    Attributes:
        panel: of the supervisors.
        cascade: of them, if there is one.
        naming: of the kinds of anomaly, if there are several.
        scores: (n, m) of the images of this half.
        answers: to them.
    """

    panel: Panel
    cascade: Cascade | None
    naming: Naming | None
    scores: Floats
    answers: Answers

    def control(self, settings: Settings, cascade: Cascade | None) -> RiskControl | None:
        """The limits to test for a promise of the risk, if one is wanted, with a cascade or without."""
        if settings.risk is None:
            return None
        check_labels(self.answers, settings)
        statistics, _, known = *_combined(self.panel, cascade, self.scores), self.answers.known
        return RiskControl.plan(statistics[known], self.answers.wrong[known], settings.risk, settings.confidence)


@dataclass(frozen=True)
class _Work:
    """The classifier, where to report, and how large each part is to be."""

    classifier: Classifier
    progress: Progress
    plan: Plan

    def observe(self, images: ImageSet, supervisors: SupervisorSet, what: str) -> Observation:
        titled = Titled(self.progress, f"Observing {what}")
        return self.classifier.observe(images, supervisors.needs, progress=titled)

    def ask(self, pixels: NDArray[np.float32]) -> Floats:
        """The probabilities (n, K) of images that were changed."""
        titled = Titled(self.progress, "Observing changed images")
        return self.classifier.observe(ArraySource(pixels, "NCHW"), progress=titled).probabilities


def _fitted(
    work: _Work, supervisors: SupervisorSet, train: ImageSet, seed: int, unfinished: Unfinished, notes: list[str]
) -> SupervisorSet:
    """The supervisors, fitted; those that the plan leaves out are missing, and the notes say so."""
    if (size := work.plan.reduced("train")) is not None:
        train = train.head(size, seed=seed)
    with work.plan.doing("train"):
        seen = work.observe(train, supervisors, "the training images")
    labels = train.labels if train.is_labelled else None
    fitted: list[Supervisor] = []
    for label, one in supervisors.by_label.items():
        part = f"supervisor.{label}"
        try:
            with work.plan.doing(part):
                sized = one.turned(work.plan.reduced(part))
                if one.requires_fit:
                    fit = partial(sized.clone().fit, seen, labels, progress=work.progress)
                    sized = unfinished.supervisor(sized, f"{label}/{len(train)}", fit)
                fitted.append(sized)
        except OutOfTime as error:
            notes.append(f"The guard is without {label}: {error}")
    return SupervisorSet(fitted)


def _learn(
    work: _Work,
    fitted: SupervisorSet,
    nominal: Observation,
    images: ImageSet,
    kept: Mapping[str, Floats],
    stress: StressSplit | None,
    settings: Settings,
    seed: int,
) -> _Learnt:
    """Learn the panel, and names of kinds.

    Args:
        work: observes.
        fitted: the supervisors.
        nominal: what was observed of the nominal images.
        images: these.
        kept: their features (n, 2) for each change of `consistency` that keeps their answers.
        stress: with the sets to learn from.
        settings: of the guard.
        seed: of the panel's training.
    """
    scores, answers = fitted.score(nominal), Answers.of_observation(nominal)
    strange, looks = {}, {}
    for kind, anomalous in ({} if stress is None else stress.learn).items():
        observation = work.observe(anomalous, fitted, f"{kind} images to learn from")
        found, sorts = fitted.score(observation), _sorts(kind, anomalous.columns)
        strange[kind] = Stressed(found, Answers.of_observation(observation, kind), sorts)
        steady = consistency(anomalous.images, np.arange(len(anomalous)), observation.probabilities, [*kept], work.ask)
        looks[kind] = Examined(found, np.hstack([looks_of(anomalous.images), steady]), sorts)
    taught = examples(settings.protect, scores, answers, strange, learnt=settings.rule == "learnt")
    how: Any = {"sorts": taught.sorts, "harmless": taught.harmless, "rule": settings.rule, "seed": seed}
    with work.plan.doing("panel"), work.progress.task("Putting the panel together", 1) as advance:
        panel, cascade = fit_panel(taught.nominal, taught.anomalies, **how), None
        seen = np.hstack([looks_of(images.images), *kept.values()]) if looks else scores[:, :0]
        naming = learn_names(panel, settings.false_alarms, Examined(scores, seen), answers, looks, [*kept])
        advance(1, 1)
    if settings.latency_ms is not None:
        costs = fitted.costs(nominal)
        cascade = fit_cascade(taught.nominal, taught.anomalies, costs, settings.latency_ms, everyday=scores, **how)
    return _Learnt(panel, cascade, naming, scores, answers)


def _combined(panel: Panel, cascade: Cascade | None, scores: Floats) -> tuple[Floats, Floats]:
    """Statistics (n,) and probabilities of anomalies (n, t), from scores (n, m) that are all known."""
    return panel.combine(scores) if cascade is None else cascade.combine_scores(panel, scores)[1:]


def _report(
    work: _Work,
    pipeline: DecisionPipeline,
    everybody: DecisionPipeline | None,
    calibrated: tuple[ImageSet, Floats, Answers, Floats],
    stress: StressSplit | None,
    notes: tuple[str, ...],
) -> GuardReport:
    """Evaluate a pipeline on the calibration images and on the stress sets that were not used for fitting.

    Args:
        work: observes.
        pipeline: judges.
        everybody: the same without its cascade, if it has one.
        calibrated: the calibration images, their scores (n, m), the answers to them, and their probabilities (n, K).
        stress: with the stress sets.
        notes: for the report.
    """
    panel, cascade, rate = pipeline.panel, pipeline.cascade, pipeline.false_alarms
    own, scores, answers, probabilities = calibrated
    statistics, chances = _combined(panel, cascade, scores)
    raised = pipeline.raised(statistics, probabilities.argmax(axis=1))
    _, _, chances = pipeline.completed(raised, (scores, statistics, chances), among(scores))
    seen: dict[str, Seen] = {}
    for kind, images in ({} if stress is None else stress.test).items():
        observation = work.observe(images, pipeline.supervisors, f"{kind} images to test on")
        found = pipeline.supervisors.score(observation)
        predicted, known = observation.predictions, Answers.of_observation(observation, kind)
        strange, kinds = _combined(panel, cascade, found)
        alarms, whole = pipeline.raised(strange, predicted), None
        if everybody is not None:
            whole = everybody.raised(panel.combine(found)[0], predicted)
        _, _, kinds = pipeline.completed(alarms, (found, strange, kinds), among(found))
        _, codes = pipeline.named(alarms, found, kinds, images.images, observation.probabilities, work.ask)
        seen[kind] = summarise(kind, statistics, strange, codes, _sorts(kind, images.columns), whole, known)
    fully_scored = None
    if cascade is not None:
        first, _ = cascade.first.combine(scores[:, cascade.cheap])
        fully_scored = float((first > cascade.limit).mean())
    mistakes = None
    if answers.wrong.any() and answers.right.any():
        _, codes = pipeline.named(raised, scores, chances, own.images, probabilities, work.ask)
        mistakes = summarise(MISTAKES, statistics[answers.right], statistics[answers.wrong], codes[answers.wrong], None)
    everything = wilson(int(raised.sum()), len(raised))
    notes += () if stress is None else stress.notes
    return GuardReport(rate, everything, len(scores), seen, fully_scored, notes, alarms=everything, mistakes=mistakes)


def _sorts(kind: str, columns: Mapping[str, NDArray[Any]]) -> NDArray[Any] | None:
    return columns.get(SORTS.get(kind, ""))
