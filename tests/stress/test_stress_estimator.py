from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from secondguess import UserError
from secondguess.images import ImageSet
from secondguess.stress.ambiguous import AmbiguityEstimator, estimator
from secondguess.stress.ambiguous.estimator import agreement_of, balanced_rows
from secondguess.stress.ambiguous.estimator_members import FoldedMembers, MemberNetworks, fitting_depth
from secondguess.zoo.small import ambiguity_members

CHANNELS = [(2, 3), (1, 2, 3), (3,), (2, 1, 1), (1, 3)]


def networks(shape=(1, 8, 8), outputs=1) -> MemberNetworks:
    return MemberNetworks(CHANNELS, shape, outputs, range(len(CHANNELS)))


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def bars(count: int = 240, side: int = 8, classes: int = 2) -> ImageSet:
    """Horizontal, vertical and diagonal bars in noise."""
    rng = np.random.default_rng(0)
    images = rng.uniform(0, 0.2, (count, 1, side, side)).astype(np.float32)
    labels = np.arange(count) % classes
    for image, label in zip(images, labels, strict=True):
        place = rng.integers(1, side - 1)
        lines = (image[0, place], image[0, :, place], np.einsum("ii->i", image[0]))
        lines[label][...] = rng.uniform(0.8, 1.0)
    return ImageSet.from_arrays(images, labels, class_names=["flat", "tall", "slope"][:classes], layout="NCHW")


@pytest.fixture(scope="module")
def trained() -> AmbiguityEstimator:
    maker = AmbiguityEstimator((0, 1), members=6, epochs=30, batch_size=48, lr=0.02, device="cpu")
    return maker.fit(bars())


def test_calibration_divides_the_logits_of_overconfident_members():
    options = {"members": 4, "epochs": 40, "batch_size": 16, "lr": 0.05, "device": "cpu"}
    data = bars(60)
    noisy = ImageSet.from_arrays(
        data.images[:], np.where(np.arange(60) % 5 == 0, 1 - data.labels, data.labels), layout="NCHW"
    )
    plain, calm = (AmbiguityEstimator((0, 1), calibrated=yes, **options).fit(noisy) for yes in (False, True))
    images = noisy.images[:]
    logits = [np.log(one.members(images)) - np.log1p(-one.members(images)) for one in (plain, calm)]
    temperatures = np.median(logits[0] / logits[1], axis=1)
    np.testing.assert_allclose(logits[0], temperatures[:, None] * logits[1], rtol=1e-3, atol=1e-4)
    assert (temperatures > 1 - 1e-4).all() and temperatures.max() > 1.05
    rows, which = balanced_rows(noisy, (0, 1), 0)
    held_out = np.random.default_rng([0, 1]).permutation(len(rows))[: len(rows) // 6]
    for member, temperature in enumerate(temperatures):
        z = torch.from_numpy(logits[0][member, rows[held_out]])

        def loss(t: float, z: torch.Tensor = z) -> float:
            first = torch.from_numpy((which[held_out] == 0).astype(float))
            return float(functional.binary_cross_entropy_with_logits(z / t, first))

        assert temperature > 19.9 or loss(temperature) <= loss(temperature * 1.05) + 1e-6
        assert temperature < 1.001 or loss(temperature) <= loss(temperature / 1.05) + 1e-6


def test_the_published_members_have_the_published_sizes():
    channels = ambiguity_members(32, 50)
    assert [sum(len(widths) == depth for widths in channels) for depth in (2, 3, 4)] == [11, 21, 18]
    stack = MemberNetworks(channels, (1, 28, 28), 1, range(50))
    used = {name: int((value != 0).sum()) for name, value in stack.named_parameters()}
    gains = sum(sum(widths) for widths in channels)  # of batch normalisation begin at one, shifts at zero
    assert sum(value for name, value in used.items() if not name.startswith(("gain", "shift"))) + 2 * gains == 12_928


@pytest.mark.parametrize(("shape", "outputs"), [((1, 8, 8), 1), ((3, 9, 14), 3)])
def test_a_stack_computes_what_its_members_compute(shape, outputs):
    stack = networks(shape, outputs).eval()
    images = random(5, 4, *shape)
    logits = stack(images)
    assert logits.shape == (5, 4, outputs)
    for index in range(5):
        torch.testing.assert_close(logits[index], stack.member(index)(images[index]), atol=1e-5, rtol=1e-4)


def test_three_steps_change_every_member_as_alone_and_never_the_padding():
    stack = networks().double().train()
    alone = [stack.member(index).double().train() for index in range(5)]
    padding = {name: value == 0 for name, value in stack.named_parameters() if name[:4] in ("weig", "head")}
    together = torch.optim.Adam(stack.parameters(), lr=0.01)
    singly = [torch.optim.Adam(model.parameters(), lr=0.01) for model in alone]
    truth = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0, 0.0]).double()
    for step in range(3):
        images = random(5, 6, 1, 8, 8, seed=step).double()
        logits = stack(images)[..., 0]
        together.zero_grad()
        functional.binary_cross_entropy_with_logits(logits, truth.expand(5, 6), reduction="none").mean(
            1
        ).sum().backward()
        together.step()
        for model, optimiser, own in zip(alone, singly, images, strict=True):
            optimiser.zero_grad()
            functional.binary_cross_entropy_with_logits(model(own)[:, 0], truth).backward()
            optimiser.step()
    after = stack.eval()
    for index, model in enumerate(alone):
        mine = after.member(index).double()
        with torch.no_grad():
            expected = model.eval()(images[index])
        # A bias before batch normalisation has no gradient but rounding, which Adam blows up; outputs ignore it.
        torch.testing.assert_close(mine(images[index]).detach(), expected, atol=1e-5, rtol=1e-5)
    for name, value in stack.named_parameters():
        if name in padding:
            assert (value[padding[name]] == 0).all()
    assert sum(int(zero.sum()) for zero in padding.values()) > 100


