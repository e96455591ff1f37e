"""Records are written by a thread of their own, so that a disk that does not answer holds up nobody.

A write to a file cannot be called off: on a network folder that stalls, a commit may wait for minutes. Callers are told
after `LATEST` seconds that nothing was recorded, and at once as long as that write goes on. It may still succeed:
records of answers that nobody saw are allowed, answers without a record are not.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from secondguess.database import DatabaseFailed

__all__ = ["Writer"]

LATEST = 4.8  # seconds; more than `database` gives to a PostgreSQL server, less than the five that are promised


class Writer:
    """One write at a time, given up when it takes too long.

    Args:
        latest: seconds that one may take.
    """

    def __init__(self, latest: float = LATEST) -> None:
        self._latest = latest
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="secondguess-write")
        self._late: Future[None] | None = None

    @property
    def hangs(self) -> bool:
        """Whether a write that was given up still goes on."""
        return self._late is not None and not self._late.done()

    def do(self, write: Callable[[], None]) -> None:
        """Write, and wait for it.

        Raises:
            DatabaseFailed: it failed, takes too long, or an earlier one still goes on.
        """
        if self.hangs:
            raise DatabaseFailed("An earlier write has not come to its end.")
        self._late = None
        writing = self._thread.submit(write)
        try:
            writing.result(self._latest)
        except TimeoutError:
            if writing.done():  # it was the write itself that raised this
                raise
            self._late = writing
            raise DatabaseFailed(f"A write has not come to its end within {self._latest:g} seconds.") from None

    def close(self) -> None:
        """Let the thread go, unless it hangs."""
        self._thread.shutdown(wait=not self.hangs, cancel_futures=True)
