"""Progress of long work, with the time left: on standard error, or below the cell of a notebook.

Code that works long takes a `Progress` and asks it for a task, `with progress.task("Observing", total) as advance`,
then calls `advance(done, total)` as often as needed. Callers of such code may give the task another label with
`Titled(progress, label)`. `Callback(function)` calls a function instead. The verbs begin with `shown(progress)`: bars
in a notebook unless the caller says otherwise.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from html import escape
from typing import Any, ParamSpec, Protocol, TextIO, TypeVar

__all__ = [
    "Advance",
    "Bars",
    "Callback",
    "Heartbeat",
    "Lines",
    "NotebookBars",
    "Progress",
    "Silent",
    "Stoppable",
    "Stopped",
    "Titled",
    "announce",
    "at_work",
    "attended",
    "attending",
    "beating",
    "for_terminal",
    "shown",
]

Advance = Callable[[int, int], None]
Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
QUIET = 3.5  # seconds without a step, after which something is said


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

    def say(self, text: str) -> None:
        """Pass it on."""
        announce(self.progress, text)


@dataclass(frozen=True)
class Callback:
    """Calls a function with the steps done and the total steps of every task."""

    function: Advance

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Advance]:
        """Yield the function."""
        yield self.function


@contextmanager
def beating(report: Callable[[], None], every: float = 1.0) -> Iterator[None]:
    """Call a function again and again, from a thread, while the block works."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(every):
            with suppress(Exception):  # whoever wants the work to end is heard when it reports by itself
                report()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def at_work(progress: Progress, label: str, every: float = 1.0) -> Iterator[None]:
    """The block is one step, such as a call of another library, that cannot say how far it is: only that it goes on.

    Args:
        progress: where to report.
        label: of the task.
        every: seconds between two reports.
    """
    with progress.task(label, 1) as advance:
        with beating(lambda: advance(0, 1), every):
            yield
        advance(1, 1)


class Attended:
    """Another progress that also says what goes on, and for how long it will, where no step has ended for seconds.

    Between two tasks and within a long step nobody else does. `attend` names who knows what goes on: a plan.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress, self._label, self._since = progress, "Beginning", time.monotonic()
        self._said = self._since
        self._state: Callable[[], str | None] = lambda: None

    def attend(self, state: Callable[[], str | None]) -> None:
        """Ask this function for the sentence; None where it knows nothing."""
        self._state = state

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Advance]:
        """Begin the task, and attend to it."""
        self._step(label)
        last: tuple[int, int] | None = None
        with self._progress.task(label, total) as advance:

            def attended(done: int, total: int) -> None:
                nonlocal last
                if (done, total) != last:  # a sign of life is no step
                    last = done, total
                    self._step(label)
                advance(done, total)

            yield attended
        self._step(f"After {label[:1].lower()}{label[1:]}")

    def say(self, text: str) -> None:
        """Pass it on."""
        self._said = time.monotonic()
        announce(self._progress, text)

    def beat(self) -> None:
        """Say something, if nobody has for seconds."""
        now = time.monotonic()
        if now - max(self._since, self._said) >= QUIET:
            self.say(self._state() or f"{self._label}: {now - self._since:.0f} s so far")

    def _step(self, label: str) -> None:
        self._label, self._since = label, time.monotonic()


@contextmanager
def attended(progress: Progress) -> Iterator[Progress]:
    """The progress, attended to while the block works; as it is where it is attended to already, or is silent."""
    if isinstance(progress, (Silent, Attended)):
        yield progress
        return
    made = Attended(progress)
    with beating(made.beat):
        yield made


def attending(work: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """A function with the keyword `progress` whose progress is shown by default, and attended to."""

    @functools.wraps(work)
    def attentive(*args: Parameters.args, **options: Parameters.kwargs) -> Returned:
        words: dict[str, Any] = dict(options)
        with attended(shown(words.get("progress"))) as words["progress"]:
            return work(*args, **words)

    return attentive


class Stopped(Exception):
    """The work was asked to end."""


class Stoppable:
    """Another progress, whose tasks end with `Stopped` at their next report once `stop` was called."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Ask the work to end; from any thread."""
        self._stopped.set()

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Advance]:
        """Begin the task, with a look at whether to go on at every report."""
        with self._progress.task(label, total) as advance:

            def checked(done: int, total: int) -> None:
                if self._stopped.is_set():
                    raise Stopped
                advance(done, total)

            yield checked

    def say(self, text: str) -> None:
        """Pass it on."""
        announce(self._progress, text)


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

    def say(self, text: str) -> None:
        """Print lines above the bars."""
        self._rich.console.print(text, markup=False, highlight=False, soft_wrap=True)


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
            if now - last >= self.every and done < total:
                last = now
                left = f", about {(now - began) * (total - done) / done:.0f} s left" if done else ""
                self.say(f"{label}: {done} of {total}{left}")

        self.say(f"{label} ...")
        yield advance
        self.say(f"{label}: done in {time.monotonic() - began:.1f} s")

    def say(self, text: str) -> None:
        """Print lines; nobody may be listening any more (`... | head`), which is no reason to end the work."""
        with suppress(BrokenPipeError):
            print(text, file=self.stream, flush=True)


