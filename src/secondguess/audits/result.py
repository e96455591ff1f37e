"""A finished (or interrupted) audit, and its files: `report.html`, `audit.json`, `predictions.npz`, `junit.xml`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondguess.audits.findings import Number, SectionResult, of_numbers
from secondguess.audits.gates import GateOutcome
from secondguess.audits.plotting import What, plot_predictions
from secondguess.audits.predictions import FILE, Predictions
from secondguess.audits.verdict import RULES, Verdict, decide_verdict
from secondguess.errors import UserError
from secondguess.files import make_folder, write_json, write_text
from secondguess.model.degenerate import Degenerate
from secondguess.report import Case, junit_xml, render
from secondguess.results import Result, aligned, html_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["AuditResult"]

SCHEMA = 1
SUMMARY_LINES = 10
ANSWER = "supervisors"  # the section that says whether the model knows what it does not know
REPORT, DATA, JUNIT = "report.html", "audit.json", "junit.xml"
TEMPLATES = Path(__file__).parent / "sections"


@dataclass(repr=False)
class AuditResult(Result):
    """Everything an audit found.

    Attributes:
        about: provenance: when, how, seed, versions, data and model.
        sections: one result for each section, in the order of the report.
        gates: whether each gate holds.
        interrupted: whether the audit was stopped before its end.
        softmax: what is wrong with the model's probabilities as a whole, or None.
        predictions: the answers image by image; None where the audit was interrupted before it had any.
        folder: where the files are; None until the result is saved.
    """

    about: dict[str, Any]
    sections: list[SectionResult] = field(default_factory=list)
    gates: list[GateOutcome] = field(default_factory=list)
    interrupted: bool = False
    softmax: Degenerate | None = None
    predictions: Predictions | None = field(default=None, compare=False)
    folder: Path | None = None
    _digest: str | None = None  # of the file of predictions

    def __repr__(self) -> str:
        done = sum(section.status == "done" for section in self.sections)
        where = f"{self.folder}: " if self.folder else ""
        return f"AuditResult({where}{done} of {len(self.sections)} sections, {len(self.numbers)} numbers)"

    @property
    def report(self) -> Path:
        """The page for people."""
        if self.folder is None:
            raise UserError("The audit has not been saved yet, so there is no report; call save(folder) first.")
        return self.folder / REPORT

    @property
    def numbers(self) -> dict[str, Number]:
        """Every number by name."""
        return {name: number for section in self.sections for name, number in section.findings.numbers.items()}

    @property
    def failed(self) -> list[SectionResult]:
        """The sections that raised an error."""
        return [section for section in self.sections if section.status == "failed"]

    @property
    def passed(self) -> bool:
        """Whether every gate holds."""
        return all(gate.outcome == "passed" for gate in self.gates)

    @property
    def verdict(self) -> Verdict:
        """Whether the model may be deployed, in plain words, with the three reasons that carry it."""
        return decide_verdict(self)

    @property
    def highlights(self) -> list[tuple[str, str]]:
        """What the sections found as at most ten (what, how) pairs; see `shortened`."""
        return self.shortened(SUMMARY_LINES, set())

    def shortened(self, most: int, said: set[str]) -> list[tuple[str, str]]:
        """At most `most` (what, how) pairs of the sections, in their order.

        What failed, the gates and the answer to whether it knows what it does not know are never left out; of the rest,
        the first of every section goes before the second of any.

        Args:
            most: how many.
            said: names of sections whose first pair is left out, because its content was said already.
        """
        must = [(f"Failed: {section.title}", section.reason) for section in self.failed]
        if self.gates and "summary" not in said:
            held = sum(gate.outcome == "passed" for gate in self.gates)
            must.append(("Gates", f"{held} of {len(self.gates)} hold"))
        lines = [one.findings.summary for one in self.sections]
        places = sorted(
            (rank, one.name != ANSWER, place)
            for place, one in enumerate(self.sections)
            for rank in range(one.name in said, len(lines[place]))
        )
        shown = sorted((place, rank) for rank, _, place in places[: max(0, most - len(must))])
        return [lines[place][rank] for place, rank in shown] + must[:most]

    @property
    def short(self) -> list[tuple[str, str]]:
        """What the page says below the verdict: at most ten (what, how) pairs, but what carries the verdict."""
        return self.shortened(SUMMARY_LINES, {one.section for one in self.verdict.reasons})

    def summary(self) -> str:
        """At most ten lines for a person: the verdict, its reasons, and what else the sections found."""
        verdict = self.verdict
        lines = [("Verdict", verdict.headline), *((one.title, one.text) for one in verdict.reasons)]
        lines += self.shortened(SUMMARY_LINES - len(lines), {one.section for one in verdict.reasons})
        return aligned(lines)

    def to_dict(self) -> dict[str, Any]:
        """The machine-readable audit; what `audit.json` holds."""
        return {
            "schema": SCHEMA,
            "status": "interrupted" if self.interrupted else "complete",
            **self.about,
            "verdict": self.verdict.to_dict(),
            "softmax": self.softmax.to_dict() if self.softmax else None,
            "summary": [{"what": what, "how": how} for what, how in self.highlights],
            "sections": [section.to_dict() for section in self.sections],
            "gates": [gate.to_dict() for gate in self.gates],
            "numbers": {name: number.to_dict() for name, number in self.numbers.items()},
            "predictions": self._digest and {"file": FILE, "digest": self._digest},
            "files": self.folder and {"report": str(self.folder / REPORT), "junit": str(self.folder / JUNIT)},
        }

    def rows(self) -> list[dict[str, Any]]:
        """Every number by its name, with interval, sample size, seed and the fingerprint of its data."""
        return [{"number": name, **number.to_dict()} for name, number in self.numbers.items()]

    def metrics(self) -> dict[str, float]:
        """Every number by its name, and the ends of its interval."""
        return of_numbers(self.numbers)

    def plot(self, what: What = "risk", ax: Axes | None = None) -> Axes:
        """Draw how the model fares on the labelled test images.

        Args:
            what: `"risk"`, the share of wrong answers among the accepted ones by the best supervisors and by the
                model's own confidence; or `"reliability"`, the accuracy at each confidence.
            ax: where to draw; a new figure if left out.
        """
        return plot_predictions(self.predictions, what, ax)

    def save(self, folder: str | Path) -> Path:
        """Write `report.html`, `audit.json`, `predictions.npz` and `junit.xml` into a folder, each atomically."""
        self.folder = make_folder(folder)
        self._digest = self.predictions.save(self.folder / FILE) if self.predictions else None
        write_json(self.folder / DATA, self.to_dict())
        write_text(self.folder / JUNIT, junit_xml("secondguess audit", self._cases()))
        write_text(self.folder / REPORT, render("audit.html", [TEMPLATES], audit=self, rules=RULES))
        return self.folder

    def _repr_html_(self) -> str:
        """The verdict, the summary as a table, the gates, and every number with its interval, folded."""
        verdict = self.verdict
        tables = [html_table([("Verdict", verdict.headline), *((one.title, one.text) for one in verdict.reasons)])]
        tables.append(html_table(self.highlights))
        if self.gates:
            rows = [(one.gate, "–" if one.value is None else f"{one.value:.4g}", one.outcome) for one in self.gates]
            tables.append(html_table(rows, ("gate", "measured", "outcome")))
        numbers = html_table(
            [(name, *_spelt(number)) for name, number in self.numbers.items()], ("number", "value", "interval")
        )
        count = f"{len(self.numbers):,} numbers"
        return "".join(tables) + f"<details><summary>{count}</summary>{numbers}</details>"

    def _cases(self) -> list[Case]:
        outcomes = {"done": "passed", "failed": "error", "skipped": "skipped"}
        sections = [
            Case("audit.section", one.name, outcomes[one.status], one.reason, one.seconds)  # type: ignore[arg-type]
            for one in self.sections
        ]
        return sections + [Case("audit.gate", str(one.gate), one.outcome, one.reason) for one in self.gates]


def _spelt(number: Number) -> tuple[str, str]:
    interval = number.interval
    return f"{number.value:.4g}", f"{interval.low:.4g} to {interval.high:.4g}" if interval else ""
