"""Weiss, Chakraborty and Tonella: A review and refinement of Surprise Adequacy, DeepTest 2021."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from secondguess.engine import Task
from secondguess_lab.studies.base import Recorded, Sources, Study
from secondguess_lab.studies.records import read_record
from secondguess_lab.studies.tables import Cell, Table, cell_of

__all__ = ["STUDIES"]

PAPER = "Weiss, Chakraborty, Tonella: A review and refinement of Surprise Adequacy, 2021"
SETS = ("adversarial", "corrupted")
MACHINES = ("MacBook Pro 2019", "Threadripper 1920X")

Settings = Mapping[str, Any]
Rows = Sequence[Mapping[str, Any]]
Variants = Callable[[Settings], list[Mapping[str, Any]]]


def _variants_table1(settings: Settings) -> list[Mapping[str, Any]]:
    from secondguess_lab.studies.tasks.surprise import paper_variants

    return paper_variants()


def _variants_figure3(settings: Settings) -> list[Mapping[str, Any]]:
    from secondguess_lab.studies.tasks.surprise import paper_variants, sampled_variants

    return paper_variants() + sampled_variants(settings["shares"])


def _variants_figure4(settings: Settings) -> list[Mapping[str, Any]]:
    from secondguess_lab.studies.tasks.surprise import bandwidth_variants

    return bandwidth_variants(settings["bandwidths"])


def _grid_of(variants: Variants) -> Callable[[Sources, Settings], list[Task]]:
    """Tasks of `together` models each, which are trained as one; the last may have fewer."""

    def grid(sources: Sources, settings: Settings) -> list[Task]:
        from secondguess_lab.studies.tasks.surprise import detect

        starts = range(0, settings["models"], settings["together"])
        sizes = [min(settings["together"], settings["models"] - start) for start in starts]
        common = {"data": sources["mnist"], "epochs": settings["epochs"], "variants": variants(settings)}
        return [Task(detect, common | {"models": size}, seed) for seed, size in enumerate(sizes)]

    return grid


def _grid_table2(sources: Sources, settings: Settings) -> list[Task]:
    from secondguess_lab.studies.tasks.surprise import time_scoring

    return [Task(time_scoring, {"data": sources["mnist"]} | {key: settings[key] for key in ("epochs", "repeats")})]


def _rows(results: Sequence[Mapping[str, Any]]) -> Rows:
    return [row for result in results for row in result["rows"]]


def _values(rows: Rows, method: str, key: str) -> list[float]:
    return [row[key] for row in rows if row["method"] == method]


def _table1(rows: Rows) -> Table:
    cells = {}
    for key in SETS:
        for method in ("dsa", "lsa"):
            values = np.array(_values(rows, method, key))
            row = f"{key}, {method.upper()}"
            cells[row, "mean"] = cell_of(values)
            if len(values) > 1:
                cells[row, "std"] = Cell(float(values.std(ddof=1)), n=len(values))
            for name, function in (("median", np.median), ("min", np.min), ("max", np.max), ("range", np.ptp)):
                cells[row, name] = Cell(float(function(values)), n=len(values))
    return Table(cells)


def _figure3(rows: Rows) -> Table:
    """AUROC for each strategy and share, and what is lost against all traces, on the models that have both."""
    cells = {}
    for method in dict.fromkeys(row["method"] for row in rows):
        kind, _, sampling = method.partition(", ")
        name = f"{kind.upper()}, {sampling or 'all'}"
        for key in SETS:
            cells[name, key] = cell_of(_values(rows, method, key))
            if sampling:
                mine = {str(row["model"]): row[key] for row in rows if row["method"] == method}
                whole = {str(row["model"]): row[key] for row in rows if row["method"] == kind}
                cells[name, f"{key} lost"] = cell_of([whole[model] - mine[model] for model in mine])
    return Table(cells)


def _figure4(rows: Rows) -> Table:
    cells = {}
    for method in dict.fromkeys(row["method"] for row in rows):
        bandwidth = method.removeprefix("lsa, bandwidth ")
        values = _values(rows, method, "adversarial")
        cells[bandwidth, "mean"] = cell_of(values)
        if len(values) > 1:
            cells[bandwidth, "std"] = Cell(float(np.std(values, ddof=1)), n=len(values))
    return Table(cells)


def _table2(results: Sequence[Mapping[str, Any]], settings: Settings) -> Table:
    """Our one time beside each machine of the paper: the machines differ, so only orders of magnitude count."""
    cells: dict[tuple[str, str], Cell] = {}
    for row in _rows(results):
        threads = "all threads" if row["all"] else "one thread"
        names = {"dsa": [f"DSA, improved, {threads}"], "lsa": ["LSA, improved"] if row["all"] else []}[row["method"]]
        if row["method"] == "dsa" and row["all"] and row["threads"] == 1:
            names.append("DSA, improved, one thread")
        cells |= {(name, machine): Cell(row["seconds"]) for name in names for machine in MACHINES}
    return Table(cells)


def _recorded_table2(results: Path) -> Recorded | None:
    """Reads the records of `secondguess bench surprise` and of lab/experiments/surprise_times.py.

    The first has synthetic traces of the paper's size and all threads of an idle machine; the second the traces of a
    network and one thread, of which processor seconds count, because others were at work on that machine.
    """
    found = read_record(results, "bench/surprise.json")
    if found is None:
        return None
    kept, source = found
    names = {"dsa": "DSA, improved, all threads", "lsa": "LSA, improved"}
    seconds = {
        names[row["work"]]: row["seconds"]
        for row in kept["rows"]
        if row["work"] in names and (row["dimension"], row["traces"], row["queries"]) == (10, 60_000, 10_000)
    }
    records = [source]
    if timed := read_record(results, "surprise/times.json"):
        ours = {"DSA, ours": "DSA, improved, one thread"}
        single = {row["name"]: row["processor"] for row in timed[0]["rows"] if row["threads"] == 1}
        wanted = {"DSA, ours", "DSA, original", "LSA, original"}
        seconds |= {ours.get(name, name): value for name, value in single.items() if name in wanted}
        records.append(timed[1])
    return Recorded(Table({(name, one): Cell(value) for name, value in seconds.items() for one in MACHINES}), records)


def _study(
    name: str,
    table: str,
    summary: str,
    variants: Variants,
    tabulate: Callable[[Rows], Table],
    note: str,
    **lists: list[Any],
) -> Study:
    """A study of re-trained models; of the lists, the last two entries are enough for a quick run."""
    return Study(
        name=name,
        paper=PAPER,
        table=table,
        summary=summary,
        stand_ins={"mnist": "mnist5k"},
        scale={"models": 100, "together": 10, "epochs": 15} | lists,
        quick={"models": 2, "together": 2, "epochs": 2} | {key: values[-2:] for key, values in lists.items()},
        grid=_grid_of(variants),
        tabulate=lambda results, settings: tabulate(_rows(results)),
        note=note,
    )


STUDIES = (
    _study(
        "surprise-table1",
        "Table 1",
        "AUROC of DSA and LSA over re-trained models, against FGSM and MNIST-C.",
        _variants_table1,
        _table1,
        "The repository's record is of 100 models, as in the paper; minimum, maximum and range depend on that number.",
    ),
    Study(
        name="surprise-table2",
        paper=PAPER,
        table="Table 2",
        summary="Seconds for the surprise of 10,000 test images, fitting excluded; the machines differ.",
        stand_ins={"mnist": "mnist5k"},
        scale={"epochs": 15, "repeats": 3},
        quick={"epochs": 1, "repeats": 1},
        grid=_grid_table2,
        tabulate=_table2,
        recorded=_recorded_table2,
        note="The paper timed each once, the network's own pass included; ours is without it. The original is our "
        "rendering of it on one thread, because that code does not install any more.",
    ),
    _study(
        "surprise-figure3",
        "Figure 3",
        "AUROC with a part of the training traces, by sampling strategy and share.",
        _variants_figure3,
        _figure3,
        "The repository's record is of 60 models where the paper has 100. The loss of a model is its AUROC with all "
        "traces minus that with a part of them. Uniform sampling takes the same training images for every model.",
        shares=[0.05, 0.1, 0.2, 0.5, 0.7, 1 / 3],
    ),
    _study(
        "surprise-figure4",
        "Figure 4",
        "AUROC of LSA against FGSM over re-trained models, by bandwidth.",
        _variants_figure4,
        _figure4,
        "The repository's record is of 100 models, as in the paper, for every bandwidth.",
        bandwidths=[0.01, 0.1, 1.0, 10.0, "silverman", "scott"],
    ),
)
