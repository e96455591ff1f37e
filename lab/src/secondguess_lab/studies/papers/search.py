"""Bennette, Maurer and Sisti: Harnessing adversarial distances to discover high-confidence errors, IJCNN 2020.

The figures are curves over the queries, and one box plot; the studies tell them after 10, 20 and 50 queries. All
studies of this paper share the same tasks, one for each network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from secondguess.engine import Task
from secondguess.errors import UserError
from secondguess_lab.studies.base import Recorded, Sources, Study, check_known
from secondguess_lab.studies.records import read_record
from secondguess_lab.studies.tables import Table, cell_of

__all__ = ["NOT_AT_HAND", "PAPER", "STUDIES"]

PAPER = "Bennette, Maurer, Sisti: Harnessing adversarial distances to discover high-confidence errors, 2020"
STAND_INS = {"cats_dogs": "mnist5k", "mnist": "mnist5k", "fashion_mnist": "mnist5k"}
TITLES = {
    "random": "random",
    "low_confidence": "low confidence",
    "adversarial_distance": "adversarial distance",
    "bandit_published": "Lakkaraju",
    "coverage_published": "Bansal and Weld",
    "bandit": "Lakkaraju, corrected",
    "coverage": "Bansal and Weld, corrected",
    "facility": "facility locations",
    "adaptive": "adaptive",
    "adaptive_without_scores": "adaptive, without supervisors",
    "adversarial_distance_raw": "adversarial distance, no logarithm",
    "adversarial_distance_gradient": "adversarial distance, by gradient",
}
SCALE = {
    "data": list(STAND_INS),
    "models": 2,
    "epochs": 0,
    "limit": 0,
    "attack": "hop_skip_jump",
    "queries": 500,
    "supervisors": ["knn", "mdsa", "relative_mahalanobis"],
    "methods": list(TITLES),
    "replications": 1000,
    "subset": 2000,
    "budget": 50,
}
QUICK = {
    "data": ["mnist"],
    "models": 1,
    "epochs": 2,
    "limit": 500,
    "queries": 130,
    "methods": [name for name in TITLES if not name.startswith("adversarial_distance_")],
    "replications": 4,
    "subset": 300,
}
NOTE = (
    "Of the paper's three data sets there is Kaggle13 (cats_dogs; the critical class is cat), trained without the "
    "darkest 30 % of the cats, by the middle of the image, as the list of the black cats that it left out is not "
    "published. In place of CelebA and UT-Zap50K there are MNIST and Fashion-MNIST, trained without the brightest 60 % "
    "of one class (3, shirt). The repository's records are of two networks (MNIST and Fashion-MNIST: three) and 200 "
    "repetitions where the paper has one and 1,000; spreads are over the networks."
)
NOT_AT_HAND = {"celeba": "CelebA is not at hand.", "ut_zap50k": "UT-Zap50K is not at hand."}

Settings = Mapping[str, Any]
Row = Mapping[str, Any]
Values = dict[str, float]
Columns = Callable[[Row, str], Values]


def _grid(sources: Sources, settings: Settings) -> list[Task]:
    from secondguess_lab.studies.tasks.search import hunt

    check_known(settings["data"], STAND_INS, "data set")
    check_known(settings["methods"], TITLES, "method")
    own = {key: value for key, value in settings.items() if key not in ("data", "models")}
    return [
        Task(hunt, {"data": sources[name], "name": name} | own, seed)
        for name in settings["data"]
        for seed in range(settings["models"])
    ]


def _checkpoints(row: Row, method: str) -> dict[int, Mapping[str, Mapping[str, float]]]:
    """What was measured of a method, by the number of queries."""
    return {one["queries"]: one for one in row["study"]["table"] if one["method"] == method}


def _means(metric: str) -> Columns:
    """The mean over the repetitions, as in the paper's figures."""

    def columns(row: Row, method: str) -> Values:
        return {f"{queries} queries": one[metric]["mean"] for queries, one in _checkpoints(row, method).items()}

    return columns


def _figure3(row: Row, method: str) -> Values:
    """Spread, and how it compares with that of random search."""
    values = _means("spread")(row, method)
    if method != "random":
        by_chance = _means("spread")(row, "random")
        values |= {f"{column}, over random's": values[column] / value for column, value in by_chance.items()}
    return values


