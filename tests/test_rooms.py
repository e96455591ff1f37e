"""The walls of the house: who may import whom, and what `import secondguess` costs."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

import secondguess

HOUSE = Path(secondguess.__file__).parent

# From bottom to top. A room may import itself and the rooms of earlier rows: not a neighbour in its own row, nor a room
# of a later one. Rooms that are still to be built have their place already.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "files", "devices", "_text", "progress", "results", "environment"),
    ("contracts",),
    ("engine",),
    ("database", "metrics", "images", "report", "zoo"),
    ("training",),
    ("model",),
    ("planning",),
    ("stress",),
    ("supervisors",),
    ("guard", "hubris"),
    ("accuracy", "search"),
    ("audits",),
    ("comparison",),
    ("web", "welcome", "integrations"),
    ("service", "labelling"),
    ("watch",),
    ("cli",),  # starts all of them, and nobody but the module that runs it imports it
    ("__main__",),
)
HEIGHT = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}

# The private helpers share the bottom row with `errors`, which all of them may use to say what is wrong.
HELPERS_MAY = {"errors"}

# These run on every `import secondguess` if somebody is careless; each costs between .3 and 2 seconds.
HEAVY = ("torch", "sklearn", "scipy", "matplotlib", "pandas", "numpy", "PIL", "jinja2", "typer")


def modules() -> list[Path]:
    return sorted(HOUSE.rglob("*.py"))


def dotted(path: Path) -> str:
    parts = path.relative_to(HOUSE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted module of ours) for every import in a file, inside functions and for type checkers too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.startswith("secondguess"))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute, so that rooms can be told apart"
            if node.module == "secondguess":
                yield from ((node.lineno, f"secondguess.{alias.name}") for alias in node.names)
            elif (node.module or "").startswith("secondguess."):
                yield node.lineno, str(node.module)


def room_of(module: str) -> str:
    return module.partition(".")[2].partition(".")[0]


def allowed(room: str, other: str) -> bool:
    if room == other or HEIGHT[other] < HEIGHT[room]:
        return True
    return HEIGHT[room] == 0 and other in HELPERS_MAY


@pytest.mark.parametrize(
    "path", [path for path in modules() if path.parent != HOUSE or path.stem != "__init__"], ids=dotted
)
def test_a_room_imports_only_rooms_below_it(path: Path) -> None:
    room = room_of(dotted(path))
    assert room in HEIGHT, f"{room} has no place in the table of layers: give it one"
    for line, module in imported(path):
        if module == "secondguess.__version__":
            continue
        other = room_of(module)
        assert other in HEIGHT, f"{path}:{line}: import from the room where {module} lives, not the public name"
        assert allowed(room, other), f"{path}:{line}: {room} may not import {other}"


def test_the_rule_catches_a_forbidden_import(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from secondguess.audits import audit\n"
        "def later():\n    import secondguess.cli\n    from secondguess import stress\n"
    )
    found = {module for _, module in imported(file)}
    assert found == {"secondguess.audits", "secondguess.cli", "secondguess.stress"}
    assert not allowed("metrics", "audits")
    assert not allowed("metrics", "images")
    assert not allowed("audits", "cli")
    assert room_of("secondguess") not in HEIGHT
    assert not allowed("errors", "files")
    assert allowed("files", "errors")
    assert allowed("audits", "metrics")


def test_nothing_stands_outside_the_rooms() -> None:
    files = {path.stem for path in HOUSE.glob("*.py")} - {"__init__"}
    folders = {path.name for path in HOUSE.iterdir() if (path / "__init__.py").is_file()}
    assert files | folders <= HEIGHT.keys()


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text("utf-8"))), f"{path} has no docstring"


@pytest.fixture(scope="module")
def fresh_import() -> list[dict[str, float | list[str]]]:
    """CPU seconds and the heavy modules loaded by `import secondguess`, three times in a fresh interpreter."""
    program = (
        "import json, sys, time; began = time.process_time(); import secondguess; "
        "took = time.process_time() - began; "
        f"print(json.dumps({{'seconds': took, 'heavy': [m for m in {HEAVY!r} if m in sys.modules]}}))"
    )
    runs = (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True) for _ in range(3)
    )
    return [json.loads(run.stdout) for run in runs]


def test_importing_the_package_takes_no_time(fresh_import: list[dict[str, float]]) -> None:
    assert median(run["seconds"] for run in fresh_import) < 0.3


def test_importing_the_package_imports_nothing_heavy(fresh_import: list[dict[str, list[str]]]) -> None:
    assert [run["heavy"] for run in fresh_import] == [[], [], []]


@pytest.mark.parametrize("name", secondguess.__all__)
def test_every_public_name_resolves(name: str) -> None:
    value = getattr(secondguess, name)
    assert name in dir(secondguess)
    assert isinstance(value, str) or value.__doc__
    assert isinstance(value, str) or value.__module__.startswith("secondguess.")


def test_the_lazy_names_are_the_public_names() -> None:
    assert set(secondguess._ROOMS) | {"__version__"} == set(secondguess.__all__)
    assert secondguess.__all__ == sorted(secondguess.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'secondguess' has no attribute 'nope'"):
        _ = secondguess.nope
    with pytest.raises(ImportError, match="nope"):
        importlib.import_module("secondguess.nope")


@pytest.mark.parametrize(
    "package", [path.parent for path in modules() if path.name == "__init__.py" and path.parent != HOUSE], ids=dotted
)
def test_the_names_a_room_exports_exist(package: Path) -> None:
    room = importlib.import_module(dotted(package / "__init__.py"))
    for name in getattr(room, "__all__", ()):
        assert hasattr(room, name), f"{room.__name__}.__all__ names {name}"
