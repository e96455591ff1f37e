"""One kill of a quick command, and how folders are compared; `make kill` does the rest."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest

from secondguess.errors import UserError
from secondguess_lab.bench import kill
from secondguess_lab.bench.kill import JOBS, Job, content, lines, run


@pytest.mark.slow
def test_a_killed_command_ends_as_if_it_had_not_been(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill, "ONCE_MORE", 0.0)
    result = run(kills=1, jobs=["guard fit"], kept=tmp_path / "kept.json")
    found = result["jobs"]["guard fit"]
    assert json.loads((tmp_path / "kept.json").read_text()) == result["jobs"]
    assert result["met"] and found["kills"] == 1 and found["files"] > 4
    assert (found["different"], found["debris"]) == ([], [])
    assert "same files" in next(lines(result))


PROGRAM = """
import random, time
from pathlib import Path


def main(words):
    out = Path(words[0])
    out.mkdir(exist_ok=True)
    if words[1] == "debris":
        (out / f"{time.time()}.part").touch()
    time.sleep(0.5)
    (out / "result.txt").write_text(str(random.random()) if words[1] == "drawn" else "same")
    return 0
"""


def test_other_numbers_and_debris_are_seen(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    found = {}
    for kind in ("drawn", "debris", "sound"):
        killer = kill._Killer(Job(("{out}", kind), called="program:main"), tmp_path, tmp_path / kind)
        killer.run(1, "0", lambda: None, threading.Event())
        found[kind] = killer.found
    killer.go_on(found["drawn"])  # and is done with it
    assert killer.found["different"] == ["result.txt"] and killer.found["kills"] == 1
    assert found["drawn"]["different"] == ["result.txt"]
    assert found["debris"]["debris"]
    assert (found["sound"]["different"], found["sound"]["debris"], found["sound"]["kills"]) == ([], [], 1)


def test_folders_are_compared_without_what_always_differs(tmp_path: Path) -> None:
    for name, number, time in (("a", 1, "noon"), ("b", 1, "night"), ("c", 2, "noon")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "x.json").write_text(
            json.dumps({"value": number, "created": time, "inner": [{"seconds": time, "mdsa.fitting.seconds": time}]})
        )
        (folder / "page.html").write_text(time)
        np.savez(folder / "x.npz", a=np.arange(number))
    one, same, other = (content(tmp_path / name) for name in "abc")
    assert one == same and one.keys() == other.keys()
    assert {name for name in one if one[name] != other[name]} == {"x.json", "x.npz"}


def test_an_unknown_job_is_a_sentence() -> None:
    with pytest.raises(UserError, match="There is no job 'walk'; there is audit, guard fit"):
        run(kills=1, jobs=["walk"])
    assert list(JOBS) == ["audit", "guard fit", "generate", "study run", "label"]
