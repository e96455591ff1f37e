"""How many answers can be accepted, and how often those are wrong: risk against coverage.

Predictions are accepted from the least suspicious on. The more are accepted, the more of them are wrong, up to the
error rate at full coverage; how slowly that grows is what a score is worth to somebody who may refuse to answer. AURC
is the mean risk over all coverages, excess AURC what of it a perfect order would have saved. Both are measured on the
test images, and on each set of corrupted ones, where the model errs more and has more to know of. The statistic of a
guard stands beside the best of its supervisors in the section `deploy`, which puts one together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secondguess.audits.context import Context
from secondguess.audits.findings import Findings, NotApplicable
from secondguess.audits.sections.registry import Section, register
from secondguess.guard.protect import Answers
from secondguess.images import ImageSet
from secondguess.metrics import Interval, aurc_interval, excess_aurc, risk_coverage
from secondguess.planning import Pace, Price
from secondguess.report import figures

RESAMPLES = 200  # of each interval
RISKS = (0.01, 0.02, 0.05)
SHOWN = 5  # of the best
DRAWN = 3  # curves of the best, beside that of the model's own confidence
OWN = "max_softmax"
RISKED = 0.0009  # seconds for a test image, about; results/photos/times.json

Floats = NDArray[np.float64]


@register
class Risk(Section):
    """How many answers can be accepted, and how often those are wrong."""

    name = "risk"
    title = "How many answers can be accepted?"
    after = "supervisors"

    def price(self, context: Context, pace: Pace) -> Price:
        """The intervals of all supervisors."""
        return Price(beside={"test": RISKED * pace.slowness})

    def run(self, context: Context) -> Findings:
        """AURC of every supervisor on the test images and on corrupted ones, and curves of the best."""
        answers = Answers.of(context.test, context.nominal.predictions)
        known, wrong = answers.known, answers.wrong[answers.known]
        if not (wrong.any() and answers.right.any()):
            raise NotApplicable(
                "The model answers no labelled test image wrongly, or none rightly, so accepting fewer changes nothing."
            )
        findings = Findings()
        scores = {one.name: context.scored(one.name).scores[known] for one in context.fitted}
        areas = {
            name: self._area(context, findings, f"risk.{name}", values, wrong, context.test)
            for name, values in scores.items()
        }
        ranked = sorted(scores, key=lambda name: areas[name].value)
        findings.add_text(
            f"The model errs on {wrong.mean():.1%} of the test images. Accept its answers from the least suspicious "
            "on, and fewer of them are wrong; how many can be accepted depends on the score."
        )
        findings.add_table(
            ["score of suspicion", *(f"{risk:.0%} wrong" for risk in RISKS)],
            [[name, *_accepted(scores[name], wrong)] for name in ranked[:SHOWN]],
            "The share of answers that can be accepted if so many of them may be wrong, by the best scores",
        )
        drawn = dict.fromkeys([*ranked[:DRAWN], *([OWN] if OWN in scores else [])])
        curves = {name: risk_coverage(scores[name], wrong) for name in drawn}
        findings.add_figure(
            figures.risk_coverage({name: (one.coverage, one.risk) for name, one in curves.items()}),
            "The share of wrong answers among the accepted ones, against the share that is accepted.",
        )
        findings.add_table(
            ["supervisor", *(f"accepted at {risk:.0%} wrong" for risk in RISKS), "AURC", "excess AURC"],
            [
                [name, *_accepted(scores[name], wrong), areas[name], f"{excess_aurc(scores[name], wrong):.4f}"]
                for name in ranked
            ],
            "All supervisors, with the area under the curve of risk and coverage: smaller is better",
            folded=True,
        )
        self._corrupted(context, findings)
        best, share = ranked[0], _coverage(scores[ranked[0]], wrong, RISKS[1])
        how_many = f"{share:.0%} of them" if share >= 0.005 else "hardly any"
        limit = f"if at most {RISKS[1]:.0%} of the accepted ones may be wrong"
        findings.summary = [("Answers accepted", f"{how_many}, {limit}, chosen by {best}")]
        return findings

    def _corrupted(self, context: Context, findings: Findings) -> None:
        rows: list[tuple[str, Interval, str, str]] = []
        for one in context.stress:
            if one.kind != "corrupted" or one.name not in context.stressed:
                continue
            images, seen = context.stressed[one.name]
            answers = Answers.of(images, seen.predictions, one.kind)
            if not (answers.wrong.any() and answers.right.any()):
                continue
            wrong = answers.wrong[answers.known]
            for supervisor in context.fitted:
                name, values = supervisor.name, context.scored(supervisor.name, one.name).scores[answers.known]
                area = self._area(context, findings, f"risk.{name}.{one.name}", values, wrong, images)
                rows.append((f"{name}, {one.name}", area, f"{excess_aurc(values, wrong):.4f}", f"{wrong.mean():.1%}"))
        if rows:
            rows.sort(key=lambda row: row[1].value)
            header = ["supervisor and images", "AURC", "excess AURC", "errors among all"]
            findings.add_table(header, rows, "The same within corrupted images", folded=True)

    @staticmethod
    def _area(
        context: Context, findings: Findings, start: str, scores: Floats, wrong: NDArray[np.bool_], images: ImageSet
    ) -> Interval:
        area = aurc_interval(scores, wrong, resamples=RESAMPLES, seed=context.seed)
        findings.numbers[f"{start}.aurc"] = context.number(area, images)
        findings.numbers[f"{start}.excess_aurc"] = context.number(excess_aurc(scores, wrong), images)
        return area


def _accepted(scores: Floats, wrong: NDArray[np.bool_]) -> list[str]:
    return [f"{_coverage(scores, wrong, risk):.0%}" for risk in RISKS]


def _coverage(scores: Floats, wrong: NDArray[np.bool_], risk: float) -> float:
    """The largest share of these images that can be accepted with at most this share of errors."""
    curve = risk_coverage(scores, wrong)
    return float(curve.coverage[curve.risk <= risk].max(initial=0.0))
