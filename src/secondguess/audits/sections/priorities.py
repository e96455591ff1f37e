"""Which images somebody should look at first, on the test images and with ambiguous ones among them.

Every score of suspicion is an order of the images. APFD (`secondguess.metrics.prioritisation`) says how early it brings
the model's mistakes. With ambiguous images among the test images it depends on the aim: who tests wants them early,
since they are likely to be answered wrongly, who looks for images to learn from wants them late, since no training
avoids that. Source: Weiss, Garcia Gomez and Tonella, Empirical Software Engineering, 2023, section 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from secondguess.audits.context import Context
from secondguess.audits.findings import Findings, NotApplicable
from secondguess.audits.sections.registry import Section, register
from secondguess.metrics import (
    Interval,
    apfd_interval,
    avoidable_faults,
    best_apfd,
    fault_chances,
    share_of_first,
)

FIRST = 0.1  # of the images, that somebody looks at
SHOWN = 5  # of the best

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Mixed:
    """Test images with ambiguous ones behind them.

    Attributes:
        name: of the ambiguous set.
        chances: (n + m,) that an image is answered wrongly.
        avoidable: (n + m,) whether it is, and need not be.
        ambiguous: (n + m,) which images these are.
    """

    name: str
    chances: Floats
    avoidable: NDArray[np.bool_]
    ambiguous: NDArray[np.bool_]


class _Row(NamedTuple):
    name: str
    testing: Interval
    learning: Interval
    first: float  # the share of ambiguous images among the first


@register
class Priorities(Section):
    """Which images somebody should look at first."""

    name = "priorities"
    title = "Which images should be looked at first?"
    after = "confident_errors"

    def run(self, context: Context) -> Findings:
        """APFD of every supervisor on the test images, and with ambiguous images among them for either aim."""
        known = context.labels >= 0
        wrong = (context.nominal.predictions != context.labels)[known]
        if not wrong.any() or wrong.all():
            raise NotApplicable(
                "The model answers no labelled test image wrongly, or none rightly, so any order of them is as good."
            )
        findings = Findings()
        scores = {one.name: context.scored(one.name).scores[known] for one in context.fitted}
        early = {name: apfd_interval(values, wrong) for name, values in scores.items()}
        ranked = sorted(scores, key=lambda name: -early[name].value)
        findings.numbers |= {f"priorities.{name}.apfd": context.number(early[name]) for name in ranked}
        best, first = ranked[0], max(1, round(FIRST * len(wrong)))
        found = {name: share_of_first(scores[name], wrong, first) * first / wrong.sum() for name in ranked}
        findings.add_text(
            f"Somebody who looks at the most suspicious images first finds {found[best]:.0%} of the {wrong.sum():,} "
            f"mistakes among the first {first:,} of {len(wrong):,} test images, by {best}; by chance {FIRST:.0%}."
        )
        rows = [[name, f"{found[name]:.0%}", early[name]] for name in ranked]
        header = ["score of suspicion", f"mistakes among the first {FIRST:.0%}", "APFD"]
        shown = [row[:2] for row in rows[:SHOWN]]
        findings.add_table(header[:2], shown, "How early the mistakes among the test images come, by the best scores")
        meaning = f"how early all mistakes come, .5 by chance, at best {best_apfd(wrong):.3f} here"
        findings.add_table(header, rows, f"All scores, with APFD: {meaning}", folded=True)
        for one in _mixed(context, known, wrong):
            _add_mixed(context, findings, one, scores)
        return findings


def _mixed(context: Context, known: NDArray[np.bool_], wrong: NDArray[np.bool_]) -> list[_Mixed]:
    """The test images with each set of ambiguous ones."""
    made = []
    for one in context.stress:
        if one.kind == "ambiguous" and one.name in context.stressed:
            images, seen = context.stressed[one.name]
            if images.soft_labels is not None:
                chances = fault_chances(seen.predictions, images.soft_labels)
                avoidable = avoidable_faults(seen.predictions, images.soft_labels)
                marks = np.arange(len(wrong) + len(images)) >= len(wrong)
                made.append(_Mixed(one.name, np.r_[wrong.astype(float), chances], np.r_[wrong, avoidable], marks))
    return made


def _add_mixed(context: Context, findings: Findings, mixed: _Mixed, nominal: dict[str, Floats]) -> None:
    """How early every score brings mistakes and ambiguous images, where both are there."""
    first = max(1, round(FIRST * len(mixed.ambiguous)))
    rows = []
    for name, values in nominal.items():
        scores = np.r_[values, context.scored(name, mixed.name).scores]
        testing, learning = apfd_interval(scores, mixed.chances), apfd_interval(scores, mixed.avoidable)
        rows.append(_Row(name, testing, learning, share_of_first(scores, mixed.ambiguous, first)))
        start, images = f"priorities.{name}.{mixed.name}", (context.test, context.stressed[mixed.name][0])
        findings.numbers[f"{start}.apfd"] = context.number(testing, *images)
        findings.numbers[f"{start}.avoidable.apfd"] = context.number(learning, *images)
        findings.numbers[f"{start}.first"] = context.number(rows[-1].first, *images)
    rows.sort(key=lambda row: -row.testing.value)
    tests, learns = rows[0], max(rows, key=lambda row: row.learning.value)
    findings.add_text(
        f"With {int(mixed.ambiguous.sum()):,} ambiguous images among them ({mixed.ambiguous.mean():.0%} of all) it "
        "depends on the aim. Several answers to such an image are right, and which of them its label names is chance. "
        "For testing it counts with the chance that somebody answers otherwise than the model. For learning it counts "
        "only where the model names an impossible class: no training avoids the rest, and labels for it are wasted. "
        f"For testing {tests.name} is best, and {tests.first:.0%} of its first {first:,} images are ambiguous; for "
        f"learning {learns.name} is, with {learns.first:.0%}."
    )
    best = (best_apfd(mixed.chances), best_apfd(mixed.avoidable))
    findings.add_table(
        ["score of suspicion", "APFD for testing", "APFD for learning", f"ambiguous among the first {FIRST:.0%}"],
        [[row.name, row.testing, row.learning, f"{row.first:.0%}"] for row in rows],
        f"With ambiguous images; the best order has {best[0]:.3f} for testing and {best[1]:.3f} for learning",
        folded=True,
    )
