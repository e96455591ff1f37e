from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from secondguess import zoo
from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.progress import Callback
from secondguess.training import train
from secondguess.training._examples import epoch_batches

QUICK = {"epochs": 3, "batch_size": 16, "device": "cpu"}


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_learns_what_can_be_learnt(models, blobs):
    model = models["convolutional"](0)
    history = train(model, *blobs, epochs=40, batch_size=16, lr=0.01, device="cpu")
    assert history.rows[-1]["accuracy"] > 0.95
    assert history.column("loss")[-1] < 0.2 * history.column("loss")[0]
    assert history.kept_epoch == 40 and not history.stopped_early
    assert not model.training
    assert all(p.is_contiguous() for p in model.parameters())


def test_one_full_batch_step_of_sgd_is_the_textbook_one(models, blobs):
    images, labels = blobs
    trained, reference = models["dense"](1), models["dense"](1)
    train(trained, images, labels, epochs=1, batch_size=90, lr=0.1, optimiser="sgd", device="cpu")
    loss = nn.CrossEntropyLoss()(reference(torch.from_numpy(images)), torch.from_numpy(labels))
    loss.backward()
    for new, old in zip(trained.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(new, old - 0.1 * old.grad, atol=1e-6, rtol=1e-5)


def test_hard_labels_are_soft_labels_with_a_one(models, blobs):
    images, labels = blobs
    hard, soft = models["dense"](1), models["dense"](1)
    train(hard, images, labels, **QUICK)
    train(soft, images, np.eye(3)[labels], **QUICK)
    torch.testing.assert_close(weights(hard), weights(soft), atol=1e-5, rtol=1e-4)


def test_single_logit_learns_two_classes(blobs):
    images, labels = blobs
    chosen = labels < 2
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 1))
    history = train(model, images[chosen], labels[chosen], epochs=40, batch_size=16, lr=0.05, device="cpu")
    assert history.rows[-1]["accuracy"] > 0.95


@pytest.mark.parametrize("name", ["dropout", "normalised"])
def test_same_seed_same_weights_and_the_global_state_is_left_alone(models, blobs, name):
    results = []
    for seed, disturbance in [(0, 1), (0, 2), (1, 1)]:
        torch.manual_seed(disturbance)
        before = torch.get_rng_state()
        model = models[name](0)
        train(model, *blobs, seed=seed, **QUICK)
        assert torch.equal(torch.get_rng_state(), before)
        results.append(weights(model))
    assert same(results[0], results[1])
    assert not same(results[0], results[2])


@pytest.mark.parametrize(
    ("optimiser", "momentum"), [("adam", 0.0), ("sgd", 0.0), ("sgd", 0.9), ("adadelta", 0.0), ("rmsprop", 0.5)]
)
def test_interrupted_and_resumed_is_bit_identical(models, blobs, tmp_path: Path, optimiser, momentum):
    settings = {"epochs": 5, "batch_size": 16, "optimiser": optimiser, "validation": 0.2, "keep_best": True}
    settings |= {"momentum": momentum, "device": "cpu", "lr": 0.01, "halve_every": 2}
    uninterrupted = models["dropout"](0)
    expected = train(uninterrupted, *blobs, **settings)

    def interrupt(done: int, epochs: int) -> None:
        if done in (2, 3):
            raise KeyboardInterrupt

    for _ in range(2):  # once after epoch 2, then once more after epoch 3
        with pytest.raises(KeyboardInterrupt):
            train(models["dropout"](0), *blobs, checkpoint=tmp_path, progress=Callback(interrupt), **settings)
    resumed = models["dropout"](0)
    seen: list[int] = []
    told = Callback(lambda done, _: seen.append(done))
    history = train(resumed, *blobs, checkpoint=tmp_path, progress=told, **settings)
    assert seen == [4, 5]
    assert history == expected
    assert same(weights(resumed), weights(uninterrupted))
    again = models["dropout"](0)
    assert train(again, *blobs, checkpoint=tmp_path, **settings) == expected
    assert same(weights(again), weights(uninterrupted))


def test_checkpoint_holds_one_state_and_can_be_extended(models, blobs, tmp_path: Path):
    train(models["dense"](0), *blobs, checkpoint=tmp_path, **QUICK)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["optimiser-00003.safetensors", "state.json", "weights-00003.safetensors"]
    state = json.loads((tmp_path / "state.json").read_text())
    assert state["epoch"] == 3 and state["settings"]["seed"] == 0 and len(state["history"]) == 3
    longer, straight = models["dense"](0), models["dense"](0)
    train(longer, *blobs, checkpoint=tmp_path, **QUICK | {"epochs": 5})
    train(straight, *blobs, **QUICK | {"epochs": 5})
    assert same(weights(longer), weights(straight))
    with pytest.raises(UserError, match="already at epoch 5 of the 3 asked for"):
        train(models["dense"](0), *blobs, checkpoint=tmp_path, **QUICK)


