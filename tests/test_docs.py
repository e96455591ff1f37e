from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = [
    pytest.param(code, id=f"{page.name}-{index}")
    for page in PAGES
    for index, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL))
]


# An audit trains autoencoders for a minute by default; examples that are about them say how long. The module is changed
# when the example imports it, not before: what it forgets to import must not be there.
QUICK = """
import importlib.util, sys

class Quick:
    def find_spec(self, name, path, target=None):
        if name == "secondguess.stress.ambiguous.ambiguess":
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            load = spec.loader.exec_module
            def loaded(module):
                load(module)
                module.AmbiGuess.__init__.__kwdefaults__["epochs"] = 1
            spec.loader.exec_module = loaded
            return spec

sys.meta_path.insert(0, Quick())
"""


@pytest.mark.parametrize("code", EXAMPLES)
def test_python_examples_run(code, tmp_path):
    # In an interpreter of its own: what another test has imported must not help.
    done = subprocess.run(
        [sys.executable, "-c", QUICK + code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout, "an example prints what it found"


def test_links_lead_somewhere():
    spec = importlib.util.spec_from_file_location("build", ROOT / "docs/build.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    assert build.broken_links() == []


@pytest.mark.parametrize("name", ["make_supervisors", "make_reproduction"])
def test_a_page_that_is_written_by_a_script_is_up_to_date(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    assert maker.PAGE.read_text("utf-8") == maker.page(), f"run python docs/{name}.py"


def test_the_readme_begins_with_the_two_commands():
    commands = re.findall(r"^    (.+)$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert [command.split("#")[0].strip() for command in commands[:2]] == ["make audit", "make test"]


def test_make_has_the_documented_targets():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in ("audit", "test", "test-slow", "lint", "bench", "docs", "clean"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
        assert f"`make {target}`" in (ROOT / "CONTRIBUTING.md").read_text("utf-8")


def test_every_command_is_documented():
    from secondguess.cli.app import app

    page = (ROOT / "docs/commands.md").read_text("utf-8")
    names = [command.name for command in app.registered_commands] + [group.name for group in app.registered_groups]
    assert [name for name in names if f"## secondguess {name}" not in page] == []
