"""What Weiss, Garcia Gomez and Tonella (2023) describe and do not measure: orders of images, decision boundaries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from secondguess.engine import Task, TaskData
from secondguess.errors import UserError
from secondguess.metrics import spearman
from secondguess_lab.studies.base import Sources, Study, check_known
from secondguess_lab.studies.papers.ambiguity import GENERATION, PAPER, QUICK_GENERATION
from secondguess_lab.studies.tables import Cell, Table, cell_of

__all__ = ["STUDIES"]

STAND_INS = {"mnist": "mnist5k", "fashion_mnist": "photos", "cifar10": "photos"}
SUPERVISORS = (
    "max_softmax", "pcs", "entropy", "deep_gini", "gen", "mc_dropout_vr", "mc_dropout_ms", "mc_dropout_mi",
    "mc_dropout_pe", "dsa", "lsa", "mdsa", "relative_mahalanobis", "knn", "fdbd", "autoencoder",
)  # fmt: skip
ORDERS = {
    "nominal": "APFD, nominal",
    "nominal ±": "± 95 %",
    "testing": "APFD, for testing",
    "testing ±": "± 95 %, for testing",
    "learning": "APFD, for learning",
    "first": "ambiguous in the first tenth",
}
LOOKED_AT = {"accuracy": "right on nominal images", "share": "ambiguous, of all images"}
FRONTIER = {
    "ambiguous": "ambiguous at the frontier",
    "clear": "clear at the frontier",
    "wrong": "wrong at the frontier",
    "away": "wrong away from it",
}
COMMON = {
    "data": ["mnist", "fashion_mnist", "cifar10"],
    "runs": 5,
    "models": {},
    "architecture": "simple_cnn",
    "epochs": 0,
    "train": 0,
    "test": 0,
    "generator": "ambiguess, realistic",
    "generation": GENERATION,
    "kept": {},
}
QUICK = {"data": ["mnist"], "runs": 2, "epochs": 2, "train": 600, "test": 200, "generation": QUICK_GENERATION}

Settings = Mapping[str, Any]
Results = Sequence[Mapping[str, Any]]


def _cases(sources: Sources, settings: Settings) -> Iterator[tuple[int, dict[str, Any]]]:
    """The seeds and parameters of all classifiers; of one that is given there is a single run."""
    check_known(settings["data"], STAND_INS, "data set")
    common = ("architecture", "epochs", "train", "test", "generator", "generation")
    for name in settings["data"]:
        model = settings["models"].get(name, "")
        if model and not Path(model).is_file():
            raise UserError(f"There is no model {model}; give the path of a model.toml, or leave {name} out of models.")
        for run in range(1 if model else settings["runs"]):
            about = {"data": sources[name], "name": name, "kept": _kept(settings, name)}
            yield run, about | {"model": str(Path(model).resolve()) if model else ""} | {k: settings[k] for k in common}


def _kept(settings: Settings, name: str) -> TaskData | None:
    from secondguess.images import load

    place = settings["kept"].get(name)
    if place is None:
        return None
    if not Path(place).is_file():
        raise UserError(f"There is no file {place} of ambiguous images; leave {name} out of kept to have some made.")
    return TaskData(str(Path(place).resolve()), load(place).fingerprint)


def _grid_orders(sources: Sources, settings: Settings) -> list[Task]:
    from secondguess_lab.studies.tasks.ambiguous_orders import order_images

    more = {key: settings[key] for key in ("supervisors", "parameters", "learnt")}
    return [Task(order_images, about | more, run) for run, about in _cases(sources, settings)]


def _orders(results: Results, settings: Settings) -> Table:
    rows = [row for result in results for row in result["rows"]]
    cells = {}
    for data, name in dict.fromkeys((row["data"], row["supervisor"]) for row in rows):
        mine = [row for row in rows if (row["data"], row["supervisor"]) == (data, name)]
        for key, column in ORDERS.items():
            if key in mine[0]:
                cells[f"{data}, {name}", column] = cell_of([row[key] for row in mine])
    for data in dict.fromkeys(row["data"] for row in rows):
        mine = [result for result in results if result["rows"][0]["data"] == data and "share" in result]
        for key, column in LOOKED_AT.items() if mine else ():
            cells[data, column] = cell_of([result[key] for result in mine])
    return Table(cells)


def _grid_boundary(sources: Sources, settings: Settings) -> list[Task]:
    from secondguess_lab.studies.tasks.ambiguous_orders import follow_boundary, learn_more

    cases = list(_cases(sources, settings))
    tasks = [Task(follow_boundary, about, run) for run, about in cases]
    more = {key: settings[key] for key in ("start", "added")}
    return tasks + [
        Task(learn_more, {key: value for key, value in about.items() if key != "model"} | more, run)
        for run, about in cases
        if not about["model"]
    ]


def _boundary(results: Results, settings: Settings) -> Table:
    cells: dict[tuple[str, str], Cell] = {}
    for data in dict.fromkeys(result["data"] for result in results):
        mine = [result for result in results if result["data"] == data]
        looked, taught = ([one for one in mine if key in one] for key in ("frontier", "sorts"))
        counts = [_counts(run["pairs"]) for run in looked]
        for key, column in FRONTIER.items():
            if shares := [run["frontier"][key] for run in looked if key in run["frontier"]]:
                cells[data, column] = cell_of(shares)
        for column in dict.fromkeys(column for one in counts for column in one):
            cells[data, column] = cell_of([one[column] for one in counts if column in one])
        cells |= _pairs(data, looked) | _taught(data, taught)
    return Table(cells)


def _counts(pairs: Results) -> dict[str, float]:
    """How many boundaries run where, and whether that foretells on which side clear images are misclassified."""
    known = [one for one in pairs if one["excess"] is not None]
    beside = [one for one in known if not one["through"] and one["excess"]]
    counts = {
        "pairs": len(pairs),
        "through": sum(one["through"] for one in pairs) / max(1, len(pairs)),
        "beside, with clear errors": len(beside),
        "of these as foretold": sum(one["lean"] * one["excess"] > 0 for one in beside),
    }
    leans, errors = ([one[key] for one in known] for key in ("lean", "excess"))
    if len(set(leans)) > 1 and len(set(errors)) > 1:
        counts["Spearman of lean and errors"] = spearman(leans, errors)
    return counts


def _pairs(data: str, runs: Results) -> dict[tuple[str, str], Cell]:
    cells = {}
    for name in dict.fromkeys(pair["pair"] for run in runs for pair in run["pairs"]):
        mine = [pair for run in runs for pair in run["pairs"] if pair["pair"] == name]
        for key in ("images", "on_a", "lean", "excess"):
            if all(pair[key] is not None for pair in mine):
                cells[f"{data}: {name}", key] = cell_of([pair[key] for pair in mine])
    return cells


def _taught(data: str, runs: Results) -> dict[tuple[str, str], Cell]:
    if not runs:
        return {}
    cells = {(f"{data}, few images", "accuracy"): cell_of([run["accuracy"] for run in runs])}
    for sort, key in product(runs[0]["sorts"], ("accuracy", "images")):
        cells[f"{data}, and {sort}", key] = cell_of([run["sorts"][sort][key] for run in runs])
    return cells


STUDIES = (
    Study(
        name="ambiguity-orders",
        paper=PAPER,
        table="Section 4.2",
        summary="How early supervisors bring mistakes, with ambiguous images among the nominal ones.",
        stand_ins=STAND_INS,
        scale=COMMON
        | {"supervisors": list(SUPERVISORS), "parameters": {"dsa": {"subsampling": 1 / 3}}, "learnt": 10_000},
        quick=QUICK
        | {
            "supervisors": ["max_softmax", "entropy", "mdsa", "dsa"],
            "learnt": 400,
        },
        grid=_grid_orders,
        tabulate=_orders,
        note="The paper describes the assessment and prints no numbers. For testing an ambiguous image counts with the "
        "chance that an answer drawn from its soft label differs from the prediction; for learning, only if the "
        "prediction is no possible answer. ± is half of the 95 % interval of one run. Values compare within one column "
        "of one data set only: the best order has less than 1, the more mistakes there are.",
    ),
    Study(
        name="ambiguity-boundary",
        paper=PAPER,
        table="Section 4.3",
        summary="Whether decision boundaries run through ambiguous images, and what it foretells.",
        stand_ins=STAND_INS,
        scale=COMMON | {"start": 1000, "added": 300},
        quick=QUICK | {"start": 200, "added": 50},
        grid=_grid_boundary,
        tabulate=_boundary,
        note="The paper describes the oracle and prints no numbers. Test images are taken for clear. Lean is the share "
        "of ambiguous images on the side of the first class less that of their soft labels, excess how much more often "
        "clear images of the second class are on the side of the first than the reverse.",
    ),
)
