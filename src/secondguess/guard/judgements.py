"""Judgements of a guard: arrays for many images, one object for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.files import make_folder, write_json
from secondguess.guard.verdicts import Verdict, verdict_of
from secondguess.results import Result

if TYPE_CHECKING:
    from secondguess.guard.actions import Action, Actions
    from secondguess.guard.panel import Panel

__all__ = ["Judgement", "Judgements"]

LINES = 10  # of a summary


@dataclass(frozen=True)
class Judgement:
    """The judgement of one prediction.

    Attributes:
        prediction: the number of the predicted class.
        class_name: its name.
        probabilities: (K,) of the classifier.
        p_value: how often a nominal image is at least as suspicious; small = suspicious.
        verdict: `nominal`, a kind of anomaly, or two of them.
        action: what to do.
        evidence: the p-value of each supervisor, the smallest first; those that a cascade did not use are left out.
        anomalies: the probability of each kind of anomaly, given that there is one.
    """

    prediction: int
    class_name: str
    probabilities: NDArray[np.float64]
    p_value: float
    verdict: Verdict
    action: Action
    evidence: Mapping[str, float]
    anomalies: Mapping[str, float]

    def __str__(self) -> str:
        return self.summary()

    def summary(self) -> str:
        """One line for a person."""
        spoke = ", ".join(f"{name} {p:.3g}" for name, p in list(self.evidence.items())[:3])
        return (
            f"{self.class_name} ({self.probabilities[self.prediction]:.0%}): {self.verdict}, p = {self.p_value:.3g} "
            f"({spoke}) -> {self.action}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        return {
            "prediction": self.prediction,
            "class_name": self.class_name,
            "probabilities": self.probabilities.tolist(),
            "p_value": self.p_value,
            "verdict": list(self.verdict.kinds),
            "action": self.action,
            "evidence": dict(self.evidence),
            "anomalies": dict(self.anomalies),
        }


@dataclass(frozen=True, eq=False)
class Judgements(Result):
    """The judgements of n predictions; `judgements[3]` is that of one, and they can be iterated over.

    Attributes:
        probabilities: (n, K) of the classifier.
        p_values: (n,).
        codes: (n, 2) the verdicts, as `secondguess.guard.verdicts.decide` gives them.
        chances: (n, t) of each kind of anomaly, given that there is one.
        scores: (n, m) of the supervisors; NaN where a cascade did not use them.
        labels: m names of the supervisors.
        class_names: K names of the classes.
        panel: what judged them.
        policy: from verdicts to actions.
    """

    probabilities: NDArray[np.float64]
    p_values: NDArray[np.float64]
    codes: NDArray[np.int8]
    chances: NDArray[np.float64]
    scores: NDArray[np.float64]
    labels: tuple[str, ...]
    class_names: tuple[str, ...]
    panel: Panel
    policy: Actions

    def __len__(self) -> int:
        return len(self.p_values)

    def __iter__(self) -> Iterator[Judgement]:
        return (self[row] for row in range(len(self)))

    @cached_property
    def predictions(self) -> NDArray[np.int64]:
        """The predicted classes (n,)."""
        return self.probabilities.argmax(axis=1).astype(np.int64)

    @cached_property
    def alarms(self) -> NDArray[np.bool_]:
        """Which are not nominal (n,)."""
        return self.codes[:, 0] != 0

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """The verdict of each image."""
        return [verdict_of(row) for row in self.codes]

    @cached_property
    def actions(self) -> list[Action]:
        """The action for each image."""
        return [self.policy(verdict) for verdict in self.verdicts]

    @cached_property
    def evidence(self) -> NDArray[np.float64]:
        """The p-value of each supervisor, (n, m); NaN where a cascade did not use it."""
        return np.where(np.isnan(self.scores), np.nan, self.panel.p_values(self.scores))

    def __getitem__(self, row: int) -> Judgement:
        row = range(len(self))[row]
        prediction = int(self.probabilities[row].argmax())
        verdict = verdict_of(self.codes[row])
        spoke = {label: float(p) for label, p in zip(self.labels, self.evidence[row], strict=True) if p == p}
        return Judgement(
            prediction,
            self.class_names[prediction],
            self.probabilities[row],
            float(self.p_values[row]),
            verdict,
            self.policy(verdict),
            dict(sorted(spoke.items(), key=lambda one: one[1])),
            dict(zip(self.panel.anomalies, self.chances[row].tolist(), strict=True)),
        )

    def summary(self) -> str:
        """How many images raised an alarm, with which verdicts, and what to do about them."""
        if len(self) == 1:
            return self[0].summary()
        first = f"{len(self)} images, {int(self.alarms.sum())} alarms"
        counts = Counter((str(verdict), action) for verdict, action in zip(self.verdicts, self.actions, strict=True))
        return "\n".join([first, *(f"  {n} {kind} -> {action}" for (kind, action), n in counts.most_common(LINES - 1))])

    def to_dict(self) -> dict[str, Any]:
        """One entry for each image, in values that JSON can hold."""
        return {"images": len(self), "judgements": [one.to_dict() for one in self]}

    def rows(self) -> list[dict[str, Any]]:
        """One row for each image: the answer, its confidence, the p-value, the verdict, the action, the evidence."""
        return [
            {
                "prediction": one.prediction,
                "class_name": one.class_name,
                "confidence": float(one.probabilities[one.prediction]),
                "p_value": one.p_value,
                "verdict": str(one.verdict),
                "action": one.action,
                **{f"evidence.{label}": one.evidence.get(label) for label in self.labels},
            }
            for one in self
        ]

    def save(self, folder: str | Path) -> Path:
        """Write `judgements.json` into a folder."""
        folder = make_folder(folder)
        write_json(folder / "judgements.json", self.to_dict())
        return folder
