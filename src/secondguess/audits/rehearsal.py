"""A guard put together from the scores that an audit already has, and tried on images that it has not learnt from.

Its supervisors are those that a guard recommends, as far as they took part (a fitted guard uses earlier layers besides,
and names kinds by mirror images, too, for which the model would have to be asked again). One half of the test images
and part of every stress set teach its panel; the other half sets the threshold; what is reported was seen on the rest
of the stress sets: on sorts that the panel has not met where a set has several, on other images of the same sort where
not. What an alarm is for is the audit's `protect`.

The same statistics are asked what they could promise about errors (`secondguess.guard.risk`), and how often the answers
that such a guard accepts are wrong on each stress set, where nothing is promised. How well they order right and wrong
answers (AURC) stands beside the best single score on the same half of the test images, which is chosen on these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.audits.context import Context
from secondguess.audits.findings import NotApplicable
from secondguess.errors import UserError
from secondguess.guard import Calibration, GuardReport, RiskPromise, smallest_sample
from secondguess.guard.actions import Actions
from secondguess.guard.naming import Examined, Naming, learn_names, looks_of
from secondguess.guard.panel import Panel, fit_panel
from secondguess.guard.pipeline import Decisions
from secondguess.guard.protect import Answers, Stressed, examples
from secondguess.guard.recommended import recommended
from secondguess.guard.report import Seen, summarise
from secondguess.guard.risk import RiskControl
from secondguess.guard.verdicts import OF_STRESS
from secondguess.metrics import MISTAKES, Interval, aurc, wilson
from secondguess.stress import StressSet

__all__ = ["RISKS", "Kept", "Orders", "Rehearsal", "Tried", "rehearse"]

SURE = 0.7  # as in a guard: the probability from which one kind is enough for a verdict
MOST = 2000  # images of a sort that the panel learns from; more would take long and teach little
MOST_TRIED = 20_000  # images of a stress set that it is tried on: their shares are known to half a point then
FEWEST = 10  # images of a stress set to learn from, and to be tested on
RISKS = (0.01, 0.02, 0.05)  # that are asked for

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Tried:
    """A stress set and the part of it that was not used for fitting."""

    stress: StressSet
    learn: Rows
    test: Rows
    sorts: NDArray[Any] | None

    @property
    def learnt_sorts(self) -> NDArray[Any]:
        """Of which sort each image is that is learnt from; the name of the set where it has one."""
        if self.sorts is None:
            return np.full(len(self.learn), self.stress.name)
        return self.sorts[self.learn].astype(str)

    @property
    def title(self) -> str:
        """How the images that are reported on differ from those learnt from."""
        several = self.sorts is not None and len(np.unique(self.sorts)) > 1
        return "sorts it has not met" if several else "other images of the same sort"


@dataclass(frozen=True)
class Kept:
    """What becomes of a promised risk.

    Attributes:
        risk: that was asked for.
        promise: about images like the test images; None where it cannot be made.
        wrong: for each stress set, the share of the accepted answers that are wrong; None where none is accepted.
    """

    risk: float
    promise: RiskPromise | None
    wrong: Mapping[str, Interval | None]


@dataclass(frozen=True)
class Orders:
    """How well right and wrong answers are told apart: the mean risk over all coverages, smaller is better.

    Attributes:
        guard: by the statistic of the guard.
        single: by the best single score on the same images.
        name: of that score.
    """

    guard: float
    single: float
    name: str


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """What a guard over the audited model would do.

    Attributes:
        supervisors: their names.
        panel: of them.
        report: what to expect.
        sets: the stress sets that took part.
        unnoticed: for each of them, the share of the images that are answered wrongly without an alarm.
        kept: what could be promised about errors; empty where nothing is known of the answers.
        learnt_from: how many test images taught the panel.
        untried: the kinds of stress images that took no part.
        orders: of right and wrong answers, on the half that sets the threshold; None where it has only one of them.
    """

    supervisors: list[str]
    panel: Panel
    report: GuardReport
    sets: list[Tried]
    unnoticed: dict[str, Interval]
    kept: tuple[Kept, ...]
    learnt_from: int
    untried: tuple[str, ...] = ()
    orders: Orders | None = None


@dataclass(frozen=True, eq=False)
class _Set:
    """The statistics (n,), scores (n, m) and answers of some images."""

    scores: Floats
    answers: Answers


def rehearse(context: Context) -> Rehearsal:
    """Put a guard together and try it."""
    order = np.random.default_rng(context.seed).permutation(len(context.test))
    learn, calibrate = np.array_split(order, 2)
    names, sets = _names(context), _sets(context)
    nominal = _Set(_scores(context, names, "nominal"), Answers.of(context.test, context.nominal.predictions))
    quiet = nominal.answers.quiet(context.protect)[calibrate]
    least = smallest_sample(context.false_alarms)
    if quiet.sum() < least:
        raise NotApplicable(
            f"{len(context.test)} test images are too few: half of them calibrate the guard, and a false-alarm rate of "
            f"{context.false_alarms:g} takes {least}{'' if quiet.all() else ' that are answered rightly'}."
        )
    strange = {one.stress.name: _stress_set(context, names, one) for one in sets}
    panel = _panel(context, nominal, learn[:MOST], sets, strange)
    naming = _naming(context, panel, nominal, learn[:MOST], sets, strange)
    taught, _ = panel.combine(nominal.scores[learn])
    statistics, chances = panel.combine(nominal.scores[calibrate])
    calibration, rate = Calibration.of(statistics[quiet]), context.false_alarms
    decisions = Decisions(
        tuple(names), context.test.class_names, panel, calibration, None, rate, None, SURE, Actions({}), naming
    )
    seen: dict[str, Seen] = {}
    unnoticed: dict[str, Interval] = {}
    found: dict[str, tuple[Floats, Answers]] = {}
    for one in sets:
        name = one.stress.name
        answers = strange[name].answers.take(one.test)
        values, kinds = panel.combine(strange[name].scores[one.test])
        alarms = calibration.p_values(values) <= rate
        images = context.stressed[name][0].take(one.test).images
        _, codes = decisions.named(alarms, strange[name].scores[one.test], kinds, images)
        sorts = None if one.sorts is None else one.sorts[one.test]
        seen[name] = summarise(one.stress.kind, statistics, values, codes, sorts, answers=answers)
        unnoticed[name] = wilson(int((~alarms & answers.wrong).sum()), len(alarms))
        found[name] = values, answers
    own = nominal.answers.take(calibrate)
    raised = calibration.p_values(statistics) <= rate
    _, codes = decisions.named(raised, nominal.scores[calibrate], chances, context.test.take(calibrate).images)
    report = GuardReport(
        rate,
        calibration.realised(rate),
        int(quiet.sum()),
        seen,
        protect=context.protect,
        alarms=wilson(int(raised.sum()), len(raised)),
        mistakes=_mistakes(statistics, codes, own),
    )
    kept = _kept((taught, nominal.answers.take(learn)), (statistics, own), found)
    untried = tuple(kind for kind in OF_STRESS if all(one.stress.kind != kind for one in sets))
    orders = _orders(names, nominal.scores[calibrate], statistics, own)
    return Rehearsal(names, panel, report, sets, unnoticed, kept, len(learn[:MOST]), untried, orders)


def _panel(context: Context, nominal: _Set, learn: Rows, sets: Sequence[Tried], strange: Mapping[str, _Set]) -> Panel:
    kinds: dict[str, list[Stressed]] = {}
    for one in sets:
        mine = strange[one.stress.name]
        taken = Stressed(mine.scores[one.learn], mine.answers.take(one.learn), one.learnt_sorts)
        kinds.setdefault(one.stress.kind, []).append(taken)
    stress = {kind: Stressed.joined(parts) for kind, parts in kinds.items()}
    if context.protect == "errors" and not nominal.answers.known.any():
        raise NotApplicable("The test images have no labels, so nothing is known of errors to protect against.")
    try:
        taught = examples(
            context.protect, nominal.scores[learn], nominal.answers.take(learn), stress, learnt=bool(stress)
        )
    except UserError as error:  # too few errors to learn from: no defect of the audit
        raise NotApplicable(str(error)) from error
    with context.progress.task("Putting a guard together", 1) as advance:
        panel = fit_panel(
            taught.nominal,
            taught.anomalies,
            sorts=taught.sorts,
            harmless=taught.harmless,
            rule="learnt" if taught.anomalies else "bonferroni",
            seed=context.seed,
        )
        advance(1, 1)
    return panel


def _naming(
    context: Context, panel: Panel, nominal: _Set, learn: Rows, sets: Sequence[Tried], strange: Mapping[str, _Set]
) -> Naming | None:
    """What tells the kinds of the panel apart."""
    kinds: dict[str, list[Examined]] = {}
    for one in sets:
        images, scores = (
            context.stressed[one.stress.name][0].take(one.learn),
            strange[one.stress.name].scores[one.learn],
        )
        kinds.setdefault(one.stress.kind, []).append(Examined(scores, looks_of(images.images), one.learnt_sorts))
    own = Examined(nominal.scores[learn], looks_of(context.test.take(learn).images))
    joined = {kind: Examined.joined(parts) for kind, parts in kinds.items()}
    return learn_names(panel, context.false_alarms, own, nominal.answers.take(learn), joined)


def _mistakes(statistics: Floats, codes: NDArray[np.int8], answers: Answers) -> Seen | None:
    if not (answers.wrong.any() and answers.right.any()):
        return None
    return summarise(MISTAKES, statistics[answers.right], statistics[answers.wrong], codes[answers.wrong], None)


def _kept(
    taught: tuple[Floats, Answers], own: tuple[Floats, Answers], strange: Mapping[str, tuple[Floats, Answers]]
) -> tuple[Kept, ...]:
    """What can be promised about errors by the statistics of these images, and what becomes of it elsewhere."""
    (first, known), (second, answers) = taught, own
    if not (known.known.any() and answers.known.any()):
        return ()
    found = []
    for risk in RISKS:
        control = RiskControl.plan(first[known.known], known.wrong[known.known], risk)
        try:
            limit, promise = control.promise(second[answers.known], answers.wrong[answers.known])
        except UserError:
            found.append(Kept(risk, None, {}))
            continue
        wrong: dict[str, Interval | None] = {}
        for name, (values, given) in strange.items():
            passed = (values <= limit) & given.known
            wrong[name] = wilson(int(given.wrong[passed].sum()), int(passed.sum())) if passed.any() else None
        found.append(Kept(risk, promise, wrong))
    return tuple(found)


def _orders(names: Sequence[str], scores: Floats, statistics: Floats, answers: Answers) -> Orders | None:
    """What the guard and the best of its supervisors (n, m) are worth to somebody who may refuse to answer."""
    known, wrong = answers.known, answers.wrong[answers.known]
    if not (wrong.any() and answers.right.any()):
        return None
    singles = {name: aurc(column[known], wrong) for name, column in zip(names, scores.T, strict=True)}
    best = min(singles, key=lambda name: singles[name])
    return Orders(aurc(statistics[known], wrong), singles[best], best)


def _names(context: Context) -> list[str]:
    """The supervisors of the guard: those of the audit that are recommended, else all of them."""
    wanted = {one.name for one in recommended(context.classifier)}
    taken = [one.name for one in context.fitted]
    return [name for name in taken if name in wanted] or taken


def _sets(context: Context) -> list[Tried]:
    """The stress sets that say which kind of anomaly they are, split into what is learnt from and what is not."""
    found = []
    for stress in context.stress:
        if stress.name not in context.stressed or stress.kind not in OF_STRESS:
            continue
        columns = context.stressed[stress.name][0].columns
        rows = np.arange(len(context.stressed[stress.name][0]))
        if {"success", "epsilon"} <= columns.keys():  # an attack that changed nothing is as nominal as any image
            rows = rows[columns["success"] & (columns["epsilon"] > 0)]
        sorts = columns.get(stress.groups) if stress.groups else None
        order = np.random.default_rng([context.seed, 1]).permutation(len(rows))
        learn, test = _halves(rows[order], None if sorts is None else sorts[rows[order]])
        if min(len(learn), len(test)) >= FEWEST:
            found.append(Tried(stress, learn[:MOST], test[:MOST_TRIED], sorts))
    return found


def _halves(rows: Rows, sorts: NDArray[Any] | None) -> tuple[Rows, Rows]:
    """Every other sort and the sorts between; halves where there is one sort only."""
    if sorts is None or len(np.unique(sorts)) < 2:
        return rows[0::2], rows[1::2]
    _, place = np.unique(sorts, return_inverse=True)
    return rows[place % 2 == 0], rows[place % 2 == 1]


def _stress_set(context: Context, names: Sequence[str], tried: Tried) -> _Set:
    images, seen = context.stressed[tried.stress.name]
    answers = Answers.of(images, seen.predictions, tried.stress.kind)
    return _Set(_scores(context, names, tried.stress.name), answers)


def _scores(context: Context, names: Sequence[str], which: str) -> Floats:
    """The scores (n, m) of the supervisors on a set of images."""
    return np.column_stack([context.scored(name, which).scores for name in names])
