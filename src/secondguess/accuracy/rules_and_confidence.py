"""Certain violations of rules, and calibrated confidence for the rest: what leads where there are rules.

* A prediction that an input rule excludes is wrong: counted, not estimated.
* For every other the probability of being right is estimated: confidence, calibrated by a temperature on validation
  images, restricted to the labels that can occur in the image's partition.
* Whether that confidence still means in operation what it meant on validation images is not assumed but measured: how
  often, and with what confidence, rules are violated in operation recalibrates it (see `_set_labels` for the model). So
  it follows corruptions, ambiguity and class frequencies, and it notices classes that have changed their meaning as
  long as some rule distinguishes them.

Without rules this is the average confidence after temperature scaling, with its limitations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy._scaling import log_scores
from secondguess.accuracy._set_labels import Channel, fit_channel, probability_right
from secondguess.accuracy.base import Estimator, Rows
from secondguess.accuracy.registry import register
from secondguess.errors import UserError
from secondguess.model.observation import Observation

if TYPE_CHECKING:
    from secondguess.accuracy.oracles.icos.input_rules import InputRules

__all__ = ["RulesAndConfidence", "allowed_labels"]

FEW_STEPS = 4  # of EM on a resample, begun where the whole set ended
RESAMPLES = 40


class Recalibrated(NamedTuple):
    """The temperature on validation images, and what rules say about confidence in operation."""

    temperature: float
    channel: Channel


@register
class RulesAndConfidence(Estimator):
    """Certain violations of rules counted as wrong, the rest estimated with confidence that rules recalibrate.

    Args:
        rules: which labels can occur where; None if nothing is known.
        resamples: of the bootstrap; each takes longer than with other estimators.
        level: nominal coverage of the interval.
        seed: of the bootstrap.
    """

    name = "rules_and_confidence"

    def __init__(
        self, rules: InputRules | None = None, *, resamples: int = RESAMPLES, level: float = 0.95, seed: int = 0
    ) -> None:
        super().__init__(resamples=resamples, level=level, seed=seed)
        self.rules = rules

    def right(self, operation: Observation) -> NDArray[np.float64]:
        """The probability that each prediction is right, (n,), of which the estimate is the mean."""
        if not self.is_fitted:
            raise UserError(f"The estimator {self.name!r} must see labelled images first; call fit(validation).")
        scores, allowed = self._see(operation)
        return probability_right(scores, allowed, _channel(self._learnt, scores, allowed))

    def _see(self, seen: Observation) -> Rows:
        return log_scores(seen), allowed_labels(self.rules, seen)

    def _see_labelled(self, validation: Observation) -> Rows:
        return (log_scores(validation),)

    def _learn(self, seen: Rows, labels: NDArray[np.int64]) -> float:
        from secondguess.training import fit_temperature

        return fit_temperature(seen[0], labels)

    def _adapted(self, learnt: float, seen: Rows) -> Recalibrated:
        scores, allowed = seen
        return Recalibrated(learnt, _channel(learnt, scores, allowed))

    def _value(self, learnt: Recalibrated, seen: Rows) -> float:
        scores, allowed = seen
        return float(probability_right(scores, allowed, learnt.channel).mean())

    def _details(self, learnt: Recalibrated, seen: Rows) -> dict[str, float]:
        scores, allowed = seen
        excluded = ~np.take_along_axis(allowed, scores.argmax(axis=1)[:, None], axis=1)
        return {
            "certainly_wrong": float(excluded.mean()),
            "temperature": learnt.channel.temperature,
            "validation_temperature": learnt.temperature,
        }

    def _replicates(self, learnt: Recalibrated, seen: Rows) -> NDArray[np.float64]:
        """As in every estimator, but each resample begins where the whole set ended."""
        ours, theirs = np.random.default_rng(self.seed).spawn(2)
        values = np.empty(self.resamples)
        for i in range(self.resamples):
            known = ours.integers(len(self._labels), size=len(self._labels))
            rows = theirs.integers(len(seen[0]), size=len(seen[0]))
            anew = self._learn((self._seen[0][known],), self._labels[known])
            scores, allowed = seen[0][rows], seen[1][rows]
            values[i] = probability_right(scores, allowed, _channel(anew, scores, allowed, learnt.channel)).mean()
        return values


def _channel(
    temperature: float, scores: NDArray[np.float64], allowed: NDArray[np.bool_], start: Channel | None = None
) -> Channel:
    """What rules about images of operation say about their confidence.

    Args:
        temperature: on validation images.
        scores: (n, K) logits with a row maximum of zero.
        allowed: (n, K), the classes that can be.
        start: where to begin, in a few steps.
    """
    possible = allowed.any(axis=1)
    if not possible.any() or allowed.all():
        return Channel(temperature, np.zeros(scores.shape[1]))
    known = (scores, allowed) if possible.all() else (scores[possible], allowed[possible])
    return fit_channel(*known, temperature) if start is None else fit_channel(*known, temperature, start, FEW_STEPS)


def allowed_labels(rules: InputRules | None, seen: Observation) -> NDArray[np.bool_]:
    """Which classes each image can belong to, (n, K): all that no rule about one of its partitions excludes."""
    if rules is None:
        return np.ones((len(seen), seen.num_classes), dtype=bool)
    return np.asarray(~(rules.members(seen.require_images("The rules")) @ ~rules.allowed(seen.class_names)))
