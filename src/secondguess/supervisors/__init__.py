"""Run-time supervisors: one suspicion score per prediction, larger = more suspicious."""

from secondguess.supervisors.arrays import Scores, score_arrays
from secondguess.supervisors.base import Supervisor
from secondguess.supervisors.checks import check_supervisor
from secondguess.supervisors.registry import get, make, make_all, names, register
from secondguess.supervisors.supervisor_set import SupervisorSet

__all__ = [
    "Scores",
    "Supervisor",
    "SupervisorSet",
    "check_supervisor",
    "get",
    "make",
    "make_all",
    "names",
    "register",
    "score_arrays",
]
