"""The same grid of equal tasks on one and on two workers, and what the engine itself takes for a task.

A task is one of the study on surprise, scaled down: a network is trained, DSA is fitted and scored on nominal,
adversarial and corrupted images. Before the clock runs every worker does one such task, which starts it, loads PyTorch
and makes what it then remembers. `bare` is no engine of ours but two processes of Python's own pool: what the machine
itself gains from a second core.

Dask starts its workers with a setting of glibc (`MALLOC_TRIM_THRESHOLD_`) by which freed memory goes back to the system
at once; PyTorch then gets every large tensor as fresh pages. `dask` is with memory kept, as in one's own process, and
`dask as it comes` without.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

import distributed
import numpy as np
from scaling_tasks import nothing

from secondguess.engine import Ledger, Task, TaskData, run
from secondguess.engine.task import perform
from secondguess.images import load
from secondguess_lab.studies.tasks.surprise import detect

TASKS, EMPTY = 12, 200
KEPT_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "1073741824", "MALLOC_MMAP_THRESHOLD_": "33554432"}
RUNS = (("local", 1), ("local", 2), ("bare", 2), ("dask", 1), ("dask", 2), ("dask as it comes", 1))
TRAINING, TEST, EPOCHS = 1000, 300, 2


def settings():
    """What is run."""
    return {
        "task": "secondguess_lab.studies.tasks.surprise:detect, one model, DSA",
        "tasks": TASKS,
        "empty_tasks": EMPTY,
        "training_images": TRAINING,
        "test_images": TEST,
        "epochs": EPOCHS,
        "memory_of_dask_workers": KEPT_MEMORY,
    }


def speed_up():
    """Rows for one and two workers of every kind, and whether all of them gave the same numbers."""
    with tempfile.TemporaryDirectory(prefix="secondguess-scaling-") as name:
        folder = Path(name)
        source = _data(folder)
        rows, found = [], []
        for kind, count in RUNS:
            row, results = _measured(kind, count, source, folder / f"{kind}{count}")
            sys.stderr.write(f"{row}\n")
            rows.append(row)
            found.append(results)
    return {"rows": [_compared(row, rows) for row in rows], "same_results": all(one == found[0] for one in found)}


def _data(folder):
    """A few digits in a file."""
    digits, path = load("mnist5k"), folder / "tiny.npz"
    parts = {"train": digits.train.head(TRAINING, seed=0), "test": digits.test.head(TEST, seed=0)}
    images = {f"x_{name}": np.rint(part.materialise()[:, 0] * 255).astype(np.uint8) for name, part in parts.items()}
    np.savez(path, **images, **{f"y_{name}": part.labels for name, part in parts.items()})
    return TaskData(str(path), load(path).fingerprint)


def _measured(kind, count, source, folder):
    params = {"data": source, "models": 1, "epochs": EPOCHS, "variants": [{"method": "dsa", "kind": "dsa"}]}
    tasks = [Task(detect, params, seed) for seed in range(TASKS + count)]
    with _opened(kind, count) as engine:
        first, _ = _timed(tasks[TASKS:], engine, folder / "first")
        seconds, entries = _timed(tasks[:TASKS], engine, folder / "ledger")
        empty = None
        if kind != "bare":
            empty, _ = _timed([Task(nothing, {}, seed) for seed in range(EMPTY)], engine, folder / "empty")
    row = {
        "kind": kind,
        "workers": count,
        "first_seconds": first,
        "seconds": seconds,
        "task_seconds": float(np.mean([entry.seconds for entry in entries])),
        "overhead_ms": None if empty is None else 1000 * empty / EMPTY,
    }
    return row, {tuple(one["model"]): one for entry in entries for one in entry.result["rows"]}


def _timed(tasks, engine, folder):
    """Seconds for all, and what they gave."""
    began = time.perf_counter()
    if isinstance(engine, ProcessPoolExecutor):
        entries = list(engine.map(perform, [task.call() for task in tasks]))
    else:
        entries = run(tasks, Ledger(folder), engine)
    return time.perf_counter() - began, entries


def _opened(kind, count):
    """A context that gives the engine's name, or the pool of processes."""
    if kind == "local":
        return nullcontext(f"local:{count}")
    if kind == "bare":
        return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))
    return _dask(count, KEPT_MEMORY if kind == "dask" else {})


@contextmanager
def _dask(count, environment):
    """A scheduler and so many worker processes of one thread; the name of the engine."""
    worker = {"cls": distributed.Nanny, "options": {"nthreads": 1, "silence_logs": logging.ERROR}}
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard": False, "port": 0}}
    workers = dict.fromkeys(range(count), worker)
    os.environ |= environment
    try:
        with distributed.SpecCluster(workers, scheduler, silence_logs=logging.ERROR) as cluster:
            cluster.wait_for_workers(count)
            yield cluster.scheduler_address.replace("tcp://", "dask://")
    finally:
        for name in environment:
            del os.environ[name]


def _compared(row, rows):
    """Speed-up over one worker of the same kind; the others are compared with the one process of `local`."""
    kind = row["kind"] if (row["kind"], 2) in RUNS and row["kind"] != "bare" else "local"
    alone = next(one["seconds"] for one in rows if one["kind"] == kind and one["workers"] == 1)
    gained = alone / row["seconds"]
    return row | {"speed_up": gained, "efficiency": gained / row["workers"]}
