"""`secondguess study`: run the studies of the papers, and hold the numbers against the published ones."""

from __future__ import annotations

import json as jsonlib
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secondguess.cli.options import Debug, Json, Quiet, print_json, progress_for, say
from secondguess.errors import UserError

if TYPE_CHECKING:
    from secondguess_lab.studies import Study

__all__ = ["app"]

app = typer.Typer(help="Run the studies of the papers, and compare.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A study; `secondguess study list` names them.")]
Folder = Annotated[Path, typer.Option("--out", "-o", help="Folder of the run; studies that share tasks may share it.")]
Results = Annotated[
    Path | None, typer.Option("--results", help="Folder that holds results. [default: the repository's]")
]
OUT = Path("out/studies")


@app.command("list")
def list_(json: Json = False, debug: Debug = False) -> None:
    """List the studies, and the records that have a table of their own."""
    from secondguess_lab.studies import get, names
    from secondguess_lab.studies.records import record_tables

    studies, own = [get(name) for name in names()], record_tables(None)
    if json:
        listed = [{"name": one.name, "paper": one.paper, "table": one.table} for one in studies]
        print_json({"studies": listed, "records": [{"name": name, "title": title} for name, title in own.items()]})
        return
    paper = ""
    for study in studies:
        if study.paper != paper:
            paper = study.paper
            say(paper)
        say(f"  {study.name:<18} {study.table:<10} {study.summary}")
    if own:
        say("Measured here, of no paper: study table NAME")
    for name, title in own.items():
        say(f"  {name:<18} {title}")


