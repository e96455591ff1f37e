from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tiny_models
from secondguess import Classifier, Needs, Trace, UserError
from secondguess.model.backends import onnx_graph
from tiny_models import assert_close

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

Exported = Callable[..., tuple[nn.Module, Path]]


class FirstToken(nn.Module):
    """Four patches as tokens; the head reads the first token alone."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 6, 4, stride=4)
        self.mix = nn.Linear(6, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(torch.tanh(self.mix(tokens))[:, 0])


class Session:
    """A session of ONNX Runtime, as far as the choice of a device goes."""

    def __init__(self, *providers: str, number: str = "0") -> None:
        self.providers, self.number = list(providers), number

    def get_providers(self) -> list[str]:
        return self.providers

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {name: {"device_id": self.number} for name in self.providers}


def save_graph(path: Path, nodes: list, weights: dict[str, np.ndarray], shape: list, **options: object) -> Path:
    """Write a graph that maps `image` to `scores`."""
    helper, kinds = onnx.helper, onnx.TensorProto
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("image", options.get("dtype", kinds.FLOAT), shape)],
        [helper.make_tensor_value_info("scores", kinds.FLOAT, None)],
        [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("options", [{}, {"fixed": True}], ids=["dynamic", "fixed"])
@pytest.mark.parametrize("kind", [tiny_models.TinyCNN, tiny_models.Functional])
def test_an_exported_file_answers_like_the_module(
    exported: Exported, images: np.ndarray, kind: type[nn.Module], options: dict
) -> None:
    model, path = exported(kind, "onnx", **options)
    needs = Needs(logits=True, traces=[Trace(), Trace("penultimate", "mean")])
    ours = Classifier(path, batch_size=7).observe(images, needs)
    theirs = Classifier(model).observe(images, needs)
    assert_close(ours.probabilities, theirs.probabilities)
    assert_close(ours.logits, theirs.logits)
    for trace in needs.traces:
        assert_close(ours.trace(trace), theirs.trace(trace))


def test_its_layers_have_names_kinds_shapes_and_values(exported: Exported, images: np.ndarray) -> None:
    model, path = exported(tiny_models.TinyCNN, "onnx")
    classifier = Classifier(path)
    assert classifier.input_shape == (1, 8, 8)
    assert classifier.gives == {"probabilities", "logits", "traces"}
    layers = classifier.layers()
    kinds = [layer.kind for layer in layers]
    assert kinds[0] == "Conv"
    assert kinds[-1] == "Gemm"
    assert kinds.count("Relu") == 2
    assert [layer.kind for layer in layers if layer.weighted] == ["Conv", "Gemm", "Gemm"]
    assert layers[-1].name == "scores"
    assert layers[-1].shape == (3,)
    relu = [layer for layer in layers if layer.kind == "Relu"]
    assert [layer.shape for layer in relu] == [(4, 8, 8), (8,)]
    ours = classifier.observe(images, Needs(traces=[Trace(relu[0].name), Trace(relu[1].name), Trace("scores")]))
    theirs = Classifier(model).observe(images, Needs(logits=True, traces=[Trace("relu"), Trace("relu#2")]))
    assert_close(ours.trace(relu[0].name), theirs.trace("relu"))
    assert_close(ours.trace(relu[1].name), theirs.trace("relu#2"))
    assert_close(ours.trace("scores"), theirs.logits)


@pytest.mark.parametrize("size", [1, 4, 7, 256])
@pytest.mark.parametrize("options", [{}, {"fixed": True}], ids=["dynamic", "fixed"])
def test_the_batch_size_changes_nothing(exported: Exported, images: np.ndarray, size: int, options: dict) -> None:
    _, path = exported(tiny_models.TinyCNN, "onnx", **options)
    whole = Classifier(path, batch_size=19).observe(images, Needs(traces=[Trace()]))
    parts = Classifier(path, batch_size=size).observe(images, Needs(traces=[Trace()]))
    np.testing.assert_allclose(parts.probabilities, whole.probabilities, rtol=1e-5)
    assert_close(parts.trace("penultimate"), whole.trace("penultimate"))


def test_layers_of_a_fixed_batch_are_those_of_a_free_one(exported: Exported) -> None:
    def shapes(**options: bool) -> list[tuple[str, tuple[int, ...]]]:
        layers = Classifier(exported(tiny_models.TinyCNN, "onnx", **options)[1]).layers()
        return [(layer.kind, layer.shape) for layer in layers]

    assert shapes() == shapes(fixed=True)


def test_weights_in_a_file_beside_it(tmp_path: Path, exported: Exported, images: np.ndarray) -> None:
    model, inside = exported(tiny_models.TinyCNN, "onnx")
    path = tmp_path / "model.onnx"
    onnx.save(onnx.load(inside), path, save_as_external_data=True, location="model.onnx.data", size_threshold=64)
    assert (tmp_path / "model.onnx.data").is_file()
    ours = Classifier(path)
    assert_close(ours.observe(images, Needs(traces=[Trace()])).probabilities, Classifier(model).predict(images))
    before = ours.fingerprint
    data = bytearray((tmp_path / "model.onnx.data").read_bytes())
    data[0] ^= 1
    (tmp_path / "model.onnx.data").write_bytes(bytes(data))
    assert ours.fingerprint == before, "what is in memory has not changed"
    assert Classifier(path).fingerprint != before
    (tmp_path / "model.onnx.data").unlink()
    with pytest.raises(UserError, match="is not an ONNX model that can be run"):
        Classifier(path)


def test_images_with_their_channels_last(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = {"w": rng.random((8 * 6 * 3, 2)).astype(np.float32)}
    nodes = [
        onnx.helper.make_node("Flatten", ["image"], ["flat"], axis=1),
        onnx.helper.make_node("MatMul", ["flat", "w"], ["scores"]),
    ]
    path = save_graph(tmp_path / "nhwc.onnx", nodes, weights, ["n", 8, 6, 3])
    images = rng.random((5, 3, 8, 6), dtype=np.float32)
    classifier = Classifier(path, output_kind="logits")
    assert classifier.input_shape == (3, 8, 6)
    seen = classifier.observe(images, Needs(logits=True, traces=[Trace()]))
    flat = images.transpose(0, 2, 3, 1).reshape(5, -1)
    assert_close(seen.trace("penultimate"), flat)
    assert_close(seen.logits, flat @ weights["w"])


@pytest.mark.parametrize("kind", ["FLOAT16", "DOUBLE"])
def test_other_floats_are_fed_as_they_are_wanted(tmp_path: Path, kind: str) -> None:
    nodes = [
        onnx.helper.make_node("Flatten", ["image"], ["flat"], axis=1),
        onnx.helper.make_node("Cast", ["flat"], ["scores"], to=onnx.TensorProto.FLOAT),
    ]
    path = save_graph(tmp_path / "m.onnx", nodes, {}, ["n", 1, 2, 2], dtype=getattr(onnx.TensorProto, kind))
    images = np.random.default_rng(0).random((3, 1, 2, 2), dtype=np.float32)
    seen = Classifier(path, output_kind="logits").observe(images, Needs(logits=True))
    np.testing.assert_allclose(seen.logits, images.reshape(3, 4), rtol=1e-3)


def test_what_has_no_row_for_each_image_is_no_layer(tmp_path: Path) -> None:
    nodes = [
        onnx.helper.make_node("ReduceMax", ["image"], ["brightest"], keepdims=0),
        onnx.helper.make_node("Div", ["image", "brightest"], ["scaled"]),
        onnx.helper.make_node("Shape", ["scaled"], ["shape"]),
        onnx.helper.make_node("Reshape", ["scaled", "line"], ["turned"]),
        onnx.helper.make_node("Reshape", ["turned", "square"], ["flat"]),
        onnx.helper.make_node("MatMul", ["flat", "w"], ["scores"]),
    ]
    weights = {
        "line": np.array([-1, 2], np.int64),
        "square": np.array([-1, 4], np.int64),
        "w": np.eye(4, dtype=np.float32),
    }
    path = save_graph(tmp_path / "m.onnx", nodes, weights, ["n", 1, 2, 2])
    images = np.random.default_rng(0).random((3, 1, 2, 2), dtype=np.float32)
    classifier = Classifier(path, output_kind="logits")
    assert [layer.name for layer in classifier.layers()] == ["scaled", "flat", "scores"]
    assert_close(
        classifier.observe(images, Needs(traces=[Trace()])).trace("penultimate"), (images / images.max()).reshape(3, 4)
    )
    for name in ("brightest", "turned"):
        with pytest.raises(UserError, match=f"The layer {name!r} gives an array of shape .* for 3 images"):
            classifier.observe(images, Needs(traces=[Trace(name)]))


def test_a_graph_without_a_layer_before_its_weights(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Conv", ["image", "w"], ["scores"])
    weights = {"w": np.ones((2, 1, 2, 2), np.float32)}
    classifier = Classifier(save_graph(tmp_path / "m.onnx", [node], weights, ["n", 1, 2, 2]), output_kind="logits")
    with pytest.raises(UserError, match="no layer before its last layer with weights"):
        classifier.observe(np.zeros((2, 1, 2, 2), np.float32), Needs(traces=[Trace()]))


def test_the_layer_before_is_found_across_branches(tmp_path: Path) -> None:
    # The node before the head in the file is not the one that feeds it.
    nodes = [
        onnx.helper.make_node("Flatten", ["image"], ["flat"], axis=1),
        onnx.helper.make_node("Sigmoid", ["flat"], ["gate"]),
        onnx.helper.make_node("MatMul", ["flat", "w"], ["straight"]),
        onnx.helper.make_node("Mul", ["straight", "gate"], ["scores"]),
    ]
    path = save_graph(tmp_path / "m.onnx", nodes, {"w": np.eye(4, dtype=np.float32)}, ["n", 1, 2, 2])
    images = np.random.default_rng(0).random((3, 1, 2, 2), dtype=np.float32)
    seen = Classifier(path, output_kind="logits").observe(images, Needs(traces=[Trace()]))
    assert_close(seen.trace("penultimate"), images.reshape(3, 4))


def test_the_image_flows_through_the_choice_of_a_token(exported: Exported, images: np.ndarray) -> None:
    model, path = exported(FirstToken, "onnx")
    classifier = Classifier(path)
    assert "Gather" in [layer.kind for layer in classifier.layers()]
    ours = classifier.observe(images, Needs(traces=[Trace()])).trace("penultimate")
    assert ours.shape == (len(images), 6)
    assert_close(ours, Classifier(model).observe(images, Needs(traces=[Trace()])).trace("penultimate"))


def test_what_is_gathered_from_a_shape_is_no_layer(tmp_path: Path) -> None:
    nodes = [
        onnx.helper.make_node("Shape", ["image"], ["shape"]),
        onnx.helper.make_node("Gather", ["shape", "first"], ["count"]),
        onnx.helper.make_node("Concat", ["count", "rest"], ["wanted"], axis=0),
        onnx.helper.make_node("Reshape", ["image", "wanted"], ["flat"]),
        onnx.helper.make_node("MatMul", ["flat", "w"], ["scores"]),
    ]
    weights = {
        "first": np.array([0], np.int64),
        "rest": np.array([-1], np.int64),
        "w": np.eye(4, dtype=np.float32),
    }
    classifier = Classifier(save_graph(tmp_path / "m.onnx", nodes, weights, ["n", 1, 2, 2]), output_kind="logits")
    assert [layer.name for layer in classifier.layers()] == ["flat", "scores"]


def test_an_unknown_layer_is_answered_with_the_known_ones(onnx_file: Path, images: np.ndarray) -> None:
    with pytest.raises(UserError, match="no layer 'score'; did you mean 'scores'"):
        Classifier(onnx_file).observe(images, Needs(traces=[Trace("score")]))


def test_images_of_another_shape_are_refused_by_name(onnx_file: Path) -> None:
    with pytest.raises(UserError, match=r"TinyCNN.onnx takes images of shape \(1, 8, 8\)"):
        Classifier(onnx_file).observe(np.zeros((2, 3, 8, 8), np.float32))
    with pytest.raises(UserError, match=r"TinyCNN.onnx cannot take images of shape \(3, 8, 8\)"):
        Classifier(onnx_file).backend.forward(np.zeros((2, 3, 8, 8), np.float32))


@pytest.mark.parametrize("length", [0, 10, 500])
def test_a_truncated_file_is_named(tmp_path: Path, onnx_file: Path, length: int) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(onnx_file.read_bytes()[:length])
    with pytest.raises(UserError, match=r"cut.onnx is not an ONNX model that can be run"):
        Classifier(path)


@pytest.mark.parametrize(
    ("nodes", "shape", "dtype", "message"),
    [
        (["Flatten"], ["n", 4], "FLOAT", "has 2 axes; images have four"),
        (["Flatten"], ["n", 1, 2, 2], "INT64", "an image classifier takes floats"),
    ],
)
def test_graphs_that_take_no_images(tmp_path: Path, nodes: list[str], shape: list, dtype: str, message: str) -> None:
    made = [
        onnx.helper.make_node(nodes[0], ["image"], ["flat"]),
        onnx.helper.make_node("Cast", ["flat"], ["scores"], to=1),
    ]
    path = save_graph(tmp_path / "m.onnx", made, {}, shape, dtype=getattr(onnx.TensorProto, dtype))
    with pytest.raises(UserError, match=message):
        Classifier(path)


def test_a_graph_with_two_inputs_is_refused(tmp_path: Path) -> None:
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info(name, kind, ["n", 1, 2, 2]) for name in ("left", "right")]
    output = helper.make_tensor_value_info("scores", kind, None)
    graph = helper.make_graph([helper.make_node("Add", ["left", "right"], ["scores"])], "g", inputs, [output])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    with pytest.raises(UserError, match=r"has 2 inputs \(left, right\); a classifier of images has one"):
        Classifier(tmp_path / "m.onnx")


def test_a_device_that_the_runtime_has_not(onnx_file: Path) -> None:
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this runtime has CUDA")
    with pytest.raises(UserError, match="'cuda' was asked for, but this ONNX Runtime has"):
        Classifier(onnx_file, device="cuda")


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cudax", "CPU", ""])
def test_an_unknown_device_is_refused(onnx_file: Path, name: str) -> None:
    with pytest.raises(UserError, match=f"'{name}' is not a device; use 'auto', 'cpu', 'cuda'"):
        Classifier(onnx_file, device=name)


@pytest.mark.parametrize("name", ["cpu", "mps"])
def test_the_processor_is_used_for_what_the_runtime_knows_not(onnx_file: Path, name: str) -> None:
    assert Classifier(onnx_file, device=name).backend.device == "cpu"


def test_the_cuda_device_of_that_number_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    cpu, cuda = "CPUExecutionProvider", "CUDAExecutionProvider"
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [cuda, cpu])
    for name, number in {"auto": 0, "cuda": 0, "cuda:0": 0, "cuda:1": 1}.items():
        assert onnx_graph._providers(onnxruntime, name) == [(cuda, {"device_id": number}), cpu]
    for name in ("cpu", "mps"):
        assert onnx_graph._providers(onnxruntime, name) == [cpu]
    assert onnx_graph._device_of(Session(cuda, cpu, number="1"), "cuda:1") == "cuda:1"
    assert onnx_graph._device_of(Session(cpu), "auto") == "cpu"
    with pytest.raises(UserError, match="'cuda:1' was asked for, but ONNX Runtime could not start CUDA there"):
        onnx_graph._device_of(Session(cpu), "cuda:1")


def test_another_runtime_is_another_model(onnx_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    before = Classifier(onnx_file).fingerprint
    monkeypatch.setattr(onnxruntime, "__version__", "0.0.0")
    assert Classifier(onnx_file).fingerprint != before


def test_what_was_seen_is_cached(tmp_path: Path, onnx_file: Path, images: np.ndarray) -> None:
    needs = Needs(traces=[Trace()])
    first = Classifier(onnx_file, cache=tmp_path).observe(images, needs)
    second = Classifier(onnx_file, cache=tmp_path, batch_size=2).observe(images, needs)
    np.testing.assert_array_equal(first.trace("penultimate"), second.trace("penultimate"))
    assert Classifier(onnx_file).fingerprint == Classifier(onnx_file).fingerprint


def test_large_images_go_through_in_small_passes(exported: Exported) -> None:
    _, path = exported(tiny_models.TinyCNN, "onnx")
    classifier = Classifier(path)
    assert classifier.pass_rows((1, 8, 8)) == classifier.batch_size == 256
    assert classifier.pass_rows((3, 224, 224)) == 13
    assert classifier.pass_rows((3, 1024, 1024)) == 8
