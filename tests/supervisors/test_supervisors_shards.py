"""Supervisors fitted from shards learn what they learn from all images at once, and score in shards alike."""

from __future__ import annotations

import itertools
import json
import sys
import weakref
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secondguess import Classifier, ImageSet, Observation, UserError
from secondguess.contracts.merging import ByKey, Sums, put_together, taken_apart
from secondguess.model.shards import unseen_shards
from secondguess.supervisors import Supervisor, fit_in_shards, make, score_in_shards, shards
from secondguess.supervisors.knn import KNN
from secondguess.supervisors.surprise.dsa import DSA

CLASSES, WIDTH = 3, 6
MERGING = (
    "mdsa",
    "mdsa_global",
    "relative_mahalanobis",
    "normalised_mahalanobis",
    "vim",
    "fdbd",
    "she",
)
SEARCHING = (KNN(k=4), DSA(), DSA(variant="dsa1"))
THINNED = (KNN(k=3, share=0.5), DSA(subsampling=0.5))  # which traces are kept depends on their order


def seen(count: int, seed: int, *, labels: str = "all", offset: float = 0.0) -> Observation:
    rng = np.random.default_rng(seed)
    last = np.random.default_rng(7).normal(size=(CLASSES, WIDTH)) * 2
    classes = np.arange(count) % CLASSES
    traces = (last[classes] + rng.normal(size=(count, WIDTH)) + offset).astype(np.float32)
    traces[:, 0] = offset  # a dead neuron
    logits = (traces - offset) @ last.T.astype(np.float32)
    known = {"all": classes, "none": np.full(count, -1), "some": np.where(np.arange(count) < count // 2, classes, -1)}
    return Observation(logits=logits, traces={"penultimate": traces}, labels=known[labels])


def split(observation: Observation, cuts: list[int]) -> list[Observation]:
    edges = [0, *sorted({min(cut, len(observation) - 1) for cut in cuts} - {0}), len(observation)]
    return [observation.take(slice(low, high)) for low, high in itertools.pairwise(edges)]


@settings(max_examples=8, deadline=None)
@given(
    count=st.integers(30, 120),
    cuts=st.lists(st.integers(1, 119), max_size=6),
    labels=st.sampled_from(["all", "none", "some"]),
    offset=st.sampled_from([0.0, 100.0]),
)
def test_whatever_the_shards_the_scores_are_those_of_one_fit(count, cuts, labels, offset):
    training, asked = seen(count, 1, labels=labels, offset=offset), seen(40, 2, offset=offset)
    supervisors = [*map(make, MERGING), *SEARCHING, *THINNED]
    fitted = fit_in_shards(supervisors, split(training, cuts))
    for one, sharded in zip(supervisors, fitted, strict=True):
        alone = one.clone().fit(training).score(asked)
        np.testing.assert_allclose(sharded.score(asked), alone, rtol=1e-6, atol=1e-6, err_msg=one.name)


@settings(max_examples=4, deadline=None)
@given(order=st.permutations(range(5)))
def test_the_order_of_shards_does_not_matter_beyond_rounding(order):
    training, asked = seen(100, 1), seen(40, 2)
    parts = split(training, [11, 40, 45, 80])
    supervisors = [*map(make, MERGING), *SEARCHING]
    for one in fit_in_shards(supervisors, [parts[place] for place in order]):
        alone = one.clone().fit(training).score(asked)
        np.testing.assert_allclose(one.score(asked), alone, rtol=1e-6, atol=1e-6, err_msg=one.name)


@pytest.mark.parametrize("one", [KNN(k=5), KNN(k=90), DSA(), DSA(variant="dsa1"), DSA(variant="dsa2")])
def test_the_nearest_of_all_parts_are_the_nearest(one, monkeypatch):
    training, asked = seen(80, 1), seen(50, 2)
    one = one.clone().fit(training)
    whole = one.score(asked)
    monkeypatch.setattr(shards, "PART", one.traces_.nbytes // 3)
    np.testing.assert_array_equal(score_in_shards([one], asked)[one.name], whole)


def test_an_interrupted_run_goes_on_with_the_shards_that_are_missing(tmp_path, monkeypatch):
    asked, one = seen(64, 2), make("vim").fit(seen(90, 1))
    folder = tmp_path / "shards"

    class Stops:
        @contextmanager
        def task(self, label, total):
            def advance(done, total):
                if done == 5:
                    raise KeyboardInterrupt

            yield advance

    with pytest.raises(KeyboardInterrupt):
        score_in_shards([one], asked, folder=folder, progress=Stops())
    assert len(list(folder.glob("*.json"))) == 5
    left = []
    monkeypatch.setattr(type(one), "_score", lambda self, seen: left.append(seen) or np.zeros(len(seen)))
    score_in_shards([one], asked, folder=folder)
    assert len(left) == shards.FEWEST - 5
    assert not folder.exists()  # nothing is left of a run that has ended


@pytest.mark.parametrize("unseen", [False, True])
def test_an_interrupted_fit_goes_on_with_the_statistics_that_are_missing(tmp_path, monkeypatch, unseen):
    folder, learnt = tmp_path / "shards", []
    supervisors = [*map(make, MERGING), *SEARCHING]
    if unseen:
        supervisors, parts = [make("vim"), make("mdsa")], pictured(make("vim").needs)
    else:
        parts = split(seen(100, 1), [11, 40, 45, 80])
    plain = fit_in_shards(supervisors, parts)
    assert not folder.exists()

    class Stops:
        @contextmanager
        def task(self, label, total):
            def advance(done, total):
                if done == 3:
                    raise KeyboardInterrupt

            yield advance

    with pytest.raises(KeyboardInterrupt):
        fit_in_shards(supervisors, parts, folder=folder, progress=Stops())
    assert len(list(folder.glob("*.npz"))) == 3
    monkeypatch.setattr(Supervisor, "statistics", noting(Supervisor.statistics, learnt))
    again = fit_in_shards(supervisors, parts, folder=folder)
    assert learnt.count("mdsa") == len(parts) - 3
    assert learnt.count("vim") == 2 * len(parts) - 3  # its second round had not begun
    assert not folder.exists()
    for one, other in zip(plain, again, strict=True):
        assert one.fingerprint == other.fingerprint  # to the last digit


def noting(bare, learnt):
    def noted(self, *given):
        learnt.append(self.name)
        return bare(self, *given)

    return noted


def test_statistics_that_cannot_be_kept_are_named(tmp_path, monkeypatch):
    @dataclass(frozen=True)
    class Odd:
        """Not marked as keepable."""

    monkeypatch.setattr(Supervisor, "statistics", lambda *given: Odd())
    with pytest.raises(
        UserError, match=r"What vim learn .* in a folder: Odd is not marked as keepable; mark the class"
    ):
        fit_in_shards([make("vim")], split(seen(60, 1), [20]), folder=tmp_path / "shards")


@pytest.mark.parametrize("number", [np.nan, -np.inf, 0.1, 3, None, True])
def test_numbers_are_kept_as_they_are(number):
    arrays = {}
    plain = json.loads(
        json.dumps(taken_apart(ByKey({7: Sums({"one": number, "rows": np.eye(2)})}), arrays), allow_nan=False)
    )
    back = put_together(plain, arrays).parts[7].values
    np.testing.assert_equal(back, {"one": number, "rows": np.eye(2)})


def test_shards_are_taken_one_after_the_other_and_let_go(monkeypatch):
    asked, one = seen(640, 2), make("vim").fit(seen(90, 1))
    alive: weakref.WeakSet[Observation] = weakref.WeakSet()
    most = []

    bare = type(one)._score

    def scored(self, shard):
        alive.add(shard)
        most.append(len(alive))
        return bare(self, shard)

    monkeypatch.setattr(type(one), "_score", scored)
    found = score_in_shards([one], asked)["vim"]
    assert len(most) == shards.FEWEST and max(most) == 1
    np.testing.assert_array_equal(found, one.score(asked))


def test_a_shard_has_so_many_bytes_at_most(monkeypatch):
    asked, one = seen(640, 2), make("vim").fit(seen(90, 1))
    assert [rows.stop - rows.start for rows in shards.rows_of(asked)] == [40] * 16
    monkeypatch.setattr(shards, "LARGEST", 1000)  # a row has 44 and more: six traces, three logits, a label
    assert 5 < max(rows.stop - rows.start for rows in shards.rows_of(asked)) <= 1000 // 44
    np.testing.assert_array_equal(score_in_shards([one], asked)["vim"], one.score(asked))
    assert list(shards.rows_of(seen(1, 2))) == [slice(0, 1)]


def network():
    from torch import manual_seed, nn

    manual_seed(0)
    made = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 3))
    made[3].bias.data += 5
    return Classifier(made, batch_size=16, device="cpu", output_kind="logits")


def pictured(needs, count=100):
    pixels = np.random.default_rng(0).integers(0, 256, (count, 4, 4), dtype=np.uint8)
    return unseen_shards(network(), ImageSet.from_arrays(pixels), needs)


def test_images_are_observed_where_they_are_learnt_from():
    pixels = np.random.default_rng(0).integers(0, 256, (600, 4, 4), dtype=np.uint8)
    classifier, images, vim = network(), ImageSet.from_arrays(pixels), make("vim")
    parts = unseen_shards(classifier, images, vim.needs)
    assert len(parts) > 10
    (fitted,) = fit_in_shards([vim], parts)
    whole = classifier.observe(images, vim.needs)
    np.testing.assert_allclose(fitted.score(whole), vim.fit(whole).score(whole), rtol=1e-6)


def test_images_that_are_observed_on_a_gpu_go_to_workers_with_one(monkeypatch):
    from torch import nn

    def needed(device):
        classifier.device = device
        with pytest.raises(Seen) as caught:
            fit_in_shards([make("vim")], unseen_shards(classifier, images, make("vim").needs))
        return caught.value.args[0]

    class Seen(Exception):
        """What the tasks need, of which none is run: there may be no GPU."""

    def seen(tasks, *_, **__):
        raise Seen([task.resources for task in tasks])

    monkeypatch.setattr(shards, "run_each", seen)

    classifier = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), batch_size=16, output_kind="logits")
    images = ImageSet.from_arrays(np.zeros((20, 4, 4), dtype=np.uint8))
    assert needed("cuda:1") == [{"GPU": 1}] * 2
    assert needed("auto") == [{}] * 2


def test_one_that_needs_all_images_says_so():
    with pytest.raises(UserError, match=r"'lsa' learns from all training images at once.*in shards"):
        fit_in_shards([make("lsa")], [seen(30, 1)])


def test_faiss_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UserError, match=r"secondguess\[faiss\]"):
        KNN(index="faiss").fit(seen(60, 1)).score(seen(10, 2))


def test_an_approximate_index_finds_most_neighbours():
    pytest.importorskip("faiss", reason="FAISS is not installed: pip install secondguess[faiss]")
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4000, 16)).astype(np.float32)
    training = Observation(predictions=np.arange(4000) % 3, traces={"penultimate": rows})
    asked = training.take(np.arange(200))
    exact, near = KNN(k=10).fit(training), KNN(k=10, index="faiss", probes=8).fit(training)
    assert exact.recall(asked) == 1.0
    assert near.recall(asked) > 0.6
    assert KNN(k=10, index="faiss", probes=63).fit(training).recall(asked) == 1.0
    assert (near.score(asked) >= exact.score(asked) - 1e-12).all()
