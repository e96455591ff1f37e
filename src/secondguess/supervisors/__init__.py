"""Run-time supervisors: one suspicion score per prediction, larger = more suspicious."""

from secondguess.supervisors.arrays import Scores, score_arrays
from secondguess.supervisors.base import Supervisor
from secondguess.supervisors.checks import check_supervisor
from secondguess.supervisors.registry import get, make, make_all, names, register
from secondguess.supervisors.shards import fit_in_shards, score_in_shards
from secondguess.supervisors.supervisor_set import SupervisorSet

__all__ = [
    "Scores",
    "Supervisor",
    "SupervisorSet",
    "check_supervisor",
    "fit_in_shards",
    "get",
    "make",
    "make_all",
    "names",
    "register",
    "score_arrays",
    "score_in_shards",
]
