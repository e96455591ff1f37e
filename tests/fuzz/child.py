"""Parsers run in child processes, with little memory and time: they may end in any way, and the parent hears how.

A child reads many files, since a fork of a process with all libraries costs more than most files do; one that has
ended, was too slow or has found something wrong is replaced.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MEMORY = 2 << 30  # bytes more than the process has already
SECONDS = 20  # of computing, for one file
LATEST = 120.0  # seconds on the clock, for one file
FILES = 100  # that one child reads, so that what libraries keep does not add up


class Reader:
    """Reads files with one parser, in children."""

    def __init__(self, read: Callable[[Path], None]) -> None:
        self._read = read
        self._child, self._files = 0, 0
        self._asking = self._hearing = -1

    def outcome(self, path: Path) -> str:
        """Run `read(path)`: "" for a good value, "UserError: ..." for a refusal, else what went wrong."""
        if self._child and self._files == FILES:
            self.close()
        if not self._child:
            self._start()
        self._files += 1
        with suppress(BrokenPipeError):  # then there is no answer either
            os.write(self._asking, os.fsencode(path) + b"\n")
        told = _heard(self._hearing)
        if told is None:
            ended = self.close(signal.SIGKILL)
            return f"the process ended without a word ({ended}): a crash, or more than {SECONDS} seconds"
        if told and not told.startswith("UserError: "):
            self.close()
        return told

    def close(self, how: signal.Signals = signal.SIGTERM) -> str:
        """End the child, if there is one; how it ended."""
        if not self._child:
            return ""
        os.close(self._asking)
        os.close(self._hearing)
        os.kill(self._child, how)  # one that has ended already keeps its own status
        _, status = os.waitpid(self._child, 0)
        self._child, self._files = 0, 0
        return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else str(status)

    def _start(self) -> None:
        asked, self._asking = os.pipe()
        self._hearing, telling = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a process with threads is forked; the child starts none of them
            self._child = os.fork()
        if self._child == 0:
            try:
                os.close(self._asking)
                os.close(self._hearing)
                self._serve(asked, telling)
            finally:
                os._exit(0)
        os.close(asked)
        os.close(telling)

    def _serve(self, asked: int, telling: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        size = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libraries speak to standard error
        warnings.simplefilter("ignore")
        sys.setrecursionlimit(1000)
        with os.fdopen(asked, "rb") as lines:
            for line in lines:
                used = resource.getrusage(resource.RUSAGE_SELF)
                seconds = int(used.ru_utime + used.ru_stime) + 1 + SECONDS
                resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
                told = self._tried(Path(os.fsdecode(line[:-1])))
                os.write(telling, told.encode("utf-8", "backslashreplace")[-60_000:] + b"\0")

    def _tried(self, path: Path) -> str:
        from secondguess.errors import UserError

        try:
            self._read(path)
        except UserError as error:
            return f"UserError: {error}"
        except BaseException:
            return traceback.format_exc()
        return ""


def _heard(reading: int) -> str | None:
    """What a child says, up to a zero; None if it ends before, or says nothing."""
    heard = b""
    while not heard.endswith(b"\0"):
        ready, _, _ = select.select([reading], [], [], LATEST)
        part = os.read(reading, 1 << 16) if ready else b""
        if not part:
            return None
        heard += part
    return heard[:-1].decode("utf-8", "replace")
