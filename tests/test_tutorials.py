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
PRINTED = ("endpoint",)  # pages whose blocks of text show what their own commands print
TEXT = re.compile(r"^```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def script(page: str) -> str:
    """All that a reader types, as one program for bash that stops at the first failure."""
    lines = ["set -em", "shopt -s expand_aliases"]
    for language, code in BLOCK.findall((PAGES / f"{page}.md").read_text("utf-8")):
        lines.append(code if language == "sh" else f"python - <<'END'\n{code}END")
    return "\n".join(lines)


def shown(page: str) -> list[str]:
    """What the reader of a page is told to see, as patterns: numbers differ between machines, "..." is anything."""
    if page not in PRINTED:
        return []
    lines = "".join(TEXT.findall((PAGES / f"{page}.md").read_text("utf-8"))).splitlines()
    patterns = (re.escape(line).replace(r"\.\.\.", ".*") for line in lines)
    return [re.sub(r"\b\d+(?:\\\.\d+)?", r"[\\d.e-]+", pattern) for pattern in patterns]


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
        for pattern in shown(page):
            assert re.search(pattern, done.stdout), f"{page}: nothing printed is like {pattern}; {done.stdout[-4000:]}"
