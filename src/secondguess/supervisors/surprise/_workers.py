"""Threads that each compute on their own, instead of one computation shared by all threads.

A small operation that is shared by all cores ends with a wait for the slowest of them. On a machine that does something
else besides, that wait is longer than the work: the same scores took ten times as long. Here every thread takes a part
of the rows and runs single-threaded operations on it; nobody waits before the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

__all__ = ["Run", "parts", "workers"]

A = TypeVar("A")
B = TypeVar("B")


class Run(Protocol):
    """Like `map`, perhaps in several threads, with the results in order."""

    def __call__(self, task: Callable[[A], B], items: Iterable[A], /) -> Iterator[B]:
        """Do the task for every item."""


@contextmanager
def workers(count: int | None = None) -> Iterator[Run]:
    """A `map` that runs in as many threads as torch would use; inside, torch itself is single-threaded.

    Args:
        count: the most threads; with 1 it is the plain `map`, in this thread.
    """
    import torch

    before = torch.get_num_threads()
    count = min(count or before, before)
    torch.set_num_threads(1)  # threads that start from now on inherit it
    try:
        if count == 1:
            yield map
        else:
            with ThreadPoolExecutor(count) as pool:
                yield pool.map
    finally:
        torch.set_num_threads(before)


def parts(length: int, largest: int, count: int) -> list[slice]:
    """Cut `length` rows into equal parts of at most `largest`, as many as keep `count` threads evenly busy."""
    rounds = max(1, -(-length // (largest * count)))
    size = max(1, -(-length // (rounds * count)))
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]
