from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tomllib
import webbrowser
from importlib.resources import files
from pathlib import Path

import pytest

import secondguess
from command_line import run
from in_browser import MARKS, launched
from secondguess import UserError
from secondguess.welcome import demo, doctor, extras
from secondguess.welcome.greeting import greeting

__all__ = ["run"]


def in_a_browser(test):
    for mark in MARKS:
        test = mark(test)
    return test


ROOT = Path(__file__).parent.parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture(scope="module")
def browser():
    yield from launched()


@pytest.fixture
def requirements(monkeypatch):
    """Make the package require something else."""

    def change(*texts):
        extras.unmet.cache_clear()
        monkeypatch.setattr(extras, "_requirements", lambda: texts)

    yield change
    extras.unmet.cache_clear()


def test_the_greeting_is_said_at_once_without_anything_heavy():
    """Three commands that exist, and what is installed; CPU seconds, since others use the machine, too."""
    program = (
        "import sys, time; from secondguess.cli import main; code = main([]); "
        "heavy = [m for m in ('torch', 'numpy', 'typer', 'rich', 'jinja2') if m in sys.modules]; "
        "print('MEASURED', code, time.process_time(), heavy)"
    )

    def seconds() -> float:
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        said, _, measured = ran.stdout.partition("MEASURED ")
        code, taken, heavy = measured.split(maxsplit=2)
        assert said.strip() == greeting() and (code, heavy.strip()) == ("0", "[]")
        return float(taken)

    assert any(seconds() < 0.3 for _ in range(3)), "a busy machine may be slow once"


def test_the_greeting_names_three_commands_that_exist():
    import typer

    from secondguess.cli.app import app

    known = typer.main.get_command(app).commands
    named = re.findall(r"^  secondguess (\w+)", greeting(), re.MULTILINE)
    assert len(named) == 3 and set(named) <= set(known)
    assert greeting().startswith(f"secondguess {secondguess.__version__}: ") and "Installed: torch " in greeting()


def test_every_extra_for_users_has_a_purpose():
    assert set(extras.PURPOSES) == set(PYPROJECT["optional-dependencies"]) - {"dev", "docs"}


def test_what_is_missing_or_too_old_is_named(requirements):
    requirements(
        "numpy>=1.0",
        "nothing-like-this>=2; extra == 'onnx'",
        "pytest>=900; extra == 'hub'",
        "pytest>=1; extra == 'app'",
    )
    found = {one.name: one for one in extras.extras()}
    assert found["onnx"].unmet == ("nothing-like-this",) and found["app"].installed
    assert found["hub"].unmet == (f"pytest>=900 (here {pytest.__version__})",)
    assert extras.unmet() == ()
    assert "Not installed: onnx, hub." in greeting()


def test_the_doctor_says_what_to_do_about_everything_that_is_missing(requirements, monkeypatch, tmp_path):
    requirements("nothing-like-this>=2", "another-one; extra == 'onnx'")
    monkeypatch.setattr(webbrowser, "get", lambda: (_ for _ in ()).throw(webbrowser.Error("none")))
    monkeypatch.setitem(sys.modules, "torch", None)
    found = doctor.diagnose(tmp_path / "nowhere")
    assert not found.ready
    missing = {one.name: one for one in found.checks if one.state != "fine"}
    assert missing.keys() == {"Packages", "torch", "Browser", "Folder"}
    assert all(one.advice for one in missing.values())
    assert 'onnx (ONNX models): pip install "secondguess[onnx]"; missing: another-one' in found.details()
    assert found.details().endswith("Something is missing that nothing works without.")
    assert len(found.summary().splitlines()) <= 10


def test_a_healthy_machine_is_ready(tmp_path):
    found = doctor.diagnose(tmp_path)
    assert found.ready and found.details().endswith("Everything that is needed is here.")
    assert {one.name for one in found.checks} == {"Python", "Packages", "torch", "GPU", "Browser", "Folder"}
    assert json.loads((found.save(tmp_path / "out") / "doctor.json").read_text()) == json.loads(
        json.dumps(found.to_dict())
    )
    assert "<td" in found._repr_html_()


def test_doctor_and_demo_are_commands(run, tmp_path, monkeypatch):
    checked = run("doctor", "--json")
    assert checked.code == 0 and checked.json()["ready"]
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda link: opened.append(link) or True)
    shown = run("demo", "--out", "here")
    assert shown.code == 0 and opened == [(tmp_path / "here/report.html").resolve().as_uri()]
    assert "It is open in your browser" in shown.out and "A demonstration: this audit was made on" in shown.out
    assert run("demo", "--no-browser", "--out", "there").out.splitlines()[-1].startswith("Open it in a browser: ")
    assert run("demo", "--json").json()["opened"] is False and len(opened) == 1
    assert (tmp_path / "here/report.html").read_bytes() == (tmp_path / "there/report.html").read_bytes()


def test_the_packed_report_is_small_self_contained_and_says_what_it_is():
    content = files("secondguess.welcome").joinpath(demo.PACKED).read_bytes()
    page = gzip.decompress(content).decode("utf-8")
    assert len(content) <= 500_000
    assert re.search(r"made on 20\d\d-\d\d-\d\d by secondguess \d+\.\d+\.\d+ on the embedded digits \(mnist5k\)", page)
    assert re.search(r'class="verdict (yes|no)"', page), "packed in a hurry: the audit came to no verdict"
    assert page.startswith("<!doctype html>") and page.rstrip().endswith("</html>")
    assert "<script" not in page and re.findall(r'(?:src|href)="(?!data:|#)[^"]*', page) == []
    assert all(f'<section id="{name}"' in page for name in ("verdict", "accuracy", "supervisors", "deploy"))
    assert "could not be made" not in page and "/home/" not in page and "/tmp/" not in page
    ids = set(re.findall(r'\sid="([^"]+)"', page))
    assert {link for link in re.findall(r'href="#([^"]+)"', page) if not link.startswith(("m", "D"))} <= ids


def test_the_page_is_made_of_a_report_and_of_nothing_else():
    audit = {
        "created": "2026-11-16T10:00",
        "versions": {"secondguess": "<9>"},
        "data": {"test": {"name": "mnist5k/test"}},
        "verdict": {"ready": True},
    }
    report = '<body>\n<header class="top">\n<h1>Is it?</h1>'
    page = demo.marked(report, audit)
    assert "2026-11-16 by secondguess &lt;9&gt; on the embedded digits (mnist5k)" in page
    assert demo.packed(page) == demo.packed(page) and gzip.decompress(demo.packed(page)).decode() == page
    with pytest.raises(UserError, match="is no report of an audit"):
        demo.marked("<p>", audit)
    with pytest.raises(UserError, match="came to no verdict"):
        demo.marked(report, audit | {"verdict": {"ready": None}})
    with pytest.raises(UserError, match="at most 500,000 may be added"):
        demo.packed(os.urandom(600_000).hex())


@pytest.mark.parametrize(("shell", "asks"), [("bash", {"COMP_WORDS": "secondguess com", "COMP_CWORD": "1"})])
def test_the_shell_completes_commands(shell, asks):
    known = {**os.environ, "_SECONDGUESS_COMPLETE": f"complete_{shell}", **asks}
    ran = subprocess.run([sys.executable, "-m", "secondguess"], env=known, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["compare"]


@in_a_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_the_packed_report_fits_a_phone_and_a_desk(browser, tmp_path, width):
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(demo.open_demo(tmp_path, browser=False).page.as_uri())
    assert page.locator(".note.demo").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()
