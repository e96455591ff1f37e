"""Sampling and composition against Gaussians, whose velocities, compositions and posteriors have closed forms."""

import numpy as np
import pytest
import torch
from torch import nn

from secondguess.stress.ambiguous.flow.balancing import balance
from secondguess.stress.ambiguous.flow.calibration import LossCalibration
from secondguess.stress.ambiguous.flow.losses import NoiseBank, denoising_losses
from secondguess.stress.ambiguous.flow.network import FlowNetwork, architecture_for, group_norm
from secondguess.stress.ambiguous.flow.sampling import Streams, integrate, noise_of

SIZE, SPREAD, NOTHING = 16, 0.5, 3
CPU = torch.device("cpu")
MEANS = 0.6 * noise_of(3, (1, 1, SIZE), 5, CPU)


def gaussian_field(x, t, labels):
    """The exact velocity of classes N(mean, SPREAD^2): E[x - z | x_t]; no class is the Gaussian in their middle."""
    means = torch.cat([MEANS, MEANS.mean(0, keepdim=True)])[labels]
    t = t[:, None, None, None]
    return means + (t * SPREAD**2 - (1 - t)) / (t**2 * SPREAD**2 + (1 - t) ** 2) * (x - t * means)


def log_densities(x):
    """(n, 3), up to a constant."""
    return -(x[:, None] - MEANS[None]).square().sum(dim=(2, 3, 4)) / (2 * SPREAD**2)


def composition(shares, count=400, **settings):
    parts = torch.tensor([[0, 1]]).expand(count, -1)
    return integrate(
        gaussian_field,
        NOTHING,
        noise_of(count, (1, 1, SIZE), 0, CPU),
        parts,
        torch.tensor([shares] * count),
        **settings,
    )


@pytest.mark.parametrize("shares", [[0.5, 0.5], [0.8, 0.2]])
@pytest.mark.parametrize("method", ["adams", "heun"])
def test_a_composition_of_gaussians_of_one_covariance_is_the_gaussian_with_the_mean_of_the_means(shares, method):
    images = composition(shares, count=4000, guidance=1.0, steps=40, method=method)
    expected = shares[0] * MEANS[0] + shares[1] * MEANS[1]
    assert torch.allclose(images.mean(0), expected, atol=0.04)
    assert images.std(0).mean() == pytest.approx(SPREAD, rel=0.03)


def test_guidance_moves_away_from_no_class():
    images = composition([1.0, 0.0], count=2000, guidance=2.0, steps=40)
    assert torch.allclose(images.mean(0), 2 * MEANS[0] - MEANS.mean(0), atol=0.06)


def drawn(count, seed=1):
    """What draws the noise of each step, for so many images."""
    return Streams(seed, range(count))


def test_noise_depends_on_the_place_of_an_image_alone():
    whole = Streams(3, range(100))
    first, second = whole((1, 4)), whole((1, 4))
    assert first.shape == (100, 1, 4) and not torch.equal(first, second)
    for rows in (range(33), range(32, 70), range(96, 97)):
        part = Streams(3, rows)
        for noise in (first, second):
            assert torch.equal(part((1, 4)), noise[rows.start : rows.stop])
    assert abs(float(first.std()) - 1) < 0.15 and not torch.equal(first[:32], first[32:64])


def test_guidance_ends_when_it_should_and_then_spares_a_velocity():
    asked = []

    def counting(x, t, labels):
        asked.append((float(t[0]), len(x)))
        return gaussian_field(x, t, labels)

    count = 20
    noise, parts = noise_of(count, (1, 1, SIZE), 0, CPU), torch.tensor([[0, 1]]).expand(count, -1)
    whole = {"guidance": 2.0, "steps": 10}

    def balanced(field=gaussian_field, **settings):
        return balance(field, NOTHING, noise, parts, torch.zeros(count, 2), drawn(count), **settings)[0]

    def integrated(field=gaussian_field, **settings):
        return integrate(field, NOTHING, noise, parts, torch.full((count, 2), 0.5), **settings)

    for made in (balanced, integrated):
        asked.clear()
        made(counting, guidance=2.0, steps=20, until=0.7)
        assert [size for _, size in asked] == [3 * count] * 14 + [2 * count] * 6, "exactly, whatever 0.7 is in float32"
        assert torch.equal(made(**whole, until=0.0), made(guidance=1.0, steps=10))
        assert torch.equal(made(**whole, until=1.0), made(**whole))
        asked.clear()
        halfway = made(counting, **whole, until=0.5)
        assert [size for _, size in asked] == [3 * count] * 5 + [2 * count] * 5
        assert not torch.allclose(halfway, made(**whole), atol=1e-3)


