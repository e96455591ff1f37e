"""Studies: every table of the papers as a grid of tasks, with the published numbers to hold ours against.

A study says which tasks make its table (`grid`), how their results become cells (`tabulate`), what the paper printed
(`published/<name>.csv`), and where numbers lie that were measured before (`recorded`). See `secondguess study --help`.
"""

from __future__ import annotations

from secondguess_lab.studies.base import Recorded, Sources, Study
from secondguess_lab.studies.comparison import Line, compare
from secondguess_lab.studies.records import recorded
from secondguess_lab.studies.registry import get, names
from secondguess_lab.studies.running import StudyPlan, make_plan, read_plan, run_study, status
from secondguess_lab.studies.tables import Cell, Table

__all__ = [
    "Cell",
    "Line",
    "Recorded",
    "Sources",
    "Study",
    "StudyPlan",
    "Table",
    "compare",
    "get",
    "make_plan",
    "names",
    "read_plan",
    "recorded",
    "run_study",
    "status",
]
