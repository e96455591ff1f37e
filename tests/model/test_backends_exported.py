from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tiny_models
from secondguess import Classifier, Needs, Trace, UserError, zoo
from tiny_models import assert_close

Exported = Callable[..., tuple[nn.Module, Path]]
KINDS = [
    tiny_models.TinyCNN,
    tiny_models.InPlace,
    tiny_models.Functional,
    tiny_models.Residual,
    tiny_models.Attention,
]


def save(model: nn.Module, example: torch.Tensor, path: Path, **options: object) -> Path:
    torch.export.save(torch.export.export(model.eval(), (example,), **options), path)
    return path


@pytest.mark.parametrize("options", [{}, {"fixed": True}], ids=["dynamic", "fixed"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_ordinary_program_is_opened_and_answers_like_the_module(
    exported: Exported, images: np.ndarray, kind: type[nn.Module], options: dict
) -> None:
    model, path = exported(kind, "pt2", **options)
    needs = Needs(logits=True, traces=[Trace(), Trace("penultimate", "mean")])
    ours = Classifier(path, batch_size=7).observe(images, needs)
    theirs = Classifier(model).observe(images, needs)
    assert_close(ours.probabilities, theirs.probabilities)
    assert_close(ours.logits, theirs.logits)
    for trace in needs.traces:
        assert_close(ours.trace(trace), theirs.trace(trace))


@pytest.mark.parametrize("name", ["lenet", "fully_connected", "icos_b", "icos_e"])
def test_networks_of_the_zoo_are_opened(tmp_path: Path, name: str) -> None:
    shape = zoo.get(name).input_shape
    model = zoo.make(name, input_shape=shape, seed=0).eval()
    images = np.random.default_rng(0).random((3, *shape), dtype=np.float32)
    path = save(model, torch.from_numpy(images), tmp_path / "m.pt2", dynamic_shapes=({0: torch.export.Dim("n")},))
    needs = Needs(traces=[Trace()])
    ours, theirs = (Classifier(one, output_kind="logits").observe(images, needs) for one in (path, model))
    assert_close(ours.probabilities, theirs.probabilities)
    assert_close(ours.trace("penultimate"), theirs.trace("penultimate"))


def test_a_decomposed_program_is_opened(tmp_path: Path, cnn: nn.Module, images: np.ndarray) -> None:
    # Here a linear layer is a product with a transposed weight.
    program = torch.export.export(cnn, (torch.from_numpy(images),), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.export.save(program.run_decompositions(), tmp_path / "m.pt2")
    needs = Needs(traces=[Trace()])
    ours, theirs = (Classifier(model).observe(images, needs) for model in (tmp_path / "m.pt2", cnn))
    assert_close(ours.probabilities, theirs.probabilities)
    assert_close(ours.trace("penultimate"), theirs.trace("penultimate"))


def test_a_frozen_part_and_a_transformer_are_ordinary(tmp_path: Path, images: np.ndarray) -> None:
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(1, 8, 4, stride=4)
            self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.register_buffer("shift", torch.rand(1), persistent=False)
            self.parts = nn.ModuleDict({"odd-name": nn.Linear(8, 8)})
            self.head = nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                tokens = self.patches(x - self.shift).flatten(2).transpose(1, 2)
            left, right = self.parts["odd-name"](self.block(tokens)).chunk(2, dim=1)
            return self.head(torch.einsum("ntd,t->nd", torch.cat([right, left], dim=1), torch.ones(4)))

    model = Frozen().eval()
    dynamic = ({0: torch.export.Dim("n")},)
    path = save(model, torch.from_numpy(images), tmp_path / "m.pt2", dynamic_shapes=dynamic)
    needs = Needs(traces=[Trace()])
    ours, theirs = (Classifier(one, output_kind="logits").observe(images, needs) for one in (path, model))
    assert_close(ours.probabilities, theirs.probabilities)
    assert_close(ours.trace("penultimate"), theirs.trace("penultimate"))


def test_arithmetic_with_the_batch_size_is_ordinary(tmp_path: Path, images: np.ndarray) -> None:
    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(32, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            halves = x.reshape(2 * x.shape[0], 32)
            return self.head(halves).reshape(x.shape[0], 2, 3).sum(1) * 9

    model = Halves()
    dynamic = ({0: torch.export.Dim("n", min=2)},)
    path = save(model, torch.from_numpy(images), tmp_path / "m.pt2", dynamic_shapes=dynamic)
    classifier = Classifier(path)
    assert_close(classifier.predict(images), Classifier(model).predict(images))
    assert all(layer.shape != (32,) for layer in classifier.layers())
    with pytest.raises(UserError, match=r"'reshape' gives an array of shape \(38, 32\) for 19 images"):
        classifier.observe(images, Needs(traces=[Trace("reshape")]))


def test_its_layers_have_names_kinds_shapes_and_values(exported: Exported, images: np.ndarray) -> None:
    model, path = exported(tiny_models.TinyCNN, "pt2")
    classifier = Classifier(path)
    assert classifier.input_shape == (1, 8, 8)
    assert classifier.gives == {"probabilities", "logits", "traces", "gradients"}
    layers = {layer.name: layer for layer in classifier.layers()}
    assert layers["conv2d"].kind == "conv2d.default"
    assert layers["conv2d"].shape == (4, 8, 8)
    assert [name for name, layer in layers.items() if layer.weighted] == ["conv2d", "linear", "linear_1"]
    ours = classifier.observe(images, Needs(traces=[Trace("relu"), Trace("relu_1"), Trace("conv2d", "mean")]))
    theirs = Classifier(model).observe(images, Needs(traces=[Trace("relu"), Trace("relu#2"), Trace("conv", "mean")]))
    for mine, other in [("relu", "relu"), ("relu_1", "relu#2"), ("conv2d", "conv")]:
        assert_close(ours.trace(mine), theirs.trace(other))


def test_an_in_place_call_does_not_overwrite_a_trace(exported: Exported, images: np.ndarray) -> None:
    model, path = exported(tiny_models.InPlace, "pt2")
    with torch.no_grad():
        before = model.conv(torch.from_numpy(images)).flatten(1).numpy()
    assert_close(Classifier(path).observe(images, Needs(traces=[Trace("conv2d")])).trace("conv2d"), before)


@pytest.mark.parametrize("size", [1, 4, 7, 256])
@pytest.mark.parametrize("options", [{}, {"fixed": True}], ids=["dynamic", "fixed"])
def test_the_batch_size_changes_nothing(exported: Exported, images: np.ndarray, size: int, options: dict) -> None:
    _, path = exported(tiny_models.TinyCNN, "pt2", **options)
    whole = Classifier(path, batch_size=19).observe(images, Needs(traces=[Trace()]))
    parts = Classifier(path, batch_size=size).observe(images, Needs(traces=[Trace()]))
    np.testing.assert_allclose(parts.probabilities, whole.probabilities, rtol=1e-5)
    assert_close(parts.trace("penultimate"), whole.trace("penultimate"))


def test_what_a_program_with_free_sizes_cannot_take_is_explained(
    tmp_path: Path, cnn: nn.Module, images: np.ndarray
) -> None:
    dynamic = ({0: torch.export.Dim("n"), 2: torch.export.Dim("h", min=4)},)
    path = save(cnn, torch.from_numpy(images), tmp_path / "m.pt2", dynamic_shapes=dynamic)
    classifier = Classifier(path)
    assert classifier.input_shape is None
    with pytest.raises(UserError, match=r"m.pt2 cannot take images of shape \(3, 8, 8\)"):
        classifier.observe(np.zeros((2, 3, 8, 8), np.float32))


def test_images_of_another_shape_are_refused(pt2_file: Path) -> None:
    with pytest.raises(UserError, match=r"TinyCNN.pt2 takes images of shape \(1, 8, 8\)"):
        Classifier(pt2_file).observe(np.zeros((2, 3, 8, 8), np.float32))


def test_an_unknown_layer_and_dropout_are_refused(exported: Exported, images: np.ndarray) -> None:
    _, path = exported(tiny_models.TinyCNN, "pt2")
    with pytest.raises(UserError, match="no layer 'conv'; did you mean 'conv2d'"):
        Classifier(path).observe(images, Needs(traces=[Trace("conv")]))
    with pytest.raises(UserError, match=r"needs dropout, but TinyCNN.pt2 \(an exported program\) gives"):
        Classifier(path).observe(images, Needs(samples=2))


def test_a_program_whose_head_is_fed_the_image(tmp_path: Path) -> None:
    model = nn.Conv2d(1, 3, 8)
    path = save(model, torch.rand(2, 1, 8, 8), tmp_path / "m.pt2")
    with pytest.raises(UserError, match="no layer before its last layer with weights"):
        Classifier(path, output_kind="logits").observe(np.zeros((2, 1, 8, 8), np.float32), Needs(traces=[Trace()]))


def test_programs_that_are_no_classifiers(tmp_path: Path) -> None:
    class Pair(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x + 1, x + 2

    with pytest.raises(UserError, match="has 2 axes; images have four"):
        Classifier(save(nn.Linear(4, 2), torch.rand(3, 4), tmp_path / "flat.pt2"))
    pair = Classifier(save(Pair(), torch.rand(2, 1, 8, 8), tmp_path / "pair.pt2"))
    with pytest.raises(UserError, match=r"pair.pt2 returned tuple \(outputs 0, 1\) where one tensor"):
        pair.observe(np.zeros((2, 1, 8, 8), np.float32))


def test_its_fingerprint_is_that_of_its_content(tmp_path: Path, exported: Exported) -> None:
    _, path = exported(tiny_models.TinyCNN, "pt2")
    _, other = exported(tiny_models.Functional, "pt2")
    copy = tmp_path / "copy.pt2"
    copy.write_bytes(path.read_bytes())
    opened = Classifier(copy)
    assert opened.fingerprint == Classifier(path).fingerprint
    copy.write_bytes(other.read_bytes())
    assert opened.fingerprint == Classifier(path).fingerprint, "what is in memory has not changed"
    assert Classifier(copy).fingerprint != opened.fingerprint
