"""Which supervisors notice which kind of anomaly, and at which cost.

Each cell compares the scores of nominal test images with those of a stress set: AUROC (1/2 = blind, 1 = perfect), and
the share of stress images that raise an alarm when the threshold is set so that at most 5% of nominal images do. The
column `mistakes` compares, among the nominal images, wrong predictions with right ones; so does `corrupted.mistakes`
within the corrupted images, where noticing that an image is spoilt is not yet knowing that the answer is wrong. What a
supervisor costs is measured in the same run: seconds to fit, and microseconds per image to observe what it needs and to
score it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.audits.context import Context, learns
from secondguess.audits.cost import Cost
from secondguess.audits.findings import Findings
from secondguess.audits.sections.registry import Section, register
from secondguess.audits.verdict import FAIR, GOOD
from secondguess.guard.protect import Answers
from secondguess.metrics import (
    MISTAKES,
    Interval,
    accuracy_interval,
    aupr_interval,
    auroc_interval,
    detection_columns,
    detection_rate_interval,
    threshold_at,
)
from secondguess.planning import Pace, Price, timed
from secondguess.progress import beating
from secondguess.report import figures
from secondguess.supervisors.registry import family

HISTOGRAMS = 6
MOST_KINDS = 40
BLIND = 6  # kinds of images in the open part
COMPARED = (250, 2000)  # images whose comparison is timed
KINDS = 1.5  # cells that the kinds within the usual stress sets cost for each supervisor, about


@register
class Supervisors(Section):
    """Which supervisors notice which kind of anomaly, and at which cost."""

    name = "supervisors"
    title = "Does it know what it does not know?"
    template = "supervisors.html"

    def price(self, context: Context, pace: Pace) -> Price:
        """The rows of supervisors that need not learn, kinds within stress sets, and timing what they need.

        The row of one that learns is part of its own price.
        """
        ready = sum(not learns(one) for one in context.supervisors)
        cells = ready * _columns(context) + len(context.supervisors) * KINDS * bool(context.stress)
        cell = _price_of_cell(context, pace)
        ways = {one.needs.traces for one in context.supervisors if one.needs.traces}
        timing = len(ways) * pace.timing if ways else 0.0
        return Price(fixed=cells * cell.fixed + timing, beside={"test": cells * cell.each})

    def run(self, context: Context) -> Findings:
        """The table of supervisors against stress sets, the best for each, and histograms of their scores."""
        findings = Findings()
        answers = _answers(context)
        names = _names(context)
        rows: list[dict[str, Any]] = []
        with (
            context.progress.task("Comparing supervisors", len(names)) as advance,
            beating(lambda: advance(len(rows), len(names))),  # some supervisors score for seconds
        ):
            for name in names:
                with context.plan.doing(f"supervisor.{name}"):
                    rows.append(_row(context, findings, name, answers))
                advance(len(rows), len(names))
            for row in rows:
                row["cost"] = _cost(context, findings, row["name"])
        columns = list(rows[0]["cells"])
        best = {column: max(rows, key=lambda row: row["cells"][column]["auroc"].value) for column in columns}
        findings.view = {
            "columns": columns,
            "families": _families(context, rows),
            "cells": {column: row["cells"][column] for column, row in best.items()},
            "best": {column: row["name"] for column, row in best.items()},
            "near": {column: _near(rows, row, column) for column, row in best.items()},
            "details": _details(context, findings, best, columns),
            "histograms": _histograms(context, best),
            "unusable": context.unusable_supervisors,
            "missing_sets": context.failed_stress,
            "remarks": context.warnings,
            "false_alarms": context.false_alarms,
            "images": {column: rows[0]["images"][column] for column in columns},
            "titles": {column: _title(column) for column in columns},
            "accuracies": _accuracies(context, findings),
        }
        findings.view["blind_spots"] = sorted(findings.view["details"], key=lambda one: one["detection"].value)[:BLIND]
        findings.view["answer"] = _answer(findings.view["cells"], findings.view["images"])
        findings.summary = _summary(context, findings.view, best, columns)
        return findings


def price_of_row(context: Context, pace: Pace) -> Price:
    """What the row of a supervisor takes, by the number of test images."""
    cell, columns = _price_of_cell(context, pace), _columns(context)
    return Price(columns * cell.each, columns * cell.fixed)


def _price_of_cell(context: Context, pace: Pace) -> Price:
    """What a cell takes, by the number of test images; one is timed."""
    sizes = [max(2, min(size, len(context.test))) for size in COMPARED]
    scores = [np.random.default_rng(0).random((2, size)) for size in sizes]
    return Price.line(sizes, [timed(partial(_cell, context, *some), pace.clock) for some in scores])


def _columns(context: Context) -> int:
    """How many cells a row has: one for each stress set, and for the mistakes among test and among corrupted images."""
    return len(context.stress) + 1 + any(one.kind == "corrupted" for one in context.stress)


def _summary(
    context: Context, view: dict[str, Any], best: dict[str, dict[str, Any]], columns: list[str]
) -> list[tuple[str, str]]:
    """Whether it knows what it does not know, what is detected least, by which supervisors, and what was left out."""
    lines = []
    if columns:
        caught = [f"{best[column]['cells'][column]['detection'].value:.0%} of {_title(column)}" for column in columns]
        answer = f"at {context.false_alarms:.0%} false alarms the best supervisors catch {', '.join(caught)}"
        lines.append(("Knows its limits?", answer))
    if view["details"]:
        worst = min(view["details"], key=lambda one: one["detection"].value)
        share = f"{worst['detection'].value:.0%} of {worst['n']} {worst['kind']} images caught, the fewest of any kind"
        lines.append(("Blind spot", share))
    lines += [
        ("Right under stress", f"{value.value:.1%} of {name} images") for name, value in view["accuracies"].items()
    ]
    if missing := context.failed_stress:
        (_, reason), *others = missing.items()
        listed = ", ".join(missing).replace("_", " ")
        lines.append(("Left out", f"{listed} images; the reasons are below" if others else f"{listed}: {reason}"))
    if columns:
        lines.append(
            ("Best supervisors", ", ".join(f"{best[column]['name']} for {_title(column)}" for column in columns))
        )
    return lines


def _answer(cells: dict[str, dict[str, Interval]], images: dict[str, int]) -> str:
    """The answer to the title of the section, in a sentence or two."""
    if not cells:
        return "Nobody can say: there are neither stress images nor enough mistakes to try supervisors on."
    words = ""
    if MISTAKES in cells:
        caught, apart = cells[MISTAKES]["detection"].value, cells[MISTAKES]["auroc"].value
        degree = "Mostly" if apart >= GOOD else "Partly" if apart >= FAIR else "Hardly"
        words = f"{degree}: of its {images[MISTAKES]} own mistakes the best single score notices {caught:.0%}. "
    others = {name: cell["detection"].value for name, cell in cells.items() if not name.endswith(MISTAKES)}
    if not others:
        return words.rstrip()
    least, most = min(others, key=lambda name: others[name]), max(others, key=lambda name: others[name])
    words += f"Of {_title(least)} images {others[least]:.0%} are noticed"
    return f"{words}, of {_title(most)} ones {others[most]:.0%}." if most != least else f"{words}."


def _families(context: Context, rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each family of supervisors, in the order in which families first appear."""
    families: dict[str, list[dict[str, Any]]] = {}
    for supervisor, row in zip(context.fitted, rows, strict=True):
        families.setdefault(family(type(supervisor)), []).append(row)
    return families


