"""What the pages say of the records in results/: a module for each page, with `PAGE` and a generator `claims()`.

A claim is a piece of the page's text with a format field in place of every number, and the numbers, taken from records:

    yield says("the pool has an SDR of {:.2f}", record("search/released.json")["study"]["pool_sdr"])

`provided=` is for what the text says in words: the claim fails where it is false. Line breaks do not matter. A zero
before a point is left out, as everywhere in these pages. `python docs/make_numbers.py` writes and checks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"


@dataclass(frozen=True)
class Claim:
    """A piece of text with its numbers; `provided` is what it says besides."""

    text: str
    values: tuple[Any, ...]
    provided: bool

    def numbers(self) -> list[str]:
        """The numbers as the page should have them."""
        specs = [spec for _, field, spec, _ in Formatter().parse(self.text) if field is not None]
        return [shown(value, spec or "") for value, spec in zip(self.values, specs, strict=True)]

    def pattern(self) -> re.Pattern[str]:
        """The text with any numbers in place of the fields, and any white space between words."""
        parts = [
            r"\s+".join(map(re.escape, re.split(r"\s+", text))) + (f"({NUMBER})" if field is not None else "")
            for text, field, _, _ in Formatter().parse(self.text)
        ]
        return re.compile("".join(parts))


def says(text: str, *values: Any, provided: bool = True) -> Claim:
    """The page says this."""
    return Claim(text.strip(), values, bool(provided))


def rows(*lines: Iterable[Any]) -> Claim:
    """Lines of a table, one below the other: each is its text with fields, and the numbers for them."""
    made = [tuple(line) for line in lines]
    return says("\n".join(line[0] for line in made), *(value for line in made for value in line[1:]))


def shown(value: Any, spec: str) -> str:
    """A number as these pages write it: .5, -.5, 1,000; a five at the end is rounded away from zero, as people do."""
    with localcontext(rounding=ROUND_HALF_UP):
        text = format(Decimal(repr(float(value))) if isinstance(value, float) else value, spec)
    text = re.sub(r"^([+-]?)0(?=\.)", r"\1", text)
    return text.removeprefix("-") if not re.search("[1-9]", text) else text


@cache
def record(path: str) -> Any:
    """What a file below results/ holds."""
    return json.loads((ROOT / "results" / path).read_text(encoding="utf-8"))


def find(items: Iterable[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    """The one item that has these entries."""
    found = [item for item in items if all(item.get(key) == value for key, value in wanted.items())]
    if len(found) != 1:
        raise LookupError(f"{len(found)} items have {wanted}")
    return found[0]


@cache
def cells(path: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The cells of a record that `study run` wrote, by row and column."""
    return {(cell["row"], cell["column"]): cell for cell in record(path)["cells"]}
