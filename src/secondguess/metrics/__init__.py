"""Measures of a classifier and its supervisors: pure functions on NumPy arrays, most with an interval."""

from __future__ import annotations

from secondguess.metrics.accuracy import PerClass, accuracy, confusion, most_confused, per_class
from secondguess.metrics.calibration import (
    Reliability,
    brier,
    brier_interval,
    ece,
    ece_interval,
    mce,
    nll,
    nll_interval,
    reliability,
)
from secondguess.metrics.detection import (
    aupr,
    aupr_interval,
    auroc,
    auroc_interval,
    detection_rate,
    detection_rate_interval,
    false_alarm_rate,
    false_alarm_rate_interval,
    threshold_at,
)
from secondguess.metrics.interval import Interval, bootstrap, wilson

__all__ = [
    "Interval",
    "PerClass",
    "Reliability",
    "accuracy",
    "aupr",
    "aupr_interval",
    "auroc",
    "auroc_interval",
    "bootstrap",
    "brier",
    "brier_interval",
    "confusion",
    "detection_rate",
    "detection_rate_interval",
    "ece",
    "ece_interval",
    "false_alarm_rate",
    "false_alarm_rate_interval",
    "mce",
    "most_confused",
    "nll",
    "nll_interval",
    "per_class",
    "reliability",
    "threshold_at",
    "wilson",
]
