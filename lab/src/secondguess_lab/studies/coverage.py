"""How much of what the papers printed stands beside a number of ours, how near it is, and what could be tried at all.

Ours are at the paper's scale if every record says so, or has the settings that the study names for it, or if the record
that a cell comes from does; and if the cell is the mean of as many models or runs as these. All others count as
smaller, those too whose record does not tell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from secondguess_lab.studies.base import Recorded, Study
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
        allowed: published cells that the data at hand allow.
        at_scale: published cells that stand beside ours, measured at the paper's scale.
        cells: every published cell: where it is, whether ours stands beside it, how near, at which scale ("paper" or
            "smaller"), and, where the data are not at hand, why it cannot be tried.
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
    allowed: int
    at_scale: int
    cells: tuple[Mapping[str, Any], ...]
    missing: tuple[Line, ...]
    note: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        far = self.largest
        return vars(self) | {
            "largest": far and {"row": far.row, "column": far.column, "difference": far.difference},
            "missing": [{"row": line.row, "column": line.column} for line in self.missing],
            "cells": list(self.cells),
        }


def coverage_of(study: Study, results: Path) -> Coverage:
    """The published cells of a study beside the records below `results`."""
    found = recorded(study, results)
    lines = compare(found.table, study.published)
    published = [line for line in lines if line.paper]
    beside = [line for line in published if line.ours]
    trusted = [line for line in beside if line.paper and not line.paper.unreliable]
    exact = [line for line in trusted if line.paper and line.paper.relation == "="]
    compared = [] if study.name in TIMES else exact
    sizes = [abs(line.difference or 0.0) for line in compared]
    whole = _at_scale(study, found)
    cells = [_cell(study, line, line in compared, whole or (line.row, line.column) in found.full) for line in published]
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
        allowed=sum(not cell["not_at_hand"] for cell in cells),
        at_scale=sum(cell["scale"] == "paper" for cell in cells),
        cells=tuple(cells),
        missing=tuple(line for line in published if not line.ours),
        note=study.note,
    )


def covered(found: Sequence[Coverage]) -> dict[str, int]:
    """Sums over studies."""
    names = ("ours", "published", "allowed", "beside", "at_scale", "trusted", "compared", "near")
    return {name: sum(getattr(one, name) for one in found) for name in names}


def coverage_text(found: Sequence[Coverage]) -> str:
    """A table for a terminal, with the sums, and what is missing."""
    body = [[one.study, *(str(getattr(one, name)) for name in covered([])), _shown(one.median)] for one in found]
    body.append(["all", *map(str, covered(found).values()), ""])
    head = ["", "ours", "published", "allowed", "ours beside", "at scale", "trusted", "compared", f"within {NEAR}"]
    head.append("median difference")
    lacking = [_lacking(one) for one in found if one.missing]
    return "\n".join([grid_text(head, body, left=1), *([""] if lacking else []), *lacking])


def _lacking(one: Coverage) -> str:
    """How many cells have none of ours, and why where the data do not allow any."""
    reasons = dict.fromkeys(cell["not_at_hand"] for cell in one.cells if cell["not_at_hand"])
    return " ".join([f"{one.study}: {len(one.missing)} without ours.", *reasons])


def _cell(study: Study, line: Line, compared: bool, at_scale: bool) -> dict[str, Any]:
    """What is known of one published cell."""
    place = f"{line.row}: {line.column}"
    reasons = [reason for pattern, reason in study.not_at_hand.items() if re.match(pattern, place)]
    full = at_scale and line.ours is not None and _repeated(study, line.ours.n)
    return {
        "row": line.row,
        "column": line.column,
        "beside": line.ours is not None,
        "difference": line.difference if compared else None,
        "scale": None if line.ours is None else "paper" if full else "smaller",
        "not_at_hand": reasons[0] if reasons else "",
    }


def _at_scale(study: Study, found: Recorded) -> bool:
    """Whether all records are of the size that the study has for the paper's."""
    return bool(found.records) and all(_full(study, record) for record in found.records)


def _full(study: Study, record: Mapping[str, Any]) -> bool:
    """Whether a record says that it is at the paper's scale, or has its settings."""
    if record.get("missing"):
        return False
    if "scale" in record:
        return bool(record["scale"] == "paper")
    settings = record.get("settings", {})
    shared = [key for key in study.scale if key in settings]
    return bool(shared) and all(settings[key] == study.scale[key] for key in shared)


def _repeated(study: Study, n: int | None) -> bool:
    """Whether a cell is the mean of as many models as the paper's, where it says of how many it is."""
    return n is None or n >= study.scale.get("models", 0)


def _shown(size: float | None) -> str:
    return "" if size is None else f"{size:.3f}"
