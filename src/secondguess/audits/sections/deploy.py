"""If this model is deployed: which guard to take, how many false alarms to expect, and what it will miss.

The guard is composed of scores that the audit already has: those of the supervisors that a guard recommends, as
far as they took part (a fitted guard uses earlier layers besides). One half of the test images and part of every
stress set teach its panel; the other half sets the threshold; what is reported was seen on the rest of the stress sets:
on sorts that the panel has not met where a set has several, on other images of the same sort where not. The promise of
the false-alarm rate is that of `secondguess.guard.thresholds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.audits.context import Context
from secondguess.audits.findings import Findings, NotApplicable
from secondguess.audits.sections.registry import Section, register
from secondguess.guard import Actions, Calibration, GuardReport, Verdict, smallest_sample
from secondguess.guard.panel import fit_panel
from secondguess.guard.recommended import recommended
from secondguess.guard.report import Seen, summarise
from secondguess.guard.verdicts import OF_STRESS, Kind, decide
from secondguess.images import ImageSet
from secondguess.metrics import Interval, wilson
from secondguess.model.observation import Observation
from secondguess.stress import StressSet

SURE = 0.7  # as in a guard: the probability from which one kind is enough for a verdict
MOST = 2000  # images of a sort that the panel learns from; more would take long and teach little
FEWEST = 10  # images of a stress set to learn from, and to be tested on
SHOWN = 12  # sorts of anomaly that will be missed
HARDLY = 0.1  # probability of a class in a soft label below which it is a wrong answer

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Tried:
    """A stress set and the part of it that was not used for fitting."""

    stress: StressSet
    learn: Rows
    test: Rows
    sorts: NDArray[Any] | None


@register
class Deploy(Section):
    """If this model is deployed: which guard to take, how many false alarms to expect, and what it will miss."""

    name = "deploy"
    title = "If you deploy this"
    template = "deploy.html"

    def run(self, context: Context) -> Findings:
        """Expected behaviour of a guard over this model."""
        rate = context.false_alarms
        order = np.random.default_rng(context.seed).permutation(len(context.test))
        learn, calibrate = np.array_split(order, 2)
        if len(calibrate) < smallest_sample(rate):
            raise NotApplicable(
                f"{len(context.test)} test images are too few: half of them calibrate the guard, and a false-alarm "
                f"rate of {rate:g} takes {smallest_sample(rate)}."
            )
        names = _names(context)
        sets = _sets(context)
        nominal = _scores(context, names, "nominal")
        report, kinds, unnoticed = _report(context, names, nominal[learn[:MOST]], nominal[calibrate], sets)
        alarms = 1000 * report.false_alarms.value
        findings = Findings(
            view={
                "supervisors": names,
                "report": report,
                "unnoticed": unnoticed,
                "kinds": {kind: Actions()(Verdict((kind,))) for kind in kinds},
                "missed": report.missed[:SHOWN],
                "more": max(0, len(report.missed) - SHOWN),
                "learnt_from": len(learn[:MOST]),
                "titles": {one.stress.name: _title(one) for one in sets},
            }
        )
        findings.numbers["deploy.false_alarms"] = context.number(report.false_alarms)
        for name, one in report.seen.items():
            images = context.stressed[name][0]
            findings.numbers[f"deploy.{name}.detection"] = context.number(one.detected, images)
            findings.numbers[f"deploy.{name}.verdict_right"] = context.number(one.right, images)
            findings.numbers[f"deploy.{name}.auroc"] = context.number(one.auroc, images)
            findings.numbers[f"deploy.{name}.unnoticed"] = context.number(unnoticed[name], images)
        seen = ", ".join(f"{one.detected.value:.0%} of {name}" for name, one in report.seen.items())
        findings.summary = [
            (self.title, f"a guard with {alarms:.0f} false alarms in a thousand sees {seen or 'what is unusual'}")
        ]
        if report.missed:
            findings.summary.append(("It will miss", ", ".join(report.missed[:3])))
        return findings


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
            found.append(Tried(stress, learn[:MOST], test, sorts))
    return found


def _halves(rows: Rows, sorts: NDArray[Any] | None) -> tuple[Rows, Rows]:
    """Every other sort and the sorts between; halves where there is one sort only."""
    if sorts is None or len(np.unique(sorts)) < 2:
        return rows[0::2], rows[1::2]
    _, place = np.unique(sorts, return_inverse=True)
    return rows[place % 2 == 0], rows[place % 2 == 1]


def _report(
    context: Context, names: Sequence[str], learn: Floats, calibrate: Floats, sets: Sequence[Tried]
) -> tuple[GuardReport, tuple[Kind, ...], dict[str, Interval]]:
    """What a guard that learnt from some rows does about the others.

    Returns:
        The report, the kinds of anomaly that it tells apart, and for each stress set the share of images that are
        answered wrongly without an alarm.
    """
    scores = {one.stress.name: _scores(context, names, one.stress.name) for one in sets}
    anomalies: dict[Kind, Floats] = {}
    for one in sets:
        kind, rows = OF_STRESS[one.stress.kind], scores[one.stress.name][one.learn]
        anomalies[kind] = np.concatenate([anomalies[kind], rows]) if kind in anomalies else rows
    with context.progress.task("Putting a guard together", 1) as advance:
        panel = fit_panel(learn, anomalies, rule="learnt" if anomalies else "bonferroni", seed=context.seed)
        advance(1, 1)
    statistics, _ = panel.combine(calibrate)
    calibration = Calibration.of(statistics)
    seen: dict[str, Seen] = {}
    unnoticed: dict[str, Interval] = {}
    for one in sets:
        found, chances = panel.combine(scores[one.stress.name][one.test])
        alarms = calibration.p_values(found) <= context.false_alarms
        codes = decide(alarms, chances, panel.anomalies, SURE)
        sorts = None if one.sorts is None else one.sorts[one.test]
        seen[one.stress.name] = summarise(one.stress.kind, statistics, found, codes, sorts)
        silent = ~alarms & _wrong(*context.stressed[one.stress.name])[one.test]
        unnoticed[one.stress.name] = wilson(int(silent.sum()), len(silent))
    rate = context.false_alarms
    return GuardReport(rate, calibration.realised(rate), len(calibrate), seen), panel.anomalies, unnoticed


def _wrong(images: ImageSet, seen: Observation) -> NDArray[np.bool_]:
    """Which predictions (n,) are wrong: where no class is right, all; where several are, one that hardly any is."""
    if images.soft_labels is not None:
        return np.asarray(images.soft_labels[np.arange(len(seen)), seen.predictions] < HARDLY)
    return np.asarray(seen.predictions != images.labels)


def _scores(context: Context, names: Sequence[str], which: str) -> Floats:
    """The scores (n, m) of the supervisors on a set of images."""
    return np.column_stack([context.scored(name, which).scores for name in names])


def _title(tried: Tried) -> str:
    """How the images that are reported on differ from those learnt from."""
    several = tried.sorts is not None and len(np.unique(tried.sorts)) > 1
    return "sorts it has not met" if several else "other images of the same sort"
