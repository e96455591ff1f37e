"""Processes that have one thread and one core each: what an engine is measured with, and against.

Threads of PyTorch, ONNX Runtime and the decoder of images would take every core of the machine, so that one worker
would already be as fast as two. Each process is kept on a core of its own here. Whoever hands out the shards (this
process, with the Dask scheduler in it) is not: on a machine with as many cores as workers it competes with them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from secondguess.errors import require

__all__ = ["alone", "core_seconds", "dask_workers", "kept_to_core"]

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# Dask has glibc hand freed memory back at once, and large tensors are then fresh pages; docs/evidence/scaling.md.
KEPT_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "1073741824", "MALLOC_MMAP_THRESHOLD_": "33554432"}


@contextmanager
def alone() -> Iterator[tuple[Callable[..., Any], list[int]]]:
    """A process of its own: what calls functions in it, `called(function, *arguments)`, and the process."""
    with (
        _environment(ONE_THREAD | KEPT_MEMORY),  # as workers have it, so that the engine alone differs
        ProcessPoolExecutor(1, get_context("spawn"), initializer=kept_to_core, initargs=(0,)) as pool,
    ):
        yield (lambda function, *given: pool.submit(function, *given).result()), [pool.submit(os.getpid).result()]


@contextmanager
def dask_workers(count: int) -> Iterator[tuple[str, list[int]]]:
    """A scheduler and so many workers: the name of the engine, and the processes of the workers."""
    dask = require("distributed", "distributed")
    worker = {"cls": dask.Nanny, "options": {"nthreads": 1, "silence_logs": logging.ERROR}}
    scheduler = {"cls": dask.Scheduler, "options": {"dashboard": False, "dashboard_address": ":0", "port": 0}}
    with (
        _environment(ONE_THREAD | KEPT_MEMORY),
        dask.SpecCluster(dict.fromkeys(range(count), worker), scheduler, silence_logs=logging.ERROR) as cluster,
    ):
        cluster.wait_for_workers(count)
        nannies = list(cluster.workers.values())
        with dask.Client(cluster, set_as_default=False) as client:
            for core, nanny in enumerate(nannies):
                client.run(kept_to_core, core, workers=[nanny.worker_address])
        yield cluster.scheduler_address.replace("tcp://", "dask://"), [nanny.pid for nanny in nannies]


def kept_to_core(core: int) -> None:
    """Keep this process, with the threads that it has and will have, on one core, where the system can do that."""
    if not hasattr(os, "sched_setaffinity"):
        return
    allowed = sorted(os.sched_getaffinity(0))
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), {allowed[core % len(allowed)]})


def core_seconds(processes: Sequence[int]) -> float:
    """The seconds of a core that processes have had, which other work on the machine hardly changes; Linux only."""
    fields = [Path(f"/proc/{one}/stat").read_text("utf-8").rpartition(")")[2].split() for one in processes]
    return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _environment(settings: dict[str, str]) -> Iterator[None]:
    """Settings that processes find when they are started."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
