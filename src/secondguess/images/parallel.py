"""Reading with several threads: images of a batch at once, and the next batch while the model looks at this one.

Pillow and NumPy let other threads run while they decode and resize, so threads are enough, and nothing is copied
between processes. Both ways are bounded: at most a few images per thread are under way, and one batch ahead.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from secondguess.images.sources import Floats, ImageSource

__all__ = ["in_parallel", "one_ahead", "read_ahead"]

Argument = TypeVar("Argument")
Result = TypeVar("Result")
MOST_THREADS = 8
WAITING = 2  # images under way for each thread


def in_parallel(function: Callable[..., Result], arguments: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
    """Yield `function(*one)` for each of the arguments, in their order; the first error in that order is raised."""
    threads = min(MOST_THREADS, os.cpu_count() or 1)
    if threads == 1:
        yield from (function(*one) for one in arguments)
        return
    waiting: deque[Future[Result]] = deque()
    rest = iter(arguments)
    try:
        for one in islice(rest, WAITING * threads):
            waiting.append(_pool(os.getpid(), threads).submit(function, *one))
        while waiting:
            done = waiting.popleft().result()
            for one in islice(rest, 1):
                waiting.append(_pool(os.getpid(), threads).submit(function, *one))
            yield done
    finally:
        for future in waiting:
            future.cancel()


def read_ahead(source: ImageSource, size: int) -> Iterator[tuple[slice, Floats]]:
    """Yield the rows and the images (m, C, H, W) of one batch after the other.

    Of a source that is slow to read, the next batch is read meanwhile; so two of them are in memory.
    """
    rows = [slice(start, min(start + size, len(source))) for start in range(0, len(source), size)]
    if not getattr(source, "slow", False):
        yield from ((these, source[these]) for these in rows)
        return
    yield from zip(rows, map(np.asarray, one_ahead(source.__getitem__, rows)), strict=True)


def one_ahead(function: Callable[[Argument], Result], arguments: Iterable[Argument]) -> Iterator[Result]:
    """Yield `function(one)` for each of the arguments, in their order; the next is under way while one is used."""
    rest = iter(arguments)
    with ThreadPoolExecutor(1, "secondguess-ahead") as ahead:
        coming = [ahead.submit(function, one) for one in islice(rest, 1)]
        while coming:
            done = coming.pop().result()
            coming = [ahead.submit(function, one) for one in islice(rest, 1)]
            yield done


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """The threads of this process; a forked one has none of its parent's."""
    return ThreadPoolExecutor(threads, f"secondguess-decode-{process}")
