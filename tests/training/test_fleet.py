from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from secondguess import zoo
from secondguess.errors import UserError
from secondguess.progress import Callback
from secondguess.training import Fleet, train, train_fleet
from secondguess.training._examples import derive_seed
from secondguess.training._stacked import Stack

QUICK = {"epochs": 3, "batch_size": 16, "device": "cpu"}


def difference(one: nn.Module, other: nn.Module) -> float:
    a, b = one.state_dict(), other.state_dict()
    return max(float((a[name].double() - b[name].double()).abs().max()) for name in a)


@pytest.mark.parametrize("name", ["dense", "convolutional", "normalised"])
@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_stack_and_loop_give_the_same_members(models, blobs, name, optimiser):
    settings = QUICK | {"optimiser": optimiser, "lr": 0.01, "weight_decay": 0.1, "decay": "kernels"}
    loop = train_fleet(models[name], 4, *blobs, mode="loop", **settings)
    stacked = train_fleet(models[name], 4, *blobs, mode="stacked", **settings)
    assert max(difference(a, b) for a, b in zip(loop, stacked, strict=True)) < 1e-4
    np.testing.assert_allclose(loop.losses, stacked.losses, atol=1e-4)
    assert difference(loop[0], loop[1]) > 0.01


def test_running_statistics_of_the_stack_are_those_of_the_loop(models, blobs):
    loop = train_fleet(models["normalised"], 3, *blobs, mode="loop", **QUICK)
    stacked = train_fleet(models["normalised"], 3, *blobs, mode="stacked", **QUICK)
    for a, b in zip(loop, stacked, strict=True):
        for name, buffer in a.named_buffers():
            torch.testing.assert_close(buffer, b.get_buffer(name), atol=1e-4, rtol=1e-4)
        assert a[1].num_batches_tracked == 3 * 6


@pytest.mark.parametrize("name", ["convolutional", "normalised"])
@pytest.mark.parametrize("mode", ["loop", "stacked"])
def test_subsets_of_any_size_are_what_training_alone_on_them_gives(models, blobs, name, mode):
    images, labels = blobs
    rng = np.random.default_rng(0)
    subsets = [rng.choice(90, size=size, replace=False) for size in (40, 45, 90, 40, 33)]
    subsets.append(np.arange(5))
    fleet = train_fleet(models[name], 6, images, labels, subsets=subsets, seed=3, mode=mode, **QUICK)
    for member, subset in enumerate(subsets):
        seed = derive_seed(3, member) % 2**32
        alone = models[name](seed)
        history = train(alone, images[subset], labels[subset], seed=seed, **QUICK)
        assert difference(fleet[member], alone) < (1e-4 if mode == "stacked" else 1e-12)
        np.testing.assert_allclose(fleet.losses[:, member], history.column("loss"), atol=1e-4)


def test_a_member_depends_on_its_number_and_the_seed_alone(models, blobs):
    few = train_fleet(models["convolutional"], 2, *blobs, mode="stacked", **QUICK)
    many = train_fleet(models["convolutional"], 5, *blobs, mode="stacked", **QUICK)
    assert difference(few[1], many[1]) < 1e-4


