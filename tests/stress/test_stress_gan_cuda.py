from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch

from secondguess.stress.ambiguous.estimator_members import FoldedMembers, MemberNetworks
from secondguess.stress.ambiguous.gan_losses import Combine, Target
from secondguess.stress.ambiguous.gan_networks import GanArchitecture
from secondguess.stress.ambiguous.gan_step import Ambiguity, GanRecipe
from secondguess.stress.ambiguous.gan_training import RealImages, Watch, fresh, train_stage
from secondguess.zoo.small import ambiguity_members

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

SHAPE = (1, 28, 28)


def judge_on(device: str) -> FoldedMembers:
    members = MemberNetworks(ambiguity_members(32, 8), SHAPE, 1, range(8)).to(device).eval()
    return FoldedMembers(members, dense=device == "cuda").to(device)


def trained(combine="alternate", **recipe):
    device = torch.device("cuda", 0)
    pixels = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (64, *SHAPE)).astype(np.float32)).to(device)
    data = RealImages(pixels, torch.arange(64, device=device), "noise")
    recipe = GanRecipe(batch_size=8, **recipe)
    start = fresh(SHAPE, GanArchitecture(8, 8, 2), recipe, seed=0)
    options = {"target": Target(2, (0.5, 0.5)), "watch": Watch(collapse=0)}
    first = train_stage(start, data, recipe, 2, **options)
    ambiguity = Ambiguity(judge_on("cuda"), combine=combine)
    return train_stage(first, data, recipe, 2, ambiguity=ambiguity, **options)


@pytest.mark.parametrize("combine", get_args(Combine))
def test_a_recorded_iteration_is_the_iteration(combine):
    recorded, plain = trained(combine, graphs=True).weights, trained(combine, graphs=False).weights
    for name, value in plain.items():
        torch.testing.assert_close(recorded[name], value, atol=1e-3, rtol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("combine", get_args(Combine))
def test_a_compiled_iteration_is_the_iteration(combine):
    # Adam turns rounding into steps of full length, so that weights drift apart and losses do not.
    compiled, plain = (trained(combine, compiled=one, precision="float32").history for one in (True, False))
    for ours, theirs in zip(compiled, plain, strict=True):
        assert ours == pytest.approx(theirs, rel=0.02, abs=1e-3)


def test_the_same_seed_gives_the_same_weights():
    first, second = trained().weights, trained().weights
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_members_judge_alike_on_both_devices():
    images = torch.rand(5, *SHAPE, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(judge_on("cuda")(images.cuda()).cpu(), judge_on("cpu")(images), atol=2e-3, rtol=1e-2)
