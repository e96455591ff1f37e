"""Guerriero, Lyu, Pietrantuono and Russo: Assessing operational accuracy using an oracle surrogate, 2023.

All studies of this paper share the same tasks, one for each of its three networks for MNIST.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.engine import Task
from secondguess.metrics.friedman import friedman
from secondguess.metrics.misjudged import Misjudged, misjudged
from secondguess.studies.base import Recorded, Sources, Study
from secondguess.studies.records import provenance, read_json
from secondguess.studies.tables import Cell, Table, cell_of

__all__ = ["NETWORKS", "SCALE", "STUDIES", "SWAPS"]

PAPER = "Guerriero, Lyu, Pietrantuono, Russo: Assessing operational accuracy using an oracle surrogate, 2023"
NETWORKS = {"icos_a": "A", "icos_b": "B", "icos_c": "C"}
ORACLES = {
    "ICOS, fine": "icos_fine",
    "ICOS, equal": "icos_equal",
    "cross-referencing": "cross_reference",
    "SelfChecker": "selfchecker",
}
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
Judged = dict[str, dict[str, list[tuple[Misjudged, float]]]]


def _grid(sources: Sources, settings: Settings) -> list[Task]:
    from secondguess.studies.tasks.oracles import look

    kept = {key: settings[key] for key in ("training", "validation", "epochs")}
    return [Task(look, {"data": sources["mnist"], "network": name} | kept) for name in settings["networks"]]


def _verdicts(look: Look, others: Sequence[Look], pair: tuple[int, int] | None = None) -> dict[str, NDArray[np.int64]]:
    """Verdicts (n,) of everybody: 1 wrong, 0 right, -1 undecided; of networks that learnt swapped labels for a pair."""
    from secondguess.studies.tasks.oracles import swapped, verdicts

    order = swapped(pair)
    votes = [order[other["predictions"]] for other in others]
    return verdicts(look["labels"], order[look["predictions"]], look, votes)


def _judged(looks: Sequence[Look], settings: Settings, pair: tuple[int, int] | None = None) -> Judged:
    """For each network and judge, every draw of operational images: how it judged, and the true accuracy."""
    from secondguess.studies.tasks.oracles import swapped

    found: Judged = {}
    for look in looks:
        verdicts = _verdicts(look, [other for other in looks if other is not look], pair)
        correct = swapped(pair)[look["predictions"]] == look["labels"]
        mine: dict[str, list[tuple[Misjudged, float]]] = {judge: [] for judge in verdicts}
        for repetition in range(settings["repetitions"]):
            # The networks share all draws.
            rows = np.random.default_rng([0, repetition]).choice(len(correct), settings["drawn"], replace=False)
            for judge, verdict in verdicts.items():
                mine[judge].append((misjudged(verdict[rows], correct[rows]), float(correct[rows].mean())))
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


def _offsets(draws: Sequence[tuple[Misjudged, float]]) -> list[float]:
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
    rates = {
        judge: {rate: np.mean([[getattr(found, rate) for found, _ in mine[judge]] for mine in judged.values()])
        for rate in ("tpr", "fpr")}
        for judge in ("icos_fine", "icos_fine_criterion_2", "icos_fine_criterion_3")
    }  # fmt: skip
    return _criteria_table(rates)


def _criteria_table(rates: Mapping[str, Mapping[str, Any]]) -> Table:
    """Both rates of criteria 2 and 3 over those of criterion 1, means over the networks."""
    return Table(
        {
            (f"criterion {k} against 1", f"{rate.upper()}, relative"): Cell(
                float(rates[f"icos_fine_criterion_{k}"][rate] / rates["icos_fine"][rate])
            )
            for k in (2, 3)
            for rate in ("tpr", "fpr")
            if rates["icos_fine"][rate] > 0
        }
    )


def _figure11(looks: Sequence[Look], settings: Settings) -> Table:
    cells = {}
    for title, pair in SWAPS.items():
        mine = _judged(looks, settings, pair)["C"]
        for name in ("ICOS, fine", "ICOS, equal", "SelfChecker"):
            cells[f"C, labels {title} swapped", name] = cell_of(_offsets(mine[ORACLES[name]]))
    return Table(cells)


def _recorded_with(tabulate: Callable[[Mapping[str, Any]], Table]) -> Callable[[Path], Recorded | None]:
    """Reads the record of results/oracles/make.py."""

    def recorded(results: Path) -> Recorded | None:
        path = results / "oracles" / "mnist.json"
        if not path.is_file():
            return None
        kept = read_json(path)
        return Recorded(tabulate(kept), [provenance(kept, path, results)])

    return recorded


def _from_detection(rate: str) -> Callable[[Mapping[str, Any]], Table]:
    return lambda kept: Table(
        {
            (NETWORKS[network], title): Cell(kept["detection"][network][judge][rate], n=kept["settings"]["repetitions"])
            for network in NETWORKS
            for title, judge in ORACLES.items()
        }
    )


def _ranks_from_rows(kept: Mapping[str, Any]) -> Table:
    blocks = [
        np.abs([row["errors"][judge] for judge in ORACLES.values()]).T
        for row in kept["rows"]
        if row["column"] == "no shift"
    ]
    return _rank_table(np.concatenate(blocks))


def _criteria_from_detection(kept: Mapping[str, Any]) -> Table:
    judges = ("icos_fine", "icos_fine_criterion_2", "icos_fine_criterion_3")
    return _criteria_table(
        {
            judge: {
                rate: np.mean([kept["detection"][network][judge][rate] for network in NETWORKS])
                for rate in ("tpr", "fpr")
            }
            for judge in judges
        }
    )


def _swaps_from_rows(kept: Mapping[str, Any]) -> Table:
    cells = {}
    for title in SWAPS:
        for row in kept["rows"]:
            if (row["network"], row["column"]) == ("icos_c", f"labels {title} swapped"):
                for name in ("ICOS, fine", "ICOS, equal", "SelfChecker"):
                    cells[f"C, labels {title} swapped", name] = cell_of(np.abs(row["errors"][ORACLES[name]]))
    return Table(cells)


def _study(name: str, table: str, summary: str, tabulate: Any, recorded: Any) -> Study:
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
        recorded=_recorded_with(recorded),
    )


STUDIES = (
    _study(
        "table6",
        "Table 6",
        "The share of wrong predictions that each oracle finds.",
        _rates("tpr"),
        _from_detection("tpr"),
    ),
    _study(
        "table7",
        "Table 7",
        "The share of other predictions that each oracle objects to.",
        _rates("fpr"),
        _from_detection("fpr"),
    ),
    _study(
        "table8",
        "Table 8",
        "F1 of each oracle, wrong predictions being the positives.",
        _rates("f1"),
        _from_detection("f1"),
    ),
    _study(
        "figure6",
        "Figure 6",
        "Mean absolute error of the accuracy that each oracle estimates.",
        _figure6,
        _from_detection("mae"),
    ),
    _study(
        "figure7",
        "Figure 7",
        "Mean ranks of these errors, and how far they must lie apart.",
        _figure7,
        _ranks_from_rows,
    ),
    _study(
        "figure10",
        "Figure 10",
        "ICOS with more pixel rules: criteria 2 and 3 against 1.",
        _figure10,
        _criteria_from_detection,
    ),
    _study(
        "figure11",
        "Figure 11",
        "Errors of the estimated accuracy when two labels are swapped.",
        _figure11,
        _swaps_from_rows,
    ),
)
