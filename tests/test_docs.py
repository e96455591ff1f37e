from __future__ import annotations

import importlib.abc
import importlib.util
import inspect
import multiprocessing
import os
import re
import sys
from importlib.machinery import ModuleSpec, PathFinder
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import torchvision_here

ROOT = Path(__file__).parent.parent


def _script(name: str) -> ModuleType:
    """A script of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = _script("build")
# A block of Python, with the packages that it needs and that are no development packages.
BLOCK = re.compile(r"(?:<!-- needs: ([\w, ]+) -->\n)?```python\n(.*?)```", re.DOTALL)


def _unless_here(packages: str) -> list[Any]:
    """The marks of an example: it is skipped where one of its packages is not installed."""
    missing = [one for one in re.findall(r"\w+", packages) if importlib.util.find_spec(one) is None]
    return [pytest.mark.skipif(bool(missing), reason=f"not installed: pip install {' '.join(missing)}")]


EXAMPLES = [
    pytest.param(code, id=f"{page.name}-{index}", marks=_unless_here(packages))
    for page in build.pages()
    if page.parent.name != "tutorials"  # which tests/test_tutorials.py types from top to bottom
    for index, (packages, code) in enumerate(BLOCK.findall(page.read_text("utf-8")))
]


# What takes longest in examples that are not about it: an audit of all test images with a minute of autoencoders.
SHORTER = {
    "secondguess.stress.ambiguous.ambiguess": ("AmbiGuess.__init__", {"epochs": 1}),
    "secondguess.supervisors.autoencoder": ("Autoencoder.__init__", {"epochs": 1}),
    "secondguess.audits.run": ("audit", {"max_test": 100}),
}
# Other people's packages, which take longer to be imported than most examples to run. Ours are not among them: what an
# example forgets to import must not be there.
LOADED = ["torch", "scipy.stats", "sklearn.linear_model", "sklearn.neural_network", "matplotlib.figure", "PIL.Image"]


class Shorten(importlib.abc.MetaPathFinder):
    """Changes defaults of a module when the example imports it, not before."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name not in SHORTER:
            return None
        spec = PathFinder.find_spec(name, path, target)
        load, (function, defaults) = spec.loader.exec_module, SHORTER[name]

        def loaded(module: ModuleType) -> None:
            load(module)
            changed = attrgetter(function)(module)
            parameters = inspect.signature(changed).parameters.values()
            for kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
                known = {
                    one.name: one.default for one in parameters if one.kind is kind and one.default is not one.empty
                }
                new = {name: defaults.get(name, value) for name, value in known.items()}
                if kind is inspect.Parameter.KEYWORD_ONLY:
                    changed.__kwdefaults__ = new
                else:
                    changed.__defaults__ = tuple(new.values())

        spec.loader.exec_module = loaded
        return spec


