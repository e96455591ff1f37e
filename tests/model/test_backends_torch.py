from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import tiny_models
from secondguess import Classifier, Needs, Trace, UserError, zoo

PENULTIMATE = Needs(traces=[Trace()])


def fed_to(module: nn.Module, model: nn.Module, images: np.ndarray) -> np.ndarray:
    """What `module` inside `model` is given, caught by a hook of our own."""
    caught: list[torch.Tensor] = []
    handle = module.register_forward_pre_hook(lambda _module, args: caught.append(args[0].clone()))
    with torch.no_grad():
        model(torch.from_numpy(images))
    handle.remove()
    return caught[-1].flatten(1).numpy()


@pytest.mark.parametrize(
    "kind",
    [
        tiny_models.TinyCNN,
        tiny_models.InPlace,
        tiny_models.Functional,
        tiny_models.Residual,
        tiny_models.Attention,
    ],
)
def test_penultimate_is_what_the_head_is_fed(kind: type[nn.Module], images: np.ndarray) -> None:
    model = tiny_models.seeded(kind)
    seen = Classifier(model).observe(images, PENULTIMATE)
    np.testing.assert_allclose(seen.trace("penultimate"), fed_to(model.head, model, images), rtol=1e-4, atol=1e-6)


def test_penultimate_of_a_function_is_not_the_layer_before(images: np.ndarray) -> None:
    model = tiny_models.seeded(tiny_models.Functional)
    with torch.no_grad():
        expected = model.features(torch.from_numpy(images)).numpy()
    found = Classifier(model).observe(images, PENULTIMATE).trace("penultimate")
    assert found.shape == (19, 4)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["lenet", "simple_cnn", "icos_e"])
def test_penultimate_of_the_zoo_is_fed_to_its_last_linear_layer(name: str) -> None:
    shape = zoo.get(name).input_shape
    model = zoo.make(name, input_shape=shape, seed=0).eval()
    heads = [module for module in model.modules() if isinstance(module, nn.Linear)]
    images = np.random.default_rng(0).random((3, *shape), dtype=np.float32)
    seen = Classifier(model, output_kind="logits").observe(images, PENULTIMATE)
    np.testing.assert_allclose(seen.trace("penultimate"), fed_to(heads[-1], model, images), rtol=1e-4, atol=1e-5)


def test_a_head_that_is_fed_the_image_has_nothing_before_it(images: np.ndarray) -> None:
    class Whole(nn.Conv2d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).flatten(1)

    for model in (Whole(1, 3, 8), nn.Flatten()):
        with pytest.raises(UserError, match="has no layer before its last layer with weights"):
            Classifier(model).observe(images, PENULTIMATE)


def test_a_module_without_parts_is_one_layer(images: np.ndarray) -> None:
    model = nn.Flatten()
    seen = Classifier(model, output_kind="logits").observe(images, Needs(traces=[Trace("(model)")]))
    np.testing.assert_array_equal(seen.trace("(model)"), images.reshape(19, -1))


def test_two_reductions_and_the_penultimate_come_from_one_pass(cnn: nn.Module, images: np.ndarray) -> None:
    calls: list[int] = []
    classifier = Classifier(cnn, input_shape=(1, 8, 8))
    needs = Needs(traces=[Trace(), Trace("penultimate", "mean"), Trace("drop"), Trace("pool"), Trace("pool", "mean")])
    classifier.observe(images, needs)  # finds out which layer is the last
    cnn.register_forward_pre_hook(lambda _module, args: calls.append(len(args[0])))
    seen = classifier.observe(images, needs)
    assert calls == [19]
    np.testing.assert_array_equal(seen.trace(Trace()), seen.trace("drop"))


def test_weights_of_every_dtype_are_told_apart() -> None:
    def fingerprint(value: torch.Tensor) -> str | None:
        model = nn.Linear(2, 2)
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
        model.register_buffer("extra", value)
        return Classifier(model).fingerprint

    values = [
        torch.zeros(4),
        torch.zeros(2, 2),
        torch.zeros(4, dtype=torch.bfloat16),
        torch.zeros(4, dtype=torch.float16),
        torch.zeros(4, dtype=torch.bool),
        torch.zeros(4, dtype=torch.int32),
        torch.zeros(0),
        torch.tensor(0.0),
        torch.zeros(2, 4).T[:, :1],
    ]
    found = [fingerprint(value) for value in values]
    assert len(set(found)) == len(values)
    assert found == [fingerprint(value.clone()) for value in values]
