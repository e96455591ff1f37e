"""The base class of results, which can be read by a person, saved, and passed to another program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

__all__ = ["Result", "aligned", "flat", "html_table", "numbers_in"]


class Result(ABC):
    """The outcome of a job.

    Subclasses say what they found in three forms: lines for a person, a dictionary for a program, files for the record.
    """

    @abstractmethod
    def summary(self) -> str:
        """At most ten lines for a person."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Everything that was found, in values that JSON can hold."""

    @abstractmethod
    def save(self, folder: str | Path) -> Path:
        """Write the result into a folder, and nothing outside it; returns the folder."""

    def rows(self) -> list[dict[str, Any]]:
        """The numbers as flat rows, such as `pandas.DataFrame(result.rows())` and `polars.DataFrame(...)` take."""
        return [flat(self.to_dict())]

    def metrics(self) -> dict[str, float]:
        """The numbers by name, as trackers of experiments take them."""
        return numbers_in(self.to_dict())

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return f"<pre>{escape(self.summary())}</pre>"


def aligned(lines: Sequence[tuple[str, str]]) -> str:
    """One line for each (what, how), the second parts below each other."""
    width = max(len(what) for what, _ in lines)
    return "\n".join(f"{what:<{width}}  {' '.join(how.split())}" for what, how in lines)


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """One row of a table: entries of dictionaries get names such as `accuracy.low`, and lists are left out."""
    row: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            row |= {f"{name}.{inner}": one for inner, one in flat(value).items()}
        elif not isinstance(value, (list, tuple)):
            row[name] = value
    return row


def numbers_in(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row by name; truth values are none."""
    return {name: float(value) for name, value in flat(values).items() if type(value) in (int, float)}


def html_table(rows: Iterable[Sequence[object]], header: Sequence[object] = ()) -> str:
    """A plain HTML table for `_repr_html_`, with every cell escaped; the first cell of a row is its heading.

    Args:
        rows: the cells of each row.
        header: the headings of the columns, if any.
    """
    left = ' style="text-align: left"'
    head = "".join(f"<th{left}>{escape(str(cell))}</th>" for cell in header)
    body = "".join(
        "<tr>"
        + "".join(f"<{tag}{left}>{escape(str(cell))}</{tag}>" for tag, cell in zip(_tags(row), row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if header else ''}<tbody>{body}</tbody></table>"


def _tags(row: Sequence[object]) -> list[str]:
    return ["th", *["td"] * (len(row) - 1)]