def test_checkpoint_of_another_training_is_refused(models, blobs, tmp_path: Path):
    images, labels = blobs
    train(models["dense"](0), images, labels, checkpoint=tmp_path, **QUICK)
    with pytest.raises(UserError, match=r"another training \(lr 0.001 there, 0.01 now\).*resume=False"):
        train(models["dense"](0), images, labels, checkpoint=tmp_path, lr=0.01, **QUICK)
    with pytest.raises(UserError, match=r"another training \(data"):
        train(models["dense"](0), images, np.roll(labels, 1), checkpoint=tmp_path, **QUICK)
    with pytest.raises(UserError, match=r"another training \(model"):
        train(models["convolutional"](0), images, labels, checkpoint=tmp_path, **QUICK)
    afresh, straight = models["dense"](0), models["dense"](0)
    train(afresh, images, labels, checkpoint=tmp_path, resume=False, lr=0.01, **QUICK)
    train(straight, images, labels, lr=0.01, **QUICK)
    assert same(weights(afresh), weights(straight))


def test_checkpoint_of_other_initial_weights_is_refused(models, blobs, tmp_path: Path):
    train(models["dense"](0), *blobs, checkpoint=tmp_path, **QUICK)
    with pytest.raises(UserError, match=r"another training \(initial_weights '\w+' there, '\w+' now\).*resume=False"):
        train(models["dense"](1), *blobs, checkpoint=tmp_path, **QUICK | {"epochs": 5})


@pytest.mark.parametrize("share", [None, 0.2])
@pytest.mark.parametrize("wrap", [lambda pixels: pixels, lambda pixels: ImageSet.from_arrays(pixels).images])
def test_checkpoint_of_other_pixels_is_refused(models, blobs, tmp_path: Path, wrap, share):
    images, labels = np.tile(blobs[0], (2, 1, 1, 1)), np.tile(blobs[1], 2)
    settings = QUICK | {"checkpoint": tmp_path, "validation": share}
    expected = train(models["dense"](0), wrap(images), labels, **settings)
    assert train(models["dense"](0), wrap(images.copy()), labels, **settings) == expected
    for row in range(0, len(images), 17):
        changed = images.copy()
        changed[row, 0, 3, 3] = 1 - changed[row, 0, 3, 3]
        with pytest.raises(UserError, match=r"another training \((data|validation)"):
            train(models["dense"](0), wrap(changed), labels, **settings)


@pytest.mark.parametrize("broken", ["state.json", "weights-00003.safetensors", "optimiser-00003.safetensors"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "missing"])
def test_a_damaged_checkpoint_is_reported_and_not_used(models, blobs, tmp_path: Path, broken, damage):
    untouched = models["dense"](0)
    expected = train(untouched, *blobs, checkpoint=tmp_path, **QUICK)
    path = tmp_path / broken
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[:20])
    elif damage == "flipped":
        place = content.index(b'"loss": ') + 10 if path.suffix == ".json" else len(content) - 1
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    elif path.suffix == ".json":
        path.write_text("{}")
    else:
        path.unlink()
    again = models["dense"](0)
    with pytest.warns(UserWarning, match=r"The checkpoint in .* is damaged .*; the training starts afresh"):
        assert train(again, *blobs, checkpoint=tmp_path, **QUICK) == expected
    assert same(weights(again), weights(untouched))
    assert train(models["dense"](0), *blobs, checkpoint=tmp_path, **QUICK) == expected


def test_early_stop_restores_the_best_epoch(models, blobs):
    images, labels = blobs
    noise = np.random.default_rng(0).permutation(labels)  # nothing to learn: validation gets worse before long
    model = models["dense"](0)
    settings = {"batch_size": 8, "lr": 0.05, "validation": (images[60:], noise[60:]), "device": "cpu"}
    history = train(model, images[:60], noise[:60], epochs=60, patience=3, **settings)
    losses = history.column("validation_loss")
    assert history.stopped_early and len(losses) == history.kept_epoch + 3 < 60
    assert losses[history.kept_epoch - 1] == min(losses)
    with torch.no_grad():
        now = nn.CrossEntropyLoss()(model(torch.from_numpy(images[60:])), torch.from_numpy(noise[60:]))
    assert now.item() == pytest.approx(min(losses), abs=1e-5)
    cut_short = models["dense"](0)
    train(cut_short, images[:60], noise[:60], epochs=history.kept_epoch, **settings)
    assert same(weights(model), weights(cut_short))


@pytest.mark.parametrize(
    ("decay", "decaying"),
    [
        ("all", {"0.weight", "0.bias", "3.weight", "3.bias", "6.weight", "6.bias"}),
        ("kernels", {"0.weight", "3.weight", "6.weight"}),
        ("convolutions", {"0.weight", "3.weight"}),
    ],
)
def test_weight_decay_reaches_the_chosen_parameters(models, blobs, decay, decaying):
    settings = {"epochs": 1, "batch_size": 90, "optimiser": "sgd", "lr": 0.1, "device": "cpu"}
    start, plain, decayed = (models["convolutional"](0) for _ in range(3))
    train(plain, *blobs, **settings)
    train(decayed, *blobs, weight_decay=0.5, decay=decay, **settings)
    for name, before in start.named_parameters():
        expected = plain.get_parameter(name) - (0.1 * 0.5 * before if name in decaying else 0)
        torch.testing.assert_close(decayed.get_parameter(name), expected, atol=1e-6, rtol=1e-5)


