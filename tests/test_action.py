"""The GitHub Action: every script runs here, with other programs in the place of `secondguess`, `gh` and `pip`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer
import yaml

from secondguess.cli.app import app
from secondguess.comparison.markdown import MARK

ROOT = Path(__file__).parent.parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"] if "run" in step}
# What stands in for a program: it writes down its words, and exits with a code that the test chooses.
STAND_IN = """#!{python}
import json, os, pathlib, sys
name = pathlib.Path(sys.argv[0]).name
with open(os.environ["CALLS"], "a") as calls:
    calls.write(json.dumps([name, *sys.argv[1:]]) + "\\n")
if name == "secondguess" and sys.argv[1] == "compare":
    pathlib.Path(sys.argv[sys.argv.index("--out") + 1], "compare.md").write_text("{mark} fine")
print(os.environ.get("SAYS_" + name, ""))
method = sys.argv[sys.argv.index("--method") + 1] if "--method" in sys.argv else ""
sys.exit(int(os.environ.get("CODE_" + name, os.environ.get("CODE_" + name + "_" + method, "0"))))
"""


@pytest.fixture
def step(tmp_path):
    """Run a step by name with inputs; returns its exit code, its outputs, and the programs that it called."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("secondguess", "gh", "python"):
        (programs / name).write_text(STAND_IN.format(python=sys.executable, mark=MARK))
        (programs / name).chmod(0o755)

    said = []

    def run(name, **values):
        files = {key: tmp_path / key for key in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "CALLS")}
        for path in files.values():
            path.write_text("")
        known = {"PATH": f"{programs}:{os.environ['PATH']}", **{key: str(path) for key, path in files.items()}}
        known |= dict.fromkeys(STEPS[name].get("env", {}), "") | {"OUT": "out"} | values
        script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]]  # as GitHub does it
        ran = subprocess.run(script, env=known, cwd=tmp_path, capture_output=True, text=True)
        said[:] = [ran.stdout.strip()]
        outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
        return ran.returncode, outputs, [json.loads(line) for line in files["CALLS"].read_text().splitlines()]

    run.said = lambda: said[0]
    return run


def parsed(words):
    """What our command line understands by these words."""
    assert words[0] == "secondguess"
    command = typer.main.get_command(app).commands[words[1]]
    return command.make_context(words[1], words[2:]).params


def test_every_input_is_described_and_used_safely():
    text = json.dumps(ACTION["runs"])
    for name, about in ACTION["inputs"].items():
        assert about["description"].endswith(".")
        assert f"inputs.{name}" in text or f"inputs.{name}" in json.dumps(ACTION["outputs"])
    for one in STEPS.values():
        assert one["shell"] == "bash" and "${{" not in one["run"], "an input in a script would be run as one"
        assert {"steps", "inputs", "github"} >= {
            value.split(".")[0] for value in re.findall(r"\$\{\{ (\w+)", json.dumps(one.get("env", {})))
        }


def test_the_audit_is_called_as_our_command_line_takes_it(step, tmp_path):
    given = {"MODEL": "my model.toml", "TEST": "photos/test", "MINUTES": "5"}
    code, outputs, [call] = step("Audit", **given)
    options = parsed(call)
    assert (code, outputs) == (0, {"code": "0"})
    assert (options["model"], options["test"], options["minutes"]) == ("my model.toml", "photos/test", 5)
    assert options["data"] is options["train"] is options["plan"] is None and options["out"] == Path("out/audit")
    assert step("Audit", **given, CODE_secondguess="1")[:2] == (0, {"code": "1"}), "a gate: the comment still comes"
    assert step("Audit", **given, CODE_secondguess="2")[0] == 2
    (tmp_path / "old").mkdir()
    (tmp_path / "old/audit.json").write_text("{}")
    assert parsed(step("Audit", **given, BASELINE="old")[2][0])["plan"] == Path("old/audit.json")


def test_the_comparison_is_called_as_our_command_line_takes_it(step, tmp_path):
    given = {"BASELINE": "old", "DATA": "photos", "NO_WORSE_THAN": "0.5", "GATES": "worse<=0\nflips.negative<=5\n"}
    code, outputs, [call] = step("Compare", **given)
    options = parsed(call)
    assert (code, outputs) == (0, {"code": "0"})
    assert (options["before"], options["after"], options["data"]) == ("old", "out/audit", "photos")
    assert options["no_worse_than"] == 0.5 and options["gates"] == ["worse<=0", "flips.negative<=5"]
    assert (tmp_path / "GITHUB_STEP_SUMMARY").read_text().startswith(MARK)
    assert step("Compare", **given, CODE_secondguess="1")[:2] == (0, {"code": "1"})
    code, outputs, calls = step("Compare")
    assert (code, outputs, calls) == (0, {"code": "0"}, [])
    assert "no audit of an earlier release" in (tmp_path / "out/compare/compare.md").read_text()
    assert (tmp_path / "out/compare/compare.md").read_text().startswith(MARK)


