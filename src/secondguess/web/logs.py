"""A log that strangers cannot fill: the same line a few times a minute, an outage when it begins and when it ends."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

__all__ = ["Outage", "Throttle"]

LINES, SECONDS = 5, 60.0  # of one kind in that time


class Throttle(logging.Filter):
    """Lets few lines of a kind pass in any minute, and says with the next one how many were left out.

    Lines are of one kind if they have the same text before values are put into it. What can be logged is known when
    the program is written, so there are few kinds; texts made at run time share one.

    Attributes:
        dropped: lines left out so far.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.dropped = 0
        self._clock = clock
        self._turn = threading.Lock()
        self._begun: dict[str, float] = {}
        self._seen: Counter[str] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        with self._turn:
            kind = str(record.msg)[:80]
            if kind not in self._begun and len(self._begun) >= 1000:
                kind = "others"
            now = self._clock()
            if now - self._begun.get(kind, -SECONDS) >= SECONDS:
                left_out = self._seen.pop(kind, 0) - LINES
                self._begun[kind] = now
                if left_out > 0:
                    record.msg = f"{record.msg} ({left_out:,} more like it were not written)"
            self._seen[kind] += 1
            if self._seen[kind] <= LINES:
                return True
            self.dropped += 1
            return False


class Outage:
    """Something that many requests need, which may fail for a while: a line when that begins, and one when it is over.

    Args:
        logger: where it is said.
        what: fails, in words: "Records cannot be written".
        again: how to say that it is over: "Records are written again".
    """

    def __init__(self, logger: logging.Logger, what: str, again: str) -> None:
        self._logger, self._what, self._again = logger, what, again
        self._turn = threading.Lock()
        self._failures = 0

    @property
    def lasts(self) -> bool:
        """Whether it failed when it was last tried."""
        return self._failures > 0

    def failed(self, error: Exception) -> None:
        """It has failed."""
        with self._turn:
            self._failures += 1
            if self._failures == 1:
                self._logger.error("%s: %s", self._what, error)

    def worked(self) -> None:
        """It has worked."""
        if not self._failures:
            return
        with self._turn:
            failures, self._failures = self._failures, 0
            if failures:
                self._logger.warning("%s; failures in between: %d.", self._again, failures)
