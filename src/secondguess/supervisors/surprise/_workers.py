"""Threads that each compute on their own, instead of one computation shared by all threads.

A small operation that is shared by all cores ends with a wait for the slowest of them. On a busy machine that wait is
longer than the work. Here every thread takes a part of the rows and runs single-threaded operations on it; no thread
waits before the end.

The threads are started once and kept. The caller's own number of threads, and that of every other thread, stays what
it is: see `_started`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Protocol, TypeVar

from secondguess.supervisors.surprise._rounding import at_least

__all__ = ["Crew", "Run", "parts", "workers"]

A = TypeVar("A")
B = TypeVar("B")
STARTING = threading.Lock()


class Run(Protocol):
    """Like `map`, perhaps in several threads, with the results in order."""

    def __call__(self, task: Callable[[A], B], items: Iterable[A], /) -> Iterator[B]:
        """Do the task for every item."""


@dataclass(frozen=True)
class Crew:
    """Threads at work.

    Attributes:
        run: hands out tasks.
        count: how many threads there are.
    """

    run: Run
    count: int

    def share(self, task: Callable[[slice], None], length: int, largest: int | None = None) -> None:
        """Do a task for all of `length` rows, cut into parts of at most `largest`."""
        list(self.run(task, parts(length, largest or max(1, length), self.count)))


@contextmanager
def workers(count: int | None = None) -> Iterator[Crew]:
    """As many threads as torch would use here, in each of which torch is single-threaded; full float32 precision.

    Args:
        count: the most threads; with 1 it is this thread and the plain `map`.
    """
    import torch

    with STARTING:
        most = torch.get_num_threads()
        count = min(count or most, most)
        crew = Crew(map if count == 1 else _started(count).map, count)
    with at_least("highest"):
        yield crew


@cache
def _started(count: int) -> ThreadPoolExecutor:
    """A pool of `count` threads in which torch is single-threaded.

    `torch.set_num_threads` changes the thread it is called in, and what threads get that use torch for the first time
    later. The second is put back at once, by a thread that does nothing else.
    """
    import torch

    pool, everybody = ThreadPoolExecutor(count, "secondguess"), threading.Barrier(count)

    def begin(_: int) -> int:
        found = torch.get_num_threads()
        torch.set_num_threads(1)
        everybody.wait(60)
        return found

    usual = max(pool.map(begin, range(count)))  # the first has found it; others may have found what the first has set
    mender = threading.Thread(target=torch.set_num_threads, args=(usual,))
    mender.start()
    mender.join()
    return pool


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_started.cache_clear)  # threads do not survive it


def parts(length: int, largest: int, count: int) -> list[slice]:
    """Cut `length` rows into equal parts of at most `largest`, as many as keep `count` threads evenly busy."""
    rounds = max(1, -(-length // (largest * count)))
    size = max(1, -(-length // (rounds * count)))
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]