def run_example(code: str, folder: Path) -> None:
    """Run in a fresh process, with what it prints in two files."""
    os.chdir(folder)
    for number, name in ((1, "out.txt"), (2, "err.txt")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
    sys.meta_path.insert(0, Shorten())
    # Trackers keep what they get in this folder; a file store is enough, newer versions of MLflow ask for a database.
    os.environ |= {"MLFLOW_TRACKING_URI": (folder / "runs").as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true"}
    torchvision_here.prepare()
    sys.settrace(None)  # other tests count as coverage
    exec(compile(code, "example", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("code", EXAMPLES)
def test_python_examples_run(code, tmp_path):
    # In an interpreter of its own: what another test has imported must not help.
    fresh = multiprocessing.get_context("forkserver")
    fresh.set_forkserver_preload(LOADED)
    process = fresh.Process(target=run_example, args=(code, tmp_path))
    process.start()
    process.join()
    assert process.exitcode == 0, (tmp_path / "err.txt").read_text()
    assert (tmp_path / "out.txt").read_text(), "an example prints what it found"


def test_pages_are_linked_listed_described_and_run():
    assert build.troubles() == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```pycon\n>>> 1\n```\n", "a block of 'pycon'"),
        ("```\nls\n```\n", "a block of ''"),
        ("* here:\n\n  ```python\n  print(1)\n  ```\n", "is indented"),
        ("````python\nprint(1)\n````\n", "is indented"),
    ],
)
def test_code_that_no_test_would_run_is_found(text, complaint):
    assert complaint in build.unexecuted(text)[0]


@pytest.mark.parametrize(
    "code",
    [
        *("import secondguess", "from secondguess import load", ">>> 1 + 1", "guard.judge(images)"),
        *("a = 1\n\nprint(a)", "for one in many:\n    one.go()", "from here import there\n..."),
    ],
)
def test_python_that_is_only_indented_is_found_unless_it_says_why(code):
    block = "Text:\n\n" + "\n".join(f"    {line}".rstrip() for line in code.splitlines()) + "\n\nMore.\n"
    assert build.indented_python(block)[0].startswith("Python that no test runs begins with")
    assert build.indented_python(block.replace("Text:\n", "<!-- not run: it needs a robot -->\n")) == []
    assert build.indented_python(f"```text\n{block}```\n") == [], "what is fenced is looked at elsewhere"


@pytest.mark.parametrize(
    "code",
    [
        *("secondguess audit --data digits", "pip install secondguess", "make test", "docker compose up -d", "ls"),
        *("GUARD_UID=1000", "DSA(x) = a / b", "d = a - b", "bytes -> images.as_batch -> Record"),
    ],
)
def test_commands_and_formulas_may_be_indented(code):
    assert build.indented_python(f"Text:\n\n    {code}\n") == []


def test_pictures_of_the_finished_site_have_descriptions(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "SITE", tmp_path)
    (tmp_path / "gallery").mkdir()
    (tmp_path / "gallery/index.html").write_text('<img\nsrc="a.png" alt=""><img src="b.png" alt="b"><img src="c.png">')
    (tmp_path / "index.html").write_text('<img alt="An entropy > 1" src="d.png"><img role="presentation" alt="">')
    assert build.undescribed() == [f"gallery/index.html: {name}.png has no description" for name in "ac"]


def test_code_that_a_test_runs_and_directives_are_in_order():
    text = "```{toctree}\nhere\n```\n\n```python\nprint(1)\n```\n\n:::{note}\n```sh\nls\n```\n:::\n"
    assert build.unexecuted(text) == []


def test_a_picture_without_words_a_lost_page_and_a_dead_entry_are_found(tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text(
        '![](a.png)\n<img src="b.png">\n[x](here.md#page) [y](here.md#nope) [z](#gone)\n'
        "[r]: dead.md\n\n```{toctree}\n:hidden:\n\nhere\nText <there>\n```\n"
        "```sh\nls\n```\n"
    )
    for name in ("here", "lost"):
        (tmp_path / f"docs/{name}.md").write_text("# Page\n")
    monkeypatch.setattr(build, "ROOT", tmp_path)
    said = "\n".join(build.troubles())
    assert all(
        part in said
        for part in (
            *("a.png is not there", "a.png has no description", "names there", "lost.md is in no"),
            *('<img src="b.png"> has no description', "here.md#nope is no heading", "#gone is no heading"),
            *("dead.md is not there", "a block of 'sh', which is typed in tutorials only"),
        )
    )
    assert "here.md is" not in said and "here.md#page" not in said


@pytest.mark.parametrize("name", ["make_supervisors", "make_measured", "make_reproduction"])
def test_a_page_that_is_written_by_a_script_is_up_to_date(name):
    maker = _script(name)
    assert maker.PAGE.read_text("utf-8") == maker.page(), f"run python docs/{name}.py"


def test_the_reference_has_the_commands_with_their_options_and_the_public_names():
    import secondguess as sg

    reference = _script("make_reference")
    commands, names = reference.commands(), reference.names()["python/secondguess.md"]
    assert "`--min-confidence`" in commands["commands/label.md"]
    assert "## guard serve" in commands["commands/guard.md"]
    assert [name for name in sg.__all__ if name[0] != "_" and f":: secondguess.{name}\n" not in names] == []


def test_the_page_of_errors_has_the_sentences_of_the_source():
    source = 'raise UserError(f"There is no {name!r} in " + (one if one else two) + f"; the last is {many[-1]}.")\n'
    assert list(_script("make_reference").sentences(source)) == ["There is no ‹name› in ‹one›; the last is ‹…›."]


def test_docstrings_in_markdown_become_restructured_text():
    lines = [
        "Formula",
        "",
        "    a * b",
        "",
        "Then `x`",
        "and *args, |x| of `two",
        "words`.",
        "",
        "* item a_",
        "* other",
    ]
    expected = ["Formula", "", "::", "", "    a * b", "", "Then ``x``", "and \\*args, \\|x\\| of ``two", "words``.", ""]
    assert _script("docstrings").as_restructured_text(lines) == [*expected, "* item a\\_", "* other"]


def test_signatures_show_types_as_they_are_written():
    from secondguess import load

    assert "type: str" not in _script("docstrings").signature(load)[0]
    assert _script("docstrings").signature(load)[1] == "Dataset"


def test_the_readme_begins_with_the_two_commands():
    commands = re.findall(r"^    (.+)$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert [command.split("#")[0].strip() for command in commands[:2]] == ["make audit", "make test"]


def test_make_has_the_documented_targets():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in ("audit", "test", "coverage", "test-slow", "lint", "bench", "docs", "clean"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
        assert f"`make {target}`" in (ROOT / "CONTRIBUTING.md").read_text("utf-8")


COMMAND = re.compile(r"^ {4,}secondguess (.+)$|`secondguess ([^`]+)`", re.MULTILINE)


def _commands() -> list[tuple[str, str]]:
    """Every command that a page shows: in blocks of code, and between backticks."""
    shown = []
    for page in build.pages():
        text = re.sub(r"\\\n\s*", "", page.read_text("utf-8"))
        typed = "".join(re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
        shown += [(page.name, one or other) for one, other in COMMAND.findall(text)]
        shown += [(page.name, one) for one in re.findall(r"^(?:! )?secondguess (.+)$", typed, re.MULTILINE)]
    return [one for one in shown if one[0] != "CHANGELOG.md"]  # which names old ones, too


def test_commands_in_the_pages_have_the_options_that_they_are_shown_with():
    import typer

    from secondguess.cli.app import app

    wrong = []
    for page, words in _commands():
        command = typer.main.get_command(app)
        known, given = {"--help", "--version", "--install-completion", "--show-completion"}, re.split(r"[\s,=]+", words)
        while given and given[0] in getattr(command, "commands", {}):
            command = command.commands[given.pop(0)]
        known |= {option for one in command.params for option in [*one.opts, *one.secondary_opts]}
        if hasattr(command, "commands") and given and re.fullmatch("[a-z]+", given[0]):
            wrong.append(f"{page}: secondguess {words}: no command {given[0]}")
        wrong += [
            f"{page}: secondguess {words}: no option {one}" for one in given if one[:2] == "--" and one not in known
        ]
    assert wrong == []
    assert len(_commands()) > 100


def test_every_command_is_documented():
    from secondguess.cli.app import app

    page = (ROOT / "docs/commands.md").read_text("utf-8")
    names = [command.name for command in app.registered_commands] + [group.name for group in app.registered_groups]
    assert [name for name in names if f"## secondguess {name}" not in page] == []
