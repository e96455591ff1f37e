"""How much memory a piece of work takes, measured while it runs."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
from collections.abc import Iterator
from pathlib import Path

__all__ = ["peak_memory"]


@contextlib.contextmanager
def peak_memory(*, mapped: bool = True) -> Iterator[list[float]]:
    """The MiB by which the memory of this process grows inside the block, at most, in a list of one.

    Args:
        mapped: whether pages of mapped files count, which the system can drop at any time.
    """
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what was freed must not hide what is taken
    grown, before, done = [0.0], _resident(mapped), threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            grown[0] = max(grown[0], _resident(mapped) - before)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield grown
    finally:
        done.set()
        watcher.join()
        grown[0] = max(grown[0], _resident(mapped) - before)


def _resident(mapped: bool) -> float:
    """The resident memory of this process in MiB; where the system does not say, the most there ever was."""
    try:
        resident, shared = map(int, Path("/proc/self/statm").read_text("ascii").split()[1:3])
        return (resident if mapped else resident - shared) * 4096 / (1 << 20)
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