def test_a_single_image_left_over_joins_the_batch_before(models, blobs):
    batches = epoch_batches(0, 0, 33, 16)
    assert [len(b) for b in batches] == [16, 17]
    assert sorted(np.concatenate(batches)) == list(range(33))
    assert [len(b) for b in epoch_batches(0, 0, 3, 1)] == [1, 1, 1]
    assert [len(b) for b in epoch_batches(0, 0, 1, 16)] == [1]
    images, labels = blobs
    train(models["normalised"](0), images[:33], labels[:33], **QUICK)


def test_recipe_of_the_zoo_can_be_passed_on(blobs):
    images, labels = blobs
    kwargs = zoo.get("icos_a").recipe.as_kwargs() | {"epochs": 1}
    model = zoo.make("icos_a", num_classes=3, input_shape=(1, 16, 16), seed=0)
    assert len(train(model, np.kron(images, np.ones((1, 1, 2, 2), np.float32)), labels, **kwargs).rows) == 1


def test_images_may_come_from_any_source(models, blobs):
    images, labels = blobs

    class Source:
        def __len__(self) -> int:
            return len(images)

        def __getitem__(self, index):
            return images[index].astype(np.float64)

    from_source, from_array = models["dense"](0), models["dense"](0)
    train(from_source, Source(), labels, **QUICK)
    read_only = images.copy()
    read_only.flags.writeable = False
    train(from_array, read_only, labels, **QUICK)
    assert same(weights(from_source), weights(from_array))


def test_diverging_training_says_where_and_what_to_do(models, blobs):
    with pytest.raises(UserError, match=r"no longer a finite number in epoch \d+; lower the learning rate"):
        train(models["dense"](0), *blobs, lr=1e18, optimiser="sgd", **QUICK)


def test_bad_pixels_are_not_blamed_on_the_learning_rate(models, blobs):
    images, labels = blobs[0].copy(), blobs[1]
    images[11, 0, 2, 2] = np.nan
    with pytest.raises(UserError, match="Some images contain NaN or infinity"):
        train(models["dense"](0), images, labels, **QUICK)


def test_softmax_model_is_refused(models, blobs):
    with pytest.raises(UserError, match="returns probabilities, but logits are needed"):
        train(nn.Sequential(models["dense"](0), nn.Softmax(dim=1)), *blobs, **QUICK)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": np.zeros((0, 1, 8, 8), np.float32), "labels": np.zeros(0, int)}, "set of images is empty"),
        ({"images": np.zeros((90, 8, 8), np.float32)}, r"shape \(n, 8, 8\)"),
        ({"images": np.zeros((90, 1, 8, 8), np.uint8)}, "images are uint8.*divide whole numbers by 255"),
        ({"images": np.zeros((90, 1, 9, 9), np.float32)}, r"cannot take images of shape \(1, 9, 9\)"),
        ({"labels": np.zeros(89, int)}, "90 images but 89 labels"),
        ({"labels": np.arange(90) % 4}, "labels go up to 3, but the model tells 3 classes apart"),
        ({"labels": np.arange(90) % 3 - 1}, "30 of the labels are negative"),
        ({"labels": np.zeros(90, int)}, "one class only"),
        ({"labels": np.tile([1.0, 0.0, 0.0], (90, 1))}, "one class only"),
        ({"labels": np.full((90, 3), 0.5)}, "add up to 1"),
        ({"labels": np.full((90, 2), 0.5)}, "2 columns, but the model has 3 outputs"),
        ({"labels": np.linspace(0, 1, 90)}, "labels are float64 of shape"),
        ({"epochs": 0}, "epochs is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"lr": 0.0}, "learning rate is 0.0"),
        ({"momentum": 1.5}, "momentum must lie in"),
        ({"nesterov": True, "optimiser": "sgd"}, "nesterov=True needs a momentum"),
        ({"optimiser": "lion"}, "no optimiser 'lion'"),
        ({"decay": "some"}, "decay is 'some'"),
        ({"halve_every": 0}, "halve_every is 0"),
        ({"validation": 0.0}, "leaves 0 to validate on"),
        ({"validation": (np.zeros((4, 1, 9, 9), np.float32), np.zeros(4, int))}, "cannot take images"),
        ({"validation": (np.zeros((4, 1, 8, 8), np.float32), np.full(4, 3))}, "labels go up to 3"),
        ({"patience": 2}, "need validation data"),
        ({"patience": 0, "validation": 0.2}, "patience is 0"),
        ({"monitor": "loss", "validation": 0.2}, "monitor is 'loss'"),
        ({"device": "tpu9"}, "'tpu9' is not a device"),
    ],
)
def test_bad_input(models, blobs, change, message):
    arguments = {"images": blobs[0], "labels": blobs[1], **QUICK, **change}
    with pytest.raises(UserError, match=message):
        train(models["dense"](0), **arguments)
