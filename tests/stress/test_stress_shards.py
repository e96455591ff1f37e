"""Stress sets made in shards are those made at once, and an interrupted run goes on."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

from secondguess import Classifier, ImageSet
from secondguess.stress import Adversarial, Corrupted, corrupted
from secondguess.stress.base import Given
from secondguess.stress.corruptions import CORRUPTIONS

SHARDS = "local:1"  # the road of the engines, in this process


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    return ImageSet.from_arrays(rng.integers(0, 256, (60, 12, 12, 3), dtype=np.uint8), rng.integers(0, 3, 60))


def assert_same(one, other):
    np.testing.assert_array_equal(one.images[:], other.images[:])
    assert one.columns.keys() == other.columns.keys()
    for name, values in one.columns.items():
        np.testing.assert_array_equal(values, other.columns[name])


@pytest.mark.parametrize("mix", [None, "fashion_mnist_c"])
def test_corrupted_images_are_the_same_in_shards(images, mix):
    names = None if mix else ["fog", "gaussian_noise", "contrast", "pixelate"]
    given = images if mix is None else ImageSet.from_arrays(images.images[:][:, :1], images.labels, layout="NCHW")
    maker = Corrupted(names, mix=mix)
    assert_same(maker.make(given, seed=3, engine=SHARDS), maker.make(given, seed=3))


WHOLE = {"shot_noise", "gaussian_noise", "speckle_noise", "snow", "spatter"}  # normal and Poisson numbers


@pytest.mark.parametrize("severity", [None, 5])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_one_corruption_is_the_same_in_blocks(images, monkeypatch, name, severity):
    monkeypatch.setattr(corrupted, "MOST", 25)
    shards, bare = [], Given.in_shards
    monkeypatch.setattr(Given, "in_shards", lambda *given: shards.extend(given[1]) or bare(*given))
    maker = Corrupted([name], severity=severity)
    assert_same(maker.make(images, seed=3, engine=SHARDS), maker.make(images, seed=3))
    assert [len(task.params["images"].value) for task in shards] == ([60] if name in WHOLE else [25, 25, 10])


def test_every_image_may_be_a_shard_and_none_too_small(images, monkeypatch):
    maker = Corrupted(["fog"])
    assert [len(rows) for rows, _ in maker._blocks("fog", np.arange(60), images.images)] == [60]
    assert [*maker._blocks("fog", np.arange(0), images.images)] == []
    monkeypatch.setattr(corrupted, "LARGEST", 1)
    assert_same(maker.make(images, engine=SHARDS), maker.make(images))


def test_an_interrupted_run_makes_the_corruptions_that_are_missing(images, tmp_path, monkeypatch):
    class Stops:
        @contextmanager
        def task(self, label, total):
            def advance(done, total):
                if done == 2:
                    raise KeyboardInterrupt

            yield advance

    maker = Corrupted(["fog", "contrast", "pixelate"])
    with pytest.raises(KeyboardInterrupt):
        maker.make(images, engine=SHARDS, folder=tmp_path, progress=Stops())
    asked, corrupt = [], corrupted.corrupt
    monkeypatch.setattr(corrupted, "corrupt", lambda *given, **how: asked.append(given[1]) or corrupt(*given, **how))
    made = maker.make(images, engine=SHARDS, folder=tmp_path)
    assert asked == ["pixelate"]
    assert list(tmp_path.iterdir()) == []
    assert_same(made, maker.make(images))


@pytest.mark.parametrize("transfer", [False, True])
def test_attacks_are_the_same_in_shards(images, transfer):
    pytest.importorskip("foolbox")
    from torch import manual_seed, nn

    manual_seed(0)
    network, other = (nn.Sequential(nn.Flatten(), nn.Linear(3 * 12 * 12, 3)) for _ in range(2))
    classifier = Classifier(network, device="cpu", output_kind="logits")
    surrogate = Classifier(other, device="cpu", output_kind="logits") if transfer else None
    maker = Adversarial(["fgsm", "pgd"], epsilons=[0.01, 0.1], chunk_size=16, surrogate=surrogate)
    one, other = (maker.make(images, classifier=classifier, seed=1, engine=engine) for engine in ("local", SHARDS))
    assert one.columns["success"].sum() > 0
    assert_same(one, other)
    assert one.notes == other.notes


def test_what_is_attacked_on_a_gpu_goes_to_workers_with_one(images, monkeypatch):
    pytest.importorskip("foolbox")
    from torch import nn

    class Seen(Exception):
        """The tasks, of which none is run: there may be no GPU."""

    def seen(given, tasks, label):
        raise Seen([task.resources for task in tasks])

    monkeypatch.setattr(Given, "in_shards", seen)
    one, other = (
        Classifier(nn.Sequential(nn.Flatten(), nn.Linear(3 * 12 * 12, 3)), device="cpu", output_kind="logits")
        for _ in range(2)
    )
    for device, needed in (("cpu", {}), ("cuda:1", {"GPU": 1})):
        other.device = device
        with pytest.raises(Seen) as caught:
            Adversarial(["fgsm"], chunk_size=30, surrogate=other).make(images, classifier=one, engine=SHARDS)
        assert caught.value.args[0] == [needed] * 2