@app.command("run")
def run(
    name: Name,
    quick: Annotated[bool, typer.Option("--quick", help="Scaled down, on embedded data, in minutes.")] = False,
    engine: Annotated[
        str, typer.Option("--engine", help="local, local:N, dask://host:port, ray or ray://host:port.")
    ] = "local",
    data: Annotated[
        list[str] | None, typer.Option("--data", help="Where data lie: PLACE, or ROLE=PLACE if there are several.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="Another scale: KEY=VALUE, the value as JSON, such as models=10.")
    ] = None,
    gpu: Annotated[bool, typer.Option("--gpu", help="Give tasks only to workers that declare a GPU.")] = False,
    out: Folder = OUT,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, with its settings.")] = False,
    so_far: Annotated[
        bool, typer.Option("--so-far", help="Run nothing: the table of the tasks that have ended, and what is missing.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Run what is missing of a study, then print its table.

    **Examples**

    `secondguess study run surprise-table1 --quick`

    `secondguess study run surprise-table1 --data mnist.npz --engine dask://10.0.0.1:8786 --out runs`

    `secondguess study run surprise-table1 --out runs --resume`

    `secondguess study run surprise-table1 --out runs --resume --so-far`
    """
    from secondguess_lab.studies import Table, get, make_plan, read_plan, run_study

    study = get(name)
    if resume:
        if quick or data or setting or gpu:
            raise UserError(
                "--resume goes on with the settings of the earlier run; leave --quick, --data, --set and --gpu out."
            )
        plan = read_plan(study, out)
    else:
        plan = make_plan(
            study, quick=quick, data=_places(study, data or []), settings=_settings(setting or []), gpu=gpu
        )
    command = shlex.join(["secondguess", *sys.argv[1:]])
    progress = progress_for(quiet=quiet or json)
    made = run_study(study, plan, out, engine=engine, progress=progress, command=command, so_far=so_far)
    if json:
        print_json(made)
        return
    say(Table.from_tidy(made["cells"]).text())
    lacking = f", {len(made['missing'])} missing" if "missing" in made else ""
    taken = f", {made['wall_seconds']:.1f} s" if "wall_seconds" in made else ""
    say(f"\nTasks: {made['tasks']}{lacking}{taken}; the record is {out / name}.json")


@app.command("status")
def status(name: Name, out: Folder = OUT, json: Json = False, debug: Debug = False) -> None:
    """Show the progress of a run."""
    from secondguess_lab.studies import get, read_plan
    from secondguess_lab.studies import status as status_of

    study = get(name)
    plan, found = read_plan(study, out), status_of(study, out)
    if json:
        print_json({"study": name, "scale": plan.scale} | vars(found))
        return
    say(f"{name} ({plan.scale} scale): {found.done} of {found.tasks} tasks done, {found.seconds:.1f} s of work")
    if found.done < found.tasks:
        say(f"To go on: secondguess study run {name} --out {shlex.quote(str(out))} --resume")


@app.command("table")
def table(name: Name, results: Results = None, json: Json = False, debug: Debug = False) -> None:
    """Print the table of a study, or of a record that has one of its own, from the results that there are.

    **Examples**

    `secondguess study table surprise-table1`

    `secondguess study table photos-accuracy --json`
    """
    from secondguess_lab.studies import get, recorded
    from secondguess_lab.studies.records import recorded_table, results_folder

    folder = results_folder(results)
    own = recorded_table(name, folder)
    if own is None:
        study = get(name)
        title, found = f"{study.table} of {study.paper}", recorded(study, folder)
    else:
        title, found = own
    if json:
        print_json({"study": name, "title": title, "cells": found.table.tidy(), "records": list(found.records)})
        return
    say(title)
    say(found.table.text())
    _say_records(found.records)


@app.command("compare")
def compare(
    name: Name,
    results: Results = None,
    all_cells: Annotated[
        bool, typer.Option("--all", help="Show cells too that only the paper has, or only we have.")
    ] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Print ours beside the paper's, cell by cell, with the difference and a mark for doubtful cells."""
    from secondguess_lab.studies import compare as lines_of
    from secondguess_lab.studies import get, recorded
    from secondguess_lab.studies.comparison import comparison_text
    from secondguess_lab.studies.records import results_folder

    study = get(name)
    found = recorded(study, results_folder(results))
    lines = lines_of(found.table, study.published)
    if json:
        cells = [line.tidy() for line in lines]
        print_json(
            {"study": name, "paper": study.paper, "table": study.table, "cells": cells, "records": list(found.records)}
        )
        return
    say(f"{study.table} of {study.paper}")
    both = [line for line in lines if line.ours and line.paper]
    shown = lines if all_cells or not both else both
    say(comparison_text(shown))
    if study.note:
        say(f"\n{study.note}")
    if alone := len(lines) - len(shown):
        say(f"\nLeft out: {alone} cells that only the paper has, or only we have; --all shows them.")
    _say_records(found.records)


@app.command("coverage")
def coverage(results: Results = None, json: Json = False, debug: Debug = False) -> None:
    """Count cells: ours, and of the published ones how many stand beside ours, can be trusted, and are within .05."""
    from secondguess_lab.studies import get, names
    from secondguess_lab.studies.coverage import coverage_of, coverage_text, covered
    from secondguess_lab.studies.records import results_folder

    folder = results_folder(results)
    found = [coverage_of(study, folder) for study in map(get, names())]
    if json:
        print_json({"studies": [one.to_dict() for one in found], "all": covered(found)})
        return
    say(coverage_text(found))


def _say_records(records: Any) -> None:
    say()
    for record in records:
        hardware = record.get("hardware", "unknown hardware")
        shown = hardware if isinstance(hardware, str) else "; ".join(hardware)
        scale = f", {record['scale']} scale" if "scale" in record else ""
        lacking = f", tasks missing: {len(record['missing'])}" if "missing" in record else ""
        say(f"from {record['file']}{scale}, {shown}{lacking}")


def _places(study: Study, given: list[str]) -> dict[str, str]:
    """Data by role; a study with one role needs no name for it."""
    roles = list(study.stand_ins)
    places = {}
    for text in given:
        role, equals, place = text.partition("=")
        if not (equals and role in roles):
            if len(roles) != 1:
                raise UserError(
                    f"--data is {text!r}; {study.name} has several: give ROLE=PLACE with one of {', '.join(roles)}."
                )
            role, place = roles[0], text
        places[role] = place
    return places


def _settings(given: list[str]) -> dict[str, Any]:
    settings = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--set is {text!r}; give KEY=VALUE, such as models=10.")
        try:
            settings[key] = jsonlib.loads(value)
        except ValueError:
            settings[key] = value
    return settings