def test_the_last_release_is_fetched_unless_a_baseline_is_given(step):
    assert step("Fetch the audit of the last release", BASELINE="mine")[1:] == ({"folder": "mine"}, [])
    code, outputs, calls = step("Fetch the audit of the last release")
    assert (code, outputs) == (0, {"folder": "out/baseline"})
    assert [call[0] for call in calls] == ["gh", "python"] and "out/secondguess-audit.zip" in calls[1]
    code, outputs, _ = step("Fetch the audit of the last release", CODE_gh="1")
    assert (code, outputs) == (0, {"folder": ""}), "the first release has nothing before it"


def test_the_comment_is_renewed_where_there_is_one(step):
    where = {"COMMENTS": "repos/me/mine/issues", "NUMBER": "7"}
    code, _, calls = step("Comment on the pull request", **where)
    assert code == 0 and calls[1][1:6] == ["api", "--silent", "--method", "POST", "repos/me/mine/issues/7/comments"]
    code, _, calls = step("Comment on the pull request", **where, SAYS_gh="123")
    assert code == 0 and calls[1][1:6] == ["api", "--silent", "--method", "PATCH", "repos/me/mine/issues/comments/123"]
    assert MARK in calls[0][-1] and calls[1][-1] == "body=@out/compare/compare.md"


@pytest.mark.parametrize(
    ("head", "why"), [("you/mine", "from a fork has a token that may only read"), ("me/mine", "pull-requests write?")]
)
def test_a_comment_that_may_not_be_written_is_a_warning_with_its_reason(step, head, why):
    where = {"COMMENTS": "repos/me/mine/issues", "NUMBER": "7", "HEAD": head, "GITHUB_REPOSITORY": "me/mine"}
    code, _, calls = step("Comment on the pull request", **where, CODE_gh="1")
    assert code == 0 and len(calls) == 1, "the gates decide, not the comment"
    assert (
        step.said().startswith("::warning title=secondguess::The comment could not be written") and why in step.said()
    )
    code, _, calls = step("Comment on the pull request", **where, CODE_gh_POST="1")
    assert code == 0 and len(calls) == 2 and why in step.said()
    step("Comment on the pull request", **where)
    assert "::warning" not in step.said()


def test_the_pages_are_kept_whatever_happened_before():
    names = [one.get("name") for one in ACTION["runs"]["steps"]]
    assert ACTION["runs"]["steps"][names.index("Keep the pages")]["if"] == "${{ !cancelled() }}"
    assert names.index("Comment on the pull request") < names.index("Keep the pages") < names.index("Outcome")


def test_a_release_keeps_what_the_next_one_is_compared_with(step):
    code, _, calls = step("Keep the audit with the release", TAG="v1")
    assert code == 0 and {"out/audit/audit.json", "out/audit/predictions.npz"} <= set(calls[0])
    assert calls[1] == ["gh", "release", "upload", "v1", "out/secondguess-audit.zip", "--clobber"]


def test_the_version_is_that_of_the_action_unless_somebody_wants_another(step):
    own = {"HERE": "/actions/secondguess/v9", "EXTRAS": "attacks,onnx"}
    assert step("Install", **own)[2][0][-1] == "/actions/secondguess/v9[attacks,onnx]"
    assert step("Install", **own | {"EXTRAS": ""})[2][0][-1] == "/actions/secondguess/v9"
    assert step("Install", **own, PACKAGE="secondguess==0.2.0")[2][0][-1] == "secondguess==0.2.0"
    assert (
        STEPS["Install"]["env"]["HERE"] == "${{ github.action_path }}" and ACTION["inputs"]["package"]["default"] == ""
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(ACTION["inputs"]["extras"]["default"].split(",")) <= set(project["optional-dependencies"])


def test_torch_is_the_small_one_unless_somebody_wants_another(step):
    pip = ["python", "-m", "pip", "install", "--quiet"]
    assert step("Install", PACKAGE="secondguess[onnx]")[2] == [[*pip, "secondguess[onnx]"]]
    calls = step("Install", PACKAGE="secondguess", TORCH_INDEX="https://cpu")[2]
    assert calls == [[*pip, "torch", "--index-url", "https://cpu"], [*pip, "secondguess"]]


def test_the_outcome_is_that_of_the_gates(step):
    assert step("Outcome", AUDIT="0", COMPARE="0")[0] == 0
    assert step("Outcome", AUDIT="1", COMPARE="0")[0] == step("Outcome", AUDIT="0", COMPARE="1")[0] == 1