def _near(rows: list[dict[str, Any]], best: dict[str, Any], column: str) -> list[str]:
    """The supervisors whose interval overlaps that of the best: this sample does not tell them from it."""
    bar = best["cells"][column]["auroc"].low
    return [row["name"] for row in rows if row is not best and row["cells"][column]["auroc"].high >= bar]


def _names(context: Context) -> list[str]:
    return [supervisor.name for supervisor in context.fitted]


def _answers(context: Context) -> dict[str, tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Which answers are right and which wrong, to the test images and to corrupted ones, whose class is the same."""
    found = {"nominal": Answers.of(context.test, context.nominal.predictions)}
    for one in context.stress:
        if one.kind == "corrupted" and one.name in context.stressed:
            images, seen = context.stressed[one.name]
            found[one.name] = Answers.of(images, seen.predictions, one.kind)
    return {name: (answers.right, answers.wrong) for name, answers in found.items()}


def _title(column: str) -> str:
    """What a column is called in a sentence."""
    within = column.removesuffix(f".{MISTAKES}")
    return (column if within == column else f"mistakes among {within}").replace("_", " ")


def _row(
    context: Context,
    findings: Findings,
    name: str,
    answers: dict[str, tuple[NDArray[np.bool_], NDArray[np.bool_]]],
) -> dict[str, Any]:
    nominal = context.scored(name, "nominal").scores
    stress = {one: context.scored(name, one).scores for one in context.stressed}
    cells: dict[str, dict[str, Interval]] = {}
    sizes: dict[str, int] = {}
    for column, (ordinary, other) in detection_columns(nominal, stress, answers).items():
        images = context.test if column == MISTAKES else context.stressed[column.removesuffix(f".{MISTAKES}")][0]
        cells[column], sizes[column] = _cell(context, ordinary, other), len(other)
        for measure, value in cells[column].items():
            findings.numbers[f"supervisor.{name}.{column}.{measure}"] = context.number(value, images)
    return {"name": name, "cells": cells, "images": sizes}


def _cost(context: Context, findings: Findings, name: str) -> Cost:
    cost = context.cost(name)
    findings.numbers[f"supervisor.{name}.microseconds"] = context.number(cost.scoring)
    findings.numbers[f"supervisor.{name}.observing.microseconds"] = context.number(cost.observing)
    if cost.fitting is not None:
        findings.numbers[f"supervisor.{name}.fitting.seconds"] = context.number(cost.fitting)
    return cost


def _cell(context: Context, nominal: NDArray[np.float64], other: NDArray[np.float64]) -> dict[str, Interval]:
    return {
        "auroc": auroc_interval(nominal, other, seed=context.seed),
        "aupr": aupr_interval(nominal, other, seed=context.seed),
        "detection": detection_rate_interval(nominal, other, context.false_alarms, seed=context.seed),
    }


def _details(
    context: Context, findings: Findings, best: dict[str, dict[str, Any]], columns: list[str]
) -> list[dict[str, Any]]:
    """For stress sets that mix several kinds, e.g. corruptions: how each kind fares, shown for the best supervisor."""
    groups = {one.name: one.groups for one in context.stress}
    kinds = [
        (column, kind)
        for column in columns
        if groups.get(column)
        for kind in _kinds(context.stressed[column][0].columns[groups[column]])
    ]
    details = []
    with context.progress.task("Comparing kinds of images", len(kinds)) as advance:
        for column, kind in kinds:
            rows = context.stressed[column][0].columns[groups[column]] == kind
            details.append(_detail(context, findings, best[column]["name"], column, kind, rows))
            advance(len(details), len(kinds))
    return details


def _kinds(values: NDArray[Any]) -> NDArray[Any]:
    """The kinds within a stress set; none where there are too many for a table, or only one."""
    kinds = np.unique(values)
    return kinds if 2 <= len(kinds) <= MOST_KINDS else kinds[:0]


def _detail(
    context: Context, findings: Findings, name: str, column: str, kind: Any, rows: NDArray[np.bool_]
) -> dict[str, Any]:
    """How the images of one kind (n,) fare: the AUROC of each supervisor, and all about the one with that name."""
    images, observation = context.stressed[column]
    for supervisor in _names(context):
        nominal, scores = context.scored(supervisor).scores, context.scored(supervisor, column).scores[rows]
        measured = auroc_interval(nominal, scores, seed=context.seed)
        findings.numbers[f"supervisor.{supervisor}.{column}.{kind}.auroc"] = context.number(measured, images)
    cell = _cell(context, context.scored(name).scores, context.scored(name, column).scores[rows])
    known = rows & (images.labels >= 0)
    right = accuracy_interval(observation.predictions[known], images.labels[known]) if known.any() else None
    if right is not None:
        findings.numbers[f"accuracy.stress.{column}.{kind}"] = context.number(right, images)
    return {"set": column, "kind": str(kind), "supervisor": name, "n": int(rows.sum()), "accuracy": right, **cell}


def _accuracies(context: Context, findings: Findings) -> dict[str, Interval]:
    """How often the model is right where images still have one right answer and were not picked to be wrong."""
    found = {}
    for one in context.stress:
        if one.name in context.stressed and one.kind == "corrupted":
            images, observation = context.stressed[one.name]
            if images.is_labelled:
                found[one.name] = accuracy_interval(observation.predictions, images.labels)
                findings.numbers[f"accuracy.stress.{one.name}"] = context.number(found[one.name], images)
    return found


def _histograms(context: Context, best: dict[str, dict[str, Any]]) -> list[Any]:
    charts = []
    for column in list(context.stressed)[:HISTOGRAMS]:
        name = best[column]["name"]
        nominal, other = context.scored(name, "nominal").scores, context.scored(name, column).scores
        threshold = threshold_at(nominal, context.false_alarms)
        charts.append(figures.histogram(nominal, other, threshold, name, column))
    return charts
