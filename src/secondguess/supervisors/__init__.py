"""Run-time supervisors: one suspicion score a prediction, larger = more suspicious."""

from secondguess.supervisors.base import Supervisor
from secondguess.supervisors.checks import check_supervisor
from secondguess.supervisors.registry import get, make, make_all, names, register
from secondguess.supervisors.supervisor_set import SupervisorSet

__all__ = ["Supervisor", "SupervisorSet", "check_supervisor", "get", "make", "make_all", "names", "register"]
