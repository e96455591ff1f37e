"""The fixture `run`, for tests of commands in both packages."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from secondguess.cli import main


class Outcome:
    """What a command did: its exit code and what it printed."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self):
        """Standard output, which must be exactly one JSON object."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path) -> Callable[..., Outcome]:
    """Run a command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: object) -> Outcome:
        capsys.readouterr()
        code = main([str(word) for word in words])
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return call
