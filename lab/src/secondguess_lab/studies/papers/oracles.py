"""Guerriero, Lyu, Pietrantuono and Russo: Assessing operational accuracy using an oracle surrogate, 2023.

All studies of this paper share the same tasks, one for each of its three networks for MNIST. Those for CIFAR-10 are no
tasks: `oracles_train.py` and `oracles_judge.py` in lab/experiments train and judge them, and their record is read here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.engine import Task
from secondguess.metrics.verdict_confusion import VerdictConfusion, verdict_confusion
from secondguess_lab.statistics.friedman import friedman
from secondguess_lab.studies.base import Recorded, Sources, Study
from secondguess_lab.studies.records import read_record
from secondguess_lab.studies.tables import Cell, Table, cell_of

__all__ = ["NETWORKS", "SCALE", "STUDIES", "SWAPS"]

PAPER = "Guerriero, Lyu, Pietrantuono, Russo: Assessing operational accuracy using an oracle surrogate, 2023"
NETWORKS = {"icos_a": "A", "icos_b": "B", "icos_c": "C"}
PHOTOS = {"icos_d": "D", "icos_e": "E", "icos_f": "F"}  # networks for CIFAR-10
NOT_AT_HAND = {
    "[GHI]: |ImageNet, ": "ImageNet is not at hand.",
    "[LMN]: (?!cross-referencing)|CIFAR-100, ": (
        "Of CIFAR-100 there are the published predictions only, enough for votes."
    ),
}
ORACLES = {
    "ICOS, fine": "icos_fine",
    "ICOS, equal": "icos_equal",
    "cross-referencing": "cross_reference",
    "SelfChecker": "selfchecker",
}
SHIFTED = ("ICOS, fine", "ICOS, equal", "SelfChecker")  # whom the paper asks about swapped labels
CRITERIA = {1: "icos_fine", 2: "icos_fine_criterion_2", 3: "icos_fine_criterion_3"}
SWAPS = {"2/7": (2, 7), "5/6": (5, 6), "6/8": (6, 8)}
SCALE = {
    "networks": list(NETWORKS),
    "training": 28_000,
    "validation": 2_500,
    "drawn": 20_000,
    "repetitions": 30,
    "epochs": 0,
}
QUICK = {"training": 1_500, "validation": 500, "drawn": 1_000, "repetitions": 10, "epochs": 2}

Settings = Mapping[str, Any]
Look = Mapping[str, Any]
Judged = dict[str, dict[str, list[tuple[VerdictConfusion, float]]]]


def _grid(sources: Sources, settings: Settings) -> list[Task]:
    from secondguess_lab.studies.tasks.oracles import look

    kept = {key: settings[key] for key in ("training", "validation", "epochs")}
    return [Task(look, {"data": sources["mnist"], "network": name} | kept) for name in settings["networks"]]


def _verdicts(look: Look, others: Sequence[Look], pair: tuple[int, int] | None = None) -> dict[str, NDArray[np.int64]]:
    """Verdicts (n,) of everybody: 1 wrong, 0 right, -1 undecided; of networks that learnt swapped labels for a pair."""
    from secondguess_lab.studies.tasks.oracles import swapped, verdicts

    order = swapped(pair)
    votes = [order[other["predictions"]] for other in others]
    return verdicts(look["labels"], order[look["predictions"]], look, votes)


def _judged(looks: Sequence[Look], settings: Settings, pair: tuple[int, int] | None = None) -> Judged:
    """For each network and judge, every draw of operational images: how it judged, and the true accuracy."""
    from secondguess_lab.studies.tasks.oracles import swapped

    found: Judged = {}
    for look in looks:
        verdicts = _verdicts(look, [other for other in looks if other is not look], pair)
        correct = swapped(pair)[look["predictions"]] == look["labels"]
        mine: dict[str, list[tuple[VerdictConfusion, float]]] = {judge: [] for judge in verdicts}
        for repetition in range(settings["repetitions"]):
            # The networks share all draws.
            rows = np.random.default_rng([0, repetition]).choice(len(correct), settings["drawn"], replace=False)
            for judge, verdict in verdicts.items():
                mine[judge].append((verdict_confusion(verdict[rows], correct[rows]), float(correct[rows].mean())))
        found[NETWORKS[look["network"]]] = mine
    return found


def _rates(rate: str) -> Callable[[Sequence[Look], Settings], Table]:
    def tabulate(looks: Sequence[Look], settings: Settings) -> Table:
        judged = _judged(looks, settings)
        return Table(
            {
                (network, title): cell_of([getattr(found, rate) for found, _ in mine[judge]])
                for network, mine in judged.items()
                for title, judge in ORACLES.items()
            }
        )

    return tabulate


def _offsets(draws: Sequence[tuple[VerdictConfusion, float]]) -> list[float]:
    return [abs(found.estimated_accuracy - truth) for found, truth in draws]


def _figure6(looks: Sequence[Look], settings: Settings) -> Table:
    judged = _judged(looks, settings)
    return Table(
        {
            (network, title): cell_of(_offsets(mine[judge]))
            for network, mine in judged.items()
            for title, judge in ORACLES.items()
        }
    )


def _figure7(looks: Sequence[Look], settings: Settings) -> Table:
    judged = _judged(looks, settings)
    blocks = [np.array([_offsets(mine[judge]) for judge in ORACLES.values()]).T for mine in judged.values()]
    return _rank_table(np.concatenate(blocks))


def _rank_table(offsets: NDArray[np.float64]) -> Table:
    """Mean ranks of the offsets (blocks, oracles), 1 the smallest, and the difference from which two differ."""
    test = friedman(offsets, list(ORACLES))
    cells = {
        (name, "mean rank"): Cell(float(rank), n=test.blocks) for name, rank in zip(test.names, test.ranks, strict=True)
    }
    cells["Nemenyi", "critical difference"] = Cell(float(test.critical_difference), n=test.blocks)
    cells["Friedman", "p"] = Cell(float(test.f_p_value), n=test.blocks)
    return Table(cells)


def _figure10(looks: Sequence[Look], settings: Settings) -> Table:
    judged = _judged(looks, settings)
    return _criteria_table(
        lambda judge, rate: [
            float(np.mean([getattr(found, rate) for found, _ in mine[judge]])) for mine in judged.values()
        ]
    )


def _criteria_table(rates: Callable[[str, str], Sequence[float]], where: str = "") -> Table:
    """Both rates of criteria 2 and 3 over those of criterion 1.

    Args:
        rates: gives the rates of a judge for each network, of which the means are compared.
        where: what the rows begin with.
    """
    cells = {}
    for rate in ("tpr", "fpr"):
        first, *others = (float(np.mean(rates(judge, rate))) for judge in CRITERIA.values())
        for criterion, value in zip((2, 3), others, strict=True):
            if first > 0:
                cells[f"{where}criterion {criterion} against 1", f"{rate.upper()}, relative"] = Cell(value / first)
    return Table(cells)


def _figure11(looks: Sequence[Look], settings: Settings) -> Table:
    cells = {}
    for title, pair in SWAPS.items():
        mine = _judged(looks, settings, pair)["C"]
        for name in SHIFTED:
            cells[f"C, labels {title} swapped", name] = cell_of(_offsets(mine[ORACLES[name]]))
    return Table(cells)


def _recorded_with(
    tabulate: Callable[[Mapping[str, Any]], Table], photos: Callable[[Mapping[str, Any]], Table] | None = None
) -> Callable[[Path], Recorded | None]:
    """Reads the record of lab/experiments/oracles.py and, where `photos` makes cells of it, of oracles_judge.py."""

    def recorded(results: Path) -> Recorded | None:
        found = read_record(results, "oracles/mnist.json")
        if found is None:
            return None
        cells, records = tabulate(found[0]).cells, [found[1]]
        judged = read_record(results, "oracles/cifar10.json") if photos else None
        if photos and judged:
            cells = {**cells, **photos(judged[0]).cells}
            records.append(judged[1] | {"scale": _scale_of_photos(judged[0])})
        return Recorded(Table(cells), records)

    return recorded


def _scale_of_photos(kept: Mapping[str, Any]) -> str:
    """Whether networks for CIFAR-10 were trained and judged on as many images as the paper's."""
    settings, epochs = kept["settings"], {one["epochs"] for one in kept["trained"]}
    drawn = (settings["drawn"], settings["repetitions"]) == (SCALE["drawn"], SCALE["repetitions"])
    return "paper" if drawn and settings["images"] is None and epochs == {0} else "smaller"


