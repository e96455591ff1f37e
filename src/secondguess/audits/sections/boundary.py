"""Whether the model changes its mind where either answer is right, or where only one is.

The decision-boundary oracle of `secondguess.metrics.boundary`, on the test images, which are taken for clear, and the
ambiguous ones, which were made without the model. A test image that is ambiguous itself is taken for clear, too, so
the faults are for somebody to look at. Source: Weiss, Garcia Gomez and Tonella, Empirical Software Engineering, 2023,
section 4.3.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secondguess.audits.context import Context
from secondguess.audits.findings import Findings, NotApplicable
from secondguess.audits.sections.registry import Section, register
from secondguess.images import ImageSet
from secondguess.metrics import Frontier, PairBoundary, frontier, pair_boundaries

SHOWN = 12  # images
PAIRS = 8  # in the open part


@register
class Boundary(Section):
    """Whether the model changes its mind where either answer is right."""

    name = "boundary"
    title = "Does it change its mind in the right place?"
    reads_scores = False
    after = "ambiguity"

    def run(self, context: Context) -> Findings:
        """Where the decision boundary of each pair of classes runs, and what lies at it."""
        sets = [one.name for one in context.stress if one.kind == "ambiguous" and one.name in context.stressed]
        sets = [name for name in sets if context.stressed[name][0].soft_labels is not None]
        if not sets:
            raise NotApplicable("There are no ambiguous images with soft labels in this audit.")
        findings = Findings()
        known = np.flatnonzero(context.labels >= 0)
        images, ambiguous = context.stressed[sets[0]]
        assert images.soft_labels is not None
        seen = context.nominal
        probabilities = np.concatenate([seen.probabilities[known], ambiguous.probabilities])
        soft = np.concatenate([np.eye(seen.num_classes)[context.labels[known]], images.soft_labels])
        pairs, found = pair_boundaries(probabilities, soft), frontier(probabilities, soft)
        if pairs:
            _add_pairs(context, findings, pairs, images)
        _add_frontier(context, findings, found, known, images)
        return findings


def _add_pairs(context: Context, findings: Findings, pairs: list[PairBoundary], images: ImageSet) -> None:
    names, through = context.nominal.class_names, sum(one.through for one in pairs)
    findings.numbers["boundary.through"] = context.number(through / len(pairs), images)
    words = (
        f"Between two classes lie images to which both are right. There the model should change its mind: it does for "
        f"{through} of {len(pairs)} pairs, where it gives at least a tenth of the ambiguous images to either class. "
    )
    beside = [one for one in pairs if not one.through and one.excess]  # both are known, and differ
    if beside:
        as_said = sum((one.excess or 0.0) * one.lean > 0 for one in beside)
        words += (
            "Where it gives nearly all of them to one class, it should take clear images of the other for that class "
            "more often than the reverse; where the test images show either, it does so for "
            f"{as_said} of {len(beside)} pairs."
        )
        findings.numbers["boundary.as_said"] = context.number(as_said / len(beside), context.test, images)
    findings.add_text(words)
    rows = []
    for one in sorted(pairs, key=lambda one: -abs(one.lean)):
        a, b = (names[place] for place in one.pair)
        findings.numbers[f"boundary.{a}.{b}.lean"] = context.number(one.lean, images)
        crossed = [f"{share.value:.1%}" if share else "" for share in (one.b_for_a, one.a_for_b)]
        rows.append([f"{a} or {b}", one.on_a, f"{one.lean:+.2f}", "through" if one.through else "beside", *crossed])
    header = ["first or second class", "ambiguous images taken for the first", "more than their labels say",
              "the boundary runs", "clear first taken for second", "clear second taken for first"]  # fmt: skip
    caption = "Where the decision boundary runs; the most one-sided pairs first"
    findings.add_table(header, rows[:PAIRS], caption)
    if len(rows) > PAIRS:
        findings.add_table(header, rows[PAIRS:], "The other pairs", folded=True)


def _add_frontier(
    context: Context, findings: Findings, found: Frontier, known: NDArray[np.int64], images: ImageSet
) -> None:
    ambiguous, clear = found.share_near(ambiguous=True), found.share_near(ambiguous=False)
    findings.numbers["boundary.frontier.ambiguous"] = context.number(ambiguous, images)
    findings.numbers["boundary.frontier.clear"] = context.number(clear)
    words = (
        f"An image lies at the frontier if its two likeliest classes differ by {found.width} or less. All ambiguous "
        f"images should; {ambiguous.value:.0%} do, and {clear.value:.0%} of the test images"
    )
    if 0 < clear.value < 1:
        here, away = (found.share_wrong(near=place) for place in (True, False))
        findings.numbers["boundary.frontier.wrong"] = context.number(here)
        findings.numbers["boundary.away.wrong"] = context.number(away)
        words += (
            f". Of these test images {here.value:.0%} are answered wrongly, against {away.value:.1%} of the others: "
            "more images like them are worth learning from, unless they are ambiguous themselves"
        )
    findings.add_text(f"{words}.")
    faults = np.flatnonzero(found.faults[: len(known)])[:SHOWN]
    if len(faults):
        names, rows = context.nominal.class_names, known[faults]
        captions = [
            f"{names[label]}, taken for {names[guess]}"
            for label, guess in zip(context.labels[rows], context.nominal.predictions[rows], strict=True)
        ]
        findings.add_gallery(context.test.images[rows], captions, title="On the wrong side of the frontier")
