from __future__ import annotations

import copy
import io
from functools import partial
from typing import get_args

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from secondguess import UserError
from secondguess.images import ImageSet
from secondguess.stress.ambiguous import gan_training
from secondguess.stress.ambiguous.gan_losses import Combine, Target, ambiguity_loss, guarded
from secondguess.stress.ambiguous.gan_networks import Gan, GanArchitecture
from secondguess.stress.ambiguous.gan_step import Ambiguity, GanRecipe, Step, adam
from secondguess.stress.ambiguous.gan_training import (
    Collapsed,
    RealImages,
    Watch,
    diversity,
    fresh,
    sample,
    sample_sheet,
    train_stage,
)
from secondguess.stress.ambiguous.gasten import ClassifierJudge, small_judge
from secondguess_lab.bench.gan import run

CPU = torch.device("cpu")
TINY = GanArchitecture(latent=6, filters=4, blocks=2)
RECIPE = GanRecipe(batch_size=8, lr=1e-3)
HALF = Target(2, (0.5, 0.5))
CALM = Watch(collapse=0)


def blobs(count: int = 64, side: int = 8) -> ImageSet:
    """A bright left half, or a bright upper half."""
    rng = np.random.default_rng(0)
    images = rng.uniform(0, 0.3, (count, 1, side, side)).astype(np.float32)
    labels = np.arange(count) % 2
    images[labels == 0, :, :, : side // 2] += 0.6
    images[labels == 1, :, : side // 2] += 0.6
    return ImageSet.from_arrays(images, labels, class_names=["left", "upper"], layout="NCHW")


class Sides(nn.Module):
    """Two judges: one compares left with upper, the other is twice as sure."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        left, upper = images[..., :, :4].mean(dim=(1, 2, 3)), images[..., :4, :].mean(dim=(1, 2, 3))
        p = torch.stack([torch.sigmoid(6 * (left - upper) + 2), torch.sigmoid(12 * (left - upper) + 2)])
        return torch.stack([p, 1 - p], dim=-1)


DATA = RealImages.of(blobs(), (0, 1), 0, CPU)


def begin(architecture=TINY):
    return fresh((1, 8, 8), architecture, RECIPE, seed=4)


def train(start, epochs, **options):
    options = {"target": HALF, "seed": 3, "watch": CALM} | options
    return train_stage(start, DATA, options.pop("recipe", RECIPE), epochs, **options)


def assert_same(first, second):
    assert first.weights.keys() == second.weights.keys()
    for name, value in first.weights.items():
        assert torch.equal(value, second.weights[name]), name


def by_hand(gan: Gan, real, noise, ambiguity: Ambiguity | None, optimisers) -> None:
    """One iteration as the paper has it, with probabilities and two optimisers."""
    bce = nn.BCELoss()
    n = len(real)
    ones, zeros = torch.ones(n), torch.zeros(n)

    def descend(which, loss, clip=None):
        gan.zero_grad()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(gan.generator.parameters(), clip)
        optimisers[which].step()

    fake = gan.generator(noise[0]).detach()
    p = torch.sigmoid(gan.discriminator(torch.cat([real, fake])))
    descend("d", bce(p[:n], ones) + bce(p[n:], zeros))

    def gaussian(images):
        mean = ambiguity.judge((images + 1) / 2)[..., 0].mean(dim=0)
        return nn.GaussianNLLLoss()(mean, torch.full((n,), 0.5), torch.full((n,), ambiguity.variance))

    if ambiguity is not None and ambiguity.combine == "alternate":
        descend("g", gaussian(gan.generator(noise[1])), ambiguity.alpha)
    images = gan.generator(noise[1])
    loss = bce(torch.sigmoid(gan.discriminator(images)), ones)
    if ambiguity is not None and ambiguity.combine == "sum":
        loss = loss + ambiguity.alpha * gaussian(images)
    descend("g", loss, 1.0)


@pytest.mark.parametrize(
    "ambiguity",
    [None, Ambiguity(Sides(), "gaussian", "sum", 0.7, 0.1), Ambiguity(Sides(), "gaussian", "alternate", 0.7, 0.1)],
    ids=["stage 1", "sum", "alternate"],
)
def test_three_iterations_are_those_of_the_paper(ambiguity):
    gan = Gan((1, 8, 8), TINY, seed=1).train()
    other = copy.deepcopy(gan)
    step = Step(gan, adam(gan, RECIPE, CPU), DATA.pixels, RECIPE, ambiguity, classes=2)
    optimisers = {
        "g": torch.optim.Adam(other.generator.parameters(), lr=1e-3, betas=(0.0, 0.999)),
        "d": torch.optim.Adam(other.discriminator.parameters(), lr=1e-3, betas=(0.0, 0.999)),
    }
    for index in range(3):
        rows = torch.arange(8) + 8 * index
        noise = torch.randn(2, 8, 6, generator=torch.Generator().manual_seed(index))
        step(rows, noise, torch.full((2, 8, 2), 0.5))
        by_hand(other, DATA.pixels[rows], noise, ambiguity, optimisers)
    for (name, mine), theirs in zip(gan.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=1e-3, msg=lambda text, name=name: f"{name}: {text}")


def test_alternating_takes_two_steps_of_the_generator():
    gan = Gan((1, 8, 8), TINY).train()
    optimiser = adam(gan, RECIPE, CPU)
    step = Step(gan, optimiser, DATA.pixels, RECIPE, Ambiguity(Sides(), combine="alternate"), classes=2)
    for _ in range(5):
        step(torch.arange(8), torch.randn(2, 8, 6), torch.full((2, 8, 2), 0.5))
    counts = {
        part: int(optimiser.state[next(getattr(gan, part).parameters())]["step"])
        for part in ("generator", "discriminator")
    }
    assert counts == {"generator": 10, "discriminator": 5}


def test_a_sum_with_alpha_zero_is_stage_1_continued():
    start = train(begin(), 2)
    more = train(start, 2)
    nothing = train(start, 2, ambiguity=Ambiguity(Sides(), "agreement", "sum", alpha=0.0))
    assert_same(more, nothing)
    guarded_nothing = train(start, 2, ambiguity=Ambiguity(Sides(), "agreement", "guarded", alpha=0.0))
    for name, value in more.weights.items():
        torch.testing.assert_close(guarded_nothing.weights[name], value, atol=1e-4, rtol=1e-3)
    something = train(start, 2, ambiguity=Ambiguity(Sides(), "agreement", "alternate", alpha=0.0))
    assert not torch.equal(more.weights["generator.projection"], something.weights["generator.projection"])


@pytest.mark.parametrize("combine", ["sum", "guarded"])
def test_stage_2_is_the_gradient_it_says_it_is(combine):
    gan = Gan((1, 8, 8), TINY, seed=1).train()
    step = Step(gan, adam(gan, RECIPE, CPU), DATA.pixels, RECIPE, Ambiguity(Sides(), "agreement", combine), classes=2)
    seen = {}
    step._update = lambda part, loss, clip: seen.update(  # type: ignore[method-assign]
        {part: torch.autograd.grad(loss, list(getattr(gan, part).parameters()))}
    )
    before = copy.deepcopy(gan)
    noise = torch.randn(2, 8, 6, generator=torch.Generator().manual_seed(0))
    step(torch.arange(8), noise, torch.full((2, 8, 2), 0.5))
    with torch.no_grad():  # as many passes through both networks in training mode
        before.discriminator(torch.cat([DATA.pixels[:8], before.generator(noise[0])]))
    made = before.generator(noise[1])
    realism = torch.nn.functional.softplus(-before.discriminator(made)).mean()
    doubt = ambiguity_loss("agreement", Sides()((made + 1) / 2), torch.full((8, 2), 0.5), 0.1)
    at_images = [torch.autograd.grad(one, made, retain_graph=True)[0] for one in (realism, doubt)]
    wanted = sum(at_images) if combine == "sum" else guarded(*at_images, made.detach(), 1.0)
    expected = torch.autograd.grad(made, list(before.generator.parameters()), wanted)
    for mine, theirs in zip(seen["generator"], expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-4)


def test_two_epochs_and_two_more_are_four():
    assert_same(train(begin(), 4), train(train(begin(), 2), 2))


@pytest.mark.parametrize("stage", [1, 2])
def test_an_interrupted_training_goes_on_as_if_nothing_had_happened(stage, tmp_path, monkeypatch):
    options = {} if stage == 1 else {"ambiguity": Ambiguity(Sides())}
    whole = train(begin(), 4, **options)
    watch = Watch(tmp_path / "run", every=2, sheets=0, collapse=0)
    really = gan_training._epoch

    def interrupted(*arguments):
        if arguments[-1] == 3:
            raise KeyboardInterrupt
        return really(*arguments)

    monkeypatch.setattr(gan_training, "_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(begin(), 4, watch=watch, **options)
    monkeypatch.setattr(gan_training, "_epoch", really)
    resumed = train(begin(), 4, watch=watch, **options)
    assert_same(whole, resumed)
    assert resumed.history == whole.history
    monkeypatch.setattr(gan_training, "_epoch", None)  # nothing is left to be done
    assert_same(whole, train(begin(), 4, watch=watch, **options))


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    watch = Watch(tmp_path, every=1, collapse=0)
    train(begin(), 1, watch=watch)
    with pytest.raises(UserError, match="belongs to another training"):
        train(begin(), 1, watch=watch, seed=9)
    with pytest.raises(UserError, match="at epoch 1 of the 0"):
        train(begin(), 0, watch=watch)


def test_the_seed_decides():
    weights = [train(begin(), 1, seed=seed).weights["generator.projection"] for seed in (1, 1, 2)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("loss", ["confusion", "gaussian", "agreement"])
@pytest.mark.parametrize("combine", ["sum", "alternate", "guarded"])
def test_stage_2_makes_the_judges_hesitate_and_leaves_them_alone(loss, combine):
    judge = Sides()
    start = train(begin(), 3)
    ambiguity = Ambiguity(judge, loss, combine, alpha=5.0 if combine == "sum" else 1.0, variance=0.05)
    ended = train(start, 6, ambiguity=ambiguity)
    doubt = [
        float((judge(sample(one.revive(RECIPE, CPU)[0], 200, HALF, seed=1))[..., 0].mean(dim=0) - 0.5).abs().mean())
        for one in (start, ended)
    ]
    assert doubt[1] < (0.8 if combine == "guarded" else 0.7) * doubt[0]  # whoever may not shout needs longer
    assert ended.history[-1]["acd"] < ended.history[3]["acd"]
    assert ended.epoch == 9 and len(ended.history) == 9


def test_a_dial_can_be_learnt():
    dialled = GanArchitecture(6, 8, 2, dial=True)
    target = Target(2, None)
    start = train(begin(dialled), 2, target=target)
    assert torch.equal(start.weights["generator.dial"], begin(dialled).weights["generator.dial"])  # unused in stage 1
    ended = train(start, 15, target=target, ambiguity=Ambiguity(Sides(), "gaussian", "sum", 20.0, 0.05))
    gan = ended.revive(RECIPE, CPU)[0].eval()
    noise = torch.randn(300, 6, generator=torch.Generator().manual_seed(0))
    answers = []
    for r in (0.2, 0.8):
        with torch.no_grad():
            images = (gan.generator(noise, torch.full((300, 1), r)) + 1) / 2
        answers.append(float(Sides()(images)[..., 0].mean()))
    assert answers[1] - answers[0] > 0.15


def test_samples_do_not_depend_on_how_many_are_drawn(monkeypatch):
    gan = Gan((1, 8, 8), TINY).train()
    target = Target(2, None)
    few, many = (sample(gan, count, target, seed=5) for count in (7, 620))
    torch.testing.assert_close(few, many[:7])
    assert gan.training and few.min() >= 0 and few.max() <= 1


def test_a_generator_is_left_as_it_was_when_enough_have_been_drawn():
    gan = Gan((1, 8, 8), TINY).train()
    drawing = gan_training.samples(gan, 1200, HALF, seed=5)
    next(drawing)
    drawing.close()
    assert gan.training


def test_diversity_is_one_for_real_images_and_nothing_for_copies():
    unit = (DATA.pixels + 1) / 2
    alike = diversity(unit, DATA.pixels)
    assert alike == pytest.approx({"spread": 1.0, "nearest": 1.0})
    assert diversity(unit[:1].repeat(30, 1, 1, 1), DATA.pixels) == pytest.approx({"spread": 0, "nearest": 0}, abs=1e-6)
    two = diversity(unit[:2].repeat(15, 1, 1, 1), DATA.pixels)
    assert two["nearest"] < 1e-6 < 0.2 < two["spread"]


def test_a_collapse_stops_the_training(monkeypatch):
    monkeypatch.setattr(gan_training, "GRACE", (0.0, 0))
    with pytest.raises(Collapsed, match=r"collapsed in epoch 1: its images are .* times as different"):
        train(begin(), 3, watch=Watch(collapse=5.0))
    with pytest.raises(Collapsed, match="diverged in epoch"):
        train(begin(), 3, recipe=GanRecipe(batch_size=8, lr=1e30))


def test_variety_is_not_expected_at_once():
    early = partial(gan_training._is_early, epochs=100, iterations=371)
    assert early(24) and not early(25)
    assert gan_training._is_early(30, 40, 10) and not gan_training._is_early(100, 120, 10)


def test_sheets_are_pictures(tmp_path):
    train(begin(), 2, watch=Watch(tmp_path, sheets=1, collapse=0))
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["samples-0001.png", "samples-0002.png"]
    colour = Image.open(io.BytesIO(sample_sheet(torch.rand(20, 3, 8, 8))))
    assert colour.size == (16 * 9, 8 * 9) and colour.mode == "RGB"


def test_the_bench_names_what_it_timed():
    found = run(members=2, filters=2, latent=3, batch_size=4, iterations=1, steps=1, device="cpu")
    assert [row["work"] for row in found["stages"]] == [
        "stage 1",
        *(f"stage 2, {combine}" for combine in get_args(Combine)),
    ]
    assert found["stages"][0]["ratio"] == 1 and all(row["seconds"] > 0 for row in found["stages"])
    for row in found["estimator"]:
        assert row["speed_up"] == pytest.approx(row["loop"] / row["fleet"])


def test_too_few_images():
    with pytest.raises(UserError, match="64 images of the classes for batches of 65"):
        train(begin(), 1, recipe=GanRecipe(batch_size=65))


def test_one_classifier_can_judge():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 5))
    judge = ClassifierJudge(model, (4, 1))
    images = torch.rand(3, 1, 8, 8)
    expected = torch.softmax(model(images)[:, [4, 1]], dim=1)
    torch.testing.assert_close(judge(images)[0], expected)
    assert judge(images).shape == (1, 3, 2)
    assert not any(weight.requires_grad for weight in judge.parameters())


def test_a_small_classifier_is_trained_where_none_is_given():
    data = blobs(200)
    judge = small_judge(data, (1, 0), epochs=4, seed=0, device="cpu")
    p = judge(torch.from_numpy(data.images[:]))[0]
    assert ((p[:, 1] > 0.5).numpy() == (data.labels == 0)).mean() > 0.95


@pytest.mark.parametrize("combine", [None, *get_args(Combine)])
def test_the_discriminator_learns_in_its_own_step_only(monkeypatch, combine):
    """Compiled code computes the gradient of every weight that wants one: in the generator's step none of D's does."""
    gan, optimiser = fresh((1, 8, 8), TINY, RECIPE, seed=0).revive(RECIPE, CPU)
    ambiguity = None if combine is None else Ambiguity(Sides(), combine=combine)
    step = Step(gan.train(), optimiser, DATA.pixels, RECIPE, ambiguity, classes=2)
    wanted = []
    judge = Step._judge_real

    def watched(self, images):
        wanted.append({weight.requires_grad for weight in gan.discriminator.parameters()})
        return judge(self, images)

    monkeypatch.setattr(Step, "_judge_real", watched)
    step(torch.arange(8), torch.randn(2, 8, TINY.latent), torch.full((2, 8, 2), 0.5))
    assert wanted == [{True}, {False}]
    assert all(weight.requires_grad for weight in gan.parameters())
