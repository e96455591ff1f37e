"""Run-time guards: whether a single prediction can be trusted, and if not, why not."""

from secondguess.guard.actions import ACTIONS, Action, Actions
from secondguess.guard.guard import Guard
from secondguess.guard.guarded import Guarded
from secondguess.guard.judgements import Judgement, Judgements
from secondguess.guard.protect import PROTECT, Protect
from secondguess.guard.report import GuardReport
from secondguess.guard.risk import RiskPromise, smallest_accepted
from secondguess.guard.stress_split import StressSplit, make_stress_split
from secondguess.guard.thresholds import Calibration, Threshold, conformal_p_values, realised_rate, smallest_sample
from secondguess.guard.verdicts import KINDS, Kind, Verdict

__all__ = [
    "ACTIONS",
    "KINDS",
    "PROTECT",
    "Action",
    "Actions",
    "Calibration",
    "Guard",
    "GuardReport",
    "Guarded",
    "Judgement",
    "Judgements",
    "Kind",
    "Protect",
    "RiskPromise",
    "StressSplit",
    "Threshold",
    "Verdict",
    "conformal_p_values",
    "make_stress_split",
    "realised_rate",
    "smallest_accepted",
    "smallest_sample",
]
