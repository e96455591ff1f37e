"""Run-time supervisors: one suspicion score a prediction, larger = more suspicious."""

from secondguess.supervisors.base import Supervisor
from secondguess.supervisors.checks import check_supervisor
from secondguess.supervisors.registry import get, make, make_all, names, register

__all__ = ["Supervisor", "check_supervisor", "get", "make", "make_all", "names", "register"]
