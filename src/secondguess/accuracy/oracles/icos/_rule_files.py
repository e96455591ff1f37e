"""Reading rule files: TOML or JSON to plain tables, and the line on which each part of them stands.

Neither standard parser reports lines, so they are searched for in the text when there is an error to report. The
text is known to be well formed by then, which keeps the search simple.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from secondguess.errors import UserError

__all__ = ["Place", "line_of", "read_tables"]

Place = tuple[str | int, ...]  # such as ("partition", 1, "labels", 3), or ("classes",)

HEADER = re.compile(r"^\s*\[\[\s*partition\s*\]\]", re.MULTILINE)
TOML_TOKEN = re.compile(
    r"#[^\n]*|\"\"\".*?\"\"\"|'''.*?'''|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'|[\[\]]|[\w.+-]+", re.DOTALL
)
JSON_TOKEN = re.compile(r"\"(?:\\.|[^\"\\])*\"|[{}\[\],:]|[^\s{}\[\],:\"]+")


def read_tables(path: Path) -> tuple[dict[str, Any], str]:
    """The content of a rule file, as tables and as text."""
    try:
        text = path.read_text("utf-8-sig")  # some editors begin a file with a byte order mark
    except FileNotFoundError as error:
        raise UserError(f"There is no rule file at {path}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The rule file {path} cannot be read as text: {error}.") from error
    try:
        tables = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: this is not JSON ({error.msg}).") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: this is not TOML: {error}.") from error
    except (ValueError, RecursionError) as error:  # a number with thousands of digits, or brackets
        raise UserError(f"{path}: this cannot be read: {error}.") from error
    if not isinstance(tables, dict):
        raise UserError(f"{path}, line 1: a rule file is a table with a list called 'partition', not a list.")
    return tables, text


def line_of(path: Path, text: str, place: Place) -> int:
    """The line, from 1, on which a part of the file stands; that of what holds it, if it is not there itself."""
    find = _json_offset if path.suffix.lower() == ".json" else _toml_offset
    while place:
        if (offset := find(text, place)) is not None:
            return text.count("\n", 0, offset) + 1
        place = place[:-1]
    return 1


def _toml_offset(text: str, place: Place) -> int | None:
    begin, end = 0, len(text)
    headers = [match.end() for match in HEADER.finditer(text)]
    if place[0] == "partition" and len(place) > 1:
        index = place[1]
        if not isinstance(index, int) or index >= len(headers):
            return None
        begin, end = headers[index], ([*headers[index + 1 :], end])[0]
        place = place[2:]
        if not place:
            return begin
    key = re.compile(rf"^[ \t]*[\"']?{re.escape(str(place[0]))}[\"']?[ \t]*=", re.MULTILINE).search(text, begin, end)
    if key is None:
        return None
    if len(place) == 1:
        return key.end()
    tokens = (match for match in TOML_TOKEN.finditer(text, key.end(), end) if match[0][0] not in "#[]")
    return next((match.start() for number, match in enumerate(tokens) if number == place[1]), None)


def _json_offset(text: str, place: Place) -> int | None:
    return dict(_walk(list(JSON_TOKEN.finditer(text)), ())).get(place)


def _walk(tokens: list[re.Match[str]], place: Place) -> Iterator[tuple[Place, int]]:
    """Every place in a JSON value with its offset; takes the tokens of that value from the front of the list."""
    first = tokens.pop(0)
    yield place, first.start()
    closing = {"{": "}", "[": "]"}.get(first[0])
    if closing is None:
        return
    number = 0
    while tokens[0][0] != closing:
        key: str | int = number
        if closing == "}":
            key = json.loads(tokens.pop(0)[0])
            tokens.pop(0)  # the colon
        yield from _walk(tokens, (*place, key))
        number += 1
        if tokens[0][0] == ",":
            tokens.pop(0)
    tokens.pop(0)
