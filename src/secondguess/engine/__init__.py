"""Run a grid of independent tasks, in this process or on a cluster, and never compute a finished one again.

There is no scheduler here: tasks go one after another in this process, to processes through joblib, to a Dask scheduler
or to Ray. What they return lies in a `Ledger`, one entry per task, as soon as it is known.
"""

from __future__ import annotations

from secondguess.engine.engines import Engine, open_engine
from secondguess.engine.grid import run, run_each
from secondguess.engine.ledger import Entry, Ledger
from secondguess.engine.task import Sent, Shared, Task, TaskData, TaskFailed, WorkerLost, resources_for

__all__ = [
    "Engine",
    "Entry",
    "Ledger",
    "Sent",
    "Shared",
    "Task",
    "TaskData",
    "TaskFailed",
    "WorkerLost",
    "open_engine",
    "resources_for",
    "run",
    "run_each",
]
