from __future__ import annotations

import io
import json
import sys

import pytest

from compare_house import flipped
from secondguess.cli import main


@pytest.fixture
def audits(tmp_path):
    """Two audits of which the second is worse."""
    for name, one in zip(("old", "new"), flipped(12, 2), strict=True):
        one.save(tmp_path / name)


def test_two_audits_are_compared(run, audits, tmp_path):
    outcome = run("compare", "old", "new/audit.json")
    assert outcome.code == 0 and outcome.err == ""
    assert "Worse?" in outcome.out and "Page: out/compare/compare.html" in outcome.out
    assert len(outcome.out.strip().splitlines()) <= 14
    assert {path.name for path in (tmp_path / "out/compare").iterdir()} == {
        "compare.html",
        "compare.json",
        "compare.md",
        "junit.xml",
    }


def test_gates_decide_the_exit_code(run, audits, tmp_path):
    failed = run("compare", "old", "new", "--no-worse-than", "0.5", "--json", "--out", "mine")
    assert failed.code == 1 and failed.json() == json.loads((tmp_path / "mine/compare.json").read_text("utf-8"))
    assert run("compare", "old", "new", "--no-worse-than", "6").code == 0
    unknown = run("compare", "old", "new", "--assert", "change.acuracy.test>=0")
    assert unknown.code == 2 and "did you mean change.accuracy.test" in unknown.out
    said = run("compare", "old", "new", "--markdown", "--assert", "flips.negative<=5")
    assert said.code == 1 and said.out.startswith("<!-- secondguess compare -->\n### ❌ Has new become worse?")


def test_a_terminal_without_these_letters_gets_escapes(audits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(["compare", "old", "new"]) == 0
    terminal.flush()
    assert b"\\u22125.0 points" in terminal.buffer.getvalue()


def test_what_cannot_be_compared_is_one_sentence(run, audits, tmp_path):
    (tmp_path / "old/predictions.npz").write_bytes(b"no")
    refused = run("compare", "old", "new")
    assert refused.code == 2 and refused.err.count("\n") == 1 and "run the audit again" in refused.err
    refused = run("compare", "new", "nothing.onnx")
    assert refused.code == 2 and "or images with --test" in refused.err
    refused = run("compare", "new", "nothing.onnx", "--test", "digits")
    assert refused.code == 2 and "nothing.onnx" in refused.err
