"""Oracles whose images were inspected elsewhere judge as if they had seen them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from secondguess import Classifier, ImageSet, Needs, UserError
from secondguess.accuracy.oracles import make
from secondguess.accuracy.oracles.inspecting import Inspector, observe_and_inspect
from secondguess.accuracy.oracles.selfchecker import SelfChecker
from secondguess.model import shards

COUNT = 120


def classifier(engine: str | None = None) -> Classifier:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        network = nn.Sequential(nn.Flatten(), nn.Linear(36, 10), nn.ReLU(), nn.Linear(10, 3)).eval()
    return Classifier(network, batch_size=16, device="cpu", output_kind="logits", engine=engine)


def pictures(seed: int) -> ImageSet:
    rng = np.random.default_rng(seed)
    return ImageSet.from_arrays(rng.random((COUNT, 6, 6)).astype(np.float32), rng.integers(0, 3, COUNT))


@pytest.fixture
def oracles():
    """ICOS and SelfChecker, fitted."""
    made = [make("icos"), make("selfchecker")]
    needs = Needs.union(made)
    training, validation = (classifier().observe(pictures(seed), needs) for seed in (0, 1))
    return [one.fit(training, validation) for one in made]


@pytest.mark.parametrize("engine", ["local:1", "local:2"])
def test_verdicts_are_the_same(oracles, engine):
    images = pictures(2)
    whole = classifier().observe(images, Needs.union(oracles))
    expected = [one.judge(whole) for one in oracles]
    assert any(one.judged_wrong.any() for one in expected)
    seen = observe_and_inspect(classifier(engine), images, [*oracles, oracles[0]], [])
    assert not seen.traces
    for one, other in zip(oracles, expected, strict=True):
        judged = one.judge(seen)
        np.testing.assert_array_equal(judged.wrong, other.wrong)
        assert judged.reasons.tolist() == other.reasons.tolist()
        np.testing.assert_array_equal(judged.advice, other.advice)


def test_what_is_remembered_belongs_to_one_oracle_until_it_learns_anew(oracles):
    checker = oracles[1]
    seen = observe_and_inspect(classifier("local:1"), pictures(2), oracles, [])
    checker.judge(seen)
    other = checker.clone()
    other._restore(checker.state())
    assert Inspector.of(other).fingerprint == Inspector.of(checker).fingerprint
    with pytest.raises(UserError, match="holds no trace"):
        other.judge(seen)
    training = classifier().observe(pictures(0), checker.needs)
    checker.fit(training, training)
    with pytest.raises(UserError, match="holds no trace"):
        checker.judge(seen)


def test_an_oracle_that_fails_on_a_worker_is_asked_here(oracles, monkeypatch):
    whole = classifier().observe(pictures(2), Needs.union(oracles))
    expected = oracles[1].judge(whole).wrong

    def fails(self, seen):
        if len(seen) < COUNT:
            raise ValueError("only all of them")
        return bare(self, seen)

    bare = SelfChecker.inspect
    monkeypatch.setattr(SelfChecker, "inspect", fails)
    monkeypatch.setattr(shards, "SHARDS", 4)
    seen = observe_and_inspect(classifier("local:1"), pictures(2), oracles, [])
    assert seen.traces
    np.testing.assert_array_equal(oracles[1].judge(seen).wrong, expected)
