"""How much of what the papers printed stands beside a number of ours, and how near it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from secondguess_lab.studies.base import Study
from secondguess_lab.studies.comparison import Line, compare
from secondguess_lab.studies.records import recorded
from secondguess_lab.studies.tables import grid_text

__all__ = ["NEAR", "Coverage", "coverage_of", "coverage_text", "covered"]

NEAR = 0.05
TIMES = ("surprise-table2", "surprise-figure2")  # seconds on other machines: no difference to speak of


@dataclass(frozen=True)
class Coverage:
    """The published cells of one study.

    Attributes:
        study: its name.
        paper: its paper.
        ours: cells that we have, published or not.
        published: cells that the paper printed.
        beside: those that stand beside a number of ours.
        trusted: of these, those that can be trusted: the others contradict their neighbours, or the authors' code.
        compared: of these, those that are neither bounds nor times, so that a difference says something.
        near: of these, those that differ by at most `NEAR`.
        median: of the absolute differences; None where nothing was compared.
        largest: the cell that differs most, with its difference.
        missing: cells that the paper has, and we do not.
        note: what somebody must know who compares the numbers.
    """

    study: str
    paper: str
    ours: int
    published: int
    beside: int
    trusted: int
    compared: int
    near: int
    median: float | None
    largest: Line | None
    missing: tuple[Line, ...]
    note: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        far = self.largest
        return vars(self) | {
            "largest": far and {"row": far.row, "column": far.column, "difference": far.difference},
            "missing": [{"row": line.row, "column": line.column} for line in self.missing],
        }


def coverage_of(study: Study, results: Path) -> Coverage:
    """The published cells of a study beside the records below `results`."""
    lines = compare(recorded(study, results).table, study.published)
    published = [line for line in lines if line.paper]
    beside = [line for line in published if line.ours]
    trusted = [line for line in beside if line.paper and not line.paper.unreliable]
    exact = [line for line in trusted if line.paper and line.paper.relation == "="]
    compared = [] if study.name in TIMES else exact
    sizes = [abs(line.difference or 0.0) for line in compared]
    return Coverage(
        study.name,
        study.paper,
        ours=sum(line.ours is not None for line in lines),
        published=len(published),
        beside=len(beside),
        trusted=len(trusted),
        compared=len(compared),
        near=sum(size <= NEAR for size in sizes),
        median=median(sizes) if sizes else None,
        largest=compared[sizes.index(max(sizes))] if sizes else None,
        missing=tuple(line for line in published if not line.ours),
        note=study.note,
    )


def covered(found: Sequence[Coverage]) -> dict[str, int]:
    """Sums over studies."""
    names = ("ours", "published", "beside", "trusted", "compared", "near")
    return {name: sum(getattr(one, name) for one in found) for name in names}


def coverage_text(found: Sequence[Coverage]) -> str:
    """A table for a terminal, with the sums, and what is missing."""
    body = [[one.study, *(str(getattr(one, name)) for name in covered([])), _shown(one.median)] for one in found]
    body.append(["all", *map(str, covered(found).values()), ""])
    head = ["", "ours", "published", "ours beside", "trusted", "compared", f"within {NEAR}", "median difference"]
    lacking = [f"{one.study}: {len(one.missing)} without ours" for one in found if one.missing]
    return "\n".join([grid_text(head, body, left=1), *([""] if lacking else []), *lacking])


def _shown(size: float | None) -> str:
    return "" if size is None else f"{size:.3f}"
