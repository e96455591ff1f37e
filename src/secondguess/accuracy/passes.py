"""Accuracy from an oracle's verdicts: their plain share, and corrected for the oracle's own mistakes.

An oracle that finds a share t of the wrong predictions and doubts a share f of the right ones judges

    a = t e + f (1 - e)

of all predictions wrong, if a share e of them is. Solved for e (Rogan and Gladen, American Journal of Epidemiology
1978): e = (a - f) / (t - f), clipped to [0, 1]. t and f come from labelled images that the oracle was NOT fitted on:
on those that it was, a forest is always right. `cross_judged` makes such verdicts out of one validation set.

The correction assumes that t and f are in operation what they were on the validation images. Where t - f is small, or
estimated from few wrong predictions, it multiplies noise; the interval shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy.base import Estimator, EstimatorSettings, NothingKnown, Rows
from secondguess.accuracy.oracles import Oracle, Verdicts, make
from secondguess.accuracy.oracles.base import Undecided, check_undecided, counted
from secondguess.accuracy.oracles.cross_reference import CrossReference
from secondguess.accuracy.registry import register
from secondguess.errors import UserError
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation

if TYPE_CHECKING:
    from secondguess.accuracy.shifted_copies import ShiftedCopies

__all__ = ["OraclePasses", "cross_judged", "rogan_gladen"]

FOLDS_OF_A_TRIAL = 2  # for copies that are fitted only for a trial
LEAST = 0.05  # of t - f: below, alarms carry no information about errors


class Rates(NamedTuple):
    """True and false positive rate of an oracle, and the error of the model on the images they come from.

    Where the oracle decided about none of these, the rates are zero, and the error is that on all of them.
    """

    true_positive: float
    false_positive: float
    error: float

    @property
    def precision(self) -> float | None:
        """The share of these images that are wrong among those judged wrong; None where none is judged so."""
        found = self.true_positive * self.error
        judged = found + self.false_positive * (1 - self.error)
        return found / judged if judged else None


@register
class OraclePasses(Estimator):
    """The share of predictions that an oracle lets pass.

    Where the oracle must be fitted, `fit(validation, training)` fits a copy of it, unless it has been fitted before. To
    correct for its mistakes, the validation images are then judged by further copies that were fitted without them.

    Args:
        oracle: a name, or an oracle.
        corrected: for the oracle's true and false positive rate on the validation images; else its plain share.
        undecided: whether predictions about which the oracle cannot decide pass, fail, or are left out.
        folds: how many copies judge the validation images, each those that it was not fitted on. Without training
            images no copy can be fitted, and the oracle judges them itself.
        **settings: of every estimator: `resamples`, `level` and `seed`.
    """

    name = "oracle_passes"

    def __init__(
        self,
        oracle: Oracle | str = "icos",
        corrected: bool = False,
        undecided: Undecided = "pass",
        folds: int = 5,
        **settings: Unpack[EstimatorSettings],
    ) -> None:
        super().__init__(**settings)
        check_undecided(undecided)
        self.oracle = oracle
        self.corrected = corrected
        self.undecided = undecided
        self.folds = folds
        self._oracle = self._given()
        self.name = f"{self._oracle.name}_corrected" if corrected else self._oracle.name

    @classmethod
    def by_name(cls, detail: str) -> dict[str, Any]:
        """What follows the name is the oracle."""
        return {"oracle": detail} if detail else {}

    @property
    def needs(self) -> Needs:
        """What the oracle needs."""
        return self._oracle.needs

    @property
    def judge(self) -> Oracle:
        """The oracle, fitted where this is."""
        return self._oracle

    @property
    def other_models(self) -> bool:
        """Whether the oracle has referees."""
        return isinstance(self._oracle, CrossReference)

    @property
    def recorded(self) -> bool:
        """Whether the predictions of some referee are a column of the images."""
        return isinstance(self._oracle, CrossReference) and any(isinstance(one, str) for one in self._oracle.referees)

    def tried(self, validation: Observation, training: Observation | None) -> Self:
        """As for every estimator; the oracle learns anew where there are training images to learn from."""
        if training is None or not self._oracle.requires_fit:
            return super().tried(validation, training)
        return self.clone(oracle=self._oracle.clone(), folds=FOLDS_OF_A_TRIAL, resamples=1).fit(validation, training)

    def state(self) -> dict[str, Any]:
        """As of every estimator, with what the oracle has learnt."""
        learnt = {f"oracle.{name}": value for name, value in self._oracle.state().items()} if self.is_fitted else {}
        return super().state() | learnt

    def _restore(self, state: Mapping[str, Any]) -> None:
        learnt = {name.removeprefix("oracle."): value for name, value in state.items() if name.startswith("oracle.")}
        self._oracle = self._given().clone()
        self._oracle._restore(learnt)
        super()._restore({name: value for name, value in state.items() if not name.startswith("oracle.")})

    def _given(self) -> Oracle:
        """The oracle as it was given."""
        return make(self.oracle) if isinstance(self.oracle, str) else self.oracle

    def _prepare(self, validation: Observation, training: Observation | None, shifted: ShiftedCopies | None) -> None:
        self._cross_judged: Verdicts | None = None
        self._oracle = self._given()
        if not self._oracle.requires_fit:
            return
        if training is not None and self.corrected:
            self._cross_judged = cross_judged(self._oracle, training, validation, folds=self.folds, seed=self.seed)
        if self._oracle.is_fitted:
            return
        if training is None:
            raise UserError(
                f"The oracle {self._oracle.name!r} has not been fitted, and it learns from training images too; call "
                "fit(validation, training)."
            )
        self._oracle = self._oracle.clone().fit(training, validation)

    def _see(self, seen: Observation) -> Rows:
        return self._oracle.judge(seen).wrong, seen.predictions

    def _see_labelled(self, validation: Observation) -> Rows:
        if self._cross_judged is None:
            return self._see(validation)
        return self._cross_judged.wrong, validation.predictions

    def _learn(self, seen: Rows, labels: NDArray[np.int64]) -> Rates:
        failed, counts = counted(seen[0], self.undecided)
        wrong = seen[1] != labels
        if not counts.any():
            return Rates(0.0, 0.0, float(wrong.mean()))
        error, alarm = wrong[counts], failed[counts]
        false_positive = float(alarm[~error].mean()) if not error.all() else 0.0
        true_positive = float(alarm[error].mean()) if error.any() else false_positive
        return Rates(true_positive, false_positive, float(error.mean()))

    def _rests_on(self, seen: Rows) -> int:
        return int(counted(seen[0], self.undecided)[1].sum())

    def _check_rows(self, seen: Rows) -> None:
        if not self._rests_on(seen):
            raise NothingKnown(
                f"The oracle {self._oracle.name!r} decided about no prediction; count undecided as 'fail'."
            )

    def _value(self, learnt: Rates, seen: Rows) -> float:
        failed, counts = counted(seen[0], self.undecided)
        if not counts.any():  # of a resample: nothing is known of it but what the model's error was
            return 1 - learnt.error
        share = float(failed[counts].mean())
        return 1 - (rogan_gladen(share, learnt) if self.corrected else share)

    def _details(self, learnt: Rates, seen: Rows) -> dict[str, float]:
        return {
            "true_positive_rate": learnt.true_positive,
            "false_positive_rate": learnt.false_positive,
            "undecided": float((seen[0] < 0).mean()),
            **({} if learnt.precision is None else {"precision": learnt.precision}),
        }


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
