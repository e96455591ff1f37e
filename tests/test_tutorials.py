"""The tutorials, typed as they stand there: shell and Python, page after page, in one folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = Path(__file__).parent.parent / "docs/tutorials"
IN_ORDER = ("ten-minutes", "own-model", "endpoint", "ci")
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def script(page: str) -> str:
    """All that a reader types, as one program for bash that stops at the first failure."""
    lines = ["set -em", "shopt -s expand_aliases"]
    for language, code in BLOCK.findall((PAGES / f"{page}.md").read_text("utf-8")):
        lines.append(code if language == "sh" else f"python - <<'END'\n{code}END")
    return "\n".join(lines)


def test_every_tutorial_is_typed():
    assert {path.stem for path in PAGES.glob("*.md")} == {*IN_ORDER, "index"}
    assert all(BLOCK.search((PAGES / f"{page}.md").read_text("utf-8")) for page in IN_ORDER)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not (shutil.which("bash") and shutil.which("curl")), reason="needs bash and curl")
def test_tutorials_work_as_they_stand_there(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in (("secondguess", " -m secondguess"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
        (programs / name).chmod(0o755)
    settings = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    for page in IN_ORDER:
        done = subprocess.run(["bash", "-c", script(page)], cwd=tmp_path, env=settings, capture_output=True, text=True)
        assert done.returncode == 0, f"{page}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