class NotebookBars(Lines):
    """Bars below the cell of a notebook. They are plain HTML, so they need no widgets and stay in the saved notebook.

    Args:
        every: seconds between two pictures of a bar, at least.
    """

    def __init__(self, every: float = 0.1) -> None:
        super().__init__(sys.stdout, every)

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Advance]:
        """Show one bar; it stays, with the time that was taken, when the work is done."""
        from IPython.display import HTML, display

        began = last = time.monotonic()
        done_of = (0, total)
        bar: Any = display(HTML(_bar(label, 0, total, "")), display_id=True)

        def advance(done: int, total: int) -> None:
            nonlocal last, done_of
            done_of, now = (done, total), time.monotonic()
            if now - last >= self.every and 0 < done < total:
                last = now
                bar.update(HTML(_bar(label, done, total, f"{(now - began) * (total - done) / done:.0f} s left")))

        try:
            yield advance
        finally:
            bar.update(HTML(_bar(label, *done_of, f"{time.monotonic() - began:.1f} s")))


def _bar(label: str, done: int, total: int, when: str) -> str:
    bar = f'<progress value="{done}" max="{total}" aria-label="{escape(label)}"></progress>'
    return f"<div>{bar} {escape(label)} {done:,} of {total:,} <small>{when}</small></div>"


class Heartbeat:
    """Calls a function, but not more often than every few seconds: a sign of life within a long step."""

    def __init__(self, function: Callable[[], None], every: float = 2.0) -> None:
        self._function, self._every, self._last = function, every, time.monotonic()

    def __call__(self) -> None:
        """Call it, if it is time."""
        if (now := time.monotonic()) - self._last >= self._every:
            self._last = now
            self._function()


def announce(progress: Progress, text: str) -> None:
    """Print something where progress is shown; nothing where none is, or where a progress of others cannot."""
    say = getattr(progress, "say", None)
    if say is not None:
        say(text)


def for_terminal(*, quiet: bool = False) -> Progress:
    """The progress that suits standard error: bars on a terminal, lines in a log, nothing when asked to be quiet."""
    if quiet:
        return Silent()
    return Bars() if sys.stderr.isatty() else Lines()


def shown(progress: Progress | None) -> Progress:
    """The progress that was given; without one, bars in a notebook, where somebody waits for the cell, else silence."""
    if progress is not None:
        return progress
    return NotebookBars() if _in_notebook() else Silent()


def _in_notebook() -> bool:
    """Whether the code runs in a cell of Jupyter, Colab or VS Code: their shells have a kernel."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
