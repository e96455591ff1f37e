"""What a section finds: numbers with their provenance, lines for the summary, and what the report shows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from markupsafe import Markup
from numpy.typing import ArrayLike

from secondguess.errors import UserError
from secondguess.metrics import Interval
from secondguess.report import Chart, Gallery, Part, Table, Text

__all__ = ["Findings", "NotApplicable", "Number", "SectionResult", "of_numbers"]

Status = Literal["done", "failed", "skipped"]


class NotApplicable(UserError):
    """A section has nothing to say about these images: it is skipped with this reason, not failed."""


@dataclass(frozen=True)
class Number:
    """A measured value that knows where it comes from.

    Attributes:
        value: the number.
        data: the fingerprint of the images it was measured on.
        seed: of the run.
        interval: its confidence interval, where one makes sense.
    """

    value: float
    data: str
    seed: int
    interval: Interval | None = None

    @classmethod
    def of(cls, measured: Interval | float, data: str, seed: int) -> Number:
        """From an interval or a bare value."""
        if isinstance(measured, Interval):
            return cls(measured.value, data, seed, measured)
        if not math.isfinite(measured):
            raise ValueError(f"a number of the audit is {measured}; JSON has no such number, so leave it out")
        return cls(float(measured), data, seed)

    def to_dict(self) -> dict[str, Any]:
        """Value, interval (null where there is none), sample size, seed and data fingerprint."""
        known = self.interval
        return {
            "value": self.value,
            "low": known.low if known else None,
            "high": known.high if known else None,
            "level": known.level if known else None,
            "n": known.n if known else None,
            "seed": self.seed,
            "data": self.data,
        }


def of_numbers(numbers: Mapping[str, Number]) -> dict[str, float]:
    """Values by name, and below it the ends of their intervals."""
    found: dict[str, float] = {}
    for name, number in numbers.items():
        found[name] = number.value
        if number.interval is not None:
            found |= {f"{name}.low": number.interval.low, f"{name}.high": number.interval.high}
    return found


@dataclass
class Findings:
    """The result of a section.

    A section with a template fills `view`; any other adds text, tables, figures and galleries, which the report shows
    in the order in which they were added, or nothing, and the report shows its numbers.

    Attributes:
        numbers: by the names that gates and `audit.json` use, e.g. `supervisor.entropy.invalid.auroc`.
        summary: (what, how) pairs for the summary of the audit, most important first.
        view: what the section's template shows.
        parts: what the report shows of a section without a template.
    """

    numbers: dict[str, Number] = field(default_factory=dict)
    summary: list[tuple[str, str]] = field(default_factory=list)
    view: dict[str, Any] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)

    @property
    def shown(self) -> list[Part]:
        """The parts, or a table of the numbers where there are none."""
        rows = [[name, number.interval or number.value] for name, number in self.numbers.items()]
        return self.parts or ([Table(["number", "value"], rows)] if rows else [])

    def add_text(self, text: str) -> None:
        """A paragraph."""
        self.parts.append(Text(text))

    def add_table(
        self, header: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "", *, folded: bool = False
    ) -> None:
        """A table; a cell may be text, a number, or an `Interval`, which is shown with its bounds.

        A folded one is shown only when its caption is clicked: for what not everybody wants to see.
        """
        self.parts.append(Table(list(header), [list(row) for row in rows], caption, folded))

    def add_figure(self, figure: Any, caption: str) -> None:
        """A chart: a matplotlib `Figure`, or what `secondguess.report.figures` draws. The caption also describes it."""
        self.parts.append(Chart.of(figure, caption))

    def add_gallery(self, images: ArrayLike, captions: Sequence[str], title: str = "") -> None:
        """Images (n, C, H, W) in [0, 1] with a line below each."""
        self.parts.append(Gallery.of(images, captions, title))


@dataclass
class SectionResult:
    """A section's findings and its part of the page, or the reason why there are none."""

    name: str
    title: str
    status: Status
    seconds: float = 0.0
    reason: str = ""
    findings: Findings = field(default_factory=Findings)
    html: Markup = field(default_factory=Markup, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the numbers, which are listed for the audit as a whole."""
        return {
            "name": self.name,
            "title": self.title,
            "status": self.status,
            "seconds": round(self.seconds, 3),
            "reason": self.reason or None,
        }
