from __future__ import annotations

import json
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_documented_errors_are_the_measured_ones() -> None:
    study = ROOT / "results" / "oracles"
    errors = json.loads((study / "mnist.json").read_text(encoding="utf-8"))["errors"]
    table = runpy.run_path(str(ROOT / "lab/experiments/oracles_table.py"))["table"](errors)
    assert table in (ROOT / "docs" / "evidence" / "accuracy.md").read_text(encoding="utf-8")
    assert "| `validation_accuracy` | .39 | 19.7 |" in table
