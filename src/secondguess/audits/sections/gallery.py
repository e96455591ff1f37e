"""Images to inspect: confident mistakes first, then the nominal images that supervisors find most suspicious."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.audits.context import Context
from secondguess.audits.findings import Findings
from secondguess.audits.sections.registry import Section, register
from secondguess.planning import Pace, Price
from secondguess.report import data_uri

SHOWN = 24
CONFIDENT = 0.95
LOOKING = 0.0015  # seconds for a test image: scores of all supervisors, and pictures; results/photos/times.json


@register
class Gallery(Section):
    """Images to inspect: confident mistakes first, then the nominal images that supervisors find most suspicious."""

    name = "gallery"
    title = "Look at these"
    template = "gallery.html"

    def price(self, context: Context, pace: Pace) -> Price:
        """The scores of all supervisors, and the pictures."""
        return Price(beside={"test": LOOKING * pace.slowness})

    def run(self, context: Context) -> Findings:
        """The most confident mistakes, and the most suspicious test images."""
        seen = context.nominal
        findings = Findings()
        mistakes: list[dict[str, Any]] = []
        if context.test.is_labelled:
            wrong = np.flatnonzero((seen.predictions != context.labels) & (context.labels >= 0))
            ordered = wrong[np.argsort(-seen.confidences[wrong], kind="stable")]
            mistakes = [_card(context, row) for row in ordered[:SHOWN]]
            confident = int((seen.confidences[wrong] >= CONFIDENT).sum())
            findings.numbers["gallery.confident_mistakes"] = context.number(float(confident))
            findings.summary.append(
                (
                    "Confident mistakes",
                    f"{confident} of {len(wrong)} mistakes were made with a confidence of {CONFIDENT:.0%} or more",
                )
            )
        suspicion = _suspicion(context)
        findings.view = {
            "mistakes": mistakes,
            "suspicious": [_card(context, row) for row in np.argsort(-suspicion, kind="stable")[:SHOWN]],
            "supervisors": [supervisor.name for supervisor in context.fitted],
            "confident": CONFIDENT,
        }
        return findings


def _suspicion(context: Context) -> NDArray[np.float64]:
    """The mean rank of each test image over all supervisors (n,): scores of different supervisors share no scale."""
    ranks = np.zeros(len(context.nominal))
    for supervisor in context.fitted:
        scores = context.scored(supervisor.name, "nominal").scores
        _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
        ranks += (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks / len(context.fitted)


def _card(context: Context, row: int) -> dict[str, Any]:
    seen = context.nominal
    names = seen.class_names
    label = int(context.test.labels[row])
    order = np.argsort(-seen.probabilities[row], kind="stable")[:2]
    return {
        "uri": data_uri(context.test.images[int(row)]),
        "id": context.test.ids[row] if context.test.ids else f"image {row}",
        "label": names[label] if label >= 0 else None,
        "guesses": [{"name": names[k], "probability": float(seen.probabilities[row, k])} for k in order],
        "wrong": label >= 0 and label != int(order[0]),
    }