def test_the_jump_at_the_end_of_guidance_is_not_extrapolated():
    """From there on it is a sampling without guidance, which begins with a step of Euler's."""
    count, steps, half = 8, 10, 5
    noise, parts = noise_of(count, (1, 1, SIZE), 0, CPU), torch.tensor([[0, 1]]).expand(count, -1)
    shares, times = torch.full((count, 2), 0.5), torch.linspace(0, 1, steps + 1)
    found = integrate(gaussian_field, NOTHING, noise, parts, shares, guidance=3.0, until=0.5, steps=steps)

    def velocity(x, t, guidance):
        at = times[t].expand(count)
        first, second, none = (gaussian_field(x, at, torch.full((count,), c)) for c in (0, 1, NOTHING))
        return none + guidance * ((first + second) / 2 - none)

    x, before = noise, None
    for step in range(steps):
        now = velocity(x, step, 3.0 if step < half else 1.0)
        slope = now if step in (0, half) else 1.5 * now - 0.5 * before
        x, before = x + slope / steps, now
    torch.testing.assert_close(found, x)


def test_the_methods_agree_when_steps_are_many():
    adams, heun = (
        composition([0.5, 0.5], count=50, guidance=1.5, steps=200, method=name) for name in ("adams", "heun")
    )
    assert torch.allclose(adams, heun, atol=5e-3)


@pytest.mark.parametrize("target", [0.0, 2.0, -3.0])
def test_balanced_images_end_with_the_log_odds_that_were_asked_for(target):
    count = 300
    noise, parts = noise_of(count, (1, 1, SIZE), 0, CPU), torch.tensor([[0, 1]]).expand(count, -1)
    asked = torch.tensor([[target, 0.0]]).expand(count, -1)
    settings = {"guidance": 1.0, "steps": 40}
    images, _ = balance(gaussian_field, NOTHING, noise, parts, asked, drawn(len(noise)), **settings)
    found = log_densities(images)
    odds = found[:, 0] - found[:, 1]
    assert odds.mean() == pytest.approx(target, abs=0.1)
    assert odds.std() < 0.15
    plain = log_densities(composition([0.5, 0.5], count=count, guidance=1.0, steps=40))
    assert (plain[:, 0] - plain[:, 1]).std() > 4  # what the mean of velocities leaves to chance


def test_three_classes_are_balanced_with_guidance_too():
    count = 200
    noise, parts = noise_of(count, (1, 1, SIZE), 0, CPU), torch.arange(3).expand(count, -1)
    target, settings = torch.zeros(count, 3), {"guidance": 1.5, "steps": 40}
    images, _ = balance(gaussian_field, NOTHING, noise, parts, target, drawn(count), **settings)
    assert log_densities(images).std(dim=1).max() < 0.5


def test_the_judge_of_gaussians_gives_their_posterior():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 1200)
    close = 0.25  # the classes overlap

    def field(x, t, classes):
        means = close * torch.cat([MEANS, MEANS.mean(0, keepdim=True)])[classes]
        t = t[:, None, None, None]
        return means + (t * SPREAD**2 - (1 - t)) / (t**2 * SPREAD**2 + (1 - t) ** 2) * (x - t * means)

    x = close * MEANS[labels] + SPREAD * noise_of(1200, (1, 1, SIZE), 3, CPU)
    logits = -(x[:, None] - close * MEANS[None]).square().sum(dim=(2, 3, 4)) / (2 * SPREAD**2)
    truth = torch.softmax(logits, dim=1).numpy()
    bank = NoiseBank((1, 1, SIZE), 32, 0, CPU)
    wanted = torch.ones(1200, 3, dtype=torch.bool)
    losses = denoising_losses(field, x, wanted, bank, slice(None), batch_size=4096).double().numpy()
    calibration = LossCalibration.fit(losses[:600], labels[:600])
    found = calibration.probabilities(losses[600:])
    assert np.abs(found - truth[600:]).mean() < 0.03
    assert 0.1 < truth[600:].max(axis=1).mean() < 0.95  # the problem is not trivial


def test_losses_that_are_not_wanted_are_left_out_and_get_no_probability():
    x, bank = noise_of(4, (1, 1, SIZE), 1, CPU), NoiseBank((1, 1, SIZE), 2, 0, CPU)
    wanted = torch.tensor([[True, True, False]] * 4)
    losses = denoising_losses(gaussian_field, x, wanted, bank, slice(None), batch_size=3).double().numpy()
    assert np.isnan(losses[:, 2]).all()
    assert not np.isnan(losses[:, :2]).any()
    found = LossCalibration(np.ones(6), np.zeros(3)).probabilities(losses)
    assert (found[:, 2] == 0).all()
    assert found.sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize("shape", [(3, 12, 5, 7), (2, 12, 9), (1, 12, 1, 1)])
