"""Verdicts and scores as fields of the samples of FiftyOne."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from secondguess.errors import UserError, require
from secondguess.results import Result

__all__ = ["add_to_fiftyone"]

ANSWER = ("class_name", "confidence")  # columns that become a Classification


def add_to_fiftyone(
    samples: Any,
    paths: Sequence[str | os.PathLike[str]],
    found: Result | Sequence[Mapping[str, Any]],
    *,
    prefix: str = "sg_",
) -> list[str]:
    """Add what was found of images to their samples, and return the names of the fields.

    The answer becomes a `Classification` in the field `sg_prediction`, every other column a field of its own:
    `sg_p_value` and `sg_verdict` of a guard's judgements, `sg_entropy` of scores. Dots in names become underscores.

    Args:
        samples: a data set of FiftyOne, or a view into one; samples are found by their path.
        paths: the file of each image.
        found: judgements of a guard, scores, or rows of your own: one row for each image.
        prefix: of the fields.
    """
    fiftyone = require("fiftyone", "fiftyone")
    rows = found.rows() if isinstance(found, Result) else list(found)
    if len(rows) != len(paths):
        raise UserError(f"{len(paths)} paths were given for {len(rows)} rows; give the file of each image.")
    files = [str(Path(path).absolute()) for path in paths]
    known = set(samples.values("filepath"))
    if missing := [file for file in files if file not in known]:
        raise UserError(f"{missing[0]} is not among the samples ({len(missing)} are not); add them to FiftyOne first.")
    fields = {}
    for column in dict.fromkeys(name for row in rows for name in row):
        of_files = dict(zip(files, (row.get(column) for row in rows), strict=True))
        fields[prefix + column.replace(".", "_")] = of_files
    if rows and all(name in rows[0] for name in ANSWER):
        for name in ANSWER:
            del fields[prefix + name]
        answers = [fiftyone.Classification(label=row["class_name"], confidence=row["confidence"]) for row in rows]
        fields[f"{prefix}prediction"] = dict(zip(files, answers, strict=True))
    for name, values in fields.items():
        samples.set_values(name, values, key_field="filepath")
    return list(fields)
