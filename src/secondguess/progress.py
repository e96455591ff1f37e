"""Progress of long work, with the time left. Always on standard error.

Code that works long takes a `Progress` and asks it for a task, `with progress.task("Observing", total) as advance`,
then calls `advance(done, total)` as often as needed. Callers of such code may give the task another label with
`Titled(progress, label)`. `Callback(function)` calls a function instead.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol, TextIO

__all__ = ["Advance", "Bars", "Callback", "Lines", "Progress", "Silent", "Titled", "for_terminal"]

Advance = Callable[[int, int], None]


class Progress(Protocol):
    """Where long work reports to."""

    def task(self, label: str, total: int) -> AbstractContextManager[Advance]:
        """Begin a piece of work of `total` steps; the block's end is its end."""


class Silent:
    """Reports nothing."""

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Advance]:
        """Ignore what is reported."""
        yield lambda done, total: None


@dataclass(frozen=True)
class Titled:
    """Another progress whose tasks get a given label."""

    progress: Progress
    label: str

    def task(self, label: str, total: int) -> AbstractContextManager[Advance]:
        """Begin the task under the other label."""
        return self.progress.task(self.label, total)


@dataclass(frozen=True)
class Callback:
    """Calls a function with the steps done and the total steps of every task."""

    function: Advance

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Advance]:
        """Yield the function."""
        yield self.function


class Bars:
    """Bars with the time left, for a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._rich = RichProgress(
            TextColumn("{task.description:<34}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=Console(stderr=True),
        )

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Advance]:
        """Show one bar; it stays, completed, when the work is done."""
        bar = self._rich.add_task(label, total=total)
        try:
            with self._rich:
                yield lambda done, total: self._rich.update(bar, completed=done, total=total)
        finally:
            self._rich.remove_task(bar)  # it has been drawn; the next task must not draw it again


class Lines:
    """A line now and then, for log files and CI."""

    def __init__(self, stream: TextIO | None = None, every: float = 10.0) -> None:
        self.stream = stream if stream is not None else sys.stderr
        self.every = every

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Advance]:
        """Write a line at the beginning, one every few seconds with the time left, and one at the end."""
        began = last = time.monotonic()

        def advance(done: int, total: int) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= self.every and 0 < done < total:
                last = now
                left = (now - began) * (total - done) / done
                self._say(f"{label}: {done} of {total}, about {left:.0f} s left")

        self._say(f"{label} ...")
        yield advance
        self._say(f"{label}: done in {time.monotonic() - began:.1f} s")

    def _say(self, text: str) -> None:
        print(text, file=self.stream, flush=True)


def for_terminal(*, quiet: bool = False) -> Progress:
    """The progress that suits standard error: bars on a terminal, lines in a log, nothing when asked to be quiet."""
    if quiet:
        return Silent()
    return Bars() if sys.stderr.isatty() else Lines()
