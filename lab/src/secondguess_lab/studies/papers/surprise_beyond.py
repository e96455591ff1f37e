"""Times by share, as Weiss, Chakraborty and Tonella (2021) have them, and what lies beyond their experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from secondguess.engine import Task
from secondguess.errors import UserError
from secondguess_lab.studies.base import Sources, Study, check_known
from secondguess_lab.studies.papers.surprise import PAPER
from secondguess_lab.studies.tables import Cell, Table, cell_of

__all__ = ["STUDIES"]

STAND_INS = {"mnist": "mnist5k", "fashion_mnist": "photos", "cifar10": "photos"}
LABELS = ("clean", "noisy labels", "unbalanced classes")
MEASURES = ("adversarial", "corrupted", "mistakes", "accuracy")

Settings = Mapping[str, Any]
Results = Sequence[Mapping[str, Any]]


def _grid_figure2(sources: Sources, settings: Settings) -> list[Task]:
    from secondguess_lab.studies.tasks.surprise_beyond import time_shares

    return [Task(time_shares, {"data": sources["mnist"], **settings})]


def _figure2(results: Results, settings: Settings) -> Table:
    rows = [row for result in results for row in result["rows"]]
    return Table({(row["method"].upper(), f"{row['share']:.2f}"): Cell(row["seconds"]) for row in rows})


def _grid_beyond(sources: Sources, settings: Settings) -> list[Task]:
    from secondguess_lab.studies.tasks.surprise_beyond import measure_beyond

    check_known(settings["data"], STAND_INS, "data set")
    check_known(settings["labels"], LABELS, "kind of labels")
    common = {key: settings[key] for key in ("layers", "models", "epochs", "train", "test")}
    tasks = []
    for name in settings["data"]:
        model = settings["networks"].get(name, "")
        if model and not Path(model).is_file():
            raise UserError(
                f"There is no model {model}; give the path of a model.toml, or leave {name} out of networks."
            )
        if not model and name == "cifar10":
            raise UserError(
                "The paper's network is for grey images; name one for cifar10 in networks, or leave it out."
            )
        about = {"data": sources[name], "name": name, "model": str(Path(model).resolve()) if model else ""}
        about |= {"epsilon": settings["epsilons"][name]}
        # A network that is given has learnt from its own labels.
        tasks += [
            Task(measure_beyond, about | common | {"labels": labels})
            for labels in (["clean"] if model else settings["labels"])
        ]
    return tasks


def _beyond(results: Results, settings: Settings) -> Table:
    rows = [row for result in results for row in result["rows"]]
    keys = ("data", "labels", "layer", "kind")
    cells = {}
    for about, measure in product(dict.fromkeys(tuple(row[key] for key in keys) for row in rows), MEASURES):
        if mine := [row[measure] for row in rows if tuple(row[key] for key in keys) == about and measure in row]:
            data, labels, layer, kind = about
            cells[f"{data}, {labels}, {layer}, {kind.upper()}", measure] = cell_of(mine)
    return Table(cells)


STUDIES = (
    Study(
        name="surprise-figure2",
        paper=PAPER,
        table="Figure 2",
        summary="Seconds of one core for the surprise of the test images, by share of the training traces.",
        stand_ins={"mnist": "mnist5k"},
        scale={"epochs": 15, "train": 0, "shares": [0.1, 0.2, 1 / 3, 0.5, 0.7, 1.0], "repeats": 3},
        quick={"epochs": 1, "train": 500, "shares": [0.1, 1.0], "repeats": 1},
        grid=_grid_figure2,
        tabulate=_figure2,
        note="The paper has curves, of which its text names two points, on a MacBook Pro of 2019, with the network's "
        "own pass; ours is without it, and in seconds of one core. The repository's record is of a network that has "
        "learnt from few images, which changes the traces and not their number.",
    ),
    Study(
        name="surprise-beyond",
        paper=PAPER,
        table="Beyond it",
        summary="DSA, LSA and MDSA at several depths, with noisy labels and rare classes, on three data sets.",
        stand_ins=STAND_INS,
        scale={
            "data": ["mnist", "fashion_mnist", "cifar10"],
            "labels": list(LABELS),
            "layers": ["25%", "50%", "penultimate"],
            "networks": {"cifar10": "resnet20/model.toml"},
            "models": 10,
            "epochs": 15,
            "train": 0,
            "test": 0,
            "epsilons": {"mnist": 0.5, "fashion_mnist": 0.1, "cifar10": 0.03},
        },
        quick={"data": ["mnist"], "networks": {}, "models": 2, "epochs": 2, "train": 1000, "test": 300},
        grid=_grid_beyond,
        tabulate=_beyond,
        note="Named as work to do in the paper, which has no such numbers. Of noisy labels a fifth are wrong; with "
        "unbalanced classes a tenth of the images of the first half of the classes is kept. `mistakes` is the "
        "AUROC of right against wrong answers to nominal images.",
    ),
)