@pytest.mark.parametrize("outputs", [1, 3])
def test_folding_changes_nothing_and_groups_equal_one_convolution(outputs):
    stack = networks(outputs=outputs).train()
    stack(random(5, 20, 1, 8, 8))  # so that running means are not the initial ones
    stack.eval()
    images = random(7, 1, 8, 8, seed=3).requires_grad_()
    results = [FoldedMembers(stack, dense=dense)(images) for dense in (False, True)]
    with torch.no_grad():
        logits = torch.stack([stack.member(index)(images * 2 - 1) for index in range(5)])
        expected = torch.softmax(logits, -1)
        if outputs == 1:
            expected = torch.cat([torch.sigmoid(logits), 1 - torch.sigmoid(logits)], dim=-1)
    for found in results:
        torch.testing.assert_close(found.detach(), expected, atol=1e-5, rtol=1e-4)
    gradients = [torch.autograd.grad(found[..., 0].sum(), images)[0] for found in results]
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-5, rtol=1e-3)
    assert gradients[0].abs().max() > 0
    assert not list(FoldedMembers(stack, dense=False).parameters())


def test_a_block_needs_something_to_halve():
    assert fitting_depth((1, 2, 3, 4), (1, 28, 28)) == (1, 2, 3, 4)
    assert fitting_depth((1, 2, 3, 4), (1, 8, 30)) == (1, 2, 3)


def test_agreement_tells_a_quarrel_from_doubt():
    quarrel = np.zeros((50, 1, 2))
    quarrel[:25, :, 0] = quarrel[25:, :, 1] = 1
    doubt = np.full((50, 1, 2), 0.5)
    assert agreement_of(quarrel).variance == pytest.approx([0.25])
    assert agreement_of(quarrel).mutual_information == pytest.approx([math.log(2)])
    assert agreement_of(doubt).variance == pytest.approx([0])
    assert agreement_of(doubt).mutual_information == pytest.approx([0])
    assert quarrel.mean(axis=0) == pytest.approx(doubt.mean(axis=0))


def test_squared_distance_from_a_half_is_that_of_the_mean_plus_the_variance():
    p = np.random.default_rng(0).uniform(size=(7, 30))
    found = agreement_of(np.stack([p, 1 - p], axis=-1))
    np.testing.assert_allclose(((p - 0.5) ** 2).mean(axis=0), (p.mean(axis=0) - 0.5) ** 2 + found.variance)


def test_the_estimate_is_the_mean_of_the_members(trained):
    images = bars(37).images[:]
    members, (mean, agreement) = trained.members(images), trained.judge(images)
    assert members.shape == (6, 37) and members.min() >= 0 and members.max() <= 1
    np.testing.assert_allclose(trained.predict(images), members.mean(axis=0))
    np.testing.assert_allclose(mean[:, 0], members.mean(axis=0))
    np.testing.assert_allclose(trained.agreement(images).variance, members.var(axis=0), atol=1e-7)
    np.testing.assert_allclose(agreement.mutual_information, trained.agreement(images).mutual_information)


def test_it_learns_and_is_unsure_of_what_is_both(trained):
    images = bars().images[:]
    labels = bars().labels
    p = trained.predict(images)
    assert ((p > 0.5) == (labels == 0)).mean() > 0.9
    assert len(trained.history) == 30
    crosses = np.maximum(images[labels == 0][:50], images[labels == 1][:50])
    assert np.abs(trained.predict(crosses) - 0.5).mean() < np.abs(p - 0.5).mean()


