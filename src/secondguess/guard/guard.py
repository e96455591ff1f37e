"""From a score to a decision: supervisors, one calibrated p-value, a verdict, an action.

    guard = Guard(false_alarms=0.01).fit(classifier, train, calibration)
    for judgement in guard.judge(images):
        print(judgement.class_name, judgement.p_value, judgement.verdict, judgement.action)

How it learns is in `fitting`, what the p-value promises in `thresholds`, where the verdict comes from in `panel`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.guard.actions import Action, Actions
from secondguess.guard.fitting import Bench, part, report_on, seat
from secondguess.guard.inputs import as_images
from secondguess.guard.judgements import Judgements
from secondguess.guard.panel import Rule
from secondguess.guard.recommended import RECOMMENDED, recommended
from secondguess.guard.report import GuardReport
from secondguess.guard.stress_split import StressSplit, make_stress_split
from secondguess.guard.thresholds import Calibration, smallest_sample
from secondguess.guard.verdicts import Kind, decide
from secondguess.progress import Progress, Silent
from secondguess.supervisors import SupervisorSet, make_all
from secondguess.supervisors.base import Supervisor

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier
    from secondguess.model.observation import Needs, Observation

__all__ = ["Guard"]


class Guard:
    """Watches a classifier at run time.

    Args:
        supervisors: `"recommended"`, or names, or ready-made supervisors.
        false_alarms: the share of nominal images that may raise an alarm, such as 0.01 or 0.05.
        per_class: keep that share within every predicted class that has enough calibration images.
        rule: how the supervisors' scores become one: `"learnt"` from stress sets, or a plain rule over their p-values,
            `"bonferroni"`, `"harmonic"` or `"cauchy"`, for a guard that knows that something is wrong but not what.
        actions: what to do about each kind of trouble, where it differs from the defaults.
        sure: the probability from which one kind of trouble is enough for a verdict; below it, two are named.
        latency_ms: milliseconds an image that the supervisors may take; see `cascade`.

    Attributes:
        report: what to expect; after `fit`.
        record: how it was fitted and calibrated, JSON-able; after `fit`.
    """

    report: GuardReport
    record: dict[str, Any]

    def __init__(
        self,
        supervisors: str | Sequence[str | Supervisor] = RECOMMENDED,
        *,
        false_alarms: float = 0.01,
        per_class: bool = False,
        rule: Rule = "learnt",
        actions: Mapping[Kind, Action] | None = None,
        sure: float = 0.7,
        latency_ms: float | None = None,
    ) -> None:
        smallest_sample(false_alarms)
        if not 0 < sure <= 1:
            raise UserError(f"sure is {sure!r}; give the probability, up to 1, from which a single kind is enough.")
        self.supervisors, self.false_alarms, self.per_class = supervisors, false_alarms, per_class
        self.rule, self.sure, self.latency_ms = rule, sure, latency_ms
        self.actions = Actions(dict(actions or {}))
        self._bench: Bench | None = None

    def __repr__(self) -> str:
        who = ", ".join(self._bench.jury.labels) if self._bench else str(self.supervisors)
        return f"Guard({who}; {self.false_alarms:g} false alarms; {'fitted' if self._bench else 'not fitted'})"

    def fit(
        self,
        classifier: Classifier,
        train: ImageSet,
        calibration: ImageSet | None = None,
        stress: Literal["generated"] | StressSplit | None = "generated",
        *,
        seed: int = 0,
        fit_images: int | None = 20_000,
        progress: Progress | None = None,
    ) -> Self:
        """Learn what is nominal, what trouble looks like, and where to draw the line.

        Args:
            classifier: the system under test.
            train: labelled images it was trained on.
            calibration: nominal images it was not trained on, hundreds or better thousands. One half teaches the panel,
                the other half sets the threshold.
            stress: `"generated"` from these images; a `StressSplit` of your own; or None, with a plain rule.
            seed: of everything random.
            fit_images: the most training images that supervisors are fitted on.
            progress: where to report.
        """
        progress = progress or Silent()
        parts = part(train, calibration, seed=seed, most=fit_images)
        least = smallest_sample(self.false_alarms)
        if len(parts.calibrate) < least:
            raise UserError(
                f"A false-alarm rate of {self.false_alarms:g} cannot be promised: {len(parts.calibrate)} calibration "
                f"images are left for the threshold (half of those given), and {least} are needed; give more nominal "
                "images, or allow more false alarms."
            )
        named = recommended(classifier) if self.supervisors == RECOMMENDED else make_all(self.supervisors)
        jury = SupervisorSet(named)
        classifier.check(jury.needs, "The guard")
        rehearsal = stress if isinstance(stress, StressSplit) else None
        if stress == "generated" and self.rule == "learnt":
            rehearsal = make_stress_split(
                classifier, train, parts.learn, parts.calibrate, seed=seed, device=classifier.device, progress=progress
            )
        bench = seat(
            classifier,
            jury,
            parts,
            rehearsal,
            rule=self.rule,
            latency_ms=self.latency_ms,
            seed=seed,
            progress=progress,
        )
        observed = classifier.observe(parts.calibrate, jury.needs)
        scores = bench.jury.score(observed)
        found = self._calibrated(bench, bench.judge_scores(scores)[0], observed.predictions)
        self.report = report_on(
            classifier,
            bench,
            found,
            scores,
            rehearsal,
            rate=self.false_alarms,
            sure=self.sure,
            notes=parts.notes,
        )
        self.record = {
            "seed": seed,
            "fitted_on": _card(parts.train),
            "panel_on": _card(parts.learn),
            "stress": {} if rehearsal is None else {kind: len(one) for kind, one in rehearsal.learn.items()},
            "calibrations": [_card(parts.calibrate) | {"groups": _texts(found.sizes)}],
        }
        self._settle(classifier, bench, found, train.shape, observed.class_names)
        return self

    @property
    def needs(self) -> Needs:
        """What must have been observed for `judge_observation`."""
        return self._check_fitted().jury.needs

    def judge(self, images: Any) -> Judgements:
        """Judge the classifier's predictions of images.

        Args:
            images: one or several, in any form that `secondguess.guard.inputs.as_images` takes.
        """
        self._check_fitted()
        return self._judged(self._session.observe(as_images(images, self.shape)))

    def judge_observation(self, observation: Observation) -> Judgements:
        """Judge predictions that have been observed already, with what `needs` says."""
        self._check_fitted()
        return self._judged(observation)

    def recalibrate(self, nominal: ImageSet) -> Self:
        """Draw the line anew from fresh nominal images, by which nothing else changes.

        Supervisors and panel stay as they are. The report keeps what it says of troubles, which was measured with the
        old threshold, and says so.
        """
        bench = self._check_fitted()
        from dataclasses import replace

        observed = self.classifier.observe(nominal, bench.jury.needs)
        _, statistics, _ = bench.judge(observed)
        found = self._calibrated(bench, statistics, observed.predictions)
        self._calibration = found
        note = "The threshold has been calibrated anew since what is said of troubles was measured."
        notes = tuple(dict.fromkeys((*self.report.notes, note))) if self.report.seen else self.report.notes
        self.report = replace(
            self.report, false_alarms=found.realised(self.false_alarms), calibrated_on=len(nominal), notes=notes
        )
        self.record["calibrations"].append(_card(nominal) | {"groups": _texts(found.sizes)})
        return self

    def save(self, folder: str | Path) -> Path:
        """Write the guard into a folder of its own; see `artefact`."""
        from secondguess.guard.artefact import save_guard

        self._check_fitted()
        return save_guard(self, folder)

    @classmethod
    def load(cls, folder: str | Path, classifier: Classifier) -> Guard:
        """Read a guard for the classifier it was fitted on; see `artefact`."""
        from secondguess.guard.artefact import load_guard

        return load_guard(folder, classifier)

    def _judged(self, observation: Observation) -> Judgements:
        assert self._bench is not None
        bench, probabilities = self._bench, observation.probabilities
        scores, statistics, chances = bench.judge(observation)
        p_values = self._calibration.p_values(statistics, observation.predictions if self.per_class else None)
        return Judgements(
            probabilities=probabilities,
            p_values=p_values,
            codes=decide(p_values <= self.false_alarms, chances, bench.panel.troubles, self.sure),
            chances=chances,
            scores=scores,
            labels=bench.jury.labels,
            class_names=self.class_names,
            panel=bench.panel,
            policy=self.actions,
        )

    def _calibrated(self, bench: Bench, statistics: NDArray[np.float64], classes: NDArray[np.int64]) -> Calibration:
        minimum = smallest_sample(self.false_alarms)
        return Calibration.of(statistics, classes if self.per_class else None, minimum=minimum)

    def _settle(
        self,
        classifier: Classifier,
        bench: Bench,
        calibration: Calibration,
        shape: tuple[int, int, int],
        class_names: tuple[str, ...],
    ) -> None:
        """Take up work with what was learnt, or read."""
        self.classifier, self.shape, self.class_names = classifier, shape, class_names
        self._bench, self._calibration = bench, calibration
        self._session = classifier.session(bench.jury.needs, shape)

    def _check_fitted(self) -> Bench:
        if self._bench is None:
            raise UserError("This guard has not learnt anything yet; call fit(classifier, train, calibration) first.")
        return self._bench


def _card(images: ImageSet) -> dict[str, Any]:
    return {"name": images.name, "images": len(images), "fingerprint": images.fingerprint}


def _texts(sizes: Mapping[int, int]) -> dict[str, int]:
    return {"pool" if group < 0 else str(group): size for group, size in sizes.items()}
