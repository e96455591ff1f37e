"""Whether the model doubts what people doubt, where people have voted on the test images.

Human doubt is the entropy of the votes on an image. A score that follows it has a high rank correlation with it, and
ranks disputed images, on which fewer than three quarters of the people agree, above the others. Hubris against the
votes says how much surer the model is than the people are (0: as unsure as they). Ordinary test sets hold few disputed
images, and all people share some errors of habit: this complements the stress sets, and does not replace them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secondguess.audits.context import Context
from secondguess.audits.findings import Findings, NotApplicable
from secondguess.audits.sections.registry import Section, register
from secondguess.metrics import Interval, auroc_interval, hubris, spearman_interval, vote_shares

RESAMPLES = 200  # of each interval
SHOWN = 12
AGREEMENT = 0.75  # the share of the votes for the commonest class, below which an image is disputed
FEWEST = 5  # disputed images, below which nothing is said of their detection


@register
class HumanDoubt(Section):
    """Whether the model doubts what people doubt."""

    name = "human_doubt"
    title = "Does it doubt what people doubt?"
    after = "overconfidence"

    def run(self, context: Context) -> Findings:
        """Correlation of every score with human doubt, detection of disputed images, and hubris against the votes."""
        if context.votes is None:
            raise NotApplicable("No votes of people on the test images were given; give them with --votes (votes=).")
        votes = context.votes
        shares = votes / votes.sum(axis=1, keepdims=True)
        doubt = -(shares * np.log2(shares, where=shares > 0, out=np.zeros_like(shares))).sum(axis=1)
        disputed = shares.max(axis=1) < AGREEMENT
        findings = Findings()
        against = hubris(context.nominal.probabilities, vote_shares(votes), resamples=RESAMPLES, seed=context.seed)
        findings.numbers["human_doubt.disputed"] = context.number(float(disputed.mean()))
        findings.numbers["human_doubt.hubris"] = context.number(against.value)
        findings.add_text(
            f"People voted on these images, {votes.sum(axis=1).mean():.1f} of them on each on average; on "
            f"{disputed.sum():,} of {len(votes):,} images fewer than {AGREEMENT:.0%} agree. Hubris against their "
            f"votes is {against.value:.3f} (0: as unsure as people, at most {against.ceiling:.3f})."
        )
        rows = _rows(context, findings, doubt, disputed)
        findings.add_table(
            ["supervisor", "rank correlation with human doubt", "disputed images, AUROC"],
            rows,
            "Whether scores follow the doubt of people; the best first",
        )
        _gallery(context, findings, against.scores, shares)
        best = rows[0]
        findings.summary = [(self.title, f"{best[0]} follows human doubt best, rank correlation {best[1].value:.2f}")]
        return findings


def _rows(
    context: Context, findings: Findings, doubt: NDArray[np.float64], disputed: NDArray[np.bool_]
) -> list[tuple[str, Interval, Interval | str]]:
    rows: list[tuple[str, Interval, Interval | str]] = []
    how: dict[str, int] = {"resamples": RESAMPLES, "seed": context.seed}
    for supervisor in context.fitted:
        name, scores = supervisor.name, context.scored(supervisor.name).scores
        follows = spearman_interval(scores, doubt, resamples=RESAMPLES, seed=context.seed)
        findings.numbers[f"human_doubt.{name}.correlation"] = context.number(follows)
        found: Interval | str = "too few"
        if FEWEST <= disputed.sum() <= len(disputed) - FEWEST:
            found = auroc_interval(scores[~disputed], scores[disputed], **how)
            findings.numbers[f"human_doubt.{name}.disputed.auroc"] = context.number(found)
        rows.append((name, follows, found))
    return sorted(rows, key=lambda row: -row[1].value)


def _gallery(context: Context, findings: Findings, surer: NDArray[np.float64], shares: NDArray[np.float64]) -> None:
    """The images on which the model is surest beyond what people are."""
    names, seen = context.nominal.class_names, context.nominal
    chosen = [int(row) for row in np.argsort(-surer, kind="stable")[:SHOWN] if surer[row] > 0]
    if not chosen:
        return
    captions = []
    for row in chosen:
        people = ", ".join(f"{names[k]} {shares[row, k]:.0%}" for k in np.argsort(-shares[row])[:2] if shares[row, k])
        answer = int(seen.predictions[row])
        captions.append(f"model: {names[answer]} {seen.probabilities[row, answer]:.0%}; people: {people}")
    findings.add_gallery(context.test.images[np.array(chosen)], captions, title="Surer than people are")