def test_group_norm_from_sums_is_that_of_torch(shape):
    torch.manual_seed(0)
    norm = nn.GroupNorm(4, 12, eps=1e-3)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x = (3 + 2 * torch.randn(shape)).requires_grad_()
    found, expected = group_norm(x, norm), norm(x)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    weights = torch.randn(shape)
    grown = [torch.autograd.grad((one * weights).sum(), x, retain_graph=True)[0] for one in (found, expected)]
    torch.testing.assert_close(*grown, atol=1e-3, rtol=1e-3)


def test_losses_do_not_depend_on_the_size_of_batches_and_every_second_pair_of_draws_looks_into_the_mirror():
    torch.manual_seed(0)
    x, wanted = torch.randn(5, 1, 2, 2), torch.rand(5, 3) < 0.6
    bank = NoiseBank((1, 2, 2), 8, 0, torch.device("cpu"), times=(0.3, 0.6))

    def field(x, t, classes):
        return x.flip(2) * t[:, None, None, None] + classes[:, None, None, None]

    for draws in (slice(0, 4), slice(4, 8)):
        found = [
            denoising_losses(field, x, wanted, bank, draws, batch_size=size, mirrored=True) for size in (1, 7, 1000)
        ]
        expected = torch.full((5, 3, 2), torch.nan)
        for row, label in wanted.nonzero().tolist():
            for place, t in enumerate(bank.times):
                losses = []
                for number in range(draws.start, draws.stop):
                    clean, z = (x[[row]].flip(3) if number // 2 % 2 else x[[row]]), bank.noise[place, number]
                    velocity = field((1 - t) * z + t * clean, t[None], torch.tensor([label]))
                    losses.append((velocity - (clean - z)).square().mean())
                expected[row, label, place] = torch.stack(losses).mean()
        for one in found:
            torch.testing.assert_close(one, expected, equal_nan=True)


def test_guidance_away_from_rivals_leaves_them_less_of_the_probability():
    """Between the first and the second class, away from the third; its weight stands for its embedding's."""

    def field(x, t, labels):
        weights = labels if labels.ndim == 2 else nn.functional.one_hot(labels, NOTHING + 1).to(x.dtype)
        each = [gaussian_field(x, t, torch.full((len(x),), label)) for label in range(NOTHING + 1)]
        return (torch.stack(each, dim=1) * weights[:, :, None, None, None]).sum(dim=1)

    def made(rivals):
        parts, noise = torch.tensor([[0, 1]]).expand(300, -1), noise_of(300, (1, 1, SIZE), 0, CPU)
        settings = {"guidance": 2.0, "steps": 20, "rivals": rivals}
        return balance(field, NOTHING, noise, parts, torch.zeros(300, 2), drawn(300), **settings)[0]

    none, third = torch.eye(NOTHING + 1)[[NOTHING]].expand(300, -1), torch.eye(NOTHING + 1)[[2]].expand(300, -1)
    torch.testing.assert_close(made(none), made(None))
    usual, away = (log_densities(made(rivals)) for rivals in (none, third))
    odds = [(found[:, :2].logsumexp(dim=1) - found[:, 2]).median() for found in (usual, away)]
    assert odds[1] > odds[0] + 1
    assert (away[:, 0] - away[:, 1]).abs().median() < 0.5  # and still between the two


@pytest.mark.parametrize("steps", [5, 8, 9, 16])
def test_composing_begins_where_its_images_are_as_noisy_as_they_should_be(steps):
    """Gaussian classes stay Gaussian classes: their mean when composed anew is that of fresh compositions."""
    parts, draw = torch.tensor([[0, 1]]).expand(1500, -1), drawn(1500)
    noises = [noise_of(1500, (1, 1, SIZE), seed, CPU) for seed in (0, 1)]
    settings = {"guidance": 1.0, "steps": steps}
    fresh = balance(gaussian_field, NOTHING, noises[0], parts, torch.zeros(1500, 2), draw, **settings)[0]
    begin = round(0.5 * steps) / steps
    noisy = (1 - begin) * noises[1] + begin * fresh
    again = balance(gaussian_field, NOTHING, noisy, parts, torch.zeros(1500, 2), draw, **settings, begin=begin)[0]
    torch.testing.assert_close(again.mean(0), fresh.mean(0), atol=0.08, rtol=0)
    apart = log_densities(again)[:, 0] - log_densities(again)[:, 1]
    assert apart.std() < (log_densities(noises[0])[:, 0] - log_densities(noises[0])[:, 1]).std()


def test_the_network_has_no_other_group_norm():
    network = FlowNetwork(architecture_for((3, 16, 16), 3, "tiny"))
    norms = [one for one in network.modules() if isinstance(one, nn.GroupNorm)]
    assert {type(one).__name__ for one in norms} == {"_GroupNorm"}
    assert len(norms) > 4
