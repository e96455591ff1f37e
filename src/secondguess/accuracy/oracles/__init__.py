"""Oracles: which predictions are wrong, judged without their labels, and by which rule."""

from secondguess.accuracy.oracles.arrays import OracleResult, judge_arrays
from secondguess.accuracy.oracles.base import Oracle, Verdicts
from secondguess.accuracy.oracles.checks import check_oracle
from secondguess.accuracy.oracles.registry import get, make, make_all, names, register

__all__ = [
    "Oracle",
    "OracleResult",
    "Verdicts",
    "check_oracle",
    "get",
    "judge_arrays",
    "make",
    "make_all",
    "names",
    "register",
]
