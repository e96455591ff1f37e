"""attacks_softmax.py: what it says of differences, and a whole small run that goes on where it stopped."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from secondguess import load


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "experiments"))
    return importlib.import_module("attacks_softmax")


def test_differences_are_of_the_same_network(script: ModuleType) -> None:
    def row(logits: float, softmax: float) -> dict[str, object]:
        found = {way: {"auroc": dict.fromkeys(script.SUPERVISORS, value)} for way, value in
                 (("logits", logits), ("softmax", softmax))}  # fmt: skip
        return {"ways": found}

    found = script.differences([row(0.9, 0.8), row(0.7, 0.9)])
    assert found["dsa"] == pytest.approx({"cells": 2, "larger": 1, "median": -0.05, "min": -0.2, "max": 0.1})
    assert found["all"]["cells"] == 2 * len(script.SUPERVISORS)


def test_a_small_run_goes_on(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("foolbox")
    digits = load("digits")
    path = tmp_path / "few.npz"
    arrays = {}
    for name, part in (("train", digits.train), ("test", digits.test.head(80, seed=0))):
        arrays[f"x_{name}"] = np.round(part.materialise()[:, 0] * 255).astype(np.uint8)
        arrays[f"y_{name}"] = part.labels
    np.savez(path, **arrays)
    words = [str(path), "--kept", str(tmp_path / "kept"), "--out", str(tmp_path / "record.json"), "--epochs", "5"]
    words += ["--networks", "fully_connected", "--seeds", "1", "--images", "8"]
    monkeypatch.setattr(sys, "argv", ["attacks_softmax.py", *words])

    script.main()
    first = json.loads((tmp_path / "record.json").read_text())
    script.main()
    again = json.loads((tmp_path / "record.json").read_text())

    assert again["rows"] == first["rows"]
    (row,) = first["rows"]
    assert row["ways"]["logits"]["images"] == 8
    assert first["differences"]["dsa"]["median"] == pytest.approx(
        row["ways"]["logits"]["auroc"]["dsa"] - row["ways"]["softmax"]["auroc"]["dsa"]
    )
