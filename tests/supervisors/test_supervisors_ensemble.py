from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import secondguess.training
import tiny_models
from secondguess import Classifier, Observation, UserError, check_supervisor
from secondguess.images import ImageSet
from secondguess.supervisors import _members
from secondguess.supervisors._members import EnsemblePlan
from secondguess.supervisors.checks import example_observation
from secondguess.supervisors.ensemble import (
    DeepEnsemble,
    EnsembleMeanSoftmax,
    EnsembleMutualInformation,
    EnsemblePredictiveEntropy,
)

KINDS: list[Any] = [EnsembleMeanSoftmax, EnsembleMutualInformation, EnsemblePredictiveEntropy]
QUICK = {"members": 3, "architecture": "ambiguity_member", "epochs": 2, "batch_size": 40, "device": "cpu"}
LABELS = np.arange(120, dtype=np.int64) % 4


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """No test finds the members of another."""
    _members._latest.clear()
    _members._in_use.clear()
    yield
    _members._latest.clear()


@pytest.fixture
def seen() -> Observation:
    return example_observation(EnsembleMeanSoftmax().needs, 120)


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry, the number of images, for each fleet that is trained."""
    done: list[int] = []
    original = secondguess.training.train_fleet

    def counted(make: Any, count: int, images: Any, labels: Any, **options: Any) -> Any:
        done.append(len(images))
        return original(make, count, images, labels, **options)

    monkeypatch.setattr(secondguess.training, "train_fleet", counted)
    return done


def literal(samples: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """The scores of the answers (members, n, K), as the formulas are written."""

    def entropy(p: NDArray[np.float64]) -> NDArray[np.float64]:
        return -np.sum(p * np.log2(np.maximum(p, 1e-300)), axis=-1)

    mean = samples.mean(axis=0)
    shared = entropy(samples).mean(axis=0)
    return {
        "ensemble_ms": -mean.max(axis=1),
        "ensemble_mi": entropy(mean) - shared,
        "ensemble_pe": entropy(mean),
    }


def models(count: int = 4, classes: int = 4) -> list[torch.nn.Module]:
    return [tiny_models.seeded(tiny_models.TinyCNN, seed, classes=classes) for seed in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_members_that_are_handed_in_are_asked(kind: Any, seen: Observation) -> None:
    assert seen.pixels is not None
    answers = np.stack([Classifier(model).predict(seen.pixels) for model in models()])
    supervisor = kind.of(DeepEnsemble(models()))
    assert supervisor.is_fitted
    np.testing.assert_allclose(supervisor.score(seen), literal(answers)[kind.name], rtol=1e-5, atol=1e-9)
    wrapped = kind.of(DeepEnsemble([Classifier(model, batch_size=7) for model in models()]))
    np.testing.assert_allclose(wrapped.score(seen), supervisor.score(seen), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_trained_members_score_by_the_formula(kind: Any, seen: Observation) -> None:
    assert seen.pixels is not None
    plan = EnsemblePlan(**QUICK)
    fleet = secondguess.training.train_fleet(
        plan.builder((1, 8, 8), 4), 3, seen.pixels, LABELS, **plan.recipe((1, 8, 8)), device="cpu"
    )
    logits = fleet.predict(seen.pixels, device="cpu").astype(np.float64)
    answers = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    found = kind(**QUICK).fit(seen, LABELS).score(seen)
    np.testing.assert_allclose(found, literal(answers)[kind.name], rtol=1e-6, atol=1e-9)


def test_the_three_share_their_members_and_their_looks(seen: Observation, trainings: list[int]) -> None:
    fitted = [kind(**QUICK).fit(seen, LABELS) for kind in KINDS]
    assert trainings == [120]
    ensemble = fitted[0]._ensemble
    assert all(one._ensemble is ensemble for one in fitted)
    looks: list[int] = []
    original = ensemble._answer
    ensemble._answer = lambda images: (looks.append(len(images)), original(images))[1]
    other = example_observation(KINDS[0]().needs, 50, seed=3)
    scores = [one.score(other) for one in fitted]
    again = example_observation(KINDS[0]().needs, 50, seed=3)  # equal in content, another object
    np.testing.assert_array_equal(fitted[1].score(again), scores[1])
    assert looks == [50]
    scores[0][:] = 7  # what a caller does with its scores is not seen by others
    assert fitted[0].score(other).max() < 0


@pytest.mark.parametrize("change", [{"seed": 1}, {"members": 2}, {"epochs": 1}, {"batch_size": 30}])
def test_other_parameters_are_other_members(change: dict[str, int], seen: Observation, trainings: list[int]) -> None:
    first = EnsembleMeanSoftmax(**QUICK).fit(seen, LABELS)
    second = EnsembleMeanSoftmax(**QUICK | change).fit(seen, LABELS)
    assert len(trainings) == 2
    assert not np.array_equal(first.score(seen), second.score(seen))


def test_other_labels_or_images_are_other_members(seen: Observation, trainings: list[int]) -> None:
    EnsembleMeanSoftmax(**QUICK).fit(seen, LABELS)
    EnsembleMutualInformation(**QUICK).fit(seen, LABELS[::-1].copy())
    EnsembleMutualInformation(**QUICK).fit(seen.take(slice(0, 100)), LABELS[:100])
    assert trainings == [120, 120, 100]


def test_only_small_ensembles_outlive_their_users(
    seen: Observation, trainings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for labels in (LABELS, np.roll(LABELS, 1), np.roll(LABELS, 2)):
        EnsembleMeanSoftmax(**QUICK).fit(seen, labels)
    assert len(_members._latest) == 2
    _members._latest.clear()
    monkeypatch.setattr(_members, "KEPT_BYTES", 0)
    user = EnsembleMeanSoftmax(**QUICK).fit(seen, LABELS)
    EnsemblePredictiveEntropy(**QUICK).fit(seen, LABELS)
    assert len(trainings) == 4  # shared while the first is alive
    assert not _members._latest
    del user


def test_the_seed_decides_also_without_memory(seen: Observation, trainings: list[int]) -> None:
    scores = []
    for _ in range(2):
        scores.append(EnsembleMutualInformation(**QUICK).fit(seen, LABELS).score(seen))
        _members._latest.clear()
        _members._in_use.clear()
    assert len(trainings) == 2
    np.testing.assert_array_equal(*scores)


def test_unlabelled_images_are_left_out(seen: Observation, trainings: list[int]) -> None:
    some = np.where(np.arange(120) % 3 == 0, -1, LABELS)
    known = np.flatnonzero(some >= 0)
    left_out = EnsembleMeanSoftmax(**QUICK).fit(seen, some).score(seen)
    np.testing.assert_allclose(
        left_out, EnsembleMeanSoftmax(**QUICK).fit(seen.take(known), some[known]).score(seen), rtol=1e-6
    )
    assert trainings == [80, 80]


@pytest.mark.parametrize("labels", [None, np.full(120, -1)])
@pytest.mark.parametrize("kind", KINDS)
def test_without_labels_nothing_can_be_trained(kind: Any, labels: Any, seen: Observation) -> None:
    with pytest.raises(UserError, match=rf"'{kind.name}' trains classifiers of its own, and so needs the true labels"):
        kind(**QUICK).fit(seen, labels)


@pytest.mark.parametrize("kind", KINDS)
def test_the_contract_is_kept(kind: Any) -> None:
    check_supervisor(kind(members=3, epochs=4, batch_size=32))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_contract_is_kept_by_default(kind: Any) -> None:
    check_supervisor(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded(kind: Any, seen: Observation, tmp_path: Path) -> None:
    fitted = kind(**QUICK).fit(seen, LABELS)
    fitted.save(tmp_path / "e.safetensors")
    loaded = kind.load(tmp_path / "e.safetensors")
    np.testing.assert_allclose(loaded.score(seen), fitted.score(seen), rtol=1e-6, atol=1e-9)
    assert loaded.weights_["conv1.weight"].shape[0] == 3
    loaded.save(tmp_path / "again.safetensors")
    np.testing.assert_array_equal(kind.load(tmp_path / "again.safetensors").score(seen), loaded.score(seen))


def test_members_that_change_are_asked_again(seen: Observation) -> None:
    import torch

    members = models()
    supervisor = EnsembleMeanSoftmax.of(DeepEnsemble(members))
    before = supervisor.score(seen)
    with torch.no_grad():
        for member in members:
            for weights in member.parameters():
                weights.mul_(3)
    after = supervisor.score(seen)
    assert not np.allclose(after, before)
    np.testing.assert_array_equal(after, EnsembleMeanSoftmax.of(DeepEnsemble(members)).score(seen))


def test_members_that_were_handed_in_cannot_be_saved(tmp_path: Path, seen: Observation) -> None:
    supervisor = EnsembleMeanSoftmax.of(DeepEnsemble(models()))
    with pytest.raises(UserError, match=r"were handed in.*save the models themselves"):
        supervisor.save(tmp_path / "e.safetensors")
    own = supervisor.clone(**QUICK).fit(seen, LABELS)
    own.save(tmp_path / "e.safetensors")
    refitted = EnsembleMeanSoftmax.of(DeepEnsemble(models()))
    refitted.members, refitted.epochs, refitted.architecture = 2, 1, "ambiguity_member"
    refitted.fit(seen, LABELS).save(tmp_path / "r.safetensors")
    assert len(refitted._ensemble) == 2


def test_blocks_of_images_change_nothing(seen: Observation, monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen.pixels is not None
    whole = DeepEnsemble(models()).scores(seen.pixels, 4)
    monkeypatch.setattr(_members, "ROWS", 7)
    parts = DeepEnsemble(models()).scores(seen.pixels, 4)
    for name, values in whole.items():
        np.testing.assert_allclose(parts[name], values, rtol=1e-4, atol=1e-7)


def test_old_sets_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_members, "KEPT_SETS", 2)
    ensemble = DeepEnsemble(models(2))
    for seed in range(4):
        pixels = np.random.default_rng(seed).random((3, 1, 8, 8), dtype=np.float32)
        ensemble.scores(ImageSet.from_arrays(pixels, layout="NCHW").images, 4)
    assert len(ensemble._seen) == 2


@pytest.mark.parametrize(
    ("shape", "layer"),
    [((1, 8, 8), "conv2"), ((1, 28, 28), "conv2"), ((3, 32, 32), "conv2"), ((3, 64, 64), "conv4b")],
)
def test_auto_builds_a_network_for_images_of_that_size(shape: tuple[int, int, int], layer: str) -> None:
    model = EnsemblePlan().builder(shape, 7)(0).eval()
    assert any(name == layer for name, _ in model.named_modules())
    assert model(torch.zeros(2, *shape)).shape == (2, 7)


def test_members_are_trained_by_the_recipe_of_their_architecture() -> None:
    large = EnsemblePlan(epochs=3).recipe((3, 64, 64))
    assert (large["lr"], large["weight_decay"], large["decay"]) == (1e-4, 0.02, "convolutions")
    assert (large["epochs"], large["batch_size"]) == (3, 128)
    assert EnsemblePlan().recipe((1, 28, 28))["lr"] == 1e-3


def test_bad_input_is_refused(seen: Observation) -> None:
    with pytest.raises(UserError, match="An ensemble of 1 was asked for; it takes two or more members to disagree"):
        EnsembleMeanSoftmax(members=1)
    with pytest.raises(UserError, match="An ensemble of 1 was asked for"):
        DeepEnsemble(models(1))
    with pytest.raises(UserError, match="no architecture 'simple_cn'"):
        EnsembleMeanSoftmax(**QUICK | {"architecture": "simple_cn"}).fit(seen, LABELS)
    with pytest.raises(UserError, match="labels go up to 4"):
        EnsembleMeanSoftmax(**QUICK).fit(seen, LABELS + 1)
    with pytest.raises(UserError, match="A member of the ensemble gives 3 classes, but the observed model has 4"):
        EnsembleMeanSoftmax.of(DeepEnsemble(models(classes=3))).score(seen)
    fitted = EnsembleMeanSoftmax(**QUICK).fit(seen, LABELS)
    larger = ImageSet.from_arrays(np.zeros((3, 1, 9, 9), np.float32), layout="NCHW").images
    with pytest.raises(UserError, match=r"fitted on images of shape \(1, 8, 8\), but these are \(1, 9, 9\)"):
        fitted.score(Observation(np.full((3, 4), 0.25), images=larger))
