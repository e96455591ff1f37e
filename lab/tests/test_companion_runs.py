"""Runs of the hubris paper's size: each is made once, and one of other data or settings is nobody's."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from secondguess.images import load

TINY = {
    "epochs": [1, 1],
    "latent": 4,
    "filters": 2,
    "members": 2,
    "estimator_epochs": 2,
    "variances": [0.1],
    "selected_on": 40,
    "count": 60,
    "extractor_epochs": 1,
    "model_epochs": 1,
}


@pytest.fixture
def runs(monkeypatch, tmp_path):
    """Runs the script with small settings in a folder of its own, and gives the record."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "experiments"))
    script = importlib.import_module("companion_runs")
    settings = [word for key, value in TINY.items() for word in ("--set", f"{key}={json.dumps(value)}")]

    def run(*words, data=None):
        place, out = data or digits(tmp_path, 600), tmp_path / "record.json"
        common = ["--name", "mnist", "--folder", str(tmp_path / "kept"), "--out", str(out), "--quick", *settings]
        monkeypatch.setattr(sys, "argv", ["companion_runs.py", str(place), "--runs", "2", *common, *words])
        script.main()
        return json.loads(out.read_text("utf-8")) if out.exists() else None

    run.script, run.kept = script, tmp_path / "kept"
    return run


def digits(folder, count):
    path = folder / f"digits{count}.npz"
    if not path.exists():
        data = load("mnist5k")
        train, test = data.train.head(count), data.test.head(150)
        pixels = [np.round(part.materialise()[:, 0] * 255).astype(np.uint8) for part in (train, test)]
        np.savez(path, x_train=pixels[0], y_train=train.labels, x_test=pixels[1], y_test=test.labels)
    return path


def test_runs_are_made_once_and_asked_later(runs, monkeypatch):
    first = runs("--only", "1")
    assert [one["run"] for one in first["runs"]] == [1] and first["scale"] == "own"
    with pytest.raises(SystemExit, match="There are 1 of 2 runs"):
        runs("--only", "1", "--families", "lenet")
    whole = runs()
    assert [one["run"] for one in whole["runs"]] == [0, 1] and whole["runs"][1] == first["runs"][0]
    assert len(list(runs.kept.glob("estimator_*.safetensors"))) == 4
    monkeypatch.setattr(runs.script, "measured", None)  # a run that is there is not made again
    rows = runs("--families", "lenet,fully_connected", "--models", "2")["hubris"]["rows"]
    assert len(rows) == 2 * 2 * (1 + 2)
    assert {row["run"] for row in rows if row["set"] != "real"} == {0, 1}
    assert runs()["hubris"]["rows"] == rows, "what models said stays in the record"
    made = runs.script.trained
    monkeypatch.setattr(
        runs.script, "trained", lambda family, *some: made(family, *some) if family == "icos_a" else 1 / 0
    )
    more = runs("--families", "lenet,fully_connected,icos_a", "--models", "2")["hubris"]["rows"]
    assert more[: len(rows)] == rows, "a family that has been asked is not trained again"
    assert [row["family"] for row in more[len(rows) :]] == ["icos_a"] * 2 * (1 + 2)
    assert len(list(runs.kept.glob("estimator_*.safetensors"))) == 4, "estimators are read, not trained again"


@pytest.mark.parametrize(
    "words", [["--set", "count=61"], ["--lr", "0.01"], ["--compiled"]], ids=["setting", "rate", "compiled"]
)
def test_a_run_of_other_settings_is_refused(runs, words):
    runs("--only", "0")
    with pytest.raises(SystemExit, match=r"run_0\.json was made of other data or with other settings"):
        runs("--only", "0", *words)


def test_a_run_of_other_data_is_refused_and_its_estimators_are_not_read(runs, tmp_path):
    runs("--only", "0")
    other = digits(tmp_path, 500)
    runs("--only", "0", "--estimators", data=other)
    assert len(list(runs.kept.glob("estimator_0_*.safetensors"))) == 2
    with pytest.raises(SystemExit, match="other data"):
        runs("--only", "0", data=other)


@pytest.mark.parametrize("text", ["variants=[]", "recipe={}", "epoch=[1,1]", "device=1"])
def test_settings_that_are_none_are_refused_at_once(runs, text):
    with pytest.raises(SystemExit, match="no setting"):
        runs("--set", text)


def test_a_run_that_is_none_is_refused(runs, capsys):
    with pytest.raises(SystemExit):
        runs("--only", "2")
    assert "is none of the 2 runs" in capsys.readouterr().err


def test_what_counts_as_the_papers_size(runs):
    scale = runs.script.STUDY.scale
    chosen = {key: value for key, value in scale.items() if key not in runs.script.APART} | runs.script.OURS
    chosen["recipe"] = {"lr": 2e-4, "compiled": True}
    assert runs.script.full(chosen, "mnist", 3) and runs.script.full(chosen, "fashion_mnist", 3)
    assert not runs.script.full(chosen, "mnist", 2), "too few runs"
    assert not runs.script.full(chosen | {"epochs": [50, 25]}, "mnist", 3)
    assert not runs.script.full(chosen | {"recipe": {"lr": 1e-3}}, "mnist", 3)
    assert not runs.script.full(chosen | {"recipe": {"lr": 1e-3}}, "chest_xray", 3), "its images are smaller"
