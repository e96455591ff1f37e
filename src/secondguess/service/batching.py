"""Requests that come close together are worked on together.

One thread works. While it does, jobs gather; when it is free, it takes what has gathered, up to a number of images, but
waits for others no longer than `wait` seconds after the first has come. When more images wait than may, the next
caller is asked to come back later instead of waiting for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Batcher", "Busy"]

Job = TypeVar("Job")
Done = TypeVar("Done")


class Busy(Exception):
    """Too much is waiting already, or the service is closing."""


@dataclass(frozen=True, eq=False)
class _Waiting(Generic[Job, Done]):
    job: Job
    size: int
    since: float
    done: asyncio.Future[Done]


class Batcher(Generic[Job, Done]):
    """Collects jobs and has them done in a thread.

    Args:
        work: jobs -> one result each; a result that is an exception is raised to its caller.
        size: images in a batch at most; a job of its own may be larger.
        wait: seconds that the first of a batch waits for others.
        capacity: images that may wait.
        shared: failures of a batch that those who wait would only wait for in their turn; they fail with it.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Job]], Sequence[Done | Exception]],
        *,
        size: int,
        wait: float,
        capacity: int,
        shared: tuple[type[Exception], ...] = (),
    ) -> None:
        self._work, self._size, self._wait, self._capacity, self._shared = work, size, wait, capacity, shared
        self._queue: deque[_Waiting[Job, Done]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="secondguess-judge")
        self._arrived = asyncio.Event()
        self._closing = False
        self._runner: asyncio.Task[None] | None = None
        self.images = 0

    def start(self) -> None:
        """Begin to work; must be called where the event loop runs."""
        self._runner = asyncio.create_task(self._run())

    async def submit(self, job: Job, size: int) -> Done:
        """Submit a job of `size` images and wait for its result.

        Raises:
            Busy: too much is waiting.
        """
        if self._closing or (self.images and self.images + size > self._capacity):
            raise Busy
        loop = asyncio.get_running_loop()
        waiting: _Waiting[Job, Done] = _Waiting(job, size, loop.time(), loop.create_future())
        self._queue.append(waiting)
        self.images += size
        self._arrived.set()
        return await waiting.done

    async def close(self) -> None:
        """Take nothing more, and finish what was taken."""
        self._closing = True
        self._arrived.set()
        if self._runner is not None:
            await self._runner
        self._thread.shutdown()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self._drop_cancelled():
                if self._closing:
                    return
                self._arrived.clear()
                await self._arrived.wait()
            await self._gather(self._queue[0].since + self._wait)
            batch = self._taken()
            try:
                results = await loop.run_in_executor(self._thread, self._work, [one.job for one in batch])
            except Exception as error:  # a defect must not end the service: every caller gets the error
                if isinstance(error, self._shared):
                    batch += self._queue
                    self._queue.clear()
                results = [error] * len(batch)
            for one, result in zip(batch, results, strict=True):
                self.images -= one.size
                if one.done.done():  # its caller has gone away
                    continue
                if isinstance(result, Exception):
                    one.done.set_exception(result)
                else:
                    one.done.set_result(result)

    def _drop_cancelled(self) -> bool:
        """Forget the jobs at the head of the queue that nobody waits for any more; whether there are others."""
        while self._queue and self._queue[0].done.done():
            self.images -= self._queue.popleft().size
        return bool(self._queue)

    async def _gather(self, until: float) -> None:
        """Wait for other jobs until a time of the loop's clock, or until the batch is full."""
        loop = asyncio.get_running_loop()
        while not self._closing and self.images < self._size and (left := until - loop.time()) > 0:
            self._arrived.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), left)

    def _taken(self) -> list[_Waiting[Job, Done]]:
        batch = [self._queue.popleft()]
        size = batch[0].size
        while self._queue and size + self._queue[0].size <= self._size:
            batch.append(self._queue.popleft())
            size += batch[-1].size
        return batch
