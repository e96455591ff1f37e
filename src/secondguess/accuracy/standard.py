"""The standard estimators, the trivial baseline first and the recommended one last, and those that need more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from secondguess.accuracy.agreement import EnsembleAgreement
from secondguess.accuracy.base import Estimator, EstimatorSettings
from secondguess.accuracy.confidence import (
    AverageConfidence,
    DifferenceOfConfidences,
    ThresholdedConfidence,
    ValidationAccuracy,
)
from secondguess.accuracy.dispersion import NuclearNorm
from secondguess.accuracy.label_shift import LabelShift
from secondguess.accuracy.oracles.cross_reference import CrossReference
from secondguess.accuracy.oracles.selfchecker import SelfChecker
from secondguess.accuracy.passes import OraclePasses
from secondguess.accuracy.rules_and_confidence import RulesAndConfidence

if TYPE_CHECKING:
    from secondguess.accuracy.oracles import Oracle
    from secondguess.accuracy.oracles.icos.input_rules import InputRules
    from secondguess.model.classifier import Classifier

__all__ = ["further_estimators", "standard_estimators"]


def standard_estimators(
    rules: InputRules | None = None,
    oracles: Sequence[Oracle] = (),
    others: Sequence[Classifier] = (),
    *,
    folds: int = 5,
    **settings: Unpack[EstimatorSettings],
) -> list[Estimator]:
    """All estimators for which validation images suffice, none fitted: all but `SyntheticShifts`.

    Args:
        rules: what is known about the domain, for `RulesAndConfidence`.
        oracles: each gives two estimators, as it is and corrected.
        others: further models of the same task, for agreement.
        folds: of the correction of oracles.
        **settings: of every estimator: `resamples`, `level` and `seed`.
    """
    estimators: list[Estimator] = [
        ValidationAccuracy(**settings),
        AverageConfidence(**settings),
        DifferenceOfConfidences(**settings),
        ThresholdedConfidence("confidence", **settings),
        ThresholdedConfidence("entropy", **settings),
        NuclearNorm(**settings),
        LabelShift("em", **settings),
        LabelShift("bbse", **settings),
    ]
    estimators += [EnsembleAgreement(others, **settings)] if others else []
    for oracle in oracles:
        estimators += [OraclePasses(oracle, corrected, folds=folds, **settings) for corrected in (False, True)]
    return [*estimators, RulesAndConfidence(rules, **settings)]


def further_estimators(
    referees: Sequence[Classifier] = (), *, selfchecker: bool = False, **settings: Unpack[EstimatorSettings]
) -> list[Estimator]:
    """Estimators that need other models, or the inner layers of the model in question.

    Args:
        referees: models of the same classes; two or more outvote the model, a single one can only agree with it.
        selfchecker: whether to ask SelfChecker.
        **settings: of every estimator: `resamples`, `level` and `seed`.
    """
    oracles: list[Oracle] = [CrossReference(list(referees))] if len(referees) > 1 else []
    oracles += [SelfChecker(seed=settings.get("seed", 0))] if selfchecker else []
    agreeing: list[Estimator] = [EnsembleAgreement(list(referees), **settings)] if referees else []
    passing = [OraclePasses(oracle, corrected, **settings) for oracle in oracles for corrected in (False, True)]
    return [*agreeing, *passing]
