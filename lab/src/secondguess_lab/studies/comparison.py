"""Ours beside the paper's, cell by cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from secondguess_lab.studies.tables import Cell, Table, grid_text, short

__all__ = ["Line", "compare", "comparison_text"]


@dataclass(frozen=True)
class Line:
    """One cell of the comparison.

    Attributes:
        row: its row.
        column: its column.
        ours: our number, None where there is none.
        paper: the published one, None where none is printed.
    """

    row: str
    column: str
    ours: Cell | None
    paper: Cell | None

    @property
    def difference(self) -> float | None:
        """Ours less the paper's, or less the paper's bound; None where either is missing."""
        return None if self.ours is None or self.paper is None else self.ours.value - self.paper.value

    def tidy(self) -> dict[str, object]:
        """As one flat dictionary."""
        ours, paper = self.ours, self.paper
        return {
            "row": self.row,
            "column": self.column,
            "ours": ours and ours.value,
            "ours_spread": ours and ours.spread,
            "ours_n": ours and ours.n,
            "paper": paper and paper.value,
            "paper_relation": paper and paper.relation,
            "paper_spread": paper and paper.spread,
            "difference": self.difference,
            "unreliable": paper.unreliable if paper else "",
        }


def compare(ours: Table, paper: Table) -> list[Line]:
    """All cells that either has: the paper's in their order, then what only we have."""
    keys = dict.fromkeys((*paper.cells, *ours.cells))
    return [Line(*key, ours.cells.get(key), paper.cells.get(key)) for key in keys]


def comparison_text(lines: Sequence[Line]) -> str:
    """The comparison for a terminal: doubtful published cells have a number that leads to the reason."""
    reasons = list(dict.fromkeys(line.paper.unreliable for line in lines if line.paper and line.paper.unreliable))
    body = []
    for line in lines:
        paper = line.paper
        mark = f"[{reasons.index(paper.unreliable) + 1}]" if paper and paper.unreliable else ""
        difference = "" if line.difference is None else short(line.difference, sign="+")
        ours, theirs = (str(cell) if cell else "-" for cell in (line.ours, paper))
        body.append([line.row, line.column, ours, theirs, difference, mark])
    text = grid_text(["", "", "ours", "paper", "difference", ""], body, left=2)
    notes = [f"[{number}] unreliable: {reason}." for number, reason in enumerate(reasons, start=1)]
    return "\n".join([text, *([""] if notes else []), *notes])
