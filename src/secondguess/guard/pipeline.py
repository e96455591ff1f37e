"""What happens at run time after the model was observed: scores, one statistic, a p-value, a verdict, an action.

    SupervisorSet.score -> Panel.combine -> Calibration.p_values -> decide -> Judgements

`fitting` makes such a pipeline, `artefact` stores it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secondguess.guard.actions import Actions
from secondguess.guard.cascade import Cascade
from secondguess.guard.judgements import Judgements
from secondguess.guard.panel import Panel, Rule
from secondguess.guard.protect import Protect
from secondguess.guard.risk import RiskControl
from secondguess.guard.thresholds import Calibration
from secondguess.guard.verdicts import decide
from secondguess.model.observation import Observation
from secondguess.supervisors import SupervisorSet

__all__ = ["DecisionPipeline", "Decisions", "Settings"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Settings:
    """The settings of a guard; see `Guard`."""

    false_alarms: float
    per_class: bool
    rule: Rule
    min_probability: float
    latency_ms: float | None
    protect: Protect = "novelty"
    risk: float | None = None
    confidence: float = 0.95


@dataclass(frozen=True, eq=False)
class Decisions:
    """From the scores of the supervisors to judgements.

    Attributes:
        labels: m names of the supervisors.
        class_names: K names.
        panel: of all supervisors.
        calibration: of its statistics.
        cascade: which supervisors score first; None where all always score.
        false_alarms: the share of nominal images that may raise an alarm.
        limit: above which a statistic is an alarm, where a risk was promised; None where the false-alarm rate decides.
        min_probability: see `decide`.
        actions: from verdicts to actions.
    """

    labels: tuple[str, ...]
    class_names: tuple[str, ...]
    panel: Panel
    calibration: Calibration
    cascade: Cascade | None
    false_alarms: float
    limit: float | None
    min_probability: float
    actions: Actions

    def judge_scores(self, probabilities: Floats, scores: Floats) -> Judgements:
        """The judgements of n images from probabilities (n, K) and scores (n, m)."""
        if self.cascade is None:
            return self._judged(probabilities, scores, *self.panel.combine(scores))
        return self._judged(probabilities, *self.cascade.combine_scores(self.panel, scores))

    def alarms(self, statistics: Floats, p_values: Floats) -> NDArray[np.bool_]:
        """Which images (n,) raise an alarm, from their statistics (n,) and p-values (n,)."""
        return p_values <= self.false_alarms if self.limit is None else statistics > self.limit

    def _judged(self, probabilities: Floats, scores: Floats, statistics: Floats, chances: Floats) -> Judgements:
        classes = None if self.calibration.known is None else probabilities.argmax(axis=1)
        p_values = self.calibration.p_values(statistics, classes)
        alarms = self.alarms(statistics, p_values)
        return Judgements(
            probabilities=probabilities,
            p_values=p_values,
            codes=decide(alarms, chances, self.panel.anomalies, self.min_probability),
            chances=chances,
            scores=scores,
            labels=self.labels,
            class_names=self.class_names,
            panel=self.panel,
            policy=self.actions,
        )


@dataclass(frozen=True, eq=False)
class DecisionPipeline(Decisions):
    """From an observation to judgements.

    Attributes:
        supervisors: fitted.
        control: with which the limit was found, for another calibration; None where no risk was promised.
    """

    supervisors: SupervisorSet
    control: RiskControl | None = None

    def judge(self, observation: Observation) -> Judgements:
        """The judgements of n images that were observed."""
        return self._judged(observation.probabilities, *self.combine(observation))

    def combine(self, observation: Observation) -> tuple[Floats, Floats, Floats]:
        """Scores (n, m), statistics (n,) and probabilities of each kind of anomaly (n, t)."""
        if self.cascade is None:
            scores = self.supervisors.score(observation)
            return scores, *self.panel.combine(scores)

        def ask(rows: NDArray[np.int64] | None, columns: NDArray[np.int64]) -> Floats:
            return self.supervisors.score(observation if rows is None else observation.take(rows), columns.tolist())

        return self.cascade.combine(self.panel, len(observation), ask)