def test_the_best_epoch_counts(trained):
    best = min(row["validation_loss"] for row in trained.history)
    rows, which = balanced_rows(bars(), (0, 1), trained.seed)
    order = np.random.default_rng([trained.seed, 1]).permutation(len(rows))[: len(rows) // 6]
    p = trained.judge(bars().images[rows[order]])[0]
    assert -np.log(p[np.arange(len(order)), which[order]]).mean() == pytest.approx(best, rel=1e-4)


def test_answers_do_not_depend_on_the_batch(trained, monkeypatch):
    images = bars(30).images[:]
    whole = trained.members(images)
    monkeypatch.setattr(estimator, "BLOCK", 7)
    np.testing.assert_allclose(trained.members(images), whole, atol=1e-6)


def test_the_seed_decides():
    def weights(seed):
        made = AmbiguityEstimator((0, 1), members=3, epochs=2, batch_size=24, seed=seed, device="cpu").fit(bars(60))
        return made.networks.state_dict()["weight0"]

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


@pytest.mark.parametrize("subsets", ["disjoint", "batch"])
def test_members_see_other_images(subsets):
    maker = AmbiguityEstimator((0, 1), members=4, batch_size=20, subsets=subsets, device="cpu")
    learn = np.random.default_rng(5).permutation(83)
    epochs = [list(maker._steps(learn, epoch, torch.device("cpu"))) for epoch in range(6)]
    for steps in epochs:
        everything = torch.cat([step.flatten() for step in steps])
        assert len(everything.unique()) == len(everything) == 80
        assert {tuple(step.shape) for step in steps} == {(4, 5)}
    seen = [{int(row) for steps in epochs for step in steps for row in step[member]} for member in range(4)]
    shared = len(seen[0] & seen[1])
    assert shared == 0 if subsets == "disjoint" else shared > 10
    assert not torch.equal(epochs[0][0], epochs[1][0])


def test_rarer_classes_are_repeated_until_all_are_as_frequent():
    images = np.zeros((10, 1, 8, 8), np.float32)
    data = ImageSet.from_arrays(images, [0, 0, 0, 0, 0, 0, 1, 1, 2, 2], class_names="abc", layout="NCHW")
    rows, which = balanced_rows(data, (1, 0), seed=0)
    assert np.bincount(which).tolist() == [6, 6]
    assert set(rows[which == 0]) == {6, 7} and set(rows[which == 1]) == set(range(6))


def test_three_classes_end_in_a_softmax():
    data = bars(150, classes=3)
    made = AmbiguityEstimator((2, 0, 1), members=4, epochs=40, batch_size=40, lr=0.02, device="cpu").fit(data)
    p = made.predict(data.images[:])
    assert p.shape == (150, 3) and made.members(data.images[:]).shape == (4, 150, 3)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-6)
    assert (np.array([2, 0, 1])[p.argmax(axis=1)] == data.labels).mean() > 0.7


def test_it_can_be_saved_and_loaded_again(trained, tmp_path):
    trained.save(tmp_path / "estimator.safetensors")
    again = AmbiguityEstimator.load(tmp_path / "estimator.safetensors", device="cpu")
    images = bars(20).images[:]
    assert np.array_equal(again.members(images), trained.members(images))
    assert again.settings() == trained.settings() and again.history == trained.history


def test_the_module_passes_gradients_to_images_and_changes_nothing(trained):
    module = trained.module()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    images = torch.from_numpy(bars(8).images[:]).requires_grad_()
    module(images).square().sum().backward()
    assert images.grad is not None and images.grad.abs().max() > 0
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert isinstance(module, nn.Module) and module is trained.module()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": (3,)}, "needs two or more different"),
        ({"classes": (3, 3)}, "needs two or more different"),
        ({"subsets": "some"}, "subsets is 'some'"),
        ({"members": 9, "batch_size": 8}, "9 members"),
    ],
)
def test_bad_parameters(options, message):
    with pytest.raises(UserError, match=message):
        AmbiguityEstimator(**({"classes": (0, 1)} | options))


def test_bad_data(trained, tmp_path):
    with pytest.raises(UserError, match="has not been trained"):
        AmbiguityEstimator((0, 1)).predict(bars(3).images[:])
    with pytest.raises(UserError, match="too few for 50 members"):
        AmbiguityEstimator((0, 1), device="cpu").fit(bars(20))
    with pytest.raises(UserError, match="no image of the class '7'"):
        AmbiguityEstimator((0, 7), members=2, device="cpu").fit(bars(20))
    with pytest.raises(UserError, match="was trained on"):
        trained.predict(np.zeros((2, 1, 9, 9), np.float32))
    with pytest.raises(UserError, match="There is no ambiguity estimator"):
        AmbiguityEstimator.load(tmp_path / "nothing.safetensors")
