from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from secondguess import UserError
from secondguess.stress.ambiguous.gan_networks import (
    Discriminator,
    Gan,
    GanArchitecture,
    Generator,
    SpectralConv2d,
    to_unit,
)

TINY = GanArchitecture(latent=6, filters=4, blocks=2)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("shape", "generator", "discriminator"),
    [((1, 28, 28), 21_244_929, 8_448_513), ((3, 128, 128), 44_574_467, 11_083_649)],
)
def test_the_papers_networks_have_the_papers_sizes(shape, generator, discriminator):
    with torch.device("meta"):
        sizes = GanArchitecture.for_shape(shape)
        networks = Generator(shape, sizes), Discriminator(shape, sizes)
    found = [sum(weight.numel() for weight in network.parameters()) for network in networks]
    assert found == [generator, discriminator]


def test_grey_images_of_128_pixels_only_lack_two_channels():
    with torch.device("meta"):
        sizes = GanArchitecture.for_shape((1, 128, 128))
        grey, colour = (Generator((channels, 128, 128), sizes) for channels in (1, 3))
    count = [sum(weight.numel() for weight in network.parameters()) for network in (grey, colour)]
    assert count[1] - count[0] == 2 * (128 * 16 + 1)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 14), (1, 28, 28), (3, 31, 17)])
def test_images_have_the_shape_asked_for_and_pixels_in_range(shape):
    gan = Gan(shape, TINY)
    images = gan.generator(random(5, 6))
    assert images.shape == (5, *shape) and images.abs().max() <= 1
    assert gan.discriminator(images).shape == (5,)
    assert to_unit(images).min() >= 0 and to_unit(images).max() <= 1


def test_the_generator_is_a_stack_of_transposed_convolutions():
    gan = Gan((2, 12, 12), TINY, seed=3)
    ours = gan.generator
    first = nn.ConvTranspose2d(6, 8, 3, bias=False)
    second, third = nn.ConvTranspose2d(8, 4, 4, 2, 1, bias=False), nn.ConvTranspose2d(4, 2, 4, 2, 1)
    theirs = nn.Sequential(first, nn.BatchNorm2d(8), nn.ReLU(), second, nn.BatchNorm2d(4), nn.ReLU(), third, nn.Tanh())
    with torch.no_grad():
        first.weight.copy_(ours.projection.reshape(6, 8, 3, 3))
    theirs[1].load_state_dict(ours.norm.state_dict())
    for mine, yours in ((0, 3), (1, 4), (3, 6)):
        theirs[yours].load_state_dict(ours.steps[mine].state_dict())
    z = random(7, 6)
    torch.testing.assert_close(ours(z), theirs(z[:, :, None, None]), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kernel", [4, (3, 3)])
def test_spectral_normalisation_is_that_of_torch(kernel):
    stride = 2 if kernel == 4 else 1
    ours = SpectralConv2d(3, 5, kernel, stride)
    theirs = nn.Conv2d(3, 5, kernel, stride, padding=int(stride > 1))
    theirs.load_state_dict({"weight": ours.weight.detach(), "bias": ours.bias.detach()})
    theirs = torch.nn.utils.spectral_norm(theirs)
    theirs.weight_u.copy_(ours.u)
    theirs.weight_v.copy_(ours.v)
    size = 8 if kernel == 4 else 3
    for step in range(4):
        x = random(2, 3, size, size, seed=step)
        mine = ours(x) if kernel == 4 else ours.whole(x)[:, None, None, None]
        yours = theirs(x) if kernel == 4 else theirs(x)[:, :1]
        torch.testing.assert_close(mine[:, :1], yours[:, :1], atol=1e-6, rtol=1e-5)
    mine[:, :1].square().sum().backward()
    yours[:, :1].square().sum().backward()
    torch.testing.assert_close(ours.weight.grad, theirs.weight_orig.grad, atol=1e-6, rtol=1e-4)
    ours.eval()
    before = ours.u.clone()
    _ = ours.largest()
    assert torch.equal(ours.u, before)


def test_how_the_weight_lies_in_memory_makes_no_difference():
    ours = SpectralConv2d(3, 5, 4, 2)
    other = SpectralConv2d(3, 5, 4, 2)
    other.load_state_dict(ours.state_dict())
    other.to(memory_format=torch.channels_last)
    for step in range(3):
        x = random(2, 3, 8, 8, seed=step)
        torch.testing.assert_close(ours(x), other(x), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(ours.state_dict(), other.state_dict(), check_stride=False)


def test_power_iterations_find_the_largest_singular_value():
    with torch.random.fork_rng():
        torch.manual_seed(0)  # how fast they converge depends on the gap between the two largest
        layer = SpectralConv2d(3, 5, 4, 2)
    with torch.no_grad():
        for _ in range(500):
            weight = layer.weight / layer.largest()
    assert torch.linalg.matrix_norm(weight.flatten(1), 2) == pytest.approx(1, abs=1e-4)


def test_the_discriminator_is_a_stack_of_convolutions():
    judge = Gan((1, 12, 12), TINY).discriminator.eval()
    x = random(4, 1, 12, 12)
    expected = x
    for layer in (0, 2):
        conv = judge.layers[layer]
        expected = nn.functional.leaky_relu(
            nn.functional.conv2d(expected, conv.weight / conv.largest(), conv.bias, stride=2, padding=1), 0.2
        )
    last = judge.last
    expected = nn.functional.conv2d(expected, last.weight / last.largest(), last.bias)[:, 0, 0, 0]
    torch.testing.assert_close(judge(x), expected, atol=1e-6, rtol=1e-5)


def test_weights_begin_as_in_a_dcgan():
    gan = Gan((1, 12, 12), GanArchitecture(64, 32, 2), seed=1)
    assert gan.generator.projection.detach().std() == pytest.approx(0.02, rel=0.05)
    assert gan.discriminator.layers[2].weight.detach().std() == pytest.approx(0.02, rel=0.05)
    assert gan.discriminator.layers[2].bias.abs().max() > 0  # PyTorch's own
    assert gan.generator.norm.weight.detach().mean() == pytest.approx(1, abs=0.02)
    assert gan.generator.norm.bias.abs().max() == 0


def test_the_seed_decides_and_the_callers_random_numbers_stay():
    before = torch.get_rng_state()
    weights = [Gan((1, 8, 8), TINY, seed=seed).generator.projection for seed in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_a_dial_changes_nothing_until_it_has_learnt():
    plain = Gan((1, 8, 8), TINY, seed=2).generator.eval()
    dialled = Gan((1, 8, 8), GanArchitecture(6, 4, 2, dial=True), seed=2).generator.eval()
    z, r = random(3, 6), torch.tensor([[0.1], [0.5], [0.9]])
    assert torch.equal(plain(z), dialled(z, r)) and torch.equal(plain(z), dialled(z))
    with torch.no_grad():
        dialled.dial.fill_(1.0)
    changed = dialled(z, r)
    assert not torch.equal(changed[0], plain(z)[0]) and torch.equal(changed[1], plain(z)[1])


def test_too_small_images_are_refused():
    with pytest.raises(UserError, match="7 x 20 pixels are too small"):
        Gan((1, 7, 20), TINY)
    with pytest.raises(UserError, match="give 16 or more"):
        Gan((1, 12, 12), GanArchitecture(6, 4, 4))


def test_a_copy_computes_the_same():
    gan = Gan((1, 8, 8), TINY).eval()
    z = random(2, 6)
    assert torch.equal(copy.deepcopy(gan).generator(z), gan.generator(z))
