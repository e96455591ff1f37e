"""Gates: conditions on an audit's numbers that decide whether a CI run passes.

A gate reads `supervisor.entropy.invalid.auroc >= 0.8`: a number of the audit, a comparison, a bound. `.low` or `.high`
behind the name takes the end of its interval instead, so `accuracy.test.low >= 0.95` asks for a significant result.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from secondguess.audits.findings import Number
from secondguess.errors import UserError

__all__ = ["Gate", "GateOutcome", "doubtful", "judge"]

COMPARISONS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "==": operator.eq}
NAME = r"(?P<name>(?:[^<>=]|(?<![<>=])=(?![<>=]))+?)"  # may hold parameters: dsa:subsampling=0.3
FORM = re.compile(rf"\s*{NAME}\s*(?P<comparison>>=|<=|==|>|<)\s*(?P<bound>[-+.\deE]+)\s*(?P<percent>%?)\s*")


@dataclass(frozen=True)
class Gate:
    """A condition on one number."""

    name: str
    comparison: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Gate:
        """From `name>=bound`; `95%` is 0.95."""
        match = FORM.fullmatch(text)
        try:
            if match is None:
                raise ValueError
            bound = float(match["bound"]) / (100 if match["percent"] else 1)
        except ValueError:
            raise UserError(
                f"{text!r} is not a gate; write NAME, one of {' '.join(COMPARISONS)}, and a number, "
                "e.g. supervisor.entropy.invalid.auroc>=0.8."
            ) from None
        return cls(match["name"], match["comparison"], bound)

    def __str__(self) -> str:
        return f"{self.name} {self.comparison} {self.bound:g}"


@dataclass(frozen=True)
class GateOutcome:
    """Whether a gate holds: passed, failed, or error when its number does not exist."""

    gate: Gate
    outcome: Literal["passed", "failed", "error"]
    value: float | None = None
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The gate as text, its outcome, and the value it was held against."""
        return {
            "gate": str(self.gate),
            "outcome": self.outcome,
            "value": self.value,
            "reason": self.reason or None,
        }


def judge(gate: Gate, numbers: Mapping[str, Number], what: str = "audit", file: str = "audit.json") -> GateOutcome:
    """Hold a gate against the numbers of an audit, or of something else that has its own file."""
    found = _value(gate.name, numbers)
    if found is None:
        name, ending = _parted(gate.name)
        near = difflib.get_close_matches(name, numbers, n=3)
        close = [f"{one}{'' if numbers[one].interval is None else ending}" for one in near]
        hint = f"did you mean {' or '.join(close)}?" if close else f"{file} lists the numbers under 'numbers'."
        return GateOutcome(gate, "error", reason=f"The {what} has no number {gate.name!r}; {hint}")
    if COMPARISONS[gate.comparison](found, gate.bound):
        return GateOutcome(gate, "passed", found)
    return GateOutcome(gate, "failed", found, f"{gate.name} is {found:.4g}, not {gate.comparison} {gate.bound:g}.")


def doubtful(gates: Iterable[Gate], known: Iterable[str]) -> list[str]:
    """A sentence for every gate that seems to be misspelt, before anything is measured.

    Args:
        gates: conditions.
        known: how the names of numbers begin, as far as it is known: sections of other packages may add to it.
    """
    said = []
    for gate in gates:
        first, _, rest = gate.name.partition(".")
        close = [] if first in known or not rest else difflib.get_close_matches(first, known, n=1)
        said += [f"No number seems to be called {gate.name}; did you mean {one}.{rest}?" for one in close]
    return said


def _parted(name: str) -> tuple[str, str]:
    """The name of a number, and the end of its interval that is meant: ".low", ".high" or ""."""
    base, _, end = name.rpartition(".")
    return (base, f".{end}") if end in ("low", "high") else (name, "")


def _value(name: str, numbers: Mapping[str, Number]) -> float | None:
    if name in numbers:
        return numbers[name].value
    base, end = _parted(name)
    interval = numbers[base].interval if end and base in numbers else None
    if interval is None:
        return None
    return interval.low if end == ".low" else interval.high
