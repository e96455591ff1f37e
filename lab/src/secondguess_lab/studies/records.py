"""Numbers that lie in a folder of results: records that `study run` wrote, earlier ones that a study can read, tables.

An experiment that belongs to no paper has its table in its record: `results/FOLDER/NAME.json` with a list `cells`, as
`Table.tidy` makes it, and a `title`. Such a record is known as FOLDER-NAME.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from secondguess.errors import UserError
from secondguess_lab.studies.base import Recorded, Study
from secondguess_lab.studies.tables import Table

__all__ = ["provenance", "read_json", "read_record", "record_tables", "recorded", "recorded_table", "results_folder"]


def recorded(study: Study, results: Path) -> Recorded:
    """What is known of a study below the folder `results`: its own record if there is one, else an earlier one."""
    paths = sorted(results.rglob(f"{study.name}.json"))
    if len(paths) > 1:
        raise UserError(
            f"There are {len(paths)} records of {study.name} below {results}; name the folder of one of them."
        )
    if paths:
        kept = read_json(paths[0])
        try:
            return Recorded(Table.from_tidy(kept["cells"]), [provenance(kept, paths[0], results)])
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{paths[0]} is no record of {study.name} ({error!r}).") from error
    found = study.recorded(results)
    if found is None:
        raise UserError(
            f"There are no results of {study.name} below {results}; make some with: study run {study.name}."
        )
    return found


def record_tables(results: Path | None) -> dict[str, str]:
    """The titles of the records that hold a table of their own, by name; none where there is no folder of results."""
    try:
        folder = results_folder(results)
    except UserError:
        return {}
    found = {}
    for path in sorted(folder.glob("*/*.json")):
        kept = read_json(path)
        if "title" in kept and "cells" in kept:
            found[f"{path.parent.name}-{path.stem}"] = str(kept["title"])
    return found


def recorded_table(name: str, results: Path) -> tuple[str, Recorded] | None:
    """Title and numbers of a record with a table of its own; None where there is no such record."""
    folder, _, stem = name.partition("-")
    path = results / folder / f"{stem}.json"
    if not stem or not path.is_file():
        return None
    kept = read_json(path)
    try:
        return str(kept["title"]), Recorded(Table.from_tidy(kept["cells"]), [provenance(kept, path, results)])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} holds no table of its own ({error!r}).") from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file."""
    try:
        kept = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as JSON ({error}).") from error
    if not isinstance(kept, dict):
        raise UserError(f"{path} holds no JSON object.")
    return kept


def read_record(results: Path, file: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """What a file below `results` holds, and where its numbers come from; None where there is no such file."""
    path = results / file
    if not path.is_file():
        return None
    kept = read_json(path)
    return kept, provenance(kept, path, results)


def provenance(kept: dict[str, Any], path: Path, results: Path) -> dict[str, Any]:
    """Where numbers come from, as far as a record says."""
    made = ("command", "commit", "script", "scale", "settings", "hardware", "versions", "data")
    wanted = (*made, "seconds", "wall_seconds", "missing")
    return {"file": str(path.relative_to(results))} | {key: kept[key] for key in wanted if key in kept}


def results_folder(given: Path | None) -> Path:
    """The folder of results: the one given, else `results` here, else that of the repository this code runs from."""
    if given is not None:
        if not given.is_dir():
            raise UserError(f"There is no folder {given}; give the one that holds the results.")
        return given
    for folder in (Path("results"), Path(__file__).parents[4] / "results"):
        if folder.is_dir():
            return folder
    raise UserError("There is no folder of results here; name one with --results.")
