"""Across the papers: supervisors and the panel as detectors of errors, feeding estimators of accuracy, on mixtures.

The papers on supervisors ask which of them detect anomalies, the paper on oracles how accurate a classifier is. Here
the one answers the other: which detector with which estimator is nearest to the accuracy on a mixture, and what does it
cost?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.engine import Task
from secondguess.errors import UserError
from secondguess_lab.studies.base import Sources, Study
from secondguess_lab.studies.papers.ambiguity import GENERATION, OTHER, QUICK_GENERATION, STAND_INS, kept_sets
from secondguess_lab.studies.tables import Cell, Table, cell_of

__all__ = ["STUDIES"]

PAPER = "ours: across the papers"
SHARES = [0.0, 0.1, 0.2, 0.3, 0.5]
SUPERVISORS = (
    "max_softmax", "pcs", "entropy", "deep_gini", "max_logit", "energy", "mc_dropout_vr", "mc_dropout_ms",
    "mc_dropout_mi", "mc_dropout_pe", "ensemble_ms", "ensemble_mi", "ensemble_pe", "dissector", "dsa", "lsa", "mlsa",
    "mdsa", "mdsa_global", "mmdsa", "relative_mahalanobis", "vim", "knn", "autoencoder",
)  # fmt: skip
ENSEMBLES = tuple(name for name in SUPERVISORS if name.startswith("ensemble"))
DROPOUT = tuple(name for name in SUPERVISORS if name.startswith("mc_dropout"))
GENERATOR = "ambiguess, realistic"

Settings = Mapping[str, Any]
Results = Sequence[Mapping[str, Any]]


def _grid(sources: Sources, settings: Settings) -> list[Task]:
    from secondguess_lab.studies.tasks.mixtures import estimate_mixtures

    apart = ("data", "runs", "kept")
    if not 1 <= settings["runs"] <= settings["models"]:
        raise UserError(
            f"{settings['runs']} runs with {settings['models']} models were asked for; every run is about a model of "
            "its own, so give at least as many models as runs."
        )
    kept = {name: kept_sets(settings["kept"].get(name), GENERATOR) for name in settings["data"]}
    return [
        Task(
            estimate_mixtures,
            {
                "data": sources[name],
                "other": sources[OTHER[name]],
                "kept": kept[name],
                "generator": GENERATOR,
                "name": name,
                "mix": f"{name}_c",
                **{key: value for key, value in settings.items() if key not in apart},
            },
            run,
        )
        for name in settings["data"]
        for run in range(settings["runs"])
    ]


def _rows(results: Results, validation: str) -> dict[str, list[tuple[Mapping[str, Any], int]]]:
    """Where each row of the table lies: its name, and of every run the result and the number in it."""
    found: dict[str, list[tuple[Mapping[str, Any], int]]] = {}
    for result in results:
        for number, (fitted_on, estimator, detector) in enumerate(result["combinations"]):
            if fitted_on == validation:
                found.setdefault(f"{estimator}, {detector}", []).append((result, number))
    return found


def _mean(result: Mapping[str, Any], key: str, number: int, *, kind: str = "", share: float | None = None) -> float:
    """The mean over the cells of a kind of anomaly, or of a share."""
    places = [
        place
        for place, (its_kind, its_share) in enumerate(result["cells"])
        if kind in ("", its_kind) and share in (None, its_share)
    ]
    return float(np.mean([result[key][number][place] for place in places]))


def _by_trouble(validation: str) -> Callable[[Results, Settings], Table]:
    """Errors by kind of anomaly, each the mean over its shares; `overall` is the mean of these columns."""

    def tabulate(results: Results, settings: Settings) -> Table:
        kinds = list(dict.fromkeys(kind for kind, _ in results[0]["cells"]))
        lines: dict[str, dict[str, Cell]] = {}
        for row, places in _rows(results, validation).items():

            def runs(key: str, places: Any = places) -> NDArray[np.float64]:
                return np.array([[_mean(one, key, number, kind=kind) for kind in kinds] for one, number in places])

            errors = runs("error")
            lines[row] = {
                **{kind: cell_of(errors[:, place]) for place, kind in enumerate(kinds)},
                "overall": cell_of(errors.mean(axis=1)),
                **_by_data([one["data"] for one, _ in places], errors.mean(axis=1)),
                "worst": Cell(float(errors.mean(axis=0).max()), n=len(errors)),
                "bias": cell_of(runs("bias").mean(axis=1)),
                "ms an image": cell_of([one["milliseconds"][number] for one, number in places]),
            }
            if settings["intervals"]:
                lines[row]["coverage"] = cell_of(runs("covered").mean(axis=1))
        return _best_first(lines, "overall")

    return tabulate


def _by_data(names: Sequence[str], errors: NDArray[np.float64]) -> dict[str, Cell]:
    """The overall errors (n,) of n runs apart for each data set, where there are several."""
    found = dict.fromkeys(names)
    mine = {name: errors[[one == name for one in names]] for name in found}
    return {f"overall, {name}": cell_of(values) for name, values in mine.items()} if len(found) > 1 else {}


def _by_share(results: Results, settings: Settings) -> Table:
    """Errors by share of anomalies, each the mean over the kinds, for estimators fitted on either validation."""
    lines: dict[str, dict[str, Cell]] = {}
    for validation in ("nominal", "rehearsed"):
        for row, places in _rows(results, validation).items():
            columns = {
                f"{share:.0%}": [_mean(result, "error", number, share=share) for result, number in places]
                for share in settings["shares"]
            }
            lines[f"{row}, {validation} validation"] = {
                **{column: cell_of(values) for column, values in columns.items()},
                "mean": cell_of(np.mean(list(columns.values()), axis=0)),
            }
    return _best_first(lines, "mean")


def _best_first(lines: Mapping[str, Mapping[str, Cell]], column: str) -> Table:
    order = sorted(lines, key=lambda row: lines[row][column].value)
    return Table({(row, name): cell for row in order for name, cell in lines[row].items()})


SCALE = {
    "data": ["mnist", "fashion_mnist"],
    "runs": 3,
    "kept": {},
    "architecture": "simple_cnn",
    "epochs": 8,
    "models": 4,
    "supervisors": list(SUPERVISORS),
    "parameters": {
        "autoencoder": {"epochs": 10},
        **{name: {"members": 5, "epochs": 8} for name in ENSEMBLES},
        **{name: {"samples": 30} for name in DROPOUT},
    },
    "sizes": {"fitted": 30_000, "learnt": 2500, "validation": 2500, "attacked": 1500, "window": 1000, "timed": 1000},
    "rehearsed": 0.25,
    "shares": SHARES,
    "windows": 10,
    "intervals": 1,
    "resamples": 40,
    "generation": GENERATION,
}
QUICK = {
    "data": ["mnist"],
    "runs": 1,
    "epochs": 2,
    "models": 2,
    "parameters": {
        "autoencoder": {"epochs": 1},
        "dissector": {"epochs": 1},
        **{name: {"members": 2, "epochs": 1} for name in ENSEMBLES},
        **{name: {"samples": 10} for name in DROPOUT},
    },
    "sizes": {"fitted": 1000, "learnt": 200, "validation": 300, "attacked": 150, "window": 120, "timed": 50},
    "windows": 3,
    "intervals": 0,
    "generation": QUICK_GENERATION,
}
NOTE = (
    "Invalid images count as wrong, ambiguous ones as right if the prediction is the label drawn from their soft "
    "label. Costs include the classifier's own pass and are those of the machine, many images at a time; they are "
    "larger if tasks run side by side."
)


def _study(name: str, table: str, summary: str, tabulate: Callable[[Results, Settings], Table]) -> Study:
    return Study(
        name=name,
        paper=PAPER,
        table=table,
        summary=summary,
        stand_ins=STAND_INS,
        scale=SCALE,
        quick=QUICK,
        grid=_grid,
        tabulate=tabulate,
        note=NOTE,
    )


STUDIES = (
    _study(
        "mixtures-accuracy",
        "by trouble",
        "Error of the estimated accuracy on mixtures: estimators x detectors, fitted on nominal images.",
        _by_trouble("nominal"),
    ),
    _study(
        "mixtures-rehearsed",
        "by trouble",
        "The same, fitted on validation images with rehearsed trouble of other sorts.",
        _by_trouble("rehearsed"),
    ),
    _study(
        "mixtures-shares",
        "by share",
        "The same errors by the share of trouble, for both kinds of validation.",
        _by_share,
    ),
)
