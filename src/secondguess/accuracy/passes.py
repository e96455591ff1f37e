"""What an oracle's verdicts say about the accuracy: as they are, and corrected for the oracle's own mistakes.

An oracle that finds a share t of the wrong predictions and doubts a share f of the right ones judges

    a = t e + f (1 - e)

of all predictions wrong, if a share e of them is. Solved for e (Rogan and Gladen, American Journal of Epidemiology
1978): e = (a - f) / (t - f), clipped to [0, 1]. t and f come from labelled images that the oracle was NOT fitted on:
on those that it was, a forest knows every answer. `cross_judged` makes such verdicts out of one validation set.

The correction assumes that t and f are in operation what they were on the validation images. Where t - f is small, or
estimated from few wrong predictions, it multiplies noise; the interval shows it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy.base import Estimator, Rows
from secondguess.accuracy.oracles import Oracle, Verdicts
from secondguess.accuracy.oracles.cross_reference import CrossReference
from secondguess.errors import UserError
from secondguess.model.observation import Needs, Observation

__all__ = ["OraclePasses", "cross_judged", "rogan_gladen"]

Undecided = Literal["pass", "fail", "exclude"]
LEAST = 0.05  # of t - f: below, an alarm says nothing about errors


class Rates(NamedTuple):
    """True and false positive rate of an oracle, and the error of the model on the images they come from."""

    true_positive: float
    false_positive: float
    error: float


class OraclePasses(Estimator):
    """The share of predictions that an oracle lets pass.

    Args:
        oracle: fitted already, where it needs that, on other images than `fit` will see.
        corrected: for the oracle's true and false positive rate on the validation images; else its plain share.
        undecided: whether predictions about which the oracle cannot decide pass, fail, or are left out.
        verdicts: on the images that `fit` will see, such as `cross_judged` makes; by default the oracle judges them.
    """

    def __init__(
        self,
        oracle: Oracle,
        corrected: bool = False,
        undecided: Undecided = "pass",
        verdicts: Verdicts | None = None,
    ) -> None:
        if undecided not in ("pass", "fail", "exclude"):
            raise UserError(f"Undecided predictions can 'pass', 'fail' or be left out ('exclude'), not {undecided!r}.")
        self.oracle = oracle
        self.corrected = corrected
        self.undecided = undecided
        self.verdicts = verdicts
        self.name = f"{oracle.name}_corrected" if corrected else oracle.name

    @property
    def needs(self) -> Needs:
        """What the oracle needs."""
        return self.oracle.needs

    @property
    def other_models(self) -> bool:
        """Whether the oracle has referees."""
        return isinstance(self.oracle, CrossReference)

    @property
    def recorded(self) -> bool:
        """Whether the predictions of some referee are a column of the images."""
        return isinstance(self.oracle, CrossReference) and any(isinstance(one, str) for one in self.oracle.referees)

    def anew(self, training: Observation | None, validation: Observation) -> Self:
        """A copy whose oracle was fitted on these images only; without training images the oracle stays as it is."""
        copy = self.clone()
        copy.verdicts = None
        if training is not None and self.oracle.requires_fit:
            copy.oracle = self.oracle.clone().fit(training, validation)
            if self.corrected:
                copy.verdicts = cross_judged(self.oracle, training, validation, folds=2)
        return copy

    def retrained(self, training: Observation | None, validation: Observation) -> Self | None:
        """As of every estimator; an oracle that must be fitted cannot be without training images."""
        if training is None and self.oracle.requires_fit:
            return None
        return super().retrained(training, validation)

    def _see(self, seen: Observation) -> Rows:
        return self.oracle.judge(seen).wrong, seen.predictions

    def _see_labelled(self, validation: Observation) -> Rows:
        if self.verdicts is None:
            return self._see(validation)
        if len(self.verdicts) != len(validation):
            raise UserError(
                f"{len(self.verdicts)} verdicts were given for {len(validation)} validation images; give one for each."
            )
        return self.verdicts.wrong, validation.predictions

    def _learn(self, seen: Rows, labels: NDArray[np.int64]) -> Rates:
        wrong, decided = self._alarms(seen[0])
        error, alarm = seen[1][decided] != labels[decided], wrong[decided]
        false_positive = float(alarm[~error].mean()) if not error.all() else 0.0
        true_positive = float(alarm[error].mean()) if error.any() else false_positive
        return Rates(true_positive, false_positive, float(error.mean()) if len(error) else 0.0)

    def _value(self, learnt: Rates, seen: Rows) -> float:
        wrong, decided = self._alarms(seen[0])
        if not decided.any():
            raise UserError(f"The oracle {self.oracle.name!r} decided about no prediction; count undecided as 'fail'.")
        share = float(wrong[decided].mean())
        return 1 - (rogan_gladen(share, learnt) if self.corrected else share)

    def _details(self, learnt: Rates, seen: Rows) -> dict[str, float]:
        return {
            "true_positive_rate": learnt.true_positive,
            "false_positive_rate": learnt.false_positive,
            "undecided": float((seen[0] < 0).mean()),
        }

    def _alarms(self, verdicts: NDArray[np.int8]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which predictions count as wrong and which count at all, (n,) each."""
        wrong = verdicts == 1
        if self.undecided == "fail":
            wrong = verdicts != 0
        decided = verdicts >= 0 if self.undecided == "exclude" else np.ones(len(verdicts), dtype=bool)
        return wrong, decided


def rogan_gladen(alarms: float, rates: tuple[float, float, float]) -> float:
    """The share of errors behind a share of alarms, in [0, 1].

    Args:
        alarms: the share of predictions judged wrong.
        rates: true positive rate, false positive rate, and the error to fall back on where the two hardly differ.
    """
    true_positive, false_positive, fallback = rates
    if true_positive - false_positive < LEAST:
        return fallback
    return float(np.clip((alarms - false_positive) / (true_positive - false_positive), 0, 1))


def cross_judged(
    oracle: Oracle, training: Observation, validation: Observation, *, folds: int = 5, seed: int = 0
) -> Verdicts:
    """Verdicts on the validation images, each by a copy of the oracle that was fitted without it.

    Args:
        oracle: left as it is; its copies are fitted.
        training: of the training images, the same for all copies.
        validation: of labelled images, split at random.
        folds: how many copies are fitted.
        seed: of the split.
    """
    if not 2 <= folds <= len(validation):
        raise UserError(f"{folds} folds of {len(validation)} images were asked for; give from 2 to as many as images.")
    fold = np.random.default_rng(seed).permutation(len(validation)) % folds
    verdicts = Verdicts.make(np.zeros(len(validation), dtype=np.int8))
    for k in range(folds):
        mine = fold == k
        judged = oracle.clone().fit(training, validation.take(~mine)).judge(validation.take(mine))
        verdicts.wrong[mine], verdicts.reasons[mine] = judged.wrong, judged.reasons
        verdicts.advice[mine] = judged.advice
    return verdicts
