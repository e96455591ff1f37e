"""A table as cells by row and column, each a number that may have a spread and a doubt."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from secondguess.errors import UserError

__all__ = ["Cell", "Table", "cell_of", "grid_text", "short"]

FIELDS = ("row", "column", "value", "spread", "n", "relation", "unreliable")


@dataclass(frozen=True)
class Cell:
    """A number of a table.

    Attributes:
        value: the number.
        spread: its standard deviation over runs, with n - 1, where one is known.
        n: over how many runs, where that is known.
        relation: "=", or "<" or ">" where a paper says only what the number stays below or above.
        unreliable: why a published number is no target, if it is none.
    """

    value: float
    spread: float | None = None
    n: int | None = None
    relation: str = "="
    unreliable: str = ""

    def __str__(self) -> str:
        shown = self.relation.replace("=", "") + short(self.value)
        return shown if self.spread is None else f"{shown} ± {short(self.spread)}"


@dataclass(frozen=True)
class Table:
    """Cells by (row, column), in the order in which they are shown."""

    cells: Mapping[tuple[str, str], Cell]

    @property
    def rows(self) -> list[str]:
        """The names of the rows."""
        return list(dict.fromkeys(row for row, _ in self.cells))

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(dict.fromkeys(column for _, column in self.cells))

    def tidy(self) -> list[dict[str, Any]]:
        """One dictionary a cell."""
        return [{"row": row, "column": column} | vars(cell) for (row, column), cell in self.cells.items()]

    @classmethod
    def from_tidy(cls, rows: Iterable[Mapping[str, Any]]) -> Table:
        """The table that `tidy` or a CSV file describes; an empty text stands for what is not known."""
        cells = {}
        for row in rows:
            spread, n = (None if row.get(key) in (None, "") else row[key] for key in ("spread", "n"))
            cells[row["row"], row["column"]] = Cell(
                float(row["value"]),
                None if spread is None else float(spread),
                None if n is None else int(n),
                row.get("relation") or "=",
                row.get("unreliable") or "",
            )
        return cls(cells)

    @classmethod
    def read(cls, path: Path) -> Table:
        """The table in a CSV file."""
        try:
            with path.open(encoding="utf-8", newline="") as file:
                return cls.from_tidy(csv.DictReader(file))
        except (OSError, KeyError, ValueError) as error:
            raise UserError(f"{path} holds no table that can be read ({error!r}).") from error

    def to_csv(self) -> str:
        """The cells as CSV, one a line."""
        text = io.StringIO()
        writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.tidy())
        return text.getvalue()

    def text(self) -> str:
        """The table for a terminal."""
        shown = {key: str(cell) for key, cell in self.cells.items()}
        body = [[row, *(shown.get((row, column), "-") for column in self.columns)] for row in self.rows]
        return grid_text(["", *self.columns], body)


def cell_of(values: ArrayLike) -> Cell:
    """Mean and spread of some runs."""
    numbers = np.asarray(values, dtype=np.float64)
    spread = float(numbers.std(ddof=1)) if len(numbers) > 1 else None
    return Cell(float(numbers.mean()), spread, len(numbers))


def grid_text(header: Sequence[str], body: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns that line up: the first `left` ones to the left, the others to the right."""
    lines = [header, *body]
    widths = [max(len(line[place]) for line in lines) for place in range(len(header))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if place < left else text.rjust(width)
            for place, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def short(value: float, *, sign: str = "") -> str:
    """Three decimals, or two digits of what is too small for them."""
    return f"{value:{sign}.3f}" if value == 0 or abs(value) >= 0.01 else f"{value:{sign}.2g}"
