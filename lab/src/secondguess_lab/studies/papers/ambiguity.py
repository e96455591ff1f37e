"""Weiss, Garcia Gomez and Tonella: Generating and detecting true ambiguity, Empirical Software Engineering 2023."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from secondguess.engine import Task, TaskData
from secondguess.errors import UserError
from secondguess_lab.studies.base import Sources, Study, check_known
from secondguess_lab.studies.tables import Cell, Table, cell_of

__all__ = ["STUDIES", "keeping_folder", "kept_sets"]

PAPER = "Weiss, Garcia Gomez, Tonella: Generating and detecting true ambiguity, 2023"
ARCHITECTURES = ("simple_cnn", "fully_connected", "densenet_se", "resnet50")
GENERATORS = ("ambiguess", "ambiguess, realistic", "latent mixture")
COLUMNS = ("top-1", "top-2", "top-pair", "entropy")
OTHER = {"mnist": "fashion_mnist", "fashion_mnist": "mnist"}
SETS = ("ambiguous", "adversarial", "corrupted", "invalid")
ENSEMBLES = ("ensemble_ms", "ensemble_mi", "ensemble_pe")
SUPERVISORS = (
    "max_softmax", "pcs", "entropy", "deep_gini", "mc_dropout_vr", "mc_dropout_ms", "mc_dropout_mi", "mc_dropout_pe",
    "ensemble_ms", "ensemble_mi", "ensemble_pe", "dissector", "dsa", "lsa", "mdsa", "autoencoder",
)  # fmt: skip
GENERATION = {
    "pairs": "all", "autoencoders": 20, "autoencoder_epochs": 80, "mixture_epochs": 74, "judge_epochs": 19,
    "train": 20_000, "test": 10_000,
}  # fmt: skip
QUICK_GENERATION = {
    "pairs": "3-8", "autoencoders": 3, "autoencoder_epochs": 30, "mixture_epochs": 6, "judge_epochs": 2,
    "train": 300, "test": 200,
}  # fmt: skip

KEPT = ("training.npz", "test.npz")  # in the folder of a generator

Settings = Mapping[str, Any]
Rows = Sequence[Mapping[str, Any]]


def keeping_folder(folder: Path, generator: str) -> Path:
    """Where in a folder of kept images those of a generator lie."""
    return folder / generator.replace(",", "").replace(" ", "_")


def kept_sets(folder: str | None, generator: str) -> list[TaskData]:
    """Images to train on and to test on that experiments/ambiguous_sets.py made; none if no folder is given."""
    from secondguess.images import load

    if folder is None:
        return []
    paths = [keeping_folder(Path(folder).resolve(), generator) / file for file in KEPT]
    if missing := [path for path in paths if not path.is_file()]:
        raise UserError(f"There is no file {missing[0]}; make it with experiments/ambiguous_sets.py, or set kept={{}}.")
    return [TaskData(str(path), load(path).fingerprint) for path in paths]


def _check(settings: Settings) -> None:
    """Whatever both tables take by name."""
    from secondguess import zoo

    check_known(settings["data"], OTHER, "data set")
    check_known(settings["architectures"], zoo.names(), "network")
    check_known(settings["epochs"], zoo.names(), "network", some=False)
    check_known(settings["kept"], OTHER, "data set", some=False)


def _grid_table1(sources: Sources, settings: Settings) -> list[Task]:
    from secondguess_lab.studies.tasks.ambiguity import measure_ambiguity

    _check(settings)
    check_known(settings["generators"], GENERATORS, "generator")
    common = ("members", "generation")
    tasks = []
    for name in settings["data"]:
        # The paper's baseline exists for MNIST alone.
        some = [one for one in settings["generators"] if one != "latent mixture" or name == "mnist"]
        kept = {one: kept_sets(settings["kept"].get(name), one) for one in some}
        ways = [("clean", some), *(("mixed", [one]) for one in some)]
        for architecture, (training, generators) in product(settings["architectures"], ways):
            params = {"data": sources[name], "name": name, "architecture": architecture, "training": training}
            params |= {"generators": generators, "kept": {one: kept[one] for one in generators}}
            params |= {"epochs": settings["epochs"].get(architecture, 0)}
            tasks.append(Task(measure_ambiguity, params | {key: settings[key] for key in common}))
    return tasks


def _table1(rows: Rows) -> Table:
    """Rows for each architecture, and their mean where all four are there."""
    cells: dict[tuple[str, str], Cell] = {}
    groups = dict.fromkeys((row["data"], row["generator"]) for row in rows)
    for data, generator in groups:
        for training, test, column in product(("mixed", "clean"), ("ambiguous", "nominal"), COLUMNS):
            means = []
            for architecture in ARCHITECTURES:
                about = (data, generator, architecture, training)
                mine = [
                    row[test][column]
                    for row in rows
                    if tuple(row[key] for key in ("data", "generator", "architecture", "training")) == about
                    and column in row.get(test, ())
                ]
                if mine:
                    cells[f"{data}, {generator}, {architecture}: {training}, {test}", column] = cell_of(mine)
                    means.append(cell_of(mine).value)
            if len(means) == len(ARCHITECTURES):
                name = f"{data}, {generator}, mean of four: {training}, {test}"
                cells[name, column] = Cell(sum(means) / len(means), n=len(means))
    return Table(cells)


def _grid_table2(sources: Sources, settings: Settings) -> list[Task]:
    from secondguess import zoo
    from secondguess_lab.studies.tasks.supervisors import score_supervisors

    _check(settings)
    check_known(settings["members"], zoo.names(), "network", some=False)
    check_known([settings["attacks_see"]], ("logits", "softmax"), "way to attack")
    kept = {name: kept_sets(settings["kept"].get(name), "ambiguess") for name in settings["data"]}
    return [
        Task(
            score_supervisors,
            {
                "data": sources[name],
                "other": sources[OTHER[name]],
                "kept": kept[name],
                "name": name,
                "mix": f"{name}_c",
                "architecture": architecture,
                "supervisors": supervisors,
                "parameters": parameters,
                "epochs": settings["epochs"].get(architecture, 0),
                **{key: settings[key] for key in ("attacked", "attacks_see", "limit", "generation")},
            },
            run,
        )
        for run in range(settings["runs"])
        for name in settings["data"]
        for architecture in settings["architectures"]
        for supervisors, parameters in _parts(settings, architecture)
    ]


def _parts(settings: Settings, architecture: str) -> list[tuple[list[str], dict[str, Any]]]:
    """The supervisors that are tasks of their own, with parameters: ensembles take longer than all others together.

    Members are trained as the network under test is.
    """
    from secondguess import zoo

    recipe, members = zoo.get(architecture).recipe, settings["members"].get(architecture, 0)
    epochs = settings["epochs"].get(architecture) or recipe.epochs
    like_it = {"members": members, "epochs": epochs, "batch_size": recipe.batch_size}
    given: Mapping[str, Any] = settings["parameters"]
    ensembles = [name for name in settings["supervisors"] if name in ENSEMBLES and members]
    others = [name for name in settings["supervisors"] if name not in ENSEMBLES]
    parts = [
        (ensembles, {name: like_it | given.get(name, {}) for name in ensembles}),
        (others, {name: given[name] for name in others if name in given}),
    ]
    return [(names, parameters) for names, parameters in parts if names]


def _table2(rows: Rows) -> Table:
    """Means over all runs of all architectures, as the paper has them; then those of each, if there are several."""
    cells = _by_supervisor(rows, "")
    networks = dict.fromkeys(row["architecture"] for row in rows)
    for network in networks if len(networks) > 1 else ():
        cells |= _by_supervisor([row for row in rows if row["architecture"] == network], f", {network}")
    return Table(cells)


def _by_supervisor(rows: Rows, whose: str) -> dict[tuple[str, str], Cell]:
    cells = {}
    for name, data, key in product(dict.fromkeys(row["supervisor"] for row in rows), OTHER, SETS):
        if mine := [row[key] for row in rows if (row["supervisor"], row["data"]) == (name, data)]:
            cells[f"{name}{whose}", f"{data}: {key}"] = cell_of(mine)
    return cells


def _flat(tabulate: Any) -> Any:
    return lambda results, settings: tabulate([row for result in results for row in result["rows"]])


STAND_INS = {"mnist": "mnist5k", "fashion_mnist": "photos"}

STUDIES = (
    Study(
        name="ambiguity-table1",
        paper=PAPER,
        table="Table 1",
        summary="How ambiguous classifiers find ambiguous images (and Tables 4-7, the same by network).",
        stand_ins=STAND_INS,
        scale={
            "data": ["mnist", "fashion_mnist"],
            "generators": list(GENERATORS),
            "architectures": list(ARCHITECTURES),
            "members": 5,
            "epochs": {},
            "generation": GENERATION,
            "kept": {},
        },
        quick={
            "data": ["mnist"],
            "architectures": ["simple_cnn"],
            "members": 1,
            "epochs": {"simple_cnn": 2},
            "generation": QUICK_GENERATION,
        },
        grid=_grid_table1,
        tabulate=_flat(_table1),
        note="The paper has one model of each network and set; its ResNet50 starts from ImageNet's weights. So has the "
        "repository's record, whose ResNet50s start from fresh weights and have 10 epochs instead of 30. Its latent "
        "mixtures were chosen from ten times as many, the original's from 350 times: they are less ambiguous.",
    ),
    Study(
        name="ambiguity-table2",
        paper=PAPER,
        table="Table 2",
        summary="AUROC of 16 supervisors against ambiguous, adversarial, corrupted and invalid images.",
        stand_ins=STAND_INS,
        scale={
            "data": ["mnist", "fashion_mnist"],
            "architectures": list(ARCHITECTURES),
            "runs": 5,
            "epochs": {},
            "members": dict.fromkeys(ARCHITECTURES, 20),
            "supervisors": list(SUPERVISORS),
            "parameters": {"dsa": {"subsampling": 1 / 3}},
            "attacked": 10_000,
            "attacks_see": "logits",
            "limit": 0,
            "generation": GENERATION,
            "kept": {},
        },
        quick={
            "data": ["mnist"],
            "architectures": ["simple_cnn"],
            "runs": 2,
            "epochs": {"simple_cnn": 2},
            "members": {"simple_cnn": 2},
            "parameters": {
                "dsa": {"subsampling": 1 / 3},
                "autoencoder": {"epochs": 1},
                "dissector": {"epochs": 1, "batch_size": 256},
                **{name: {"epochs": 1} for name in ENSEMBLES},
                **{name: {"samples": 10} for name in SUPERVISORS if name.startswith("mc_dropout")},
            },
            "attacked": 40,
            "limit": 200,
            "generation": QUICK_GENERATION,
        },
        grid=_grid_table2,
        tabulate=_flat(_table2),
        note="The paper prints means over four networks; its tables for each network repeat these means, so only their "
        "spreads are used here: of five SimpleCNNs, rounded to .01, none for ambiguous images of Fashion-MNIST. The "
        "repository's record is of one run of each network, its spreads are over networks: ResNet50 from fresh weights "
        "with 10 epochs instead of 30, ensembles of 20 SimpleCNNs, 20 FullyConnected, 5 DenseNets and no ResNet50s, "
        "2,000 attacked images, Dissector in batches of 1,024; DenseNet on Fashion-MNIST with ensembles alone.",
    ),
)
