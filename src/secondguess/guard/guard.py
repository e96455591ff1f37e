"""From a score to a decision: supervisors, one calibrated p-value, a verdict, an action.

    guard = Guard(false_alarms=0.01).fit(model, train, validation)
    for judgement in guard.judge(images):
        print(judgement.class_name, judgement.p_value, judgement.verdict, judgement.action)

How it learns is in `fitting`, what happens at run time in `pipeline`, what the p-value promises in `thresholds`, where
the verdict comes from in `panel`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from secondguess.errors import UserError
from secondguess.guard.actions import Action, Actions
from secondguess.guard.artefact import StoredGuard, read_card, read_guard, write_guard
from secondguess.guard.calibrating import calibrate
from secondguess.guard.fitting import Parts, fit_pipeline, split_images
from secondguess.guard.inputs import fitting_images, nominal_images
from secondguess.guard.judgements import Judgements
from secondguess.guard.panel import Rule
from secondguess.guard.pipeline import DecisionPipeline, Settings
from secondguess.guard.planned import plan_guard
from secondguess.guard.protect import Answers, Protect, check_protect
from secondguess.guard.recommended import RECOMMENDED, recommended
from secondguess.guard.report import GuardReport
from secondguess.guard.risk import check_risk
from secondguess.guard.stored_model import stored_model
from secondguess.guard.stress_split import StressMaker, StressSplit
from secondguess.guard.thresholds import smallest_sample
from secondguess.guard.unfinished import Unfinished
from secondguess.guard.verdicts import Kind
from secondguess.images import check_loading
from secondguess.metrics import wilson
from secondguess.model.classifier import Classifier
from secondguess.model.determinism import warn_if_random
from secondguess.planning import recorded_sizes
from secondguess.progress import Progress, attending, shown
from secondguess.results import Result
from secondguess.supervisors import Supervisor, SupervisorSet, make_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from secondguess.images import ImageSet
    from secondguess.model.needs import Needs
    from secondguess.model.observation import Observation
    from secondguess.model.session import Session

__all__ = ["Guard"]

LINES = 10  # of a summary

RESIZED_BY = "resized_by"  # in the record


class Guard(Result):
    """Guards a classifier at run time.

    Args:
        supervisors: `"recommended"`, or names, or ready-made supervisors.
        false_alarms: the share of nominal images that may raise an alarm, such as 0.01 or 0.05.
        per_class: keep that share within every predicted class that has enough calibration images.
        rule: how the supervisors' scores become one: `"learnt"` from stress sets, or a plain rule over their p-values,
            `"bonferroni"`, `"harmonic"` or `"cauchy"`, for a guard that detects anomalies without naming their kind.
        actions: what to do about each kind of anomaly, where it differs from the defaults.
        min_probability: from which one kind of anomaly is enough for a verdict; below it, two are named.
        latency_ms: milliseconds per image that the supervisors may take; see `cascade`.
        protect: what an alarm is for: `"errors"` of the model, `"novelty"` of the image, or `"both"`; see `protect`.
        risk: the share of accepted predictions that may be wrong, such as 0.02, in place of `false_alarms`; see `risk`
            for what is promised of it.
        confidence: with which the risk is promised.

    Attributes:
        report: what to expect; after `fit`.
        record: how it was fitted and calibrated, JSON-able; after `fit`.
        classifier: the system under test; after `fit`.
        shape: (C, H, W) of its images; after `fit`.
        session: with which it observes images; after `fit`.
    """

    report: GuardReport
    record: dict[str, Any]
    classifier: Classifier
    shape: tuple[int, int, int]
    session: Session

    def __init__(
        self,
        supervisors: str | Sequence[str | Supervisor] = RECOMMENDED,
        *,
        false_alarms: float = 0.01,
        per_class: bool = False,
        rule: Rule = "learnt",
        actions: Mapping[Kind, Action] | None = None,
        min_probability: float = 0.7,
        latency_ms: float | None = None,
        protect: Protect = "both",
        risk: float | None = None,
        confidence: float = 0.95,
    ) -> None:
        smallest_sample(false_alarms)
        check_protect(protect)
        if risk is not None:
            check_risk(risk, confidence)
        if risk is not None and per_class:
            raise UserError("A risk is promised for all classes together; leave out per_class, or the risk.")
        if not 0 < min_probability <= 1:
            raise UserError(
                f"min_probability is {min_probability!r}; give the probability, up to 1, from which a single kind is "
                "enough."
            )
        if supervisors != RECOMMENDED:
            make_all(supervisors)  # an unknown name is refused here, not after the model has been opened
        self.supervisors, self.false_alarms, self.per_class = supervisors, false_alarms, per_class
        self.rule, self.min_probability, self.latency_ms = rule, min_probability, latency_ms
        self.protect, self.risk, self.confidence = protect, risk, confidence
        self.actions = Actions(dict(actions or {}))
        self._pipeline: DecisionPipeline | None = None

    def __repr__(self) -> str:
        who = ", ".join(self._pipeline.labels) if self._pipeline else str(self.supervisors)
        fitted = "fitted" if self._pipeline else "not fitted"
        promised = f"{self.false_alarms:g} false alarms" if self.risk is None else f"a risk of {self.risk:g}"
        return f"Guard({who}; {promised}; {fitted})"

    @attending
    def fit(
        self,
        model: Any,
        train: Any,
        validation: Any = None,
        stress: Literal["generated"] | StressSplit | None = "generated",
        *,
        ambiguous: str = "auto",
        minutes: float | None = 5.0,
        plan: str | os.PathLike[str] | None = None,
        folder: str | os.PathLike[str] | None = None,
        seed: int = 0,
        fit_images: int | None = 20_000,
        progress: Progress | None = None,
        **loading: Any,
    ) -> Self:
        """Fit the supervisors and the panel, and calibrate the threshold of alarms.

        Args:
            model: the system under test: a classifier, or anything that `Classifier.open` takes.
            train: labelled images it was trained on: an `ImageSet`, a `Dataset` or anything that `load` takes.
            validation: nominal images it was not trained on, hundreds or better thousands. The panel is fitted on one
                half, the threshold is set by the other. By default the validation images of a data set given as
                `train`, or else a third of the training images.
            stress: `"generated"` from these images; a `StressSplit` of your own; or None, with a plain rule.
            ambiguous: how ambiguous images are made: `"ambiguess"`, `"flow"`, `"blend"`, `"none"`, or `"auto"` for what
                suits the images.
            minutes: that the fit may take: it is planned before it begins, from timing the model on a few images, and
                what does not fit is made smaller or left out. None does everything at full size.
            plan: the `guard.json` of another guard, whose sizes are taken instead.
            folder: where finished pieces are kept while it is fitted, so that an interrupted fit goes on from there;
                they are removed at the end. None keeps nothing.
            seed: of everything random.
            fit_images: the most training images that supervisors are fitted on.
            progress: where to report; by default bars in a notebook, and nothing elsewhere.
            loading: options of `load`, where they differ from what the model wants.
        """
        if not (stress is None or stress == "generated" or isinstance(stress, StressSplit)):
            raise UserError(f"stress is {stress!r}; give 'generated', a StressSplit, or None with a plain rule.")
        progress = shown(progress)
        loading = check_loading(loading, self.fit)
        classifier, train, validation = fitting_images(Classifier.open(model), train, validation, loading)
        warn_if_random(classifier, train)
        parts = split_images(train, validation, seed=seed, most=fit_images)
        least, rate = smallest_sample(self.false_alarms), self.false_alarms
        if self.risk is None and len(parts.calibrate) < least:
            raise UserError(
                f"A false-alarm rate of {rate:g} cannot be promised: {len(parts.calibrate)} calibration images are "
                f"left for the threshold (half of those given), and {least} are needed; give more nominal images, or "
                "allow more false alarms."
            )
        named = recommended(classifier) if self.supervisors == RECOMMENDED else make_all(self.supervisors)
        supervisors = SupervisorSet(named)
        classifier.check(supervisors.needs, "The guard")
        split, maker = stress if isinstance(stress, StressSplit) else None, None
        sizes = None if plan is None else recorded_sizes(plan)
        unfinished = self._unfinished(classifier, parts, [seed, minutes, ambiguous, sizes], folder)
        if stress == "generated" and self.rule == "learnt":
            where: Any = {"device": classifier.device, "folder": unfinished.folder, "ambiguous": ambiguous}
            maker = StressMaker(classifier, train, parts.learn, parts.calibrate, seed=seed, **where)
        ready = [label for label, given in zip(supervisors.labels, self._given(len(named)), strict=True) if given]
        work: Any = {"unfinished": unfinished, "progress": progress}
        names = stress is not None and self.rule == "learnt"
        how: Any = {"names": names, "given": ready, "sizes": sizes}
        kept = plan_guard(classifier, supervisors, parts, maker, minutes, **how, **work)
        parts = parts.fewer(kept.reduced("nominal"), seed=seed)
        work["progress"] = kept.watched(progress)
        sets: list[StressSplit] = [] if split is None else [split]

        def make_sets() -> StressSplit:
            assert maker is not None
            sets.append(maker.make(kept, **work))
            return sets[0]

        how = {"seed": seed, "plan": kept, **work}
        made = split if maker is None else make_sets
        pipeline, self.report = fit_pipeline(classifier, supervisors, parts, made, self.settings, self.actions, **how)
        unfinished.remove()
        self.record = {
            "seed": seed,
            "plan": kept.to_dict(),
            RESIZED_BY: classifier.description.resize,
            "fitted_on": _card(parts.train),
            "panel_on": _card(parts.learn),
            "stress": {kind: len(one) for split in sets for kind, one in split.learn.items()},
            "calibrations": [_card(parts.calibrate) | {"groups": _texts(pipeline.calibration.sizes)}],
        }
        return self._ready(classifier, pipeline, train.shape)

    def _given(self, count: int) -> list[bool]:
        """Which of so many supervisors were given ready-made or with parameters; a name may stand for several."""
        if self.supervisors == RECOMMENDED:
            return [False] * count
        specs = [self.supervisors] if isinstance(self.supervisors, str) else self.supervisors
        return [not isinstance(one, str) or ":" in one for one in specs for _ in make_all([one])]

    def _unfinished(self, classifier: Classifier, parts: Parts, settings: Any, folder: Any) -> Unfinished:
        """Where finished pieces are kept: they depend on the model, the images, the supervisors and the settings."""
        model = classifier.fingerprint
        images = [one.fingerprint for one in (parts.train, parts.learn, parts.calibrate)]
        depends = None if model is None else [model, images, repr(self.supervisors), asdict(self.settings), settings]
        return Unfinished(None if folder is None else Path(folder), depends)

    @property
    def settings(self) -> Settings:
        """The settings of the guard."""
        return Settings(
            self.false_alarms,
            self.per_class,
            self.rule,
            self.min_probability,
            self.latency_ms,
            self.protect,
            self.risk,
            self.confidence,
        )

    @property
    def pipeline(self) -> DecisionPipeline:
        """What turns observations into judgements; after `fit`."""
        if self._pipeline is None:
            raise UserError("This guard has not learnt anything yet; call fit(model, train, validation) first.")
        return self._pipeline

    @property
    def resized_by(self) -> Any:
        """How the images that it was fitted on were resized: `stretch`, `crop` or `pad`.

        Those that come later should be resized alike: stretched where they were cropped before, nominal images look
        unusual.
        """
        return self.record.get(RESIZED_BY, "stretch")

    @property
    def needs(self) -> Needs:
        """What must have been observed for `judge_observation`."""
        return self.pipeline.supervisors.needs

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.pipeline.class_names

    def judge(self, images: Any) -> Judgements:
        """Judge the classifier's predictions of images.

        Args:
            images: one or several, in any form that `secondguess.images.as_batch` takes.
        """
        pipeline = self.pipeline
        batch = self.session.batch(images)
        return pipeline.judge(self.session.observe(batch), batch, self.session.predict)

    def judge_observation(self, observation: Observation) -> Judgements:
        """Judge predictions that have been observed already, with what `needs` says."""
        return self.pipeline.judge(observation, ask=self.session.predict)

    def recalibrate(self, nominal: Any, **loading: Any) -> Self:
        """Calibrate the threshold anew on fresh nominal images; nothing else changes.

        Supervisors and panel stay as they are. The report keeps what it says of anomalies, which was measured with the
        old threshold, and says so.

        Args:
            nominal: an `ImageSet`, a path, or any other form of images; labelled, where a risk was promised or errors
                are protected against.
            loading: options of `load`, where they differ from how the guard's images were loaded.
        """
        loading = check_loading(loading, self.recalibrate)
        pipeline, nominal = self.pipeline, nominal_images(self, nominal, loading)
        observed = self.classifier.observe(nominal, self.needs)
        statistics, answers = pipeline.combine(observed)[1], Answers.of_observation(observed)
        found = calibrate(statistics, observed.predictions, answers, self.settings, pipeline.control)
        self._pipeline = pipeline = replace(pipeline, calibration=found.calibration, limit=found.limit)
        raised = pipeline.raised(statistics, observed.predictions)
        note = "The threshold has been calibrated anew since what is said of anomalies was measured."
        notes = tuple(dict.fromkeys((*self.report.notes, note))) if self.report.seen else self.report.notes
        alarms, said = wilson(int(raised.sum()), len(raised)), found.report(self.settings, statistics)
        self.report = replace(self.report, **said, alarms=alarms, notes=notes)
        self.record["calibrations"].append(_card(nominal) | {"groups": _texts(found.calibration.sizes)})
        return self

    def summary(self) -> str:
        """The model, the false-alarm rate, what is detected of each kind of anomaly, and what will be missed."""
        if self._pipeline is None:
            return repr(self)
        first = f"A guard for {self.classifier.name}: {', '.join(self._pipeline.labels)}."
        return "\n".join([first, *str(self.report).splitlines()][:LINES])

    def to_dict(self) -> dict[str, Any]:
        """Settings, report and record, in values that JSON can hold."""
        pipeline = self.pipeline
        return {
            "model": {"name": self.classifier.name, "fingerprint": self.classifier.fingerprint},
            "shape": list(self.shape),
            "class_names": list(self.class_names),
            "supervisors": list(pipeline.labels),
            "settings": asdict(self.settings),
            "actions": self.actions.to_dict(),
            "report": self.report.to_dict(),
            "record": self.record,
        }

    def rows(self) -> list[dict[str, Any]]:
        """The share that raises an alarm, of nominal images and of each kind of anomaly that was tried."""
        _ = self.pipeline  # fitted?
        shares = {"nominal": self.report.expected_alarms}
        if self.report.mistakes is not None:
            shares["nominal, answered wrongly"] = self.report.mistakes.detected
        shares |= {kind: one.detected for kind, one in self.report.seen.items()}
        return [{"images": name, "alarms": one.value, "low": one.low, "high": one.high} for name, one in shares.items()]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the share of images that raise an alarm, of nominal ones and of each kind of anomaly, with intervals.

        Args:
            ax: where to draw; a new figure if left out.
        """
        from secondguess.report import plots

        rows = [
            (row["images"], (row["alarms"], row["low"], row["high"]), "better" if number else "")
            for number, row in enumerate(self.rows())
        ]
        where = plots.new_axes(ax, 4.6, 0.75 + 0.21 * len(rows))
        return plots.intervals(rows, "share that raises an alarm", where)

    def save(self, folder: str | Path) -> Path:
        """Write the guard into a folder of its own; see `artefact`."""
        return write_guard(
            StoredGuard(self.classifier, self.pipeline, self.settings, self.shape, self.record, self.report), folder
        )

    @classmethod
    def load(cls, folder: str | Path, model: Any = None, **changes: Any) -> Guard:
        """Read a guard for the model it was fitted on; see `artefact`.

        Args:
            folder: that `save` has written.
            model: a classifier, or anything that `Classifier.open` takes; by default the one described in the folder.
            changes: further arguments of `Classifier.open`, such as `device`.
        """
        if model is None:
            read_card(folder)  # a folder without a guard is named as such
            model = stored_model(folder)
        stored = read_guard(folder, Classifier.open(model, **changes))
        supervisors, actions = stored.pipeline.supervisors.supervisors, stored.pipeline.actions.chosen
        guard = cls(list(supervisors), actions=actions, **asdict(stored.settings))
        guard.record, guard.report = stored.record, stored.report
        return guard._ready(stored.classifier, stored.pipeline, stored.shape)

    def _ready(self, classifier: Classifier, pipeline: DecisionPipeline, shape: tuple[int, int, int]) -> Self:
        """Prepare for judging with a fitted or loaded pipeline."""
        self.classifier, self.shape, self._pipeline = classifier, shape, pipeline
        self.session = classifier.session(pipeline.supervisors.needs, shape)
        return self


def _card(images: ImageSet) -> dict[str, Any]:
    return {"name": images.name, "images": len(images), "fingerprint": images.fingerprint}


def _texts(sizes: Mapping[int, int]) -> dict[str, int]:
    return {"pool" if group < 0 else str(group): size for group, size in sizes.items()}
