from __future__ import annotations

import io
import sys

import pytest

from secondguess import progress as _progress
from secondguess.progress import Bars, Callback, Lines, Silent, Titled, for_terminal


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(_progress, "time", clock)
    return clock


def test_lines_come_now_and_then_with_the_time_left(clock: Clock) -> None:
    stream = io.StringIO()
    with Lines(stream, every=10).task("observing", 100) as advance:
        for done in range(10, 110, 10):
            clock.now += 4
            advance(done, 100)
    assert stream.getvalue().splitlines() == [
        "observing ...",
        "observing: 30 of 100, about 28 s left",
        "observing: 60 of 100, about 16 s left",
        "observing: 90 of 100, about 4 s left",
        "observing: done in 40.0 s",
    ]


def test_quick_work_is_two_lines(clock: Clock) -> None:
    stream = io.StringIO()
    with Lines(stream).task("training", 0) as advance:
        clock.now += 2
        advance(0, 0)
        advance(0, 5)
        advance(5, 5)
    assert stream.getvalue() == "training ...\ntraining: done in 2.0 s\n"


def test_a_long_first_step_is_not_silent(clock: Clock) -> None:
    stream = io.StringIO()
    with Lines(stream, every=10).task("training", 5) as advance:
        clock.now += 60
        advance(0, 5)
        advance(5, 5)
    assert stream.getvalue() == "training ...\ntraining: 0 of 5\ntraining: done in 60.0 s\n"


def test_work_that_fails_is_not_called_done(clock: Clock) -> None:
    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt), Lines(stream).task("training", 5):
        raise KeyboardInterrupt
    assert stream.getvalue() == "training ...\n"


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    with Silent().task("observing", 3) as advance:
        advance(1, 3)
    assert capsys.readouterr() == ("", "")


def test_bars_are_drawn_once_each_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    bars = Bars()
    for label in ("observing", "training"):
        with bars.task(label, 3) as advance:
            advance(2, 3)
            advance(4, 4)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("observing") == err.count("training") == 1
    assert err.count("4/4") == 2


def test_what_suits_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(for_terminal(quiet=True), Silent)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    lines = for_terminal()
    assert isinstance(lines, Lines)
    assert lines.stream is sys.stderr
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert isinstance(for_terminal(), Bars)


def test_a_task_gets_the_callers_label(capsys: pytest.CaptureFixture[str]) -> None:
    with Titled(Lines(), "Scoring").task("Looking at images", 3) as advance:
        advance(3, 3)
    said = capsys.readouterr().err
    assert said.startswith("Scoring ...\n") and "Looking" not in said


def test_a_function_is_called_with_the_steps() -> None:
    steps: list[tuple[int, int]] = []
    with Callback(lambda done, total: steps.append((done, total))).task("anything", 2) as advance:
        advance(1, 2)
        advance(2, 2)
    assert steps == [(1, 2), (2, 2)]
