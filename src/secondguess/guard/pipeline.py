"""What happens at run time after the model was observed: scores, one statistic, a p-value, a verdict, an action.

    SupervisorSet.score -> Panel.combine -> Calibration.p_values -> Naming.chances -> decide -> Judgements

`fitting` makes such a pipeline, `artefact` stores it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secondguess.guard.actions import Actions
from secondguess.guard.cascade import Cascade, Scoring, among
from secondguess.guard.consistency import Ask, consistency
from secondguess.guard.judgements import Judgements
from secondguess.guard.naming import Naming, looks_of
from secondguess.guard.panel import Panel, Rule
from secondguess.guard.protect import Protect
from secondguess.guard.risk import RiskControl
from secondguess.guard.thresholds import ROUNDING, Calibration
from secondguess.guard.verdicts import decide
from secondguess.images import ImageSource
from secondguess.model.observation import Observation
from secondguess.supervisors import SupervisorSet

__all__ = ["DecisionPipeline", "Decisions", "Settings"]

Floats = NDArray[np.float64]
Pixels = ImageSource | NDArray[np.float32]  # (n, C, H, W) in [0, 1]


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
        naming: tells kinds of anomaly apart by the pixels too, and perhaps by the model's answers to changed images;
            None where the scores alone do.
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
    naming: Naming | None

    def judge_scores(
        self, probabilities: Floats, scores: Floats, images: Pixels | None = None, ask: Ask | None = None
    ) -> Judgements:
        """The judgements of n images.

        Args:
            probabilities: (n, K).
            scores: (n, m).
            images: the n images, if they are at hand.
            ask: for the model's probabilities of changed images, if it is at hand.
        """
        return self._judged(probabilities, among(scores), images, ask)

    def alarms(self, statistics: Floats, p_values: Floats) -> NDArray[np.bool_]:
        """Which images (n,) raise an alarm, from their statistics (n,) and p-values (n,)."""
        return p_values <= self.false_alarms + ROUNDING if self.limit is None else statistics > self.limit

    def raised(self, statistics: Floats, predictions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which images (n,) raise an alarm, from their statistics (n,) and the classes (n,) that the model says."""
        return self.alarms(statistics, self.calibration.p_values(statistics, predictions))

    def completed(
        self, alarms: NDArray[np.bool_], combined: tuple[Floats, Floats, Floats], scoring: Scoring
    ) -> tuple[Floats, Floats, Floats]:
        """Scores, statistics and probabilities of kinds; all scores of images (n,) that raise an alarm."""
        if self.cascade is None:
            return combined
        return self.cascade.complete(self.panel, alarms, combined, scoring)

    def named(
        self,
        alarms: NDArray[np.bool_],
        scores: Floats,
        chances: Floats,
        images: Pixels | None,
        probabilities: Floats | None = None,
        ask: Ask | None = None,
    ) -> tuple[Floats, NDArray[np.int8]]:
        """The probabilities of each kind (n, t), and the verdicts (n, 2) as `decide` gives them.

        Args:
            alarms: (n,); only images with an alarm are looked at.
            scores: (n, m); those of images with an alarm are all known, see `completed`.
            chances: (n, t) by the panel, from the scores alone.
            images: n of them, or None where they are not at hand.
            probabilities: (n, K) of the model, for a naming that looks at changed images.
            ask: for those of changed images; None where the model is not at hand.
        """
        rows, sureness = np.flatnonzero(alarms), None
        looks = None if images is None or not len(rows) else self._looks(images, rows, probabilities, ask)
        if self.naming is not None and looks is not None:
            chances = chances.copy()
            chances[rows] = self.naming.chances(np.hstack([scores[rows], looks]))
            sureness = self.naming.sureness(chances)
        return chances, decide(alarms, chances, self.panel.anomalies, self.min_probability, sureness)

    def _looks(
        self, images: Pixels, rows: NDArray[np.int64], probabilities: Floats | None, ask: Ask | None
    ) -> Floats | None:
        """What the naming sees of the images at `rows` beside their scores; None where it lacks something."""
        if self.naming is None:
            return None
        changes = self.naming.changes
        if not changes:
            return looks_of(images, rows)
        if probabilities is None or ask is None:
            return None
        return np.hstack([looks_of(images, rows), consistency(images, rows, probabilities[rows], changes, ask)])

    def _combined(self, n: int, scoring: Scoring) -> tuple[Floats, Floats, Floats]:
        """Scores (n, m), statistics (n,) and probabilities of each kind of anomaly (n, t)."""
        if self.cascade is not None:
            return self.cascade.combine(self.panel, n, scoring)
        scores = scoring(None, np.arange(len(self.labels)))
        return scores, *self.panel.combine(scores)

    def _judged(self, probabilities: Floats, scoring: Scoring, images: Pixels | None, ask: Ask | None) -> Judgements:
        combined = self._combined(len(probabilities), scoring)
        classes = None if self.calibration.known is None else probabilities.argmax(axis=1)
        p_values = self.calibration.p_values(combined[1], classes)
        alarms = self.alarms(combined[1], p_values)
        scores, _, chances = self.completed(alarms, combined, scoring)
        chances, codes = self.named(alarms, scores, chances, images, probabilities, ask)
        return Judgements(
            probabilities=probabilities,
            p_values=p_values,
            codes=codes,
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

    def judge(self, observation: Observation, images: Pixels | None = None, ask: Ask | None = None) -> Judgements:
        """The judgements of n images that were observed.

        Args:
            observation: with what the supervisors need.
            images: the n images, where the observation does not hold them.
            ask: for the model's probabilities of changed images; without it, a naming that needs them is not used, and
                kinds are told apart by the scores alone.
        """
        if images is None and self.naming is not None and observation.images is not None:
            images = observation.images.images
        return self._judged(observation.probabilities, self._scoring(observation), images, ask)

    def combine(self, observation: Observation) -> tuple[Floats, Floats, Floats]:
        """Scores (n, m), statistics (n,) and probabilities of each kind of anomaly (n, t)."""
        return self._combined(len(observation), self._scoring(observation))

    def _scoring(self, observation: Observation) -> Scoring:
        def scoring(rows: NDArray[np.int64] | None, columns: NDArray[np.int64]) -> Floats:
            return self.supervisors.score(observation if rows is None else observation.take(rows), columns.tolist())

        return scoring
