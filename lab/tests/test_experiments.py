"""The scripts of the laboratory import what exists, and nothing private."""

from __future__ import annotations

import ast
import importlib
import json
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[1] / "experiments").glob("*.py"))


def imports(path: Path) -> list[tuple[str, str]]:
    """(module, name) of everything that a script takes from this repository."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("secondguess"):
            found += [(str(node.module), alias.name) for alias in node.names]
    return found


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_imports_public_names_that_exist(path: Path) -> None:
    for module, name in imports(path):
        assert not any(part.startswith("_") for part in (*module.split("."), name)), f"{module}.{name} is private"
        room = importlib.import_module(module)
        assert hasattr(room, name) or f"{module}.{name}" in sys.modules or importlib.import_module(f"{module}.{name}")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_says_how_it_is_run(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    assert f"python {path.name}" in text or path.stem.startswith("scaling_")


def test_the_times_of_the_page_are_those_of_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS[0].parent))
    photo_times = importlib.import_module("photo_times")
    page = photo_times.PAGE.read_text("utf-8")
    assert photo_times.filled(page, json.loads(photo_times.RECORD.read_text("utf-8"))) == page