def _photo_rows(kept: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """What oracles_judge.py says of each network for CIFAR-10, by its letter, one row a training."""
    return {letter: [row for row in kept["rows"] if row["network"] == name] for name, letter in PHOTOS.items()}


def _photo_cells(values: Callable[[Mapping[str, Any], str], float | None], kept: Mapping[str, Any]) -> Table:
    """Means over trainings of what a row says of each oracle."""
    return Table(
        {
            (letter, title): cell_of(found)
            for letter, rows in _photo_rows(kept).items()
            for title, judge in ORACLES.items()
            if (found := [value for row in rows if (value := values(row, judge)) is not None])
        }
    )


def _photo_rates(rate: str) -> Callable[[Mapping[str, Any]], Table]:
    return partial(_photo_cells, lambda row, judge: row["detection"].get(judge, {}).get(rate))


def _photo_criteria(kept: Mapping[str, Any]) -> Table:
    rows = [row for mine in _photo_rows(kept).values() for row in mine]
    return _criteria_table(lambda judge, rate: [row["detection"][judge][rate] for row in rows], "CIFAR-10, ")


def _from_detection(rate: str) -> Callable[[Mapping[str, Any]], Table]:
    return lambda kept: Table(
        {
            (NETWORKS[network], title): Cell(kept["detection"][network][judge][rate], n=kept["settings"]["repetitions"])
            for network in NETWORKS
            for title, judge in ORACLES.items()
        }
    )


def _with_votes(rate: str) -> Callable[[Path], Recorded | None]:
    """Also reads the record of lab/experiments/oracles_votes.py: cross-referencing of networks of CIFAR-100."""
    trained = _recorded_with(_from_detection(rate), _photo_rates(rate))

    def recorded(results: Path) -> Recorded | None:
        own, votes = trained(results), read_record(results, "oracles/votes.json")
        if own is None or votes is None:
            return own
        kept, about = votes
        crossed = {
            (network, "cross-referencing"): Cell(found[rate], n=kept["settings"]["repetitions"])
            for network, found in kept["detection"].items()
        }
        # Draws of 3,000 are the paper's for these networks, and smaller than for the others.
        return Recorded(Table({**own.table.cells, **crossed}), [*own.records, about | {"scale": "paper"}])

    return recorded


def _offsets_of(kept: Mapping[str, Any], network: str, column: str) -> dict[str, NDArray[np.float64]]:
    """The offsets (repetitions,) of every oracle, by title, on the images that a column of the record names."""
    (row,) = (row for row in kept["rows"] if (row["network"], row["column"]) == (network, column))
    return {title: np.abs(row["errors"][judge]) for title, judge in ORACLES.items()}


def _offsets_from_rows(kept: Mapping[str, Any]) -> Table:
    return Table(
        {
            (NETWORKS[network], title): cell_of(offsets)
            for network in NETWORKS
            for title, offsets in _offsets_of(kept, network, "no shift").items()
        }
    )


def _ranks_recorded(results: Path) -> Recorded | None:
    """Ranks over the networks of both records: as in the paper one training of each, the first."""
    found, judged = (read_record(results, f"oracles/{name}.json") for name in ("mnist", "cifar10"))
    if found is None:
        return None
    blocks = [np.stack(list(_offsets_of(found[0], network, "no shift").values()), axis=1) for network in NETWORKS]
    records = [found[1]]
    if judged:
        first = [rows[0]["errors"] for rows in _photo_rows(judged[0]).values() if rows]
        blocks += [np.abs([errors[judge] for judge in ORACLES.values()]).T for errors in first]
        records.append(judged[1] | {"scale": _scale_of_photos(judged[0])})
    return Recorded(_rank_table(np.concatenate(blocks)), records)


def _criteria_from_detection(kept: Mapping[str, Any]) -> Table:
    return _criteria_table(lambda judge, rate: [kept["detection"][network][judge][rate] for network in NETWORKS])


def _swaps_from_rows(kept: Mapping[str, Any]) -> Table:
    cells: dict[tuple[str, str], Cell] = {}
    for title in SWAPS:
        offsets = _offsets_of(kept, "icos_c", f"labels {title} swapped")
        cells |= {(f"C, labels {title} swapped", name): cell_of(offsets[name]) for name in SHIFTED}
    return Table(cells)


def _study(
    name: str,
    table: str,
    summary: str,
    tabulate: Callable[[Sequence[Look], Settings], Table],
    recorded: Callable[[Path], Recorded | None],
) -> Study:
    return Study(
        name=f"oracles-{name}",
        paper=PAPER,
        table=table,
        summary=summary,
        stand_ins={"mnist": "mnist5k"},
        scale=SCALE,
        quick=QUICK,
        grid=_grid,
        tabulate=tabulate,
        recorded=recorded,
        not_at_hand=NOT_AT_HAND,
        needs_all=True,
    )


STUDIES = (
    _study(
        "table6",
        "Table 6",
        "The share of wrong predictions that each oracle finds.",
        _rates("tpr"),
        _with_votes("tpr"),
    ),
    _study(
        "table7",
        "Table 7",
        "The share of other predictions that each oracle objects to.",
        _rates("fpr"),
        _with_votes("fpr"),
    ),
    _study(
        "table8",
        "Table 8",
        "F1 of each oracle, wrong predictions being the positives.",
        _rates("f1"),
        _with_votes("f1"),
    ),
    _study(
        "figure6",
        "Figure 6",
        "Mean absolute error of the accuracy that each oracle estimates.",
        _figure6,
        _recorded_with(_offsets_from_rows, _photo_rates("mae")),
    ),
    _study(
        "figure7",
        "Figure 7",
        "Mean ranks of these errors, and how far they must lie apart.",
        _figure7,
        _ranks_recorded,
    ),
    _study(
        "figure10",
        "Figure 10",
        "ICOS with more pixel rules: criteria 2 and 3 against 1.",
        _figure10,
        _recorded_with(_criteria_from_detection, _photo_criteria),
    ),
    _study(
        "figure11",
        "Figure 11",
        "Errors of the estimated accuracy when two labels are swapped.",
        _figure11,
        _recorded_with(_swaps_from_rows),
    ),
)
