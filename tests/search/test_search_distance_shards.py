"""Distances that workers of an engine measure are those of one process, and an interrupted run goes on."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from distance_house import NAMES, assert_same
from torch import nn

from secondguess import Classifier, ImageSet
from secondguess.search import distance
from secondguess.search.attacks import Boundary, checkpoint
from secondguess.search.distance import Distances, measure_distances


@pytest.fixture(scope="module")
def images() -> ImageSet:
    return ImageSet.from_arrays(np.random.default_rng(0).random((75, 6, 6)).astype(np.float32))


def classifier(engine: str | None) -> Classifier:
    """A small network of three classes, always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        network = nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.Tanh(), nn.Linear(12, 3))
    return Classifier(network, output_kind="logits", batch_size=32, device="cpu", engine=engine)


def assert_close(one: Distances, other: Distances) -> None:
    """Equal to what the rounding of a model in batches of other images leaves."""
    for name in NAMES:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.fixture
def shards(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The images of every shard that was sent."""
    sizes, bare = [], distance.run_each

    def noted(tasks, *rest, **more):
        sizes.extend(len(task.params["images"].value[1]) for task in tasks)
        return bare(tasks, *rest, **more)

    monkeypatch.setattr(distance, "run_each", noted)
    return sizes


@pytest.mark.parametrize("attack", ["hop_skip_jump", Boundary(iterations=8), "gradient"])
def test_the_distances_are_the_same_in_shards(attack: str | Boundary, images: ImageSet, shards: list[int]) -> None:
    options = {"attack": attack, "budget": None if attack == "gradient" else 150, "seed": 3}
    whole = measure_distances(classifier(None), images, **options)
    assert not shards and not whole.failed.all()
    assert_close(measure_distances(classifier("local:1"), images, **options), whole)
    assert shards == [16, 16, 16, 16, 11]


def test_processes_measure_some_of_the_images(images: ImageSet, shards: list[int]) -> None:
    rows, starts = np.arange(5, 70, 2), ImageSet.from_arrays(1 - images.images[:])
    options = {"rows": rows, "starts": starts, "budget": 140}
    whole = measure_distances(classifier(None), images, **options)
    found = measure_distances(classifier("local:2"), images, **options)
    assert_close(found, whole)
    assert found.start_queries == whole.start_queries
    assert shards == [16, 16, 1]


def test_an_interrupted_run_measures_what_is_missing(
    images: ImageSet, shards: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)

    class Stops:
        @contextmanager
        def task(self, label, total):
            def advance(done, total):
                if done == 32:
                    raise KeyboardInterrupt

            yield advance

    whole = measure_distances(classifier("local:1"), images, budget=150)
    options = {"budget": 150, "checkpoint": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        measure_distances(classifier("local:1"), images, progress=Stops(), **options)
    shards.clear()
    again = measure_distances(classifier("local:1"), images, **options)
    assert shards == [16, 16, 11]
    assert_same(again, whole)
    shards.clear()
    assert_same(measure_distances(classifier(None), images, **options), whole)  # without an engine, too
    assert not shards
