"""Verdicts on bare arrays, without a model: `secondguess score predictions.npz --oracle cross-reference`.

`secondguess.model.arrays` says how arrays are called in a file. What other networks predict is in the arrays
`predictions_NAME`, one for each of them.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secondguess.accuracy.oracles.base import Oracle, Verdicts
from secondguess.accuracy.oracles.cross_reference import CrossReference
from secondguess.accuracy.oracles.registry import get, make
from secondguess.errors import UserError
from secondguess.files import make_folder, write_json, write_text
from secondguess.metrics.verdict_confusion import VerdictConfusion, verdict_confusion
from secondguess.model.arrays import Arrays, load_observation, same_classes
from secondguess.model.observation import Observation
from secondguess.results import Result

__all__ = ["OracleResult", "judge_arrays"]

OTHERS = "predictions_"


@dataclass(frozen=True, eq=False)
class OracleResult(Result):
    """What an oracle says about n predictions.

    Attributes:
        oracle: its name.
        verdicts: on each prediction.
        seen: the observation that was judged.
    """

    oracle: str
    verdicts: Verdicts
    seen: Observation

    def summary(self) -> str:
        """How many predictions are judged wrong, and how right that is where the labels are known."""
        wrong, total = int(self.verdicts.judged_wrong.sum()), len(self.verdicts)
        open_ = f", {self.verdicts.undecided:,} undecided" if self.verdicts.undecided else ""
        lines = [f"{self.oracle}: {wrong:,} of {total:,} predictions judged wrong{open_}"]
        if (found := self.confusion) is not None:
            truth = float(self.seen.correct.mean())
            lines.append(
                f"  by the labels: accuracy {truth:.1%}, estimated {found.estimated_accuracy:.1%}; "
                f"{found.true_positives:,} wrong predictions found, {found.false_positives:,} false alarms"
            )
        return "\n".join(lines)

    @property
    def confusion(self) -> VerdictConfusion | None:
        """The verdicts against the truth; None where a label is unknown."""
        labels = self.seen.labels
        if labels is None or (labels < 0).any():
            return None
        return verdict_confusion(self.verdicts.wrong, self.seen.correct)

    def to_dict(self) -> dict[str, Any]:
        """Counts, and for each prediction the verdict (1 wrong, 0 right, -1 undecided), the reason and the advice."""
        return {
            "oracle": self.oracle,
            "images": len(self.verdicts),
            "judged_wrong": int(self.verdicts.judged_wrong.sum()),
            "undecided": self.verdicts.undecided,
            "predictions": self.seen.predictions.tolist(),
            "wrong": self.verdicts.wrong.tolist(),
            "reasons": self.verdicts.reasons.tolist(),
            "advice": self.verdicts.advice.tolist(),
            "confusion": None if self.confusion is None else self.confusion.to_dict(),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row for each prediction: the verdict (1 wrong, 0 right, -1 undecided), the advice and the reason."""
        columns = self._columns()
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def _columns(self) -> dict[str, list[Any]]:
        found = self.verdicts
        return {
            "prediction": self.seen.predictions.tolist(),
            "wrong": found.wrong.tolist(),
            "advice": found.advice.tolist(),
            "reason": found.reasons.tolist(),
        }

    def save(self, folder: str | Path) -> Path:
        """Write `verdicts.csv`, one row for each prediction, and `verdicts.json`."""
        folder = make_folder(folder)
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(self._columns())
        table.writerows(zip(*self._columns().values(), strict=True))
        write_text(folder / "verdicts.csv", text.getvalue())
        write_json(folder / "verdicts.json", self.to_dict())
        return folder


def judge_arrays(
    arrays: Arrays,
    oracle: str | Oracle = "cross_reference",
    *,
    train: Arrays | None = None,
    validation: Arrays | None = None,
) -> OracleResult:
    """Judge predictions of which only arrays are at hand.

    Args:
        arrays: the path of an `.npz` file, arrays by name, or an observation.
        oracle: a name, or an oracle. Cross-referencing takes all columns `predictions_NAME` for referees where it is
            given by name.
        train: the same for the training images, for an oracle that learns; by default the arrays whose names begin with
            `train_`.
        validation: the same for validation images; by default the arrays whose names begin with `validation_`.
    """
    seen = load_observation(arrays)
    if seen is None:
        raise UserError("No arrays were given; give the path of an .npz file, or arrays by name.")
    judge = _made(oracle, seen)
    if judge.requires_fit and not judge.is_fitted:
        learnt = load_observation(arrays, "train") if train is None else load_observation(train)
        checked = load_observation(arrays, "validation") if validation is None else load_observation(validation)
        if learnt is None or checked is None:
            raise UserError(
                f"The oracle {judge.name!r} learns from training and validation images; give their arrays in files of "
                "their own (--train, --validation), or in the same file with train_ and validation_ before their names."
            )
        learnt, checked, seen = same_classes(learnt, checked, seen)
        judge = judge.clone().fit(learnt, checked)
    return OracleResult(judge.name, judge.judge(seen), seen)


def _made(oracle: str | Oracle, seen: Observation) -> Oracle:
    if isinstance(oracle, Oracle):
        return oracle
    if get(oracle) is not CrossReference or "=" in oracle:
        return make(oracle)
    others = [name for name in seen.columns if name.startswith(OTHERS)]
    if len(others) < 2:
        found = ", ".join(seen.columns) or "none"
        raise UserError(
            f"Cross-referencing needs the predictions of two or more other networks, in arrays {OTHERS}NAME (n,); "
            f"there are {len(others)} of them (other arrays: {found})."
        )
    return CrossReference(others)
