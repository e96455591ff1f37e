from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import tiny_models
from secondguess import Classifier, ImageSet, Needs, Trace, UserError
from secondguess.progress import Callback


def by_hand(model: nn.Module, images: np.ndarray) -> dict[str, np.ndarray]:
    """Every intermediate value of `TinyCNN`, by calling its parts one after another."""
    with torch.no_grad():
        steps = {"conv": model.conv(torch.from_numpy(images))}
        steps["bn"] = model.bn(steps["conv"])
        steps["relu"] = torch.relu(steps["bn"])
        steps["pool"] = model.pool(steps["relu"])
        steps["flatten"] = steps["pool"].flatten(1)
        steps["hidden"] = model.hidden(steps["flatten"])
        steps["relu#2"] = torch.relu(steps["hidden"])
        steps["drop"] = steps["relu#2"]
        steps["head"] = model.head(steps["drop"])
    return {name: value.numpy() for name, value in steps.items()}


def all_traces(*reductions: str) -> Needs:
    names = ["conv", "bn", "relu", "pool", "flatten", "hidden", "relu#2", "drop", "head"]
    return Needs(logits=True, traces={Trace(name, reduce) for name in names for reduce in reductions})


def test_probabilities_are_the_float64_softmax_of_the_logits(cnn: nn.Module, images: np.ndarray) -> None:
    seen = Classifier(cnn).observe(images, Needs(logits=True))
    logits = by_hand(cnn, images)["head"]
    expected = torch.softmax(torch.from_numpy(logits).double(), dim=1).numpy()
    assert seen.probabilities.dtype == np.float64
    assert seen.logits.dtype == np.float32
    np.testing.assert_allclose(seen.logits, logits, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(seen.probabilities, expected, rtol=1e-5)
    np.testing.assert_array_equal(seen.predictions, logits.argmax(axis=1))
    np.testing.assert_allclose(seen.confidences, expected.max(axis=1), rtol=1e-5)
    assert seen.samples is None
    assert seen.traces == {}


def test_traces_equal_the_outputs_of_the_parts(cnn: nn.Module, images: np.ndarray) -> None:
    seen = Classifier(cnn).observe(images, all_traces("flatten", "mean"))
    for name, value in by_hand(cnn, images).items():
        flat = seen.trace(Trace(name, "flatten"))
        mean = seen.trace(Trace(name, "mean"))
        assert flat.dtype == mean.dtype == np.float32
        np.testing.assert_allclose(flat, value.reshape(len(images), -1), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(mean, value.mean((2, 3)) if value.ndim == 4 else value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [1, 7, 256])
def test_the_batch_size_changes_nothing(cnn: nn.Module, images: np.ndarray, size: int) -> None:
    whole = Classifier(cnn, batch_size=len(images)).observe(images, all_traces("flatten"))
    parts = Classifier(cnn, batch_size=size).observe(images, all_traces("flatten"))
    np.testing.assert_allclose(parts.probabilities, whole.probabilities, rtol=1e-5)
    for trace, values in whole.traces.items():
        np.testing.assert_allclose(parts.traces[trace], values, rtol=1e-4, atol=1e-6)


def test_all_traces_come_from_one_call_a_batch(cnn: nn.Module, images: np.ndarray) -> None:
    sizes: list[int] = []
    cnn.register_forward_pre_hook(lambda _module, args: sizes.append(len(args[0])))
    Classifier(cnn, batch_size=8, output_kind="logits").observe(images, all_traces("flatten", "mean"))
    assert sizes == [8, 8, 3]


def test_a_layer_that_is_called_twice_is_two_layers(cnn: nn.Module) -> None:
    layers = {layer.name: layer for layer in Classifier(cnn, input_shape=(1, 8, 8)).layers()}
    assert list(layers) == ["conv", "bn", "relu", "pool", "flatten", "hidden", "relu#2", "drop", "head"]
    assert layers["relu"].shape == (4, 8, 8)
    assert layers["relu#2"].shape == (8,)
    assert layers["conv"].kind == "Conv2d"
    assert {name for name, layer in layers.items() if layer.weighted} == {"conv", "bn", "hidden", "head"}
    assert [Trace("pool", reduce).width(layers["pool"].shape) for reduce in ("flatten", "mean")] == [16, 4]


def test_an_in_place_layer_does_not_overwrite_a_trace(images: np.ndarray) -> None:
    model = tiny_models.seeded(tiny_models.InPlace)
    with torch.no_grad():
        before = model.conv(torch.from_numpy(images)).flatten(1).numpy()
    seen = Classifier(model).observe(images, Needs(traces={Trace("conv"), Trace("relu")}))
    assert before.min() < 0
    np.testing.assert_allclose(seen.trace("conv"), before, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(seen.trace("relu"), before.clip(0), rtol=1e-5, atol=1e-6)


def test_a_module_in_training_mode_is_left_as_it_was(cnn: nn.Module, images: np.ndarray) -> None:
    expected = Classifier(cnn).predict(images)
    cnn.train()
    cnn.bn.eval()
    flags = {name: module.training for name, module in cnn.named_modules()}
    state = {name: value.clone() for name, value in cnn.state_dict().items()}
    seen = Classifier(cnn).observe(images, Needs(traces={Trace()}, samples=2))
    np.testing.assert_array_equal(seen.probabilities, expected)
    assert {name: module.training for name, module in cnn.named_modules()} == flags
    assert all(torch.equal(state[name], value) for name, value in cnn.state_dict().items())
    assert all(parameter.grad is None for parameter in cnn.parameters())
    assert not any(module._forward_hooks for module in cnn.modules())


def test_flags_and_hooks_are_restored_when_the_model_fails(cnn: nn.Module) -> None:
    cnn.train()
    with pytest.raises(UserError, match=r"cannot take images of shape \(3, 8, 8\)"):
        Classifier(cnn).observe(np.zeros((2, 3, 8, 8), np.float32), Needs(traces={Trace("conv")}))
    assert all(module.training for module in cnn.modules())
    assert not any(module._forward_hooks for module in cnn.modules())


def test_images_the_model_could_not_take_do_not_decide_what_it_takes(cnn: nn.Module, images: np.ndarray) -> None:
    classifier = Classifier(cnn)
    with pytest.raises(UserError, match="cannot take images"):
        classifier.observe(np.zeros((2, 3, 8, 8), np.float32))
    classifier.observe(images)
    # Adaptive pooling takes images of any size.
    assert classifier.observe(np.zeros((2, 1, 10, 12), np.float32)).probabilities.shape == (2, 3)


def test_normalisation_is_one_number_or_one_a_channel(images: np.ndarray) -> None:
    colour = np.repeat(images, 3, axis=1) * np.float32([0.2, 0.5, 0.9]).reshape(3, 1, 1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    mean, std = [0.1, 0.2, 0.3], [0.5, 1.0, 2.0]
    by_rule = (colour - np.float32(mean).reshape(3, 1, 1)) / np.float32(std).reshape(3, 1, 1)
    with torch.no_grad():
        expected = torch.softmax(model(torch.from_numpy(by_rule)).double(), 1).numpy()
        pixels = torch.softmax(model(torch.from_numpy(colour * 255)).double(), 1).numpy()
    np.testing.assert_allclose(Classifier(model, mean=mean, std=std).predict(colour), expected, rtol=1e-5)
    np.testing.assert_allclose(Classifier(model, std=1 / 255).predict(colour), pixels, rtol=1e-4, atol=1e-12)


def test_every_kind_of_images_gives_the_same_answer(cnn: nn.Module, images: np.ndarray) -> None:
    bytes_ = (images * 255).round().astype(np.uint8)
    classifier = Classifier(cnn)
    expected = classifier.predict(bytes_)
    for form in (
        bytes_[:, 0],
        np.moveaxis(bytes_, 1, -1),
        torch.from_numpy(bytes_),
        ImageSet.from_arrays(bytes_),
        ImageSet.from_arrays(bytes_).images,
        (bytes_ / 255).astype(np.float32),
    ):
        np.testing.assert_allclose(classifier.predict(form), expected, rtol=1e-5)


def test_float64_softmax_tells_apart_what_float32_rounds_to_one() -> None:
    logits = torch.tensor([[20.0, 0.0], [22.0, 0.0], [30.0, 0.0]])
    assert torch.softmax(logits, 1)[:, 0].unique().numel() == 1
    confidences = Classifier(lambda x: logits).observe(np.zeros((3, 1, 2, 2), np.float32)).confidences
    assert confidences[0] < confidences[1] < confidences[2] < 1


def test_an_observation_can_be_cut(cnn: nn.Module, images: np.ndarray) -> None:
    seen = Classifier(cnn, class_names=["a", "b", "c"]).observe(
        images, Needs(logits=True, traces={Trace("pool")}, samples=2)
    )
    rows = np.array([4, 0, 11])
    part = seen.take(rows)
    assert len(part) == 3
    assert part.class_names == ("a", "b", "c")
    for name in ("probabilities", "logits", "samples"):
        np.testing.assert_array_equal(getattr(part, name), getattr(seen, name)[rows])
    np.testing.assert_array_equal(part.trace("pool"), seen.trace("pool")[rows])
    np.testing.assert_array_equal(part.pixels[0:3], images[rows])
    np.testing.assert_array_equal(seen.take(slice(2, 5)).pixels[0:3], images[2:5])
    assert (
        repr(part) == "Observation(3 images, 3 classes: probabilities, logits, trace pool/flatten, 2 dropout samples)"
    )


def test_a_trace_that_was_not_asked_for_is_named(cnn: nn.Module, images: np.ndarray) -> None:
    seen = Classifier(cnn).observe(images, Needs(traces={Trace("pool"), Trace("pool", "mean")}))
    with pytest.raises(UserError, match=r"no trace of 'conv' \(it has: pool/flatten, pool/mean\)"):
        seen.trace("conv")
    with pytest.raises(UserError, match="more than one trace of 'pool'"):
        seen.trace("pool")
    with pytest.raises(UserError, match="no traces at all"):
        Classifier(cnn).observe(images).trace("pool")


def test_progress_counts_images_up_to_the_end(cnn: nn.Module, images: np.ndarray) -> None:
    reported: list[tuple[int, int]] = []
    told = Callback(lambda *step: reported.append(step))
    Classifier(cnn, batch_size=8).observe(images, progress=told)
    assert reported == [(8, 19), (16, 19), (19, 19)]
    reported.clear()
    Classifier(cnn, batch_size=8).observe(
        images, Needs(samples=3), progress=Callback(lambda *step: reported.append(step))
    )
    assert reported[-1] == (19 * 4, 19 * 4)
    assert [done for done, _ in reported] == sorted(done for done, _ in reported)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((0, 1, 8, 8), np.float32), "is empty; at least one image"),
        (np.zeros((2, 1, 8, 8), np.int32), "Images of dtype int32 were given"),
        (np.zeros(8, np.float32), r"takes images of shape .*, but an array of shape \(8,\) was given"),
        (np.full((2, 1, 8, 8), 7.0, np.float32), r"must lie in \[0, 1\]"),
        (np.full((2, 1, 8, 8), np.nan, np.float32), "NaN or infinity"),
        (np.zeros((2, 3, 9, 9), np.float32), "takes images of shape .*load them with size=.*channels=1"),
    ],
)
def test_bad_images(cnn: nn.Module, images: np.ndarray, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Classifier(cnn, input_shape=(1, 8, 8)).observe(images)


def test_an_empty_source_is_refused(cnn: nn.Module, images: np.ndarray) -> None:
    source = ImageSet.from_arrays(images).images
    from secondguess.images.sources import ViewSource

    with pytest.raises(UserError, match="There are no images to look at"):
        Classifier(cnn).observe(ViewSource(source, np.zeros(0, np.int64)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output_kind": "odds"}, "kind is 'odds'; one of auto, logits, probabilities is expected"),
        ({"batch_size": 0}, "batch size is 0; it must be at least 1"),
        ({"std": 0.0}, "std must not be 0"),
        ({"mean": float("nan")}, "mean and std must be finite"),
        ({"mean": "grey"}, "mean must be one number or one per channel, not 'grey'"),
        ({"device": "abacus"}, "'abacus' is not a device"),
    ],
)
def test_bad_options(cnn: nn.Module, options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Classifier(cnn, **options)


def test_normalisation_must_fit_the_channels(cnn: nn.Module, images: np.ndarray) -> None:
    with pytest.raises(UserError, match="mean has 3 numbers, but the images have 1 channels"):
        Classifier(cnn, mean=[0.1, 0.2, 0.3]).observe(images)


def test_the_model_and_the_class_names_must_agree(cnn: nn.Module, images: np.ndarray) -> None:
    with pytest.raises(UserError, match="gives 3 classes, but 2 class names were given"):
        Classifier(cnn, class_names=["cat", "dog"]).observe(images)
    assert Classifier(cnn).observe(images).class_names == ("0", "1", "2")


def test_an_unknown_layer_is_answered_with_the_likely_ones(cnn: nn.Module, images: np.ndarray) -> None:
    with pytest.raises(UserError, match="no layer 'hiden'; did you mean 'hidden'"):
        Classifier(cnn).observe(images, Needs(traces={Trace("hiden")}))
    with pytest.raises(UserError, match="no layer 'xyz'; it has: conv, bn, relu, pool"):
        Classifier(cnn).observe(images, Needs(traces={Trace("xyz")}))
    with pytest.raises(UserError, match="no layer 'relu#3'"):
        Classifier(cnn).observe(images, Needs(traces={Trace("relu#3")}))


def test_layers_need_to_know_the_images(cnn: nn.Module, images: np.ndarray) -> None:
    classifier = Classifier(cnn)
    with pytest.raises(UserError, match=r"give Classifier\(..., input_shape=\(C, H, W\)\)"):
        classifier.layers()
    classifier.observe(images)
    assert len(classifier.layers()) == 9


def test_a_layer_without_a_row_for_each_image_is_refused(images: np.ndarray) -> None:
    class Positions(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flatten(1).T

    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.turn = Positions()
            self.head = nn.Linear(64, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.turn(x).T)

    with pytest.raises(UserError, match=r"'turn' gives an array of shape \(64, 19\) for 19 images"):
        Classifier(Turned()).observe(images, Needs(traces={Trace("turn")}))


def test_a_model_that_returns_no_tensor_is_named(images: np.ndarray) -> None:
    class Pair(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x, x

    with pytest.raises(UserError, match=r"returned tuple \(outputs 0, 1\) where one tensor"):
        Classifier(Pair()).observe(images)


def test_an_output_with_logits_inside_is_understood(cnn: nn.Module, images: np.ndarray) -> None:
    class Answer:
        def __init__(self, logits: torch.Tensor) -> None:
            self.logits = logits

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = cnn

        def forward(self, x: torch.Tensor) -> Answer:
            return Answer(self.inner(x))

    np.testing.assert_array_equal(Classifier(Wrapped()).predict(images), Classifier(cnn).predict(images))


def test_what_does_not_fit_into_memory_is_refused_before_it_is_allocated(cnn: nn.Module, images: np.ndarray) -> None:
    needs = Needs(traces={Trace("conv")})  # 19 x 256 floats and 19 x 3 doubles
    Classifier(cnn, memory_limit=19 * (256 * 4 + 3 * 8)).observe(images, needs)
    with pytest.raises(
        UserError, match=r"more than the memory limit of 19.4 KiB; give Classifier\(..., cache=FOLDER\)"
    ):
        Classifier(cnn, memory_limit=19 * (256 * 4 + 3 * 8) - 1).observe(images, needs)
