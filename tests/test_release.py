"""What a release consists of agrees: versions, changelog, workflows."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import secondguess

ROOT = Path(__file__).parent.parent
yaml = pytest.importorskip("yaml")


def test_the_version_is_the_same_everywhere():
    lab = tomllib.loads((ROOT / "lab/pyproject.toml").read_text("utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert {lab["version"], str(citation["version"]), newest[1]} == {secondguess.__version__}
    assert f"secondguess>={secondguess.__version__}" in lab["dependencies"]


def test_the_changelog_has_the_newest_release_first():
    found = re.findall(r"^## (\d+)\.(\d+)\.(\d+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert found == sorted(found, key=lambda one: tuple(map(int, one)), reverse=True)


def test_continuous_integration_runs_the_versions_that_are_announced():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    announced = [one.rpartition(" ")[2] for one in project["classifiers"] if "Python :: 3." in one]
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text("utf-8"))
    for job in ("test", "wheels"):
        assert workflow["jobs"][job]["strategy"]["matrix"]["python"] == announced


def test_continuous_integration_has_what_a_machine_of_ours_may_lack():
    jobs = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text("utf-8"))["jobs"]
    compose = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text("utf-8"))
    database, said = jobs["postgres"]["services"]["postgres"], jobs["postgres"]["env"]["SECONDGUESS_POSTGRES"]
    assert database["image"] == compose["services"]["records"]["image"]
    assert "{POSTGRES_USER}:{POSTGRES_PASSWORD}@127.0.0.1:5432/{POSTGRES_DB}".format(**database["env"]) in said
    for job, words in {
        "ecosystem": ["timm", "torchvision", "lightning", "mlflow", "pytorch_ood", "polars"],
        "deploy": ["docker build -f deploy/Dockerfile", "docker compose -f deploy/compose.yaml config"],
    }.items():
        assert all(word in "\n".join(step.get("run", "") for step in jobs[job]["steps"]) for word in words)
    named = re.findall(r"(?:lab/)?tests/[\w/.]+", (ROOT / ".github/workflows/test.yml").read_text("utf-8"))
    assert named and [path for path in named if not (ROOT / path).exists()] == []


def test_the_action_is_tried_on_itself_with_inputs_that_it_has():
    jobs = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text("utf-8"))["jobs"]
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    uses = [step["with"] for step in jobs["action"]["steps"] if step.get("uses") == "./"]
    assert len(uses) == 2 and all(set(given) <= set(action["inputs"]) for given in uses)
    assert len({given["artifact"] for given in uses}) == 2, "two artefacts of one name fail"
    asked = re.findall(r"outputs\.(\w+)", str(jobs["action"]["steps"][-1]["env"]))
    assert set(asked) <= set(action["outputs"])


@pytest.mark.parametrize("path", sorted(ROOT.glob(".github/**/*.yml")), ids=lambda path: path.name)
def test_workflows_and_templates_can_be_read(path):
    assert isinstance(yaml.safe_load(path.read_text("utf-8")), dict)


def test_what_workflows_call_is_there():
    made = "".join(path.read_text("utf-8") for path in ROOT.glob(".github/workflows/*.yml"))
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert {word for words in re.findall(r"run: make ([\w -]+)", made) for word in words.split()} <= targets
    assert all((ROOT / script).stat().st_mode & 0o100 for script in re.findall(r"run: (\.ci/[\w-]+)", made))


def test_a_release_gets_full_addresses_and_refuses_a_tag_of_another_version(tmp_path):
    for name in ("README.md", "pyproject.toml", "lab/pyproject.toml", "src/secondguess/__init__.py", ".ci/for-pypi"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    command = ["bash", str(tmp_path / ".ci/for-pypi"), "us/guess"]
    assert subprocess.run([*command, "v0.0.1"], capture_output=True).returncode == 1
    tag = f"v{secondguess.__version__}"
    subprocess.run([*command, tag], check=True)
    readme = (tmp_path / "README.md").read_text("utf-8")
    assert f"(https://raw.githubusercontent.com/us/guess/{tag}/docs/images/report.png)" in readme
    assert f"(https://github.com/us/guess/blob/{tag}/docs/guard.md)" in readme
    assert re.findall(r"\]\((?!https:)[^)]*\)", readme) == []
    for package in (tmp_path, tmp_path / "lab"):
        urls = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
        assert urls["Homepage"] == "https://github.com/us/guess"
        assert urls["Changelog"] == f"https://github.com/us/guess/blob/{tag}/CHANGELOG.md"


def test_the_sources_do_not_know_where_they_are_hosted():
    written = subprocess.run(["git", "grep", "-lI", "github.com/OWNER"], cwd=ROOT, capture_output=True, text=True)
    assert set(written.stdout.split()) <= {"tests/test_release.py"}
