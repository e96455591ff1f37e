"""A partition of the input, and what can be wrong with a list of them.

Problems are reported with their place in the rule file, so that the code that reads one can name the line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy.oracles.icos._rule_files import Place
from secondguess.errors import UserError

__all__ = [
    "Function",
    "Label",
    "Partition",
    "class_number",
    "content_problems",
    "form_problems",
    "read_names",
    "read_partition",
]

Label = str | int
Function = Callable[[NDArray[np.float32]], Any]

KEYS = ("name", "labels", "values", "column", "function", "ids")


@dataclass(frozen=True)
class Partition:
    """Some of the images, and the labels that can occur among them.

    Attributes:
        name: what to call it in verdicts.
        labels: the classes that can occur.
        values: of the column or the function; the name itself where there are none.
        column: the name of a metadata column of the images.
        function: from images (m, C, H, W) to m values, or where to import it from: `package.module:name`.
        ids: patterns for the images' ids, such as `camera1/*`, instead of a column or a function.
    """

    name: str
    labels: Sequence[Label]
    values: Sequence[Any] = ()
    column: str | None = None
    function: str | Function | None = None
    ids: Sequence[str] = ()

    def __post_init__(self) -> None:
        for key in ("labels", "values", "ids"):
            given = getattr(self, key)
            if isinstance(given, str):
                raise UserError(f"In the partition {self.name!r}, {key} must be a list, not the text {given!r}.")
            plain = (one.item() if isinstance(one, np.generic) else one for one in given)
            object.__setattr__(self, key, tuple(plain))

    @property
    def source(self) -> str:
        """The column, function or ids that it is based on, in words."""
        if self.column is not None:
            return f"the column {self.column!r}"
        if self.function is not None:
            called = self.function if isinstance(self.function, str) else getattr(self.function, "__name__", "function")
            return f"the function {called!r}"
        return "the ids"

    @property
    def keys(self) -> tuple[str, ...]:
        """The values, as text, or the patterns that make an image belong here."""
        return tuple(self.ids) or tuple(map(str, self.values)) or (self.name,)


def read_names(classes: Any) -> tuple[str, ...]:
    """The names of classes that a rule file lists or counts."""
    return tuple(map(str, range(classes) if isinstance(classes, int) else classes))


def class_number(label: Label, class_names: Sequence[str]) -> int | None:
    """The class that is meant: by its name if the label is a text, by its place if it is a number."""
    if isinstance(label, str):
        return list(class_names).index(label) if label in class_names else None
    return label if 0 <= label < len(class_names) else None


def read_partition(table: Mapping[str, Any], defaults: Mapping[str, Any]) -> Partition:
    """A partition from its table in a file; `defaults` give the column or function if it has none itself."""
    own = {key: table[key] for key in KEYS if key in table}
    if not {"column", "function", "ids"} & own.keys():
        own |= {key: defaults[key] for key in ("column", "function") if key in defaults}
    return Partition(**own)


def form_problems(tables: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """What is wrong with the form of a rule file."""
    for key in sorted(tables.keys() - {"classes", "column", "function", "partition"}):
        yield (key,), f"{key!r} is not known here; a rule file has classes, column, function and partition"
    classes = tables.get("classes", [])
    if isinstance(classes, bool) or not isinstance(classes, int | list):
        yield ("classes",), "classes must be a list of names or their number"
    for key in ("column", "function"):
        if not isinstance(value := tables.get(key, ""), str):
            yield (key,), f"{key} must be a text, not {value!r}"
    listed = tables.get("partition")
    if not isinstance(listed, list) or not listed or not all(isinstance(one, dict) for one in listed):
        yield ("partition",), "there are no partitions; add some, each beginning with [[partition]]"
        return
    kinds = {"name": str, "column": str, "function": str}
    for k, table in enumerate(listed):
        name = f"the partition {table.get('name', k + 1)!r}"
        for key, value in table.items():
            if key not in KEYS:
                close = get_close_matches(key, KEYS, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(KEYS)}"
                yield ("partition", k, key), f"{name} has an unknown entry {key!r}; {hint}"
            elif not isinstance(value, kind := kinds.get(key, list)):
                wanted = "a text" if kind is str else "a list"
                yield ("partition", k, key), f"in {name}, {key} must be {wanted}, not {value!r}"
            elif key in ("values", "ids") and not value:
                yield ("partition", k, key), f"{name} is empty: {key} lists nothing, so no image can be in it"
        for key in ("name", "labels"):
            if key not in table:
                yield ("partition", k), f"{name} has no {key}"


def content_problems(partitions: Sequence[Partition], class_names: Sequence[str]) -> Iterator[tuple[Place, str]]:
    """What is wrong with the content of rules, with the place in the file where it stands."""
    if not partitions:
        yield ("partition",), "there are no partitions"
    for k, partition in enumerate(partitions):
        name, here = f"the partition {partition.name!r}", ("partition", k)
        if partition.name in {earlier.name for earlier in partitions[:k]}:
            yield (*here, "name"), f"two partitions are called {partition.name!r}"
        sources = {"column": partition.column, "function": partition.function, "ids": partition.ids}
        given = [source for source, value in sources.items() if value]
        if len(given) != 1:
            found = " and ".join(given) or "neither a column, nor a function, nor ids"
            yield here, f"{name} has {found}; it must have exactly one of them"
        if not partition.labels:
            yield (*here, "labels"), f"{name} is empty: no label is allowed in it; name at least one"
        for i, label in enumerate(partition.labels):
            if problem := _label_problem(label, class_names) or _repeated(label, partition.labels[:i], class_names):
                yield (*here, "labels", i), f"in {name}, the label {label!r} {problem}"
        for i, pattern in enumerate(partition.ids):
            if problem := _pattern_problem(pattern):
                yield (*here, "ids", i), f"in {name}, the id {pattern!r} {problem}"
        key = "ids" if partition.ids else "values" if partition.values else "name"
        for i, value in enumerate(partition.keys):
            if earlier := next(
                (one for one in partitions[:k] if _contradict(one, partition, value, class_names)), None
            ):
                place: Place = (*here, key) if key == "name" else (*here, key, i)
                yield (
                    place,
                    (
                        f"contradiction: {value!r} of {partition.source} is in {name}, which allows the labels "
                        f"{_listed(partition.labels)}, and in the partition {earlier.name!r}, which allows "
                        f"{_listed(earlier.labels)}"
                    ),
                )


def _label_problem(label: object, class_names: Sequence[str]) -> str | None:
    if isinstance(label, bool) or not isinstance(label, str | int):
        return "is neither a name nor a whole number"
    number = class_number(label, class_names)
    if isinstance(label, int) and (named := class_number(str(label), class_names)) not in (None, number):
        return (
            f"counts places from 0, but is also the name of the class at place {named}; "
            f"write the name of the class that is meant, in quotes, such as '{label}'"
        )
    if not class_names or number is not None:
        return None
    close = get_close_matches(str(label), class_names, n=1)
    return f"is unknown; did you mean {close[0]!r}?" if close else f"is unknown; known are {_listed(class_names)}"


def _pattern_problem(pattern: object) -> str | None:
    return None if isinstance(pattern, str) else f"is no text; patterns stand in quotes, such as '{pattern}' or 'a/*'"


def _repeated(label: Label, earlier: Sequence[Label], class_names: Sequence[str]) -> str | None:
    """Whether a label that is in order means the same class as one before it, in words."""
    meant = _meant((label,), class_names)
    same = next((one for one in earlier if _meant((one,), class_names) == meant), None)
    return None if same is None else f"means the same class as the label {same!r} before it; leave one of them out"


def _contradict(earlier: Partition, later: Partition, value: str, class_names: Sequence[str]) -> bool:
    """Whether a value or pattern of one partition is in an earlier one already, or lies within a pattern of it.

    A pattern within a wider one may allow fewer labels, but not entirely other ones.
    """
    if earlier.source != later.source:
        return False
    within = any(fnmatchcase(value, pattern) or fnmatchcase(pattern, value) for pattern in earlier.ids)
    if value in earlier.keys or not within:
        return value in earlier.keys
    comparable = class_names or len({type(label) for label in (*earlier.labels, *later.labels)}) == 1
    return bool(comparable) and not _meant(earlier.labels, class_names) & _meant(later.labels, class_names)


def _meant(labels: Sequence[Label], class_names: Sequence[str]) -> set[Label | None]:
    """The classes that labels mean, as far as that is known: a name and a number may yet be the same class."""
    return {class_number(label, class_names) if class_names else label for label in labels}


def _listed(labels: Sequence[Label]) -> str:
    return ", ".join(map(str, labels))
