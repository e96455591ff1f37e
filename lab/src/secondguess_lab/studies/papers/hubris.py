"""Teixeira, Gomes, Soares and van Rijn: Hubris benchmarking with AmbiGANs, 2025.

All studies of this paper share the same tasks, one for each data set and run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from secondguess.engine import Task
from secondguess.errors import UserError
from secondguess_lab.studies.base import Recorded, Sources, Study
from secondguess_lab.studies.records import read_record
from secondguess_lab.studies.tables import Table, cell_of

__all__ = ["STUDIES"]

PAPER = "Teixeira, Gomes, Soares, van Rijn: Hubris benchmarking with AmbiGANs, 2025"
FILES = {"mnist": "mnist", "fashion_mnist": "fashion_mnist", "chest_xray": "pneumoniamnist"}
AUTHORS = "ambigan alternate disjoint"  # the variant that the tables call "ambigan"
RUNS = "_runs"  # ends the names of records of several runs
ACCEPTED = ", accepted"  # ends the name of a set with rejection
FAMILIES = {"convnext": "ConvNeXt", "vit": "ViT"}
CHOSEN = {
    "loss weight": "alpha",
    "variance": "variance",
    "ACD": "acd",
    "FID": "frechet",
    "disagreement": "disagreement",
}
SCORES = {"ACD": "acd", "H_A": "absolute", "H_R": "relative"}
ABOUT_DATA = (
    "The X-rays are PneumoniaMNIST, the same collection at 28 x 28 pixels, with the GAN for that size; the paper has "
    "them at 128 x 128. Rows named ambigan take the steps of the authors' code; in the repository's records they are "
    "of three runs of 100 + 50 epochs with six settings to choose from, as in the paper. All others are of one run, "
    "with fewer epochs and fewer settings: --json says which."
)
ABOUT_FID = (
    "Ours is a Fréchet distance in the features of a small classifier, of all other classes where there are some: its "
    "scale is another one, and ratios of distances depend on the features too."
)

NOT_AT_HAND = {".*ambiguous-mnist": "AmbiguousMNIST is not at hand."}

SCALE: Mapping[str, Any] = {
    "data": list(FILES),
    "classes": {"mnist": [9, 8], "fashion_mnist": [3, 0], "chest_xray": [1, 0]},
    "runs": 3,
    "variants": ["ambigan:alternate:disjoint", "agreement:guarded:batch"],
    "epochs": [100, 50],
    "latent": 256,
    "filters": 512,
    "recipe": {"lr": 2e-4},
    "members": 50,
    "estimator_epochs": 200,
    "alphas": [0.5, 1.0, 1.5],
    "variances": [0.01, 0.1],
    "guarded_alphas": [4.0, 8.0],
    "guarded_variances": [0.01],
    "acceptable": 0.08,
    "collapse": 0.2,
    "selected_on": 2048,
    "count": 5000,
    "draws": 50,
    "extractor_epochs": 5,
    "families": list(FAMILIES),
    "models": 1,
    "model_epochs": 10,
}
QUICK: Mapping[str, Any] = {
    "data": ["mnist"],
    "runs": 1,
    "epochs": [16, 6],
    "latent": 32,
    "filters": 16,
    "recipe": {"lr": 1e-3},
    "members": 6,
    "estimator_epochs": 50,
    "alphas": [1.0],
    "variances": [0.01, 0.1],
    "guarded_alphas": [4.0],
    "collapse": 0.0,
    "selected_on": 200,
    "count": 300,
    "draws": 5,
    "extractor_epochs": 2,
    "model_epochs": 3,
}
APART = ("data", "classes", "runs")  # settings that are no part of a task's

Settings = Mapping[str, Any]
Record = Mapping[str, Any]
Cells = Callable[[Record], Iterator[tuple[str, str, float]]]  # row, column and value


def _grid(sources: Sources, settings: Settings) -> list[Task]:
    from secondguess_lab.studies.tasks.hubris import measure_companions

    own = {key: value for key, value in settings.items() if key not in APART}
    tasks = []
    for name in settings["data"]:
        if name not in settings["classes"]:
            raise UserError(f"No classes of {name} are named; add them to the setting classes, such as {name}: [1, 0].")
        params = {"data": sources[name], "name": name, "classes": settings["classes"][name], "settings": own}
        tasks += [Task(measure_companions, params, run) for run in range(settings["runs"])]
    return tasks


def _table1(record: Record) -> Iterator[tuple[str, str, float]]:
    """Alpha, variance, ambiguity and realism of the chosen settings."""
    for row in record.get("training", {}).get("grid", ()):
        if row["chosen"]:
            name = f"{record['name']}, {_label(row['variant'])}"
            yield from ((name, column, row[key]) for column, key in CHOSEN.items())


def _table2(record: Record) -> Iterator[tuple[str, str, float]]:
    """Realism of stage 1 and of the companion sets."""
    for row, part, one in _stages(record):
        yield row, f"{part} FID", _frechet(one)
        yield from _scores(row, part, one)
        if part == "companion":
            yield row, "FID, companion over baseline", _frechet(one) / _frechet(record["sets"]["stage1"])
            for judged in list(one.get("judged", {}).values())[:1]:  # the kind that the first variant has
                yield row, "companion ACD, held out", judged["held_out"]["acd"]


def _scores(row: str, part: str, measured: Record) -> Iterator[tuple[str, str, float]]:
    for column, key in (("QS", "quality"), ("DS", "diversity")):
        if key in measured.get("giqa", ()):
            yield row, f"{part} {column}", measured["giqa"][key]


def _stages(record: Record) -> Iterator[tuple[str, str, Record]]:
    """Row of Table 2, part of the row, and what was measured of its images."""
    sets = record.get("sets", {})
    for name in sets:
        if name in ("stage1", "floor"):
            continue
        row = f"{record['name']}, {_label(name)}"
        if not name.endswith(ACCEPTED):
            yield row, "baseline", sets["stage1"]
        yield row, "companion", sets[name]


def _table3(record: Record) -> Iterator[tuple[str, str, float]]:
    """Accuracy on real images, and hubris on companion sets as they come, of every family of models."""
    rows = record.get("hubris", {}).get("rows", ())
    accuracies = {(row["family"], row["seed"]): row["accuracy"] for row in rows if row["set"] == "real"}
    told: set[tuple[str, int]] = set()
    for row in rows:
        if row["set"] in ("stage1", "real") or row["set"].endswith(ACCEPTED):
            continue
        family = row["family"]
        name = f"{FAMILIES.get(family, family)}: {record['name']}, {_label(row['set'])}"
        if (model := (name, row["seed"])) not in told:  # one model may have been asked about several runs
            told.add(model)
            yield name, "accuracy", accuracies[family, row["seed"]]
        yield from ((name, column, row[key]) for column, key in SCORES.items())


def _label(variant: str) -> str:
    """What the tables call a variant, or a set of one."""
    return variant.replace(AUTHORS, "ambigan")


def _frechet(measured: Mapping[str, Any]) -> float:
    """The distance in the space that decides."""
    realism = measured["realism"]
    return float(realism["others" if "others" in realism else "all"]["frechet"])


def _tabulated(cells: Cells, records: Sequence[Record]) -> Table:
    """Means over the runs, and over the models of a family."""
    values: dict[tuple[str, str], list[float]] = {}
    for record in records:
        for row, column, value in cells(record):
            values.setdefault((row, column), []).append(value)
    return Table({key: cell_of(some) for key, some in values.items()})


def _recorded_with(cells: Cells) -> Callable[[Path], Recorded | None]:
    """Reads the records of lab/experiments/companion_sets.py; of an interrupted one, the part that exists.

    Those of several runs, by companion_runs.py, have the last word of their cells.
    """

    def recorded(results: Path) -> Recorded | None:
        kept, sources = _read(results, "")
        table = _tabulated(cells, kept)
        later: list[dict[str, Any]] = []
        full: set[tuple[str, str]] = set()
        for record, source in zip(*_read(results, RUNS), strict=True):
            runs = [*record["runs"], {"hubris": record.get("hubris", {})}]
            several = _tabulated(cells, [one | {"name": record["name"]} for one in runs])
            if not several.cells:
                continue
            table = Table({**table.cells, **several.cells})
            later.append(source | {"settings": record["settings"]})
            if cells is not _table3 and record.get("scale") == "paper":  # the models of Table 3 are others
                full.update(several.cells)
        if cells is _table3:  # by companion_models.py, perhaps elsewhere
            sources = [
                one
                for record, source in zip(kept, sources, strict=True)
                for one in (source, *([source | record["asked_later"]] if "asked_later" in record else ()))
            ]
        return Recorded(table, [*sources, *later], full) if table.cells else None

    return recorded


def _read(results: Path, suffix: str) -> tuple[list[Record], list[dict[str, Any]]]:
    """The records whose names end so, with the name of their data, and where each is from."""
    kept: list[Record] = []
    sources: list[dict[str, Any]] = []
    for name, file in FILES.items():
        if found := read_record(results, f"hubris/{file}{suffix}.json"):
            record, source = found
            kept.append(record | {"name": name})
            sources.append({"settings": _settings(record)} | source)
    return kept, sources


def _settings(record: Record) -> dict[str, Any]:
    """Of each variant the epochs of both stages, and which alphas and variances there were to choose from."""
    variants = {name: about for name, about in record.get("training", {}).items() if name != "grid"}
    tried = [(row["variant"], [row["alpha"], row["variance"]]) for row in record.get("training", {}).get("grid", ())]
    return {
        name: {"epochs": about.get("epochs"), "tried": [setting for variant, setting in tried if variant == name]}
        for name, about in variants.items()
    }


def _study(table: str, summary: str, cells: Cells, note: str) -> Study:
    return Study(
        name=f"hubris-{table.lower().replace(' ', '')}",
        paper=PAPER,
        table=table,
        summary=summary,
        stand_ins=dict.fromkeys(FILES, "mnist5k"),
        scale=SCALE,
        quick=QUICK,
        grid=_grid,
        tabulate=lambda results, settings: _tabulated(cells, results),
        recorded=_recorded_with(cells),
        note=note,
        not_at_hand=NOT_AT_HAND,
    )


STUDIES = (
    _study(
        "Table 1",
        "Ambiguity and realism of AmbiGAN's images, with the alpha and the variance that were chosen.",
        _table1,
        f"{ABOUT_DATA} {ABOUT_FID} The paper chooses one setting for all runs, ours one for each; disagreement is the "
        "variance of the estimator's members, which the paper does not look at.",
    ),
    _study(
        "Table 2",
        "Realism of the GAN before ambiguity (baseline) and of the companion sets.",
        _table2,
        f"{ABOUT_DATA} {ABOUT_FID} From baseline to companion the paper's distances grow 5.5, 2.9 and 1.1 times. "
        "ACD, held out, is that of an estimator like the paper's that no generator has seen. QS and DS are in features "
        "of the small classifier, the paper's in those of Inception.",
    ),
    _study(
        "Table 3",
        "Accuracy, ACD, absolute and relative hubris of models on companion sets.",
        _table3,
        f"{ABOUT_DATA} The paper fine-tunes ConvNeXt-T and a ViT from given weights, and tests them on classes made "
        "equally large; our models learn from scratch, ConvNeXt and ViT as small networks. Absolute hubris cannot "
        "exceed .972. H_R is relative to an estimator that no generator has seen, as in the paper; in the repository's "
        "records that of ConvNeXt and ViT on agreement's images is relative to the one that the generator was trained "
        "against.",
    ),
)
