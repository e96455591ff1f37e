"""The page on architecture shows what the record of the rooms holds, and names every room that there is."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("make_architecture", ROOT / "docs/make_architecture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_that_of_the_record(script):
    page, record = script.PAGE.read_text("utf-8"), json.loads(script.RECORD.read_text("utf-8"))
    assert script.filled(page, record) == page, "run python docs/make_architecture.py"


def test_every_room_is_on_the_page(script):
    rooms = {path.name for path in (ROOT / "src/secondguess").iterdir() if (path / "__init__.py").is_file()}
    assert rooms | {"lab"} == {name.removesuffix("/") for name in script.ROOMS} - {"*.py"}


def test_a_page_without_a_place_for_the_table_is_refused(script):
    with pytest.raises(SystemExit, match="exactly one place"):
        script.filled("# Architecture\n", {"before": {"lines": {}}, "after": {"lines": {}}})
