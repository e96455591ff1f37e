"""Accuracy in operation: without labels, with a few, and how far each estimate can be trusted."""

from __future__ import annotations

from secondguess.accuracy.agreement import EnsembleAgreement
from secondguess.accuracy.base import Estimate, Estimator, Trial
from secondguess.accuracy.checks import check_estimator
from secondguess.accuracy.confidence import (
    AverageConfidence,
    DifferenceOfConfidences,
    ThresholdedConfidence,
    ValidationAccuracy,
)
from secondguess.accuracy.designs import Design, deepest, importance, simple_random, stratified
from secondguess.accuracy.dispersion import NuclearNorm
from secondguess.accuracy.estimating import estimate, watch
from secondguess.accuracy.few_labels import FewLabels, LabelPlan, plan_labels
from secondguess.accuracy.label_shift import LabelShift
from secondguess.accuracy.monitor import AccuracyMonitor
from secondguess.accuracy.passes import OraclePasses, cross_judged
from secondguess.accuracy.recommendation import recommend
from secondguess.accuracy.registry import get, make, make_all, names, register
from secondguess.accuracy.result import EstimateResult, JudgedWrong
from secondguess.accuracy.rules_and_confidence import RulesAndConfidence
from secondguess.accuracy.sequences import ConfidenceSequence
from secondguess.accuracy.shift_tests import Change, ShiftReport
from secondguess.accuracy.shifted_copies import Shift, ShiftedCopies, learnt_shifts
from secondguess.accuracy.standard import standard_estimators
from secondguess.accuracy.synthetic_shifts import SyntheticShifts
from secondguess.accuracy.trials import try_estimators

__all__ = [
    "AccuracyMonitor",
    "AverageConfidence",
    "Change",
    "ConfidenceSequence",
    "Design",
    "DifferenceOfConfidences",
    "EnsembleAgreement",
    "Estimate",
    "EstimateResult",
    "Estimator",
    "FewLabels",
    "JudgedWrong",
    "LabelPlan",
    "LabelShift",
    "NuclearNorm",
    "OraclePasses",
    "RulesAndConfidence",
    "Shift",
    "ShiftReport",
    "ShiftedCopies",
    "SyntheticShifts",
    "ThresholdedConfidence",
    "Trial",
    "ValidationAccuracy",
    "check_estimator",
    "cross_judged",
    "deepest",
    "estimate",
    "get",
    "importance",
    "learnt_shifts",
    "make",
    "make_all",
    "names",
    "plan_labels",
    "recommend",
    "register",
    "simple_random",
    "standard_estimators",
    "stratified",
    "try_estimators",
    "watch",
]
