"""Recorded steps: the same members as steps that are computed one by one. Recording needs a CUDA device."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from secondguess.errors import UserError
from secondguess.training import train_fleet
from secondguess.training._examples import Examples
from secondguess.training._optimiser import Optimisation
from secondguess.training._replay import WARM_UP, Replayed
from secondguess.training._run import Run

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
SETTINGS = {"epochs": 4, "batch_size": 16, "lr": 1e-3}  # 90 images: five batches of 16 and one of 10


def weights(model: nn.Module) -> Tensor:
    return torch.cat([tensor.detach().double().flatten() for tensor in model.state_dict().values()])


class Reads(nn.Module):
    """Looks at a number on the processor, which cannot be recorded."""

    def forward(self, x: Tensor) -> Tensor:
        return x if float(x.detach().sum().cpu()) > -1e9 else -x


def dropping(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 3))


def test_on_a_processor_nothing_is_recorded(models, blobs):
    plain, replayed = (
        train_fleet(models["normalised"], 2, *blobs, device="cpu", replay=replay, **SETTINGS)
        for replay in (False, True)
    )
    for one, other in zip(plain, replayed, strict=True):
        assert torch.equal(weights(one), weights(other))
    np.testing.assert_array_equal(plain.losses, replayed.losses)


@pytest.mark.gpu
@on_a_gpu
@pytest.mark.parametrize("kind", ["dense", "convolutional", "normalised"])
@pytest.mark.parametrize("mode", ["loop", "stacked"])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"halve_every": 2},
        {"optimiser": "sgd", "momentum": 0.9},
        {"optimiser": "adadelta"},
        {"optimiser": "rmsprop"},
    ],
)
def test_members_are_those_of_single_steps(models, blobs, kind, mode, how):
    settings = SETTINGS | {"device": "cuda", "mode": mode} | how
    plain, replayed = (train_fleet(models[kind], 2, *blobs, replay=replay, **settings) for replay in (False, True))
    np.testing.assert_allclose(replayed.losses, plain.losses, rtol=2e-4)
    for one, other in zip(plain, replayed, strict=True):
        torch.testing.assert_close(
            weights(one), weights(other), rtol=1e-3, atol=2e-3
        )  # Adam turns rounding of tiny gradients into steps


@pytest.mark.gpu
@on_a_gpu
@pytest.mark.parametrize("mode", ["loop", "stacked"])
def test_the_seed_decides_and_dropout_is_drawn_anew(blobs, mode):
    settings = SETTINGS | {"device": "cuda", "mode": mode}
    before = torch.cuda.get_rng_state()
    first, again = (train_fleet(dropping, 2, *blobs, seed=3, **settings) for _ in range(2))
    other = train_fleet(dropping, 2, *blobs, seed=4, **settings)
    assert torch.equal(torch.cuda.get_rng_state(), before)
    assert torch.equal(weights(first[0]), weights(again[0])) and torch.equal(weights(first[1]), weights(again[1]))
    assert not torch.equal(weights(first[0]), weights(other[0]))


@pytest.mark.gpu
@on_a_gpu
def test_every_replay_drops_other_units():
    drop = nn.Dropout(0.5)
    step = Replayed(lambda x: (drop(x),))
    x = torch.ones(1000, device="cuda")
    outcomes = {tuple(step(x)[0].tolist()) for _ in range(WARM_UP + 5)}
    assert len(outcomes) == WARM_UP + 5


@pytest.mark.gpu
@on_a_gpu
def test_other_shapes_are_computed_and_results_stay():
    step = Replayed(lambda x: (2 * x,))
    results = [step(torch.full((4,), float(number), device="cuda"))[0] for number in range(8)]
    assert step(torch.ones(3, device="cuda"))[0].tolist() == [2.0] * 3
    assert [one.tolist() for one in results] == [[2.0 * number] * 4 for number in range(8)]


@pytest.mark.gpu
@on_a_gpu
def test_what_cannot_be_recorded_is_said_and_the_process_goes_on(blobs):
    def reading(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), Reads(), nn.Dropout(0.1), nn.Linear(64, 3))

    settings = SETTINGS | {"device": "cuda", "mode": "loop"}
    stream = torch.cuda.current_stream()
    with pytest.raises(UserError, match=r"A training step cannot be recorded \(.+\); pass replay=False\."):
        train_fleet(reading, 2, *blobs, **settings)
    assert torch.cuda.current_stream() == stream
    assert len(train_fleet(reading, 2, *blobs, replay=False, **settings)) == 2


class Fake(Replayed):
    """Records nothing, but tells what would be computed, recorded and replayed; needs no GPU."""

    def __init__(self, step):
        super().__init__(step)
        self.told: list[str] = []

    def _beside(self, inputs):
        self.told.append("computed")
        return self._step(*inputs)

    def _recorded(self, inputs):
        self.told.append("recorded")
        self._inputs = tuple(one.clone() for one in inputs)
        self._outputs = tuple(torch.empty_like(one) for one in self._step(*inputs))
        return self

    def replay(self):
        self.told.append("replayed")
        for held, value in zip(self._outputs, self._step(*self._inputs), strict=True):
            held.copy_(value)


def test_the_first_steps_and_other_shapes_are_computed_the_rest_replayed():
    step = Fake(lambda x, y: (x + y,))
    results = [step(torch.full((2,), float(k)), torch.ones(2))[0] for k in range(WARM_UP + 2)]
    assert step(torch.zeros(3), torch.ones(3))[0].tolist() == [1.0] * 3
    assert step.told == ["computed"] * WARM_UP + ["recorded", "replayed", "replayed"]
    assert [one.tolist() for one in results] == [[k + 1.0] * 2 for k in range(WARM_UP + 2)], (
        "later steps change nothing"
    )


def test_a_changed_learning_rate_is_told_so_that_a_new_recording_begins():
    model = nn.Linear(2, 2)
    optimisation = Optimisation(lr=1.0, halve_every=2)
    optimiser = optimisation.build(model.named_parameters(), model)
    assert [optimisation.start_epoch(optimiser, epoch) for epoch in range(5)] == [False, False, True, False, True]
    assert optimiser.param_groups[0]["lr"] == 0.25


def test_an_optimiser_that_is_not_recorded_is_torch_s_own_choice():
    model = nn.Linear(2, 2)
    assert Optimisation().build(model.named_parameters(), model).defaults["fused"] is None


def test_a_training_that_has_ended_is_let_go(models, blobs):
    model = models["dense"](0)
    examples = Examples(*blobs, torch.device("cpu"))
    run = Run(model, examples, None, Optimisation(), 16, 0, None)
    run.epoch()
    gone = weakref.ref(run)
    gc.disable()
    try:
        del run
        assert gone() is None, "it would hold a GPU's memory until somebody collects"
    finally:
        gc.enable()
