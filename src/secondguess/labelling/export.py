"""The labels as a file for other tools: one row per valid answer, in CSV, Parquet or npz, all with one schema.

Pixels are not copied: `index` and `id` say which image is meant.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError, require
from secondguess.files import write_bytes
from secondguess.labelling.answers import Answer, consensus, spoken
from secondguess.labelling.store import Event, Store

__all__ = ["FORMATS", "export_labels", "exported", "table"]

Columns = dict[str, NDArray[Any]]


def table(store: Store) -> Columns:
    """The valid answers, in the order in which they were given.

    Returns:
        Columns (m,): `index` and `id` of the image, `annotator`, `answer` in words, `label` (the class where there is
        one, else -1), `classes` (their numbers, separated by spaces), `is_ambiguous`, `is_invalid`, `time`, `predicted`
        (the model's class), `confidence`, `wrong`; `p_label` (m, K), a row of zeros where the image is invalid; and
        `class_names` (K,).
    """
    names, seen = store.settings.get("classes", []), store.seen()
    rows = _standing(store.events())
    answers: list[Answer] = [event.classes or () for event in rows]
    predicted = np.array([seen[event.image].predicted for event in rows], dtype=np.int64)
    soft = np.array([consensus([answer], len(names)) for answer in answers]).reshape(len(rows), len(names))
    return {
        "index": np.array([event.image for event in rows], dtype=np.int64),
        "id": np.array([seen[event.image].id for event in rows], dtype=str),
        "annotator": np.array([event.annotator for event in rows], dtype=str),
        "answer": np.array([spoken(answer, names) for answer in answers], dtype=str),
        "label": np.array([answer[0] if len(answer) == 1 else -1 for answer in answers], dtype=np.int64),
        "classes": np.array([" ".join(map(str, answer)) for answer in answers], dtype=str),
        "is_ambiguous": np.array([len(answer) > 1 for answer in answers], dtype=bool),
        "is_invalid": np.array([not answer for answer in answers], dtype=bool),
        "time": np.array([event.time for event in rows], dtype=str),
        "predicted": predicted,
        "confidence": np.array([seen[event.image].confidence for event in rows], dtype=np.float64),
        "wrong": soft[np.arange(len(rows)), predicted] == 0,
        "p_label": soft,
        "class_names": np.array(names, dtype=str),
    }


def exported(store: Store, kind: str) -> bytes:
    """The table as the content of a file of that kind: csv, parquet or npz."""
    if kind not in FORMATS:
        raise UserError(f"Labels cannot be exported as {kind!r}; there is {', '.join(FORMATS)}.")
    return FORMATS[kind](table(store))


def export_labels(folder: str | Path, kind: str) -> tuple[Path, int]:
    """Write the labels of a session into its folder, as `labels.KIND`; a page that is open meanwhile stays open.

    Returns:
        The file, and how many answers it holds.
    """
    store = Store(Path(folder), read_only=True)
    try:
        content, answers = exported(store, kind), len(table(store)["index"])
    finally:
        store.close()
    path = Path(folder) / f"labels.{kind}"
    write_bytes(path, content)
    return path, answers


def _standing(events: list[Event]) -> list[Event]:
    """The answers that were not undone; an image that was answered again counts from then."""
    standing: dict[tuple[int, str], Event] = {}
    for event in events:
        if event.kind == "answered":
            standing[event.image, event.annotator] = event
        elif event.kind == "undone":
            standing.pop((event.image, event.annotator), None)
    return list(standing.values())


def _csv(columns: Columns) -> bytes:
    """The columns without `p_label` and `class_names`, which `classes` and `answer` say as well."""
    flat = {name: values for name, values in columns.items() if name not in ("p_label", "class_names")}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(flat)
    writer.writerows(zip(*(values.tolist() for values in flat.values()), strict=True))
    return text.getvalue().encode("utf-8", "backslashreplace")


def _npz(columns: Columns) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **columns)
    return buffer.getvalue()


def _parquet(columns: Columns) -> bytes:
    """One column each, `p_label` as lists; the names of the classes are in the schema's metadata."""
    arrow, parquet = require("pyarrow", "hub"), require("pyarrow.parquet", "hub")
    types = {"i": arrow.int64(), "f": arrow.float64(), "b": arrow.bool_(), "U": arrow.string()}
    made = {
        name: arrow.array(
            values.tolist(), types[values.dtype.kind] if values.ndim == 1 else arrow.list_(arrow.float64())
        )
        for name, values in columns.items()
        if name != "class_names"
    }
    names = {"class_names": json.dumps(columns["class_names"].tolist())}
    buffer = io.BytesIO()
    parquet.write_table(arrow.table(made).replace_schema_metadata(names), buffer)
    return buffer.getvalue()


FORMATS: dict[str, Callable[[Columns], bytes]] = {"csv": _csv, "parquet": _parquet, "npz": _npz}
