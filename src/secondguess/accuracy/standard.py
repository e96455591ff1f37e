"""The estimators that belong into every table, the trivial baseline first and the recommended one last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from secondguess.accuracy.agreement import EnsembleAgreement
from secondguess.accuracy.base import Estimator
from secondguess.accuracy.confidence import (
    AverageConfidence,
    DifferenceOfConfidences,
    ThresholdedConfidence,
    ValidationAccuracy,
)
from secondguess.accuracy.dispersion import NuclearNorm
from secondguess.accuracy.label_shift import LabelShift
from secondguess.accuracy.passes import OraclePasses
from secondguess.accuracy.recommended import RulesAndConfidence

if TYPE_CHECKING:
    from secondguess.accuracy.oracles import Oracle
    from secondguess.accuracy.oracles.icos.input_rules import InputRules
    from secondguess.model.classifier import Classifier

__all__ = ["standard_estimators"]


def standard_estimators(
    rules: InputRules | None = None, oracles: Sequence[Oracle] = (), others: Sequence[Classifier] = ()
) -> list[Estimator]:
    """All estimators, none fitted.

    Args:
        rules: what is known about the domain, for the recommended estimator.
        oracles: fitted already; each gives two estimators, as it is and corrected.
        others: further models of the same task, for agreement.
    """
    estimators: list[Estimator] = [
        ValidationAccuracy(),
        AverageConfidence(),
        DifferenceOfConfidences(),
        ThresholdedConfidence("confidence"),
        ThresholdedConfidence("entropy"),
        NuclearNorm(),
        LabelShift("em"),
        LabelShift("bbse"),
    ]
    estimators += [EnsembleAgreement(others)] if others else []
    estimators += [OraclePasses(oracle, corrected) for oracle in oracles for corrected in (False, True)]
    return [*estimators, RulesAndConfidence(rules)]
