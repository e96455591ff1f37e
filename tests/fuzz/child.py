"""A parser run in a child process, with little memory and time: it may end in any way, and the parent hears how."""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

MEMORY = 2 << 30  # bytes more than the process has already
SECONDS = 20  # of computing
LATEST = 120.0  # seconds on the clock


def outcome(read: Callable[[Path], None], path: Path) -> str:
    """Run `read(path)`: "" for a good value, "UserError: ..." for a refusal, else what went wrong."""
    from secondguess.errors import UserError

    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a process with threads is forked; the child starts none of them
        child = os.fork()
    if child == 0:
        told = "nothing was said"
        try:
            os.close(reading)
            _limit()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libraries speak to standard error
            warnings.simplefilter("ignore")
            read(path)
            told = ""
        except UserError as error:
            told = f"UserError: {error}"
        except BaseException:
            told = traceback.format_exc()
        finally:
            os.write(writing, told.encode("utf-8", "backslashreplace")[-60_000:] + b"\0")
            os._exit(0)
    os.close(writing)
    try:
        return _heard(child, reading)
    finally:
        os.close(reading)


def _limit() -> None:
    size = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(1000)


def _heard(child: int, reading: int) -> str:
    heard = b""
    while not heard.endswith(b"\0"):
        ready, _, _ = select.select([reading], [], [], LATEST)
        part = os.read(reading, 1 << 16) if ready else b""
        if not part:
            break
        heard += part
    else:
        os.waitpid(child, 0)
        return heard[:-1].decode("utf-8", "replace")
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    ended = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else str(status)
    return f"the process ended without a word ({ended}): a crash, or more than {SECONDS} seconds"
