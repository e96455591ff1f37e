from __future__ import annotations

import sys

import numpy as np
import pytest

from secondguess.bench._memory import peak_memory
from secondguess.bench.surprise import WORKS, synthetic
from secondguess.bench.surprise import run as run_bench
from secondguess.errors import UserError
from secondguess.observation import Trace

SMALL = ["bench", "surprise", "--traces", "400", "--queries", "60", "--dimensions", "3,12", "--repeats", "1"]
KEYS = {"work", "dimension", "traces", "queries", "seconds", "floor_ratio", "peer_ratio", "peak_mib"}


def test_every_work_is_timed_at_every_dimension(run):
    printed = run(*SMALL, "--device", "cpu", "--peer-queries", "5", "--json").json()
    rows = printed["rows"]
    assert [(row["work"], row["dimension"]) for row in rows] == [(work, d) for d in (3, 12) for work in WORKS]
    assert all(row.keys() == KEYS for row in rows)
    assert all(row["seconds"] > 0 and row["floor_ratio"] > 0 and row["peak_mib"] >= 0 for row in rows)
    assert {row["varied"] for row in printed["growth"]} == {"traces", "queries", "dimension"}
    with_peer = {row["work"] for row in rows if row["peer_ratio"]}
    assert with_peer == ({"dsa", "dsa precomputed", "lsa", "mdsa"} if printed["peer_installed"] else set())


def test_a_missing_peer_is_said_loudly(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "dnn_tip", None)
    monkeypatch.setitem(sys.modules, "dnn_tip.surprise", None)
    outcome = run(*SMALL, "--no-growth", "--quiet", "--device", "cpu")
    assert "NO PEER" in outcome.err
    assert 'pip install "secondguess[bench]"' in outcome.err
    assert "x floor" in outcome.out


@pytest.mark.parametrize(("words", "message"), [("10,x", "whole numbers separated by commas"), ("0", "1 or more")])
def test_dimensions_are_checked(run, words, message):
    outcome = run("bench", "surprise", "--dimensions", words)
    assert outcome.code == 2
    assert message in outcome.err


def test_too_few_traces_are_refused():
    with pytest.raises(UserError, match="20 traces and 5 queries were asked for"):
        run_bench(traces=20, queries=5)


def test_synthetic_traces_have_classes_and_a_shifted_end():
    train, test = synthetic(2000, 30, seed=1), synthetic(1000, 30, seed=2, shifted=0.2)
    assert train.trace(Trace()).dtype == np.float32
    means = np.stack([train.trace(Trace())[train.predictions == k].mean(axis=0) for k in range(10)])
    apart = np.linalg.norm(test.trace(Trace()) - means[test.predictions], axis=1)
    assert apart[800:].mean() > apart[:800].mean()
    again = synthetic(2000, 30, seed=1)
    np.testing.assert_array_equal(again.trace(Trace()), train.trace(Trace()))


def test_memory_is_measured():
    with peak_memory() as grown:
        taken = np.ones(8 << 20)
        taken += 1
    assert 60 < grown[0] < 200
