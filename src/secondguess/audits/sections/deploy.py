"""If this model is deployed: which guard to take, what it stops of a thousand images of each kind, and what it costs.

How the guard is put together and tried is said in `secondguess.audits.rehearsal`. The promise of the false-alarm rate
is that of `secondguess.guard.thresholds`, the one about errors that of `secondguess.guard.risk`.
"""

from __future__ import annotations

from secondguess.audits.context import Context
from secondguess.audits.findings import Findings
from secondguess.audits.rehearsal import Rehearsal, rehearse
from secondguess.audits.sections.registry import Section, register
from secondguess.guard import Actions, Verdict
from secondguess.images import ImageSet
from secondguess.metrics import MISTAKES, Interval
from secondguess.planning import Pace, Price

SHOWN = 12  # sorts of anomaly that will be missed
REHEARSED = 0.0015  # seconds for a test image, about; results/photos/times.json


@register
class Deploy(Section):
    """If this model is deployed: which guard to take, what it stops of each kind of image, and what it will miss."""

    name = "deploy"
    title = "If you deploy this"
    after = "accuracy"
    last = True
    template = "deploy.html"

    def price(self, context: Context, pace: Pace) -> Price:
        """A guard that is fitted and tried."""
        return Price(beside={"test": REHEARSED * pace.slowness})

    def run(self, context: Context) -> Findings:
        """Expected behaviour of a guard over this model."""
        tried = rehearse(context)
        report, missed = tried.report, tried.report.missed
        stopped = _stopped(tried)
        findings = Findings(
            view={
                "supervisors": tried.supervisors,
                "rate": f"{context.false_alarms:g}",
                "report": report,
                "unnoticed": tried.unnoticed,
                "stopped": stopped,
                "untried": _untried(tried),
                "kept": tried.kept,
                "orders": tried.orders,
                "kinds": {kind: Actions()(Verdict((kind,))) for kind in tried.panel.anomalies},
                "missed": missed[:SHOWN],
                "more": max(0, len(missed) - SHOWN),
                "learnt_from": tried.learnt_from,
                "titles": {one.stress.name: one.title for one in tried.sets},
            }
        )
        _record(context, findings, tried)
        seen = ", ".join(f"{1000 * share.value:.0f} {name}" for name, share in stopped.items())
        cost = f"{1000 * report.false_alarms.value:.0f} good ones"
        untried = f"; not tried: {', '.join(left)}" if (left := _untried(tried)) else ""
        said = f"of a thousand each, a guard stops {seen or 'what is unusual'} and {cost}{untried}"
        findings.summary = [(self.title, said)]
        if missed:
            findings.summary.append(("It will miss", ", ".join(missed[:3])))
        return findings


def _stopped(tried: Rehearsal) -> dict[str, Interval]:
    """The share that is stopped of the model's mistakes and of each stress set."""
    own = {} if tried.report.mistakes is None else {MISTAKES: tried.report.mistakes.detected}
    return own | {name: one.detected for name, one in tried.report.seen.items()}


def _untried(tried: Rehearsal) -> list[str]:
    """The kinds of images that nothing is said about, because there were none or too few."""
    return [*([MISTAKES] if tried.report.mistakes is None else []), *tried.untried]


def _record(context: Context, findings: Findings, tried: Rehearsal) -> None:
    """The numbers, under names that gates can use."""
    report = tried.report

    def note(name: str, value: Interval | float, *images: ImageSet) -> None:
        findings.numbers[f"deploy.{name}"] = context.number(value, *images)

    note("false_alarms", report.false_alarms)
    if tried.orders is not None:
        note("aurc", tried.orders.guard)
    if report.mistakes is not None:
        note(f"{MISTAKES}.detection", report.mistakes.detected)
        note(f"{MISTAKES}.auroc", report.mistakes.auroc)
    for name, one in report.seen.items():
        images = context.stressed[name][0]
        note(f"{name}.detection", one.detected, images)
        note(f"{name}.verdict_right", one.right, images)
        note(f"{name}.auroc", one.auroc, images)
        note(f"{name}.unnoticed", tried.unnoticed[name], images)
        if one.by_answer is not None:
            note(f"{name}.{MISTAKES}.detection", one.by_answer.wrong, images)
            note(f"{name}.{MISTAKES}.auroc", one.by_answer.auroc, images)
            note(f"{name}.right.detection", one.by_answer.right, images)
    for kept in tried.kept:
        if kept.promise is not None:
            note(f"risk.{100 * kept.risk:g}_percent.accepted", kept.promise.accepted)
            for name, wrong in kept.wrong.items():
                if wrong is not None:
                    note(f"risk.{100 * kept.risk:g}_percent.{name}.wrong", wrong, context.stressed[name][0])
