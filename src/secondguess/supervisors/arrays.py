"""Scores of bare arrays, without a model: `secondguess score traces.npz --supervisor dsa`.

`secondguess.model.arrays` says how arrays are called in a file.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.files import make_folder, write_json, write_text
from secondguess.metrics import auroc
from secondguess.model.arrays import Arrays, load_observation, same_classes
from secondguess.progress import Progress
from secondguess.results import Result
from secondguess.supervisors.base import Supervisor
from secondguess.supervisors.registry import make_all
from secondguess.supervisors.shards import fit_in_shards, rows_of, score_in_shards
from secondguess.supervisors.surprise.coverage import Collected, SurpriseCoverage

__all__ = ["Scores", "score_arrays"]


@dataclass(frozen=True, eq=False)
class Scores(Result):
    """How suspicious each of n predictions is, in the eyes of several supervisors.

    Attributes:
        scores: (n,) by the supervisor's name; larger = more suspicious.
        predictions: (n,) the predicted classes.
        labels: (n,) the true classes, -1 where unknown; None where no label is known.
        coverage: which part of the range of scores they cover, where that was asked for.
    """

    scores: Mapping[str, NDArray[np.float64]]
    predictions: NDArray[np.int64]
    labels: NDArray[np.int64] | None = None
    coverage: Collected | None = None

    def __len__(self) -> int:
        """The number of predictions n."""
        return len(self.predictions)

    def auroc(self, name: str) -> float | None:
        """How well a supervisor tells wrong predictions from right ones; None where both are not known to occur."""
        if self.labels is None:
            return None
        known = self.labels >= 0
        wrong, scores = self.predictions[known] != self.labels[known], self.scores[name][known]
        return auroc(scores[~wrong], scores[wrong]) if wrong.any() and not wrong.all() else None

    def collect(self, path: str | Path, *, buckets: int | None = None, upper: float | None = None) -> Scores:
        """The same with what these scores cover, counted in a file beside those of other sets of images.

        `SurpriseCoverage.collect` says what the file holds; the scores must be those of one supervisor.
        """
        if len(self.scores) != 1:
            raise UserError(f"A coverage is that of one supervisor, and {len(self.scores)} were named; name one.")
        (values,) = self.scores.values()
        return replace(self, coverage=SurpriseCoverage.collect(path, values, buckets=buckets, upper=upper))

    def summary(self) -> str:
        """One line for each supervisor: the quartiles of its scores, and how well they tell wrong predictions."""
        lines = [f"{len(self):,} predictions; larger scores are more suspicious"]
        wide = max(map(len, self.scores))
        for name, scores in list(self.scores.items())[:8]:
            low, middle, high = np.quantile(scores, [0.25, 0.5, 0.75], method="nearest")
            found = self.auroc(name)
            told = "" if found is None else f"   AUROC of wrong predictions {found:.3f}"
            lines.append(f"  {name:<{wide}}  median {middle:.4g}, middle half {low:.4g} to {high:.4g}{told}")
        if len(self.scores) > 8:
            lines.append(f"  and {len(self.scores) - 8} more")
        if self.coverage is not None:
            lines.append(f"surprise coverage: {self.coverage.summary()}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Scores by supervisor (null where infinite), predictions, labels, and AUROCs where labels are known."""
        return {
            "images": len(self),
            "scores": {name: [_number(value) for value in scores] for name, scores in self.scores.items()},
            "predictions": self.predictions.tolist(),
            "labels": None if self.labels is None else self.labels.tolist(),
            "auroc": {name: self.auroc(name) for name in self.scores},
            **({} if self.coverage is None else {"coverage": self.coverage.to_dict()}),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row for each prediction: its class, its label where known, and every score."""
        columns = self._columns()
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def _columns(self) -> dict[str, list[Any]]:
        known = {} if self.labels is None else {"label": self.labels}
        columns = {"prediction": self.predictions} | known | dict(self.scores)
        return {name: values.tolist() for name, values in columns.items()}

    def save(self, folder: str | Path) -> Path:
        """Write `scores.csv`, one row for each prediction, and `scores.json`."""
        folder = make_folder(folder)
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(self._columns())
        table.writerows(zip(*self._columns().values(), strict=True))
        write_text(folder / "scores.csv", text.getvalue())
        write_json(folder / "scores.json", self.to_dict())
        return folder


def score_arrays(
    arrays: Arrays,
    supervisors: str | Iterable[str | Supervisor],
    *,
    train: Arrays | None = None,
    engine: str = "local",
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> Scores:
    """Score predictions of which only arrays are at hand.

    Args:
        arrays: the path of an `.npz` file, arrays by name, or an observation.
        supervisors: names, with parameters if need be (`dsa:layers=conv1`), or supervisors, which are left as they are.
        train: the same for the training images, which most supervisors learn from; by default the arrays whose names
            begin with `train_`.
        engine: where to fit and to score, as `secondguess.engine.open_engine` takes it; elsewhere than in this process
            both are done in shards.
        folder: where finished shards are kept until all are done, so that an interrupted run goes on.
        progress: where to report the shards done.
    """
    seen = load_observation(arrays)
    if seen is None:
        raise UserError("No arrays were given; give the path of an .npz file, or arrays by name.")
    learnt = load_observation(arrays, "train") if train is None else load_observation(train)
    if learnt is not None:
        learnt, seen = same_classes(learnt, seen)
    chosen: dict[str, Supervisor] = {}
    for one in make_all(supervisors):
        if one.name in chosen:
            raise UserError(f"The supervisor {one.name!r} was given more than once; leave one out.")
        chosen[one.name] = one
    if not chosen:
        raise UserError("No supervisor was named; secondguess supervisors lists them.")
    if engine == "local" and folder is None:
        found = {name: _fitted(one, learnt).score(seen) for name, one in chosen.items()}
    else:
        fitted = [_fitted(one, learnt, engine, folder) for one in chosen.values()]
        found = score_in_shards(fitted, seen, engine=engine, folder=folder, progress=progress)
    return Scores(found, seen.predictions, seen.labels)


def _fitted(supervisor: Supervisor, learnt: Any, engine: str = "local", folder: str | Path | None = None) -> Supervisor:
    if not supervisor.requires_fit or (learnt is None and supervisor.is_fitted):
        return supervisor
    if learnt is None:
        raise UserError(
            f"The supervisor {supervisor.name!r} learns from training images; give their arrays in a file of their own "
            "(train=, --train), or in the same file with train_ before their names."
        )
    if engine == "local" or not supervisor.merges():
        return supervisor.clone().fit(learnt)
    shards = [learnt.take(rows) for rows in rows_of(learnt)]
    return fit_in_shards([supervisor], shards, engine=engine, folder=folder)[0]


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
