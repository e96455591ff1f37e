"""The gallery: public names only, and the data that come along; `make docs` and the slow test run the examples."""

from __future__ import annotations

import ast
import importlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import secondguess as sg

SECONDS = 60  # of a processor: what an example may take, however busy the machine is
EXAMPLES = sorted((Path(__file__).parent.parent / "docs/examples").glob("*/*.py"))
each_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


def _private(tree: ast.Module) -> Iterator[str]:
    """What a program uses of secondguess that is not public."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("secondguess"):
            module = importlib.import_module(node.module)
            yield from (f"{node.module}.{one.name}" for one in node.names if one.name not in module.__all__)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "sg":
            if node.attr not in dir(sg):
                yield f"sg.{node.attr}"
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value).startswith("sg."):
            room = ast.unparse(node.value).removeprefix("sg.")
            if room in sg._OPEN_ROOMS and node.attr not in getattr(sg, room).__all__:
                yield f"sg.{room}.{node.attr}"


def test_there_are_enough_examples():
    assert len(EXAMPLES) >= 15


@each_example
def test_an_example_has_a_title_a_picture_and_only_public_names(path):
    tree = ast.parse(path.read_text("utf-8"))
    title, line, *_ = (ast.get_docstring(tree) or "").splitlines()
    assert set(line) == {"="} and len(line) == len(title)
    assert "figure.tight_layout()" in path.read_text("utf-8")
    assert list(_private(tree)) == []


def test_a_private_name_is_found():
    source = "from secondguess.guard import fitting\nsg.nothing\nsg.guard.fitting\nsg.Guard.load"
    assert list(_private(ast.parse(source))) == ["secondguess.guard.fitting", "sg.nothing", "sg.guard.fitting"]


@pytest.mark.slow
@each_example
def test_an_example_runs(path, tmp_path):
    settings = os.environ | {"MPLBACKEND": "agg", "PYTHONWARNINGS": "default"}
    words, before = [sys.executable, str(path)], _used()
    done = subprocess.run(words, cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert _used() - before < SECONDS, f"{_used() - before:.0f} seconds of processor time, {SECONDS} are promised"


def _used() -> float:
    """Seconds of processor time of all processes that were started here, or by such, and have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime
