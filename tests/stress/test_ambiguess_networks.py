from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from secondguess.stress.ambiguous.networks import Raae

HIDDEN = ["LeakyReLU", "Dropout", "Linear", "LeakyReLU", "Dropout"]


def outline(module: nn.Module) -> list[str]:
    return [type(layer).__name__ for layer in module.children()]


def widths(module: nn.Module) -> list[tuple[int, int]]:
    return [(one.in_features, one.out_features) for one in module.modules() if isinstance(one, nn.Linear)]


@pytest.mark.parametrize(("shape", "pixels"), [((1, 28, 28), 784), ((1, 8, 8), 64), ((1, 32, 20), 640)])
def test_small_grey_images_get_the_dense_nets_of_the_paper(shape, pixels):
    model = Raae(shape, 10, seed=0)
    assert outline(model.encoder) == ["Flatten", "Linear", *HIDDEN, "Linear"]
    assert widths(model.encoder) == [(pixels, 128), (128, 128), (128, 2)]
    assert outline(model.decoder) == ["Linear", *HIDDEN, "Linear", "Sigmoid", "Unflatten"]
    assert widths(model.decoder) == [(2, 128), (128, 128), (128, pixels)]
    assert outline(model.discriminator) == ["Linear", *HIDDEN, "Linear"]
    assert widths(model.discriminator) == [(12, 128), (128, 128), (128, 1)]


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_the_slope_is_that_of_keras_and_a_tenth_is_dropped(shape):
    layers = list(Raae(shape, 2, seed=0).modules())
    assert {layer.negative_slope for layer in layers if isinstance(layer, nn.LeakyReLU)} == {0.3}
    assert {layer.p for layer in layers if isinstance(layer, nn.Dropout)} == {0.1}


def test_the_discriminator_sees_the_plane_and_the_class():
    assert [widths(Raae((1, 8, 8), codes, 0).discriminator)[0][0] for codes in (2, 3, 10)] == [4, 5, 12]


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_weights_begin_glorot_uniform_and_biases_at_zero(shape):
    for layer in Raae(shape, 10, seed=3).modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            field = math.prod(layer.weight.shape[2:])
            bound = math.sqrt(6 / ((layer.weight.shape[0] + layer.weight.shape[1]) * field))
            weight = layer.weight.detach()
            assert weight.abs().max() <= bound
            assert not layer.bias.any()
            if weight.numel() > 500:
                assert weight.abs().max() > 0.99 * bound
                assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_the_seed_decides_and_nobody_elses_random_numbers_are_used():
    torch.manual_seed(1)
    first, other = Raae((1, 8, 8), 2, seed=5), Raae((1, 8, 8), 2, seed=6)
    torch.manual_seed(2)
    again = Raae((1, 8, 8), 2, seed=5)
    for name, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
        if name.endswith("weight"):
            assert not torch.equal(value, other.state_dict()[name])


@pytest.mark.parametrize(
    "shape", [(1, 8, 8), (3, 8, 8), (3, 32, 32), (3, 64, 64), (1, 48, 48), (1, 33, 27), (3, 9, 62)]
)
def test_every_shape_goes_through_the_plane_and_back(shape):
    model = Raae(shape, 2, seed=0).eval()
    with torch.no_grad():
        z = model.encoder(torch.rand(5, *shape, generator=torch.Generator().manual_seed(0)))
        images = model.decoder(z)
    assert z.shape == (5, 2)
    assert images.shape == (5, *shape)
    assert images.min() > 0 and images.max() < 1


@pytest.mark.parametrize(
    ("shape", "convolutional"),
    [((1, 32, 32), False), ((1, 33, 32), True), ((1, 32, 33), True), ((3, 8, 8), True), ((3, 64, 64), True)],
)
def test_colour_and_large_images_get_convolutions(shape, convolutional):
    model = Raae(shape, 2, seed=0)
    for part in (model.encoder, model.decoder):
        assert any(isinstance(layer, nn.Conv2d) for layer in part.modules()) == convolutional
    assert sum(value.numel() for value in model.parameters()) < 5_000_000
    assert outline(model.discriminator) == ["Linear", *HIDDEN, "Linear"]
