"""The papers' tables and ours, cell by cell: for pages that quote them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

CLOSE = 0.05


def lines_of_study(study: str) -> list[Any]:
    """All cells, the paper's and ours."""
    from make_reproduction import lines_of

    return lines_of(study)


def compared(study: str) -> list[Any]:
    """The cells that the paper and we have."""
    return [line for line in lines_of_study(study) if line.ours and line.paper]


def published(study: str) -> dict[tuple[str, str], float]:
    """The paper's numbers."""
    from secondguess_lab.studies import get

    return {place: cell.value for place, cell in get(study).published.cells.items()}


def close(lines: Sequence[Any]) -> tuple[int, int]:
    """How many are within .05, and of how many."""
    return sum(abs(line.difference) <= CLOSE + 1e-9 for line in lines), len(lines)