def _figure4(row: Row, method: str) -> Values:
    """The discovery ratio, and what of it is more than the pool's own."""
    values = {}
    for queries, one in _checkpoints(row, method).items():
        values[f"{queries} queries"] = one["sdr"]["mean"]
        values[f"{queries} queries, pooled"] = one["sdr"]["pooled"]
        values[f"{queries} queries, lift"] = one["lift"]["pooled"]
        values[f"{queries} queries, matched lift"] = one["matched_lift"]["pooled"]
    return values | ({"whole pool": row["study"]["pool_sdr"]} if method == "random" else {})


def _figure7(row: Row, method: str) -> Values:
    """Confidence of all images that were asked about, and how it compares with random search."""
    mean = list(_means("confidence")(row, method).values())[-1]
    by_chance = list(_means("confidence")(row, "random").values())[-1:]
    values = {"mean": mean}
    if method != "random" and by_chance:
        values["mean, less random's"] = mean - by_chance[0]
    quartiles = row.get("confidence_quartiles", {}).get(method, ())
    return values | dict(zip(("lower quartile", "median", "upper quartile"), quartiles, strict=False))


def _table(rows: Iterable[Row], columns: Columns) -> Table:
    """Means over the networks, for every data set, critical class and method."""
    values: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        critical = row["critical"] if row["critical"] == "all classes" else f"predicted {row['critical']}"
        for method, title in TITLES.items():
            if method in row["study"]["titles"]:
                for column, value in columns(row, method).items():
                    values.setdefault((f"{row['data']}, {critical}, {title}", column), []).append(value)
    return Table({key: cell_of(mine) for key, mine in values.items()})


def _tabulate_with(columns: Columns) -> Callable[[Sequence[Mapping[str, Any]], Settings], Table]:
    return lambda results, settings: _table([row for result in results for row in result["rows"]], columns)


def _recorded_with(columns: Columns) -> Callable[[Path], Recorded | None]:
    """Reads the records of lab/experiments/search_pools.py, one file for each data set."""

    def recorded(results: Path) -> Recorded | None:
        rows, records = [], []
        for name in STAND_INS:
            if found := read_record(results, file := f"search/{name}.json"):
                kept, source = found
                try:
                    mine = [{**row, "data": name} for row in kept["rows"]]
                    _table(mine, columns)
                except (KeyError, TypeError, ValueError) as error:
                    raise UserError(
                        f"{results / file} is no record that lab/experiments/search_pools.py wrote ({error!r})."
                    ) from error
                rows += mine
                records.append(source)
        return Recorded(_table(rows, columns), records) if records else None

    return recorded


def _study(figure: int, summary: str, columns: Columns, note: str) -> Study:
    return Study(
        name=f"search-figure{figure}",
        paper=PAPER,
        table=f"Figure {figure}",
        summary=summary,
        stand_ins=STAND_INS,
        scale=SCALE,
        quick=QUICK,
        grid=_grid,
        tabulate=_tabulate_with(columns),
        recorded=_recorded_with(columns),
        note=f"{note} {NOTE}",
        not_at_hand=NOT_AT_HAND,
    )


STUDIES = (
    _study(
        3,
        "Spread of the images asked about, by search and number of queries; smaller is wider spread.",
        _figure3,
        "The figure prints no number; its claim is that all searches spread alike.",
    ),
    _study(
        4,
        "Standardised discovery ratio (SDR) by search and number of queries, beside that of the whole pool.",
        _figure4,
        "The first number is the mean over the repetitions, as in the figure, which is heavy-tailed; beside it are the "
        "ratio of all repetitions pooled, its lift over the whole pool, and the lift at equal confidence. The figure "
        "prints no number: the paper's are those of its text.",
    ),
    _study(
        5,
        "Coverage utility of Bansal and Weld, by search and number of queries.",
        _means("utility"),
        "The figure prints no number; its claim is that the search of Bansal and Weld and the one by low confidence "
        "lead.",
    ),
    _study(
        6,
        "Errors found, by search and number of queries.",
        _means("errors"),
        "The figure prints no number; its claim is that the search of Bansal and Weld and the one by low confidence "
        "find most errors, and adversarial distance more than chance.",
    ),
    _study(
        7,
        "Confidence of the images asked about, by search.",
        _figure7,
        "The figure prints no number; its claim is that adversarial distance asks about images as confident as random "
        "search does.",
    ),
)
