"""How a guard learns: who sees which images, in which order.

    train         the supervisors (and the autoencoders behind ambiguous images)
    calibration   one half: the panel, with stress sets made of these images
                  other half: the threshold, and nothing else; then the report, with stress sets of other sorts

The promise of a false-alarm rate holds because no image of the second half has had a say in anything before.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.guard.cascade import Cascade, fit_cascade
from secondguess.guard.panel import Panel, Rule, fit_panel
from secondguess.guard.report import GuardReport, Seen, look_at
from secondguess.guard.stress_split import StressSplit
from secondguess.guard.thresholds import Calibration, Threshold
from secondguess.guard.verdicts import OF_STRESS, decide
from secondguess.model.observation import Observation
from secondguess.progress import Progress
from secondguess.supervisors import SupervisorSet

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier

__all__ = ["Bench", "Parts", "part", "report_on", "seat"]

Floats = NDArray[np.float64]
SORTS = {"corrupted": "corruption", "adversarial": "attack", "invalid": "source"}


@dataclass(frozen=True)
class Parts:
    """Who sees which images.

    Attributes:
        train: the supervisors.
        learn: the panel.
        calibrate: the threshold.
        notes: what to know about it.
    """

    train: ImageSet
    learn: ImageSet
    calibrate: ImageSet
    notes: tuple[str, ...] = ()


def part(train: ImageSet, calibration: ImageSet | None, *, seed: int, most: int | None) -> Parts:
    """Share out the images; without calibration images, a third of the training images has to do.

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
        warnings.warn(f"{notes[0]} Give calibration=images that it has not seen.", stacklevel=3)
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


@dataclass(frozen=True, eq=False)
class Bench:
    """Everybody who judges: the supervisors, the panel that listens to them, and who is asked first.

    Attributes:
        jury: the fitted supervisors.
        panel: of all of them.
        cascade: None where all are always asked.
    """

    jury: SupervisorSet
    panel: Panel
    cascade: Cascade | None = None

    def judge(self, observation: Observation) -> tuple[Floats, Floats, Floats]:
        """Scores (n, m), statistics (n,) and probabilities of each kind of trouble (n, t)."""
        if self.cascade is None:
            scores = self.jury.score(observation)
            return scores, *self.panel.judge(scores)

        def ask(rows: NDArray[np.int64] | None, columns: NDArray[np.int64]) -> Floats:
            return self.jury.score(observation if rows is None else observation.take(rows), columns.tolist())

        return self.cascade.judge(self.panel, len(observation), ask)

    def judge_scores(self, scores: Floats) -> tuple[Floats, Floats]:
        """Statistics and probabilities of troubles, from scores (n, m) that are all known."""
        if self.cascade is None:
            return self.panel.judge(scores)
        return self.cascade.judge_scores(self.panel, scores)[1:]


def seat(
    classifier: Classifier,
    jury: SupervisorSet,
    parts: Parts,
    rehearsal: StressSplit | None,
    *,
    rule: Rule,
    latency_ms: float | None,
    seed: int,
    progress: Progress,
) -> Bench:
    """Fit the supervisors on training images, and the panel on nominal images and stress sets."""
    with progress.task("Observing the training images", len(parts.train)) as advance:
        seen = classifier.observe(parts.train, jury.needs, progress=advance)
    labels = parts.train.labels if parts.train.is_labelled else None
    fitted = jury.fit(seen, labels)
    nominal = classifier.observe(parts.learn, jury.needs)
    stress = {} if rehearsal is None else rehearsal.learn
    scores = fitted.score(nominal)
    troubles = {
        OF_STRESS[kind]: fitted.score(classifier.observe(images, jury.needs)) for kind, images in stress.items()
    }
    panel = fit_panel(scores, troubles, rule=rule, seed=seed)
    cascade = None
    if latency_ms is not None:
        cascade = fit_cascade(scores, troubles, fitted.costs(nominal), latency_ms, rule=rule, seed=seed)
    return Bench(fitted, panel, cascade)


def report_on(
    classifier: Classifier,
    bench: Bench,
    calibration: Calibration,
    nominal: Floats,
    rehearsal: StressSplit | None,
    *,
    rate: float,
    sure: float,
    notes: tuple[str, ...],
) -> GuardReport:
    """Try a guard on the stress sets that nothing was learnt from.

    Args:
        classifier: the system under test.
        bench: who judges.
        calibration: of its statistics.
        nominal: (n, m) scores of the calibration images.
        rehearsal: with the stress sets.
        rate: of false alarms.
        sure: see `decide`.
        notes: for the report.
    """
    statistics, _ = bench.judge_scores(nominal)
    everybody = None if bench.cascade is None else Threshold.at(bench.panel.judge(nominal)[0], rate)
    seen: dict[str, Seen] = {}
    for kind, images in ({} if rehearsal is None else rehearsal.test).items():
        observation = classifier.observe(images, bench.jury.needs)
        scores = bench.jury.score(observation)
        found, chances = bench.judge_scores(scores)
        alarms = calibration.p_values(found, observation.predictions) <= rate
        codes = decide(alarms, chances, bench.panel.troubles, sure)
        whole = None if everybody is None else everybody.alarms(bench.panel.judge(scores)[0])
        seen[kind] = look_at(kind, statistics, found, codes, _sorts(kind, images.columns), whole)
    grey = None
    if bench.cascade is not None:
        first, _ = bench.cascade.first.judge(nominal[:, bench.cascade.cheap])
        grey = float((first > bench.cascade.limit).mean())
    extra = () if rehearsal is None else rehearsal.notes
    return GuardReport(rate, calibration.realised(rate), len(nominal), seen, grey, (*notes, *extra))


def _sorts(kind: str, columns: Mapping[str, NDArray[Any]]) -> NDArray[Any] | None:
    return columns.get(SORTS.get(kind, ""))
