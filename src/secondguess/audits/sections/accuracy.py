"""How often the model is right, class by class."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.audits.context import Context
from secondguess.audits.findings import Findings
from secondguess.audits.sections.registry import Section, register
from secondguess.audits.verdict import FED, RENORMALISED, too_poor
from secondguess.errors import UserError
from secondguess.metrics import accuracy_interval, confusion, most_confused, wilson
from secondguess.model.check import check_model

SHOWN_CLASSES = 20  # a larger confusion matrix is unreadable; the table of pairs is clearer
WEAKEST, LISTED = 8, 200  # classes in the open part, and below the fold
SHARES = ("recall", "precision")
CHECKED = 200  # images on which other ways of feeding a model are tried
SHORT = 3  # letters of a class name that fit above a column of the matrix


@register
class Accuracy(Section):
    """How often the model is right, class by class."""

    name = "accuracy"
    title = "Accuracy"
    template = "accuracy.html"
    reads_scores = False

    def run(self, context: Context) -> Findings:
        """Accuracy with interval, recall and precision of each class, confusion matrix."""
        labels, seen, names = context.labels, context.nominal, context.test.class_names
        known = labels >= 0
        overall = accuracy_interval(seen.predictions, labels)
        table = confusion(seen.predictions[known], labels[known], seen.num_classes)
        findings = Findings()
        findings.numbers["accuracy.test"] = context.number(overall)
        rows = _classes(names, table)
        for row in rows:
            for measure in SHARES:
                if row[measure] is not None:
                    findings.numbers[f"accuracy.class.{row['name']}.{measure}"] = context.number(row[measure])
        pairs = [
            {"true": names[true], "predicted": names[predicted], "count": count}
            for true, predicted, count in most_confused(table, top=8)
        ]
        ordered = sorted(rows, key=lambda row: row["recall"].value if row["recall"] else 2.0)
        findings.view = {
            "accuracy": overall,
            "classes": rows,
            "weakest": ordered[:WEAKEST],
            "listed": rows if len(rows) <= LISTED else ordered[:LISTED],
            "file": "" if len(rows) <= LISTED else _as_file(rows),
            "pairs": pairs,
            "names": names,
            "slanted": max(map(len, names)) > SHORT,
            "confusion": _matrix(table) if len(names) <= SHOWN_CLASSES else None,
            "check": None,
        }
        findings.summary = _summary(findings.view, int(known.sum()))
        if too_poor(overall, _most_frequent(table)) or context.softmax is not None:
            _explain(context, np.flatnonzero(known), findings)
        return findings


def _most_frequent(table: NDArray[np.int64]) -> float:
    """The share of the most frequent class; 0 where there is one only."""
    support = table.sum(axis=1)
    return float(support.max() / support.sum()) if (support > 0).sum() > 1 else 0.0


def _explain(context: Context, labelled: NDArray[np.int64], findings: Findings) -> None:
    """Try whether the model is fed or read wrongly, and say what would make more of its answers right.

    No plan counts with it, since nobody knows before that a model is poor: a few batches of each normalisation, which
    an audit that is out of time goes without.
    """
    if context.classifier.backend.kind == "callable":
        return  # it may be somebody's endpoint, and has its own way with pixels
    images = context.test.take(labelled).head(CHECKED, seed=context.seed)
    try:
        check = check_model(
            context.classifier, images, max_images=CHECKED, seed=context.seed, progress=context.progress
        )
    except UserError:
        return  # it can be asked in one way only, or there is no time
    found = [one for one in check.findings if one.severity == "wrong" and one.about in ("normalisation", "classes")]
    if not found:
        return
    findings.view["check"] = {"texts": [one.text for one in found], "toml": check.toml(), "images": check.images}
    findings.summary.insert(1, (FED, found[0].text))
    for one in found:
        if one.about == "normalisation":
            findings.numbers[RENORMALISED] = context.number(one.numbers["better"], images)


def _classes(names: Sequence[str], table: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Recall and precision of each class with their intervals; None where the denominator is 0."""
    right, support, predicted = table.diagonal(), table.sum(axis=1), table.sum(axis=0)
    return [
        {
            "name": name,
            "support": int(support[k]),
            "recall": wilson(int(right[k]), int(support[k])) if support[k] else None,
            "precision": wilson(int(right[k]), int(predicted[k])) if predicted[k] else None,
        }
        for k, name in enumerate(names)
    ]


def _matrix(table: Any) -> list[list[dict[str, Any]]]:
    """Counts with the share of their row, for the background of the cell."""
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    return [
        [
            {"count": int(count), "share": float(share), "diagonal": row == column}
            for column, (count, share) in enumerate(zip(counts, row_shares, strict=True))
        ]
        for row, (counts, row_shares) in enumerate(zip(table, shares, strict=True))
    ]


def _as_file(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table of all classes as a CSV file within the page."""
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(["class", "images", *(f"{name}{end}" for name in SHARES for end in ("", "_low", "_high"))])
    for row in rows:
        found = [row[name] for name in SHARES]
        cells = [("", "", "") if one is None else (one.value, one.low, one.high) for one in found]
        table.writerow([row["name"], row["support"], *(value for cell in cells for value in cell)])
    return "data:text/csv;charset=utf-8;base64," + base64.b64encode(text.getvalue().encode()).decode("ascii")


def _summary(view: dict[str, Any], images: int) -> list[tuple[str, str]]:
    overall = view["accuracy"]
    interval = f"95% interval {overall.low:.1%} to {overall.high:.1%}"
    lines = [("Accuracy", f"{overall.value:.1%} right on {images:,} test images ({interval})")]
    recalls = [row for row in view["classes"] if row["recall"] is not None]
    if recalls:
        worst = min(recalls, key=lambda row: row["recall"].value)
        text = f"{worst['name']}: {worst['recall'].value:.1%} of {worst['support']} found"
        if view["pairs"]:
            pair = view["pairs"][0]
            times = "once" if pair["count"] == 1 else f"{pair['count']} times"
            text += f"; most frequent mix-up: {pair['true']} taken for {pair['predicted']} ({times})"
        lines.append(("Weakest class", text))
    return lines
