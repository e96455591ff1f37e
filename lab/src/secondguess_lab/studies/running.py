"""Run a study into a folder, and find out later how far it came.

<out>/ledger/            what each task gave; studies that share tasks share them here
<out>/<name>.plan.json   the settings and data of the run, so that it can be resumed
<out>/<name>.json        the record: table, settings, command, commit, hardware, versions, seeds, seconds
<out>/<name>.csv         the table, one cell a line
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from secondguess.contracts.sealed import read_json, write_json_sealed
from secondguess.engine import Engine, Entry, Ledger, Task, TaskData, run
from secondguess.errors import UserError
from secondguess.files import write_json, write_text
from secondguess.progress import Progress
from secondguess_lab.record import commit
from secondguess_lab.studies.base import Sources, Study
from secondguess_lab.studies.tables import Table

__all__ = ["Status", "StudyPlan", "make_plan", "read_plan", "run_study", "status"]


@dataclass(frozen=True)
class StudyPlan:
    """What a run is to do.

    Attributes:
        study: the name of the study.
        scale: "quick", "paper", or "own" where settings differ from the paper's.
        settings: of the study.
        sources: the data by the part they play.
        gpu: whether every task needs a GPU.
    """

    study: str
    scale: str
    settings: Mapping[str, Any]
    sources: Mapping[str, TaskData]
    gpu: bool = False

    def tasks(self, study: Study) -> list[Task]:
        """The grid."""
        tasks = study.grid(Sources(self.sources), self.settings)
        if not tasks:
            raise UserError(f"With these settings {study.name} has no task; `study run` without --set has all of them.")
        return [replace(task, resources={"GPU": 1}) for task in tasks] if self.gpu else tasks


@dataclass(frozen=True)
class Status:
    """How far a run came.

    Attributes:
        tasks: all of them.
        done: those in the ledger.
        seconds: that these took, together.
    """

    tasks: int
    done: int
    seconds: float


def make_plan(
    study: Study,
    *,
    quick: bool = False,
    data: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    gpu: bool = False,
) -> StudyPlan:
    """Decide what to run.

    Args:
        study: which.
        quick: scaled down, on embedded data where none are given.
        data: places of data, as `secondguess.images.load` takes them, by the part they play.
        settings: that differ from the study's.
        gpu: give tasks only to workers that declare a GPU.
    """
    if study.script:
        raise UserError(f"The record of {study.name} is made by {study.script}; run that.")
    chosen = dict(study.scale) | (dict(study.quick) if quick else {})
    for key, value in (settings or {}).items():
        if key not in chosen:
            raise UserError(f"The study {study.name} has no setting {key!r}; it has: {', '.join(chosen)}.")
        if type(value) is not type(chosen[key]) and not (isinstance(value, int) and isinstance(chosen[key], float)):
            raise UserError(f"The setting {key} of {study.name} is {value!r}; give something like {chosen[key]!r}.")
        chosen[key] = value
    places = (dict(study.stand_ins) if quick else {}) | dict(data or {})
    for role in places:
        if role not in study.stand_ins:
            raise UserError(f"The study {study.name} knows no data {role!r}, only: {', '.join(study.stand_ins)}.")
    if not places:
        wanted = " ".join(f"--data {role}=PLACE" for role in study.stand_ins)
        raise UserError(
            f"The study {study.name} needs data: give {wanted}, or --quick for a small run on embedded ones."
        )
    sources = {role: _source(place) for role, place in places.items()}
    scale = "quick" if quick else "paper" if chosen == dict(study.scale) else "own"
    return StudyPlan(study.name, scale, chosen, sources, gpu)


def read_plan(study: Study, out: Path) -> StudyPlan:
    """The plan of an earlier run in the folder `out`."""
    path = _plan_path(study, out)
    try:
        kept = read_json(path, sealed=False)
        sources = {role: TaskData(**source) for role, source in kept["sources"].items()}
        return StudyPlan(kept["study"], kept["scale"], kept["settings"], sources, kept["gpu"])
    except FileNotFoundError as error:
        raise UserError(f"There is no run of {study.name} in {out}; start one with: study run {study.name}.") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read ({error!r}); remove it and start the run again.") from error


def run_study(
    study: Study,
    plan: StudyPlan,
    out: Path,
    *,
    engine: Engine | str = "local",
    progress: Progress | None = None,
    command: str = "",
    so_far: bool = False,
) -> dict[str, Any]:
    """Run what the ledger in `out` does not hold, and write the record and the table.

    Args:
        study: which.
        plan: how.
        out: the folder for everything.
        engine: where tasks run, as `secondguess.engine.open_engine` takes it.
        progress: reports to this.
        command: put into the record.
        so_far: run nothing; the record is of what the ledger holds, and says what is missing.

    Returns:
        The record.
    """
    began = time.perf_counter()
    tasks, ledger = plan.tasks(study), Ledger(out / "ledger")
    if so_far:
        found = {task.key: entry for task in tasks if (entry := ledger.get(task)) is not None}
        entries = [found[task.key] for task in tasks if task.key in found]
        missing = [task for task in tasks if task.key not in found]
        if not entries or (study.needs_all and missing):
            wanted = "its tasks need each other" if entries else "there is nothing to make a table of"
            raise UserError(
                f"{len(entries)} of {len(tasks)} tasks of {study.name} have ended, and {wanted}; run the rest."
            )
    else:
        write_json_sealed(_plan_path(study, out), asdict(plan))
        entries, missing = run(tasks, ledger, engine, progress=progress, label=study.name), []
    table = study.tabulate([entry.result for entry in entries], plan.settings)
    made = _record(study, plan, tasks, entries, table) | {
        **({"missing": _told_apart(missing, tasks)} if missing else {}),
        "command": command,
        "commit": commit(),
        "engine": engine if isinstance(engine, str) else type(engine).__name__,
        **({} if so_far else {"wall_seconds": time.perf_counter() - began}),
    }
    write_json(out / f"{study.name}.json", made)
    write_text(out / f"{study.name}.csv", table.to_csv())
    return made


def status(study: Study, out: Path) -> Status:
    """How far the run in `out` came."""
    tasks = list({task.key: task for task in read_plan(study, out).tasks(study)}.values())
    found = [entry for task in tasks if (entry := Ledger(out / "ledger").get(task)) is not None]
    return Status(len(tasks), len(found), sum(entry.seconds for entry in found))


def _record(
    study: Study, plan: StudyPlan, tasks: Sequence[Task], entries: Sequence[Entry], table: Table
) -> dict[str, Any]:
    """Everything somebody needs who wants to know where a number comes from."""
    return {
        "study": study.name,
        "paper": study.paper,
        "table": study.table,
        "scale": plan.scale,
        "settings": dict(plan.settings),
        "seeds": sorted({task.seed for task in tasks}),
        "data": {
            role: {"name": Path(source.place).name, "fingerprint": source.fingerprint}
            for role, source in plan.sources.items()
        },
        "hardware": sorted({entry.hardware for entry in entries}),
        "versions": _versions(entries),
        "code": sorted({task.card["code"] for task in tasks}),
        "tasks": len(tasks),
        # The work, whenever and wherever it was done: what this call took is nothing if the ledger held all of it.
        "seconds": sum(entry.seconds for entry in entries),
        "cells": table.tidy(),
    }


def _versions(entries: Sequence[Entry]) -> Any:
    """Of the software that made the entries; a list where there were several."""
    distinct: list[dict[str, str]] = []
    for entry in entries:
        if entry.versions not in distinct:
            distinct.append(entry.versions)
    return distinct[0] if len(distinct) == 1 else distinct


def _told_apart(some: Sequence[Task], tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """The parameters and seeds of some tasks, as far as they differ between all."""
    first, *others = ({**task.card["params"], "seed": task.seed} for task in tasks)
    differing = [key for key in first if any(one.get(key) != first[key] for one in others)]
    return [{key: task.seed if key == "seed" else task.card["params"].get(key) for key in differing} for task in some]


def _source(place: str) -> TaskData:
    from secondguess.images import load

    data = load(place)
    # A worker on the same machine may run in another folder.
    return TaskData(str(Path(place).resolve()) if Path(place).exists() else place, data.fingerprint)


def _plan_path(study: Study, out: Path) -> Path:
    return out / f"{study.name}.plan.json"
