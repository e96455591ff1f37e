"""A finished (or interrupted) audit, and the files it leaves: `report.html`, `audit.json`, `junit.xml`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from secondguess._files import write_json, write_text
from secondguess.audits.findings import Number, SectionResult
from secondguess.audits.gates import Verdict
from secondguess.report import Case, junit_xml, render

__all__ = ["AuditResult"]

SCHEMA = 1
SUMMARY_LINES = 10
TEMPLATES = Path(__file__).parent / "sections"


@dataclass
class AuditResult:
    """Everything an audit found.

    Attributes:
        out: the folder with the files.
        about: provenance: when, how, seed, versions, data and model.
        sections: one result a section, in the order of the report.
        verdicts: what became of the gates.
        interrupted: whether it was stopped before its end.
    """

    out: Path
    about: dict[str, Any]
    sections: list[SectionResult] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    interrupted: bool = False

    def __repr__(self) -> str:
        done = sum(section.status == "done" for section in self.sections)
        return f"AuditResult({self.report}: {done} of {len(self.sections)} sections, {len(self.numbers)} numbers)"

    @property
    def report(self) -> Path:
        """The page for people."""
        return self.out / "report.html"

    @property
    def numbers(self) -> dict[str, Number]:
        """Every number by name."""
        return {name: number for section in self.sections for name, number in section.findings.numbers.items()}

    @property
    def failed(self) -> list[SectionResult]:
        """The sections that did not come to an end."""
        return [section for section in self.sections if section.status == "failed"]

    @property
    def passed(self) -> bool:
        """Whether every gate holds."""
        return all(verdict.outcome == "passed" for verdict in self.verdicts)

    def summary(self) -> list[tuple[str, str]]:
        """At most ten (what, how) lines for a manager: every section's first before any section's second."""
        must = [(f"Failed: {section.title}", section.reason) for section in self.failed]
        if self.verdicts:
            held = sum(verdict.outcome == "passed" for verdict in self.verdicts)
            must.append(("Gates", f"{held} of {len(self.verdicts)} hold"))
        lines = [section.findings.summary for section in self.sections]
        places = sorted((rank, place) for place, some in enumerate(lines) for rank in range(len(some)))
        shown = sorted(places[: max(0, SUMMARY_LINES - len(must))], key=lambda one: (one[1], one[0]))
        return [lines[place][rank] for rank, place in shown] + must[:SUMMARY_LINES]

    def to_json(self) -> dict[str, Any]:
        """The machine-readable audit."""
        return {
            "schema": SCHEMA,
            "status": "interrupted" if self.interrupted else "complete",
            **self.about,
            "summary": [{"what": what, "how": how} for what, how in self.summary()],
            "sections": [section.to_json() for section in self.sections],
            "gates": [verdict.to_json() for verdict in self.verdicts],
            "numbers": {name: number.to_json() for name, number in self.numbers.items()},
            "files": {"report": str(self.report), "junit": str(self.out / "junit.xml")},
        }

    def write(self) -> None:
        """Write the three files, each atomically."""
        write_json(self.out / "audit.json", self.to_json())
        write_text(self.out / "junit.xml", junit_xml("secondguess audit", self._cases()))
        write_text(self.report, render("audit.html", [TEMPLATES], audit=self))

    def _cases(self) -> list[Case]:
        outcomes = {"done": "passed", "failed": "error", "skipped": "skipped"}
        sections = [
            Case("audit.section", one.name, outcomes[one.status], one.reason, one.seconds)  # type: ignore[arg-type]
            for one in self.sections
        ]
        return sections + [Case("audit.gate", str(one.gate), one.outcome, one.reason) for one in self.verdicts]