@pytest.mark.parametrize("mode", ["loop", "stacked"])
def test_dropout_is_deterministic_and_the_global_state_is_left_alone(models, blobs, mode):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one, same, other = (train_fleet(models["dropout"], 3, *blobs, seed=s, mode=mode, **QUICK) for s in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert difference(one[2], same[2]) == 0
    assert difference(one[2], other[2]) > 0.01


def test_soft_labels_and_single_logits_can_be_stacked(models, blobs):
    images, labels = blobs
    hard = train_fleet(models["dense"], 2, images, labels, mode="stacked", **QUICK)
    soft = train_fleet(models["dense"], 2, images, np.eye(3)[labels], mode="stacked", **QUICK)
    assert difference(hard[1], soft[1]) < 1e-4

    def one_logit(seed: int) -> nn.Module:
        return nn.Sequential(models["dense"](seed), nn.Linear(3, 1))

    torch.manual_seed(0)
    fleet = train_fleet(one_logit, 2, images, labels % 2, mode="stacked", **QUICK)
    assert fleet.predict(images, device="cpu").shape == (2, 90, 1)


def test_learning_rate_is_halved_in_the_stack_too(models, blobs):
    settings = QUICK | {"halve_every": 1, "lr": 0.05}
    loop, stacked = (train_fleet(models["dense"], 2, *blobs, mode=mode, **settings) for mode in ("loop", "stacked"))
    assert difference(loop[1], stacked[1]) < 1e-4
    constant = train_fleet(models["dense"], 2, *blobs, **settings | {"halve_every": None})
    assert difference(loop[1], constant[1]) > 1e-3


@pytest.mark.parametrize("mode", ["loop", "stacked"])
def test_predict_is_what_each_member_says(models, blobs, mode):
    images, labels = blobs
    fleet = train_fleet(models["normalised"], 3, images, labels, **QUICK)
    logits = fleet.predict(images, batch_size=32, device="cpu", mode=mode)
    assert logits.shape == (3, 90, 3) and logits.dtype == np.float32
    with torch.no_grad():
        expected = torch.stack([member(torch.from_numpy(images)) for member in fleet])
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_save_and_load(models, blobs, tmp_path: Path):
    fleet = train_fleet(models["normalised"], 3, *blobs, **QUICK)
    fleet.save(tmp_path / "fleet")
    loaded = Fleet.load(tmp_path / "fleet", models["normalised"])
    assert len(loaded) == 3 and not loaded[0].training
    assert all(difference(a, b) == 0 for a, b in zip(fleet, loaded, strict=True))
    np.testing.assert_array_equal(loaded.losses, fleet.losses)
    with pytest.raises(UserError, match="another architecture"):
        Fleet.load(tmp_path / "fleet", models["dense"])
    with pytest.raises(UserError, match="holds no fleet"):
        Fleet.load(tmp_path, models["dense"])
    path = tmp_path / "fleet" / "fleet.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match="holds no fleet"):
        Fleet.load(tmp_path / "fleet", models["normalised"])


@pytest.mark.parametrize(("mode", "calls"), [("loop", 6), ("stacked", 3)])
def test_progress_counts_member_epochs(models, blobs, mode, calls):
    seen = []
    train_fleet(models["dense"], 2, *blobs, mode=mode, progress=Callback(lambda *step: seen.append(step)), **QUICK)
    assert len(seen) == calls
    assert seen[-1] == (6, 6)


def test_a_stack_predicts_what_its_members_do(models):
    members = [models["convolutional"](seed) for seed in range(3)]
    images = torch.rand(5, 1, 8, 8)
    with torch.no_grad():
        expected = torch.stack([member(images) for member in members])
    stack = Stack(members, torch.device("cpu"))
    torch.testing.assert_close(stack.logits(images), expected, atol=1e-5, rtol=1e-4)


def test_a_diverging_member_is_named(models, blobs):
    for mode in ("loop", "stacked"):
        with pytest.raises(UserError, match="finite number in epoch 1; lower the learning rate"):
            train_fleet(models["dense"], 2, *blobs, lr=1e30, optimiser="sgd", mode=mode, **QUICK)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 0}, "fleet of 0 was asked for"),
        ({"subsets": [np.arange(5)]}, "1 subsets for 2 members"),
        ({"subsets": [np.arange(5), np.array([], int)]}, "Subset 1 must be a list of at least one"),
        ({"subsets": [np.arange(5), np.array([0, 1, 90])]}, "Subset 1 points outside the 90 images"),
        ({"subsets": [np.arange(5), np.array([0, 3, 6])]}, "labels of subset 1 hold one class only"),
        ({"labels": np.zeros(90, int)}, "one class only"),
        ({"mode": "parallel"}, "mode is 'parallel'"),
        ({"epochs": 0}, "epochs is 0"),
    ],
)
def test_bad_input(models, blobs, change, message):
    arguments = {"count": 2, "images": blobs[0], "labels": blobs[1], **QUICK, **change}
    with pytest.raises(UserError, match=message):
        train_fleet(models["dense"], **arguments)


def test_members_must_be_alike(models, blobs):
    kinds = iter(["dense", "convolutional"])
    with pytest.raises(UserError, match="different layers"):
        train_fleet(lambda seed: models[next(kinds)](seed), 2, *blobs, **QUICK)
    with pytest.raises(UserError, match="at least one member"):
        Fleet([], np.zeros((1, 0)))


def test_recipe_of_the_zoo_can_be_passed_on(blobs):
    images, labels = blobs
    kwargs = zoo.get("ambiguity_member").recipe.as_kwargs(fleet=True) | {"epochs": 2}

    def make(seed: int) -> nn.Module:
        return zoo.make("ambiguity_member", num_classes=3, input_shape=(1, 8, 8), channels=(2, 3), seed=seed)

    assert len(train_fleet(make, 2, images, labels, **kwargs)[:]) == 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("mode", ["loop", "stacked"])
def test_cuda_gives_the_members_of_the_processor(models, blobs, mode):
    cpu = train_fleet(models["normalised"], 3, *blobs, mode="loop", **QUICK)
    cuda = train_fleet(models["normalised"], 3, *blobs, mode=mode, **QUICK | {"device": "cuda"})
    assert max(difference(a, b) for a, b in zip(cpu, cuda, strict=True)) < 5e-3
    again = train_fleet(models["normalised"], 3, *blobs, mode=mode, **QUICK | {"device": "cuda"})
    assert max(difference(a, b) for a, b in zip(cuda, again, strict=True)) == 0
