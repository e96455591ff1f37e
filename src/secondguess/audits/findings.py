"""What a section finds: numbers with their provenance, words for the summary, and material for its template."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from markupsafe import Markup

from secondguess.errors import UserError
from secondguess.metrics import Interval

__all__ = ["Findings", "NotApplicable", "Number", "SectionResult"]

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


@dataclass
class Findings:
    """The result of a section.

    Attributes:
        numbers: by the names that gates and `audit.json` use, e.g. `supervisor.entropy.invalid.auroc`.
        summary: (what, how) pairs for a manager, most important first.
        view: what the section's template shows.
    """

    numbers: dict[str, Number] = field(default_factory=dict)
    summary: list[tuple[str, str]] = field(default_factory=list)
    view: dict[str, Any] = field(default_factory=dict)


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
