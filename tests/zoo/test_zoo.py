"""The zoo against the papers' published sizes: the counts are Keras' or the authors' own, never this code's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from secondguess import zoo
from secondguess.errors import UserError
from secondguess.zoo.registry import Recipe

# Keras counts the running means and variances of batch normalisation as (non-trainable) parameters.
KERAS_COUNTS = {
    "simple_cnn": 34_826,
    "fully_connected": 698_058,
    # Keras' ResNet50 without its top has 23,587,712; the head adds 2048*256+256, 256*125+125, 125*10+10
    "resnet50": 23_587_712 + 524_544 + 32_125 + 1_260,
    # published as 1,465,994, which includes the one switch that all dropout layers of uncertainty-wizard share
    "densenet_se": 1_465_994 - 1,
    "surprise_cnn": 34_936,
    "lenet": 44_426,
    "cats_dogs_cnn": 2_287_394,
    "icos_a": 6_237,
    "icos_b": 97_114,
    "icos_c": 545_546,
    "icos_d": 1_084_234,
    "icos_e": 258_762,
    "icos_f": 550_570,
    "icos_h": 1_307_338,
    "icos_l": 15_047_588,
    "icos_m": 564_484,
    "icos_n": 1_465_220,
}


def keras_count(model: nn.Module) -> int:
    statistics = (b for name, b in model.named_buffers() if name.endswith(("running_mean", "running_var")))
    return sum(p.numel() for p in model.parameters()) + sum(b.numel() for b in statistics)


def make_as_published(name: str) -> nn.Module:
    about = zoo.get(name)
    return zoo.make(name, num_classes=about.num_classes, input_shape=about.input_shape, seed=0)


@pytest.mark.parametrize("name", sorted(KERAS_COUNTS))
def test_parameter_count_is_the_published_one(name: str) -> None:
    assert keras_count(make_as_published(name)) == KERAS_COUNTS[name]


def test_cats_and_dogs_at_the_size_of_celeba() -> None:
    assert keras_count(zoo.make("cats_dogs_cnn", num_classes=2, input_shape=(3, 60, 73))) == 2_025_250


def test_cats_and_dogs_eats_raw_pixels() -> None:
    model = zoo.make("cats_dogs_cnn", num_classes=2, input_shape=(3, 32, 32), seed=0).eval()
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        published = nn.Sequential(*list(model)[1:])  # the layers of the paper
        torch.testing.assert_close(model(images), published(255 * images))
    assert not list(model[0].parameters()) and not list(model[0].buffers())


@pytest.mark.parametrize(("shape", "total"), [((1, 28, 28), 12_928), ((3, 128, 128), 68_986)])
def test_ambiguity_members_are_the_published_ones(shape: tuple[int, int, int], total: int) -> None:
    members = zoo.ambiguity_members(seed=32)
    assert [sum(len(m) == depth for m in members) for depth in (2, 3, 4)] == [11, 21, 18]
    models = [zoo.make("ambiguity_member", num_classes=1, input_shape=shape, channels=m) for m in members]
    counts = [sum(p.numel() for p in model.parameters()) for model in models]
    assert sum(counts) == total
    if shape == (1, 28, 28):
        assert (min(counts), max(counts)) == (46, 600)


def test_every_name_is_covered() -> None:
    assert sorted(zoo.names()) == sorted([*KERAS_COUNTS, "ambiguity_member"])


@pytest.mark.parametrize("name", sorted([*KERAS_COUNTS, "ambiguity_member"]))
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 40)])
def test_logits_for_other_shapes_and_classes(name: str, shape: tuple[int, int, int]) -> None:
    if name == "icos_l" and shape[1] < 32:
        pytest.skip("five poolings need 32 pixels")
    model = zoo.make(name, num_classes=7, input_shape=shape, seed=1).eval()
    with torch.no_grad():
        logits = model(torch.rand(2, *shape))
    assert logits.shape == (2, 7)
    assert not torch.allclose(logits.sum(dim=1), torch.ones(2)), "a softmax is inside"


@pytest.mark.parametrize("name", sorted([*KERAS_COUNTS, "ambiguity_member"]))
def test_every_layer_is_a_named_module_that_is_called_once(name: str) -> None:
    model = make_as_published(name).eval()
    leaves = {key: m for key, m in model.named_modules() if not list(m.children())}
    assert not any(part.isdigit() for key in leaves for part in key.split("."))
    calls = dict.fromkeys(leaves, 0)
    for key, leaf in leaves.items():
        leaf.register_forward_hook(lambda *_, key=key: calls.update({key: calls[key] + 1}))
    with torch.no_grad():
        model(torch.rand(1, *zoo.get(name).input_shape))
    assert set(calls.values()) == {1}


def test_dropout_layers_of_the_densenet() -> None:
    model = zoo.make("densenet_se", seed=0)
    assert sum(isinstance(m, nn.Dropout) for m in model.modules()) == 37
    widths = [model.get_submodule(f"se{i}.dense{j}").out_features for i in (1, 2, 3) for j in (1, 2)]
    assert widths == [13, 208, 13, 208, 37, 592]


def test_fully_connected_is_linear() -> None:
    model = zoo.make("fully_connected", seed=0).double().eval()
    x, y = torch.rand(2, 3, 1, 28, 28, dtype=torch.float64)
    assert torch.allclose(model(0.3 * x + 0.7 * y), 0.3 * model(x) + 0.7 * model(y))


def test_seed_decides_the_weights_and_leaves_the_global_state_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, same, other = (zoo.make("icos_m", seed=s).state_dict() for s in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[k], same[k]) for k in first)
    assert not torch.equal(first["conv1a.weight"], other["conv1a.weight"])
    unseeded, again = zoo.make("icos_a"), zoo.make("icos_a")
    assert not torch.equal(unseeded.conv1.weight, again.conv1.weight)


def test_keras_initialisation() -> None:
    glorot = zoo.make("simple_cnn", seed=0)
    limit = (6 / (9 * 32 + 9 * 64)) ** 0.5
    assert 0.99 * limit < glorot.conv2.weight.abs().max() <= limit
    assert not glorot.conv2.bias.any()
    he = zoo.make("icos_f", input_shape=(3, 32, 32), seed=0)
    limit = (6 / (9 * 64)) ** 0.5
    assert 0.99 * limit < he.conv3a.weight.abs().max() <= limit
    assert he.logits.weight.abs().max() <= (6 / 138) ** 0.5
    normalised = zoo.make("icos_m", seed=0)
    assert normalised.norm1a.running_var.eq(1).all() and not normalised.norm1a.running_mean.any()
    assert (normalised.norm1a.eps, normalised.norm1a.momentum) == (1e-3, 0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "simple_cn"}, "no architecture 'simple_cn'; did you mean 'simple_cnn'"),
        ({"name": "???"}, "known are: simple_cnn, fully_connected, "),
        ({"name": "icos_n", "input_shape": (3, 12, 12)}, "12x12 pixels are too small for 'icos_n'.*32x32"),
        ({"name": "lenet", "input_shape": (1, 4, 4)}, "4x4 pixels are too small"),
        ({"name": "lenet", "num_classes": 0}, "num_classes is 0"),
        ({"name": "lenet", "input_shape": (28, 28)}, r"input_shape is \(28, 28\).*\(channels, height, width\)"),
        ({"name": "ambiguity_member", "channels": ()}, "channels is"),
    ],
)
def test_bad_input(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        zoo.make(**arguments)


def test_descriptions_are_complete() -> None:
    for name in zoo.names():
        about = zoo.get(name)
        assert about.name == name and about.summary and about.source
        assert about.recipe.as_kwargs()["epochs"] == about.recipe.epochs > 0
        assert "validation" not in about.recipe.as_kwargs(fleet=True)
    recipe = zoo.get("icos_a").recipe
    assert (recipe.optimiser, recipe.lr, recipe.eps) == ("adadelta", 1.0, 1e-7)


def test_adding_an_architecture_is_one_decorated_function(monkeypatch: pytest.MonkeyPatch) -> None:
    from secondguess.zoo import registry

    zoo.names()
    monkeypatch.setattr(registry.REGISTRY, "known", dict(registry.REGISTRY.known))

    @zoo.register(summary="one layer", source="this test", recipe=Recipe(epochs=1, batch_size=8))
    def one_layer(num_classes: int, input_shape: tuple[int, int, int]) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(input_shape[1] * input_shape[2], num_classes))

    assert "one_layer" in zoo.names()
    assert zoo.make("one_layer", input_shape=(1, 4, 4))(torch.rand(2, 1, 4, 4)).shape == (2, 10)
