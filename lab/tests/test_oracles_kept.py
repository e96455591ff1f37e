"""What is kept of a network is enough to judge it: verdicts from kept files are those of the oracles themselves."""

from __future__ import annotations

import importlib
import tarfile
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from secondguess import Observation, Trace
from secondguess.accuracy.oracles.icos.pixel_rules import PixelRules, grow
from secondguess.accuracy.oracles.selfchecker import SelfChecker

CLASSES = 10


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "experiments"))
    return importlib.import_module("oracles_train"), importlib.import_module("oracles_judge")


def observed(count, seed):
    """Traces of two layers that know the class more or less, and an output that is often wrong."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    logits, first, second = (
        (width * np.eye(CLASSES)[labels] + rng.standard_normal((count, CLASSES))).astype(np.float32)
        for width in (1.5, 2.0, 1.0)
    )
    traces = {Trace("first"): first, Trace("second"): second}
    return Observation(logits=logits, traces=traces, labels=labels, class_names=[str(k) for k in range(CLASSES)])


def test_alarms_from_kept_layers_are_those_of_selfchecker(scripts):
    _, judge = scripts
    training, validation, operation = observed(600, 0), observed(400, 1), observed(500, 2)
    checker = SelfChecker((Trace("first"), Trace("second"))).fit(training, validation)
    used = judge.chosen(checker.infer(validation), validation)
    np.testing.assert_array_equal(used, checker.alarm_layers_)
    found = judge.alarms(used, checker.infer(operation), operation.predictions)
    np.testing.assert_array_equal(found, checker.judge(operation).judged_wrong)
    assert 0.1 < found.mean() < 0.9


def test_rules_from_kept_leaves_are_those_of_the_tree_and_of_one_that_learnt_swapped_labels(scripts):
    _, judge = scripts
    rng = np.random.default_rng(0)
    values = rng.random((800, 6)).astype(np.float32)
    labels = (values[:, 0] * CLASSES).astype(np.int64)
    asked, predictions = rng.random((300, 6)).astype(np.float32), rng.integers(0, CLASSES, 300)
    order = np.array([0, 1, 7, 3, 4, 5, 6, 2, 8, 9])
    rules = PixelRules(grow(values, labels, CLASSES), 0.99, 0)
    said = np.append(rules.labels, -1)[rules.matching(asked)]
    plain = judge.contradicts(np.arange(CLASSES), said, predictions)
    np.testing.assert_array_equal(plain, rules.violated(asked, predictions) >= 0)
    swapped = PixelRules(grow(values, order[labels], CLASSES), 0.99, 0)
    found = judge.contradicts(order, said, predictions)
    np.testing.assert_array_equal(found, swapped.violated(asked, predictions) >= 0)
    assert found.any() and not np.array_equal(found, plain)


def test_the_most_wanted_networks_come_first_and_have_names_of_their_own(scripts):
    train, _ = scripts
    found = [one.name for one in train.plans(2, 3, 1)]
    assert found[:6] == ["icos_d_0", "icos_e_0", "icos_f_0", "icos_c_0_swap27", "icos_c_0_swap56", "icos_c_0_swap68"]
    assert len(set(found)) == len(found) == 2 * 3 + 3 * 3 + 3


def test_archives_stay_below_their_limit_and_hold_everything(scripts, tmp_path, monkeypatch):
    train, _ = scripts
    monkeypatch.setattr(train, "LARGEST", 40_000)
    folders = Namespace(work=tmp_path / "work", out=tmp_path / "out")
    folders.work.mkdir()
    folders.out.mkdir()
    wanted = train.plans(1, 2, 1)
    for plan in wanted[:-1]:
        train.part(folders.work, plan).write_bytes(b"x" * 9_000)
    for _ in range(2):  # after every network anew
        train.pack(wanted, folders)
    found = []
    for path in sorted(folders.out.glob("*.tar")):
        assert path.stat().st_size <= 40_000
        with tarfile.open(path) as archive:
            found += archive.getnames()
    assert found == [f"{plan.name}.npz" for plan in wanted[:-1]]
