from __future__ import annotations

import io
import sys

import numpy as np
import pytest

from secondguess.errors import UserError
from secondguess.model.needs import Trace
from secondguess.progress import Lines
from secondguess_lab.bench import surprise
from secondguess_lab.bench._memory import peak_memory
from secondguess_lab.bench.surprise import WORKS, synthetic
from secondguess_lab.bench.surprise import run as run_bench

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


def test_every_row_is_told_when_it_is_done():
    said = io.StringIO()
    found = run_bench(traces=300, queries=20, dimensions=(4,), repeats=1, peer_queries=2, progress=Lines(said))
    done = [line for line in said.getvalue().splitlines() if "done in" in line]
    assert [line.split(":")[0] for line in done] == [
        "traces, d 4",
        *(f"{work}, d 4" for work in WORKS),
        "growth of dsa",
    ]
    assert len(found["rows"]) == len(WORKS)


def test_memory_counts_from_learning_on_and_long_works_are_not_repeated(monkeypatch):
    kept, done = [], []
    work = surprise._Work(
        lambda: done.append(1), learn=lambda: kept.append(np.ones(8 << 20)), pairs=lambda: 1.0, width=1
    )
    monkeypatch.setattr(surprise, "_work", lambda case, name: work)
    case = surprise._Case(300, 10, 4, "cpu")
    row = surprise._measured(case, "lsa", None, 3, 1, lambda done, total: None)
    assert row["peak_mib"] > 60
    assert (len(kept), len(done)) == (1, 3)
    monkeypatch.setattr(surprise, "ENOUGH", 0.0)
    surprise._measured(case, "lsa", None, 3, 1, lambda done, total: None)
    assert len(done) == 4


def test_in_many_dimensions_the_peer_does_less(monkeypatch):
    asked = []

    class Peer:
        class DSA:
            def __init__(self, traces, predictions, badge_size): ...
            def __call__(self, traces, predictions, num_threads):
                asked.append(len(traces))

        class MultiModalSA:
            @staticmethod
            def build_by_class(traces, predictions, make):
                classes = np.unique(predictions)
                return lambda traces, predictions, num_threads: asked.append(
                    (len(classes), np.isin(predictions, classes).all(), len(predictions))
                )

        MDSA = None

    monkeypatch.setattr(surprise, "PEER_NUMBERS", 300 * 8 * 6)
    monkeypatch.setattr(surprise, "PEER_WIDEST", 4)
    case = surprise._Case(300, 50, 8, "cpu")
    first = surprise._peer_dsa(case)(Peer, 50)
    assert surprise._peer_dsa(case)(Peer, 50) == first
    assert asked == [6]
    surprise._peer_by_class(case, "MDSA")(Peer, 5)
    assert asked[1] == (2, True, np.sort(case.asked)[-2:].sum())


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
