"""The keys of a `model.toml`: where each stands, what it may be, and how it is written.

`description.Description` has one field for each. A value of the wrong type is a `UserError` that names the key and what
is expected there.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from secondguess.errors import UserError

__all__ = [
    "FIELDS",
    "FILES",
    "LISTS",
    "PRESENT",
    "TABLES",
    "OutputKind",
    "check_names",
    "from_tables",
    "toml_key",
    "toml_lines",
    "toml_value",
    "typed",
]

OutputKind = Literal["auto", "logits", "probabilities"]
RESIZE = ("stretch", "crop", "pad")
PRESENT = ("present",)  # to keep the classes of the data, whichever these are


class _Wrong(ValueError):
    """A value of another type than the key has."""


def _path(value: Any) -> Path:
    return Path(_checked(value, isinstance(value, (str, Path)) and str(value)))


def _word(value: Any) -> str:
    return str(_checked(value, isinstance(value, str) and value))


def _names(value: Any) -> tuple[str, ...]:
    names = _sequence(value, str)
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"classes has {twice[0]!r} twice; every class needs a name of its own.")
    return names


def _kept(value: Any) -> tuple[str, ...]:
    names = _names(PRESENT if value == PRESENT[0] else value)
    if len(names) == 1 and names != PRESENT:
        raise UserError(f"keep names only {names[0]!r}; a model needs two classes to choose from.")
    return names


def _sides(value: Any) -> tuple[int, int]:
    height, width = _sequence([value, value] if _is(value, int) else value, int)
    return int(_checked(height, height > 0)), int(_checked(width, width > 0))


def _count(value: Any) -> int:
    return int(_checked(value, _is(value, int) and value > 0))


def _numbers(value: Any) -> tuple[float, ...]:
    numbers = _sequence([value] if _is(value, (int, float)) else value, (int, float))
    return tuple(float(_checked(one, math.isfinite(one))) for one in _checked(numbers, numbers))


def _divisors(value: Any) -> tuple[float, ...]:
    return tuple(_checked(one, one != 0) for one in _numbers(value))


def _one_of(choices: Sequence[str]) -> Callable[[Any], Any]:
    return lambda value: _checked(value, value in choices)


def _place(value: Any) -> int | str:
    chosen: int | str = _checked(value, (_is(value, str) and value) or (_is(value, int) and value >= 0))
    return chosen


def _aliases(value: Any) -> dict[str, str]:
    fine = isinstance(value, Mapping) and all(isinstance(one, str) and one for one in value.values())
    return dict(_checked(value, fine))


class Field(NamedTuple):
    """A key: the table that it stands in, its name there, what is expected, and what reads it."""

    table: str
    key: str
    expected: str
    read: Callable[[Any], Any]


FIELDS = {
    "path": Field("", "path", "the path of an .onnx or .pt2 file", _path),
    "source": Field("", "import", "zoo:NAME or package.module:make_model", _word),
    "folder": Field("", "folder", "the folder of a Python package", _path),
    "weights": Field("", "weights", "the path of a .safetensors file", _path),
    "name": Field("", "name", "a text", _word),
    "classes": Field("", "classes", "a list of names", _names),
    "size": Field("input", "size", "[height, width]", _sides),
    "channels": Field("input", "channels", "a number such as 1 or 3", _count),
    "mean": Field("input", "mean", "a number or one per channel", _numbers),
    "std": Field("input", "std", "a number other than 0, or one per channel,", _divisors),
    "resize": Field("input", "resize", f"one of {', '.join(RESIZE)}", _one_of(RESIZE)),
    "output_kind": Field("output", "kind", f"one of {', '.join(get_args(OutputKind))}", _one_of(get_args(OutputKind))),
    "output": Field("output", "use", "the name or the number of an output", _place),
    "keep": Field("output", "keep", 'a list of some of the classes, or "present"', _kept),
    "names": Field("names", "", 'a table of classes of data and of the model, such as kitten = "cat",', _aliases),
    "layers": Field("layers", "", 'a table of traces and layers, such as penultimate = "avgpool",', _aliases),
}
FILES = ("path", "folder", "weights")
TABLES = ("input", "output", "names", "layers")
LISTS = ("names", "layers")  # tables with keys of the user's


def typed(name: str, value: Any) -> Any:
    """The value of a field in its proper type; None where it is left out."""
    if value is None:
        return None
    field = FIELDS[name]
    try:
        return field.read(value)
    except (_Wrong, TypeError, ValueError) as error:
        key = f"[{field.table}] {field.key}".strip() if field.table else field.key
        shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."
        raise UserError(f"{key} is {shown}; {field.expected} is expected.") from error


def from_tables(content: Mapping[str, Any]) -> dict[str, Any]:
    """The fields out of the tables of a file."""
    names = {(field.table, field.key): name for name, field in FIELDS.items()}
    check_names(content, [*(key for table, key in names if not table), *TABLES], "There is no key")
    known: dict[str, Any] = {}
    for key, value in content.items():
        if key not in TABLES:
            known[names["", key]] = value
        elif key in LISTS:
            known[key] = value
        elif not isinstance(value, dict):
            raise UserError(f"{key} is {value!r}; a table [{key}] is expected.")
        else:
            check_names(value, [inner for table, inner in names if table == key], f"[{key}] has no key")
            known |= {names[key, inner]: one for inner, one in value.items()}
    return known


def check_names(given: Iterable[str], known: Sequence[str], what: str) -> None:
    """Raise a `UserError` for the first name that is not known; `what` begins the sentence."""
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there is {', '.join(known)}."
            raise UserError(f"{what} {name!r}; {hint}")


def toml_lines(values: Mapping[str, Any]) -> list[str]:
    """Fields as the lines of a `model.toml`, under their tables."""
    lines = []
    for table in ("", *TABLES):
        own = [f"{FIELDS[name].key} = {toml_value(value)}" for name, value in values.items() if _table(name) == table]
        lines += [f"[{table}]", *own] if own and table else own
    return lines


def _table(name: str) -> str:
    return FIELDS[name].table


def toml_value(value: Any) -> str:
    """A value as TOML; JSON writes texts and numbers as TOML reads them."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(name: str) -> str:
    """A key as TOML, in quotes where it needs them."""
    bare = name and all(one.isascii() and (one.isalnum() or one in "_-") for one in name)
    return name if bare else toml_value(name)


def _is(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _checked(value: Any, fine: Any) -> Any:
    if not fine:
        raise _Wrong
    return value


def _sequence(value: Any, kind: Any) -> tuple[Any, ...]:
    value = value.tolist() if hasattr(value, "tolist") else value
    return tuple(_checked(value, isinstance(value, (list, tuple)) and all(_is(one, kind) for one in value)))
