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
def peak_memory(*, mapped: bool = True, children: bool = False) -> Iterator[list[float]]:
    """The MiB by which the memory of this process grows inside the block, at most, in a list of one.

    Args:
        mapped: whether pages of mapped files count, which the system can drop at any time.
        children: whether that of the processes counts that it has started.
    """
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what was freed must not hide what is taken
    pause, grown, done = 0.05 if children else 0.002, [0.0], threading.Event()
    before = _resident(mapped, children)

    def watch() -> None:
        while not done.wait(pause):
            grown[0] = max(grown[0], _resident(mapped, children) - before)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield grown
    finally:
        done.set()
        watcher.join()
        grown[0] = max(grown[0], _resident(mapped, children) - before)


def _resident(mapped: bool, children: bool) -> float:
    """The resident memory of this process in MiB; where the system does not say, the most there ever was."""
    try:
        found = _of_process("self", mapped)
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    for one in _descendants("self") if children else ():
        with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
            found += _of_process(one, mapped)
    return found


def _of_process(process: str, mapped: bool) -> float:
    resident, shared = map(int, Path(f"/proc/{process}/statm").read_text("ascii").split()[1:3])
    return (resident if mapped else resident - shared) * 4096 / (1 << 20)


def _descendants(process: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in (task / "children").read_text("ascii").split():
                yield child
                yield from _descendants(child)
