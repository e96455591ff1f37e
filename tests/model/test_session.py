"""A session sees what the classifier sees, whatever runs the model, from any number of threads."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
import torch
from torch import nn

import tiny_models
from secondguess import Classifier, Needs, Trace
from secondguess.errors import UserError

SHAPE = (1, 8, 8)


def assert_same_observation(classifier: Classifier, needs: Needs, images: np.ndarray) -> None:
    expected = classifier.observe(images, needs)
    with classifier.session(needs, SHAPE) as session:
        for rows in (slice(0, 1), slice(0, 7), slice(0, len(images))):
            seen = session.observe(images[rows])
            assert seen.probabilities == pytest.approx(expected.probabilities[rows], abs=1e-6)
            assert seen.probabilities.dtype == np.float64
            assert session.predict(images[rows]) == pytest.approx(expected.probabilities[rows], abs=1e-6)
            for trace in needs.traces:
                assert seen.trace(trace) == pytest.approx(expected.trace(trace)[rows], abs=1e-5)
                assert seen.trace(trace).dtype == np.float32
            if needs.logits:
                assert seen.logits == pytest.approx(expected.logits[rows], abs=1e-5)
            if needs.images:
                assert (seen.pixels[:] == images[rows]).all()
            if needs.samples:
                assert seen.samples.shape == (len(seen), needs.samples, 3)


@pytest.mark.parametrize("kind", [tiny_models.TinyCNN, tiny_models.InPlace, tiny_models.Functional])
def test_a_session_sees_what_the_classifier_sees(kind, images: np.ndarray) -> None:
    classifier = Classifier(tiny_models.seeded(kind), mean=0.2, std=0.3, batch_size=8)
    traces = frozenset({Trace(), Trace("conv", "mean"), Trace("50%", "grid")})
    assert_same_observation(classifier, Needs(logits=True, traces=traces, images=True), images)


def test_layers_that_run_twice_and_dropout(images: np.ndarray) -> None:
    classifier = Classifier(tiny_models.seeded(tiny_models.TinyCNN))
    traces = frozenset({Trace("relu"), Trace("relu#2")})
    assert_same_observation(classifier, Needs(traces=traces), images)
    assert_same_observation(classifier, Needs(samples=3), images)


def test_a_callable(images: np.ndarray) -> None:
    def model(batch: np.ndarray) -> np.ndarray:
        scores = np.exp(batch.reshape(len(batch), -1)[:, :3])
        return scores / scores.sum(axis=1, keepdims=True)

    assert_same_observation(Classifier(model), Needs(), images)


def test_an_exported_program(images: np.ndarray, tmp_path: Path) -> None:
    module = tiny_models.seeded(tiny_models.TinyCNN).eval()
    batch = torch.export.Dim("n", min=2, max=64)
    program = torch.export.export(module, (torch.from_numpy(images[:4]),), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "model.pt2")
    classifier = Classifier(tmp_path / "model.pt2")
    assert_same_observation(classifier, Needs(logits=True, traces=frozenset({Trace()})), images)


def test_an_onnx_file(images: np.ndarray, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper = onnx.helper
    rng = np.random.default_rng(0)
    weights = {"w1": rng.normal(size=(64, 5)), "w2": rng.normal(size=(5, 3))}
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["x"], ["flat"]),
            helper.make_node("MatMul", ["flat", "w1"], ["hidden"]),
            helper.make_node("Relu", ["hidden"], ["relu"]),
            helper.make_node("MatMul", ["relu", "w2"], ["scores"]),
        ],
        "tiny",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", *SHAPE])],
        [helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, ["n", 3])],
        [onnx.numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "model.onnx")
    classifier = Classifier(tmp_path / "model.onnx")
    assert_same_observation(classifier, Needs(logits=True, traces=frozenset({Trace(), Trace("hidden")})), images)


def test_the_module_is_left_alone(images: np.ndarray) -> None:
    model = tiny_models.seeded(tiny_models.TinyCNN)
    with Classifier(model, device="cpu").session(Needs(traces=frozenset({Trace()})), SHAPE) as session:
        before = session.observe(images[:2]).probabilities
        model.train()
        assert (session.observe(images[:2]).probabilities == before).all()
        assert model.training
        assert not any(module._forward_hooks for module in model.modules())


def test_a_module_that_cannot_be_copied_is_run_itself(images: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(module: torch.nn.Module, memo: dict) -> None:
        raise TypeError("no copies")

    monkeypatch.setattr(tiny_models.TinyCNN, "__deepcopy__", refuse, raising=False)
    model = tiny_models.seeded(tiny_models.TinyCNN)
    classifier = Classifier(model, device="cpu")
    needs = Needs(traces=frozenset({Trace()}))
    assert_same_observation(classifier, needs, images)
    session = classifier.session(needs, SHAPE)
    before = session.observe(images[:2]).probabilities
    model.train()
    assert (session.observe(images[:2]).probabilities == before).all() and model.training, "its flag is its own"
    session.close()
    assert not any(module._forward_hooks for module in model.modules())


class Noting(tiny_models.TinyCNN):
    """Says when its Python code runs."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Noting.calls += 1
        return super().forward(x)


def test_a_plain_module_is_traced_so_that_its_python_code_no_longer_runs(images: np.ndarray) -> None:
    classifier = Classifier(tiny_models.seeded(Noting), device="cpu")
    with classifier.session(Needs(traces=frozenset({Trace(), Trace("conv", "mean")})), SHAPE) as session:
        before = Noting.calls
        for rows in (slice(0, 1), slice(2, 5)):
            session.observe(images[rows])
        assert Noting.calls == before


class Branching(nn.Module):
    """Takes another way for dark images than for bright ones, image by image."""

    def __init__(self) -> None:
        super().__init__()
        self.bright, self.dark = nn.Linear(64, 3), nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = [self.bright(row) if float(row.mean()) > 0.5 else self.dark(row) for row in x.flatten(1)]
        return torch.stack(rows)


class Counting(nn.Module):
    """Depends on the number of images in a way that a trace cannot follow."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x.reshape(len(x), 64)) * (2.0 if len(x) == 7 else 1.0)


@pytest.mark.parametrize("kind", [Branching, Counting])
def test_a_module_that_no_trace_can_follow_is_run_itself(kind, images: np.ndarray) -> None:
    classifier = Classifier(kind(), output_kind="logits", device="cpu")
    with classifier.session(Needs(logits=True), SHAPE) as session:
        for rows in (slice(0, 1), slice(0, 7), slice(3, 5), slice(0, len(images))):
            expected = classifier.observe(images[rows], Needs(logits=True))
            assert session.observe(images[rows]).logits == pytest.approx(expected.logits, abs=1e-5)


def test_threads_do_not_see_each_other(images: np.ndarray) -> None:
    classifier = Classifier(tiny_models.seeded(tiny_models.TinyCNN), device="cpu")
    needs = Needs(traces=frozenset({Trace(), Trace("conv", "mean")}))
    expected = classifier.observe(images, needs)
    with classifier.session(needs) as session, ThreadPoolExecutor(4) as pool:
        rows = list(range(len(images))) * 5
        for row, seen in zip(rows, pool.map(lambda row: session.observe(images[row : row + 1]), rows), strict=True):
            for trace in needs.traces:
                assert seen.trace(trace)[0] == pytest.approx(expected.trace(trace)[row], abs=1e-5)


def test_threads_with_many_images_or_dropout_do_not_see_each_other(images: np.ndarray) -> None:
    """Such passes run the module itself, or several of its copy."""
    classifier = Classifier(tiny_models.seeded(tiny_models.TinyCNN), device="cpu", batch_size=4)
    layers = Needs(traces=frozenset({Trace(), Trace("conv", "mean")}))
    sampled = Needs(samples=3, traces=layers.traces)
    expected, turned = classifier.observe(images, layers), classifier.observe(images[::-1].copy(), layers)
    with classifier.session(layers) as plain, classifier.session(sampled) as drawing, ThreadPoolExecutor(4) as pool:
        asked = [(session, flipped) for session in (plain, drawing) for flipped in (False, True)] * 10

        def look(one):
            session, flipped = one
            return session.observe(images[::-1].copy() if flipped else images)

        for (session, flipped), seen in zip(asked, pool.map(look, asked), strict=True):
            wanted = turned if flipped else expected
            for trace in layers.traces:
                assert seen.trace(trace) == pytest.approx(wanted.trace(trace), abs=1e-5)
            assert seen.probabilities == pytest.approx(wanted.probabilities, abs=1e-6)
            assert (session is drawing) == (seen.samples is not None)


def test_one_module_in_two_classifiers_serves_one_thread_at_a_time(images: np.ndarray) -> None:
    model = tiny_models.seeded(tiny_models.TinyCNN).train()
    two = [Classifier(model, device="cpu", batch_size=3) for _ in range(2)]
    needs = Needs(traces=frozenset({Trace("conv", "mean")}))
    wanted = [two[0].observe(some, needs).trace(Trace("conv", "mean")) for some in (images, images[::-1].copy())]

    def look(turn: int) -> np.ndarray:
        some = images if turn % 2 == 0 else images[::-1].copy()
        return two[turn % 2].observe(some, needs).trace(Trace("conv", "mean"))

    with ThreadPoolExecutor(4) as pool:
        for turn, found in enumerate(pool.map(look, range(60))):
            assert found == pytest.approx(wanted[turn % 2], abs=1e-5)
    assert model.training


def test_classifiers_of_modules_can_be_copied_and_sent(images: np.ndarray) -> None:
    classifier = Classifier(tiny_models.seeded(tiny_models.TinyCNN), device="cpu")
    expected = classifier.observe(images).probabilities
    for other in (copy.deepcopy(classifier), cloudpickle.loads(cloudpickle.dumps(classifier))):
        assert other.observe(images).probabilities == pytest.approx(expected)


def test_layers_of_many_images_are_reduced_pass_by_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole layers of many images would not fit into memory."""
    rows, apply = [], Trace.apply

    def noted(self: Trace, layer: np.ndarray) -> np.ndarray:
        rows.append(len(layer))
        return apply(self, layer)

    many = np.random.default_rng(0).random((30, *SHAPE), dtype=np.float32)
    classifier = Classifier(tiny_models.seeded(tiny_models.TinyCNN), device="cpu", batch_size=8)
    monkeypatch.setattr(Trace, "apply", noted)
    with classifier.session(Needs(traces=frozenset({Trace("conv", "mean")})), SHAPE) as session:
        assert len(session.observe(many).trace(Trace("conv", "mean"))) == 30
    assert rows == [8, 8, 8, 6]


def test_a_model_that_squeezes_its_output_is_told_so(images: np.ndarray) -> None:
    class Squeezed(tiny_models.TinyCNN):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).squeeze(0)

    classifier = Classifier(tiny_models.seeded(Squeezed), device="cpu", batch_size=4)
    with classifier.session(Needs(), SHAPE) as session, pytest.raises(UserError, match="with one score per class was"):
        session.observe(images[:5])


@pytest.mark.parametrize("count", [1, 9])
def test_a_session_keeps_the_model_that_it_was_opened_with(images: np.ndarray, count: int) -> None:
    model = tiny_models.seeded(tiny_models.TinyCNN)
    classifier = Classifier(model, device="cpu", batch_size=4)
    with classifier.session(Needs(), SHAPE) as session:
        before = session.observe(images[:count]).probabilities
        with torch.no_grad():
            for value in [*model.parameters(), *model.buffers()]:
                value.add_(1)
        assert session.observe(images[:count]).probabilities == pytest.approx(before, abs=1e-7)
    assert classifier.observe(images[:count]).probabilities != pytest.approx(before, abs=1e-3)


def test_the_shape_is_that_of_the_first_images(images: np.ndarray) -> None:
    session = Classifier(tiny_models.seeded(tiny_models.TinyCNN)).session(Needs(traces=frozenset({Trace()})))
    assert len(session.observe(images[:3])) == 3
    assert session.shape == SHAPE


def test_bad_requests_are_said(images: np.ndarray) -> None:
    with pytest.raises(UserError, match="The session needs traces, but"):
        Classifier(lambda batch: batch).session(Needs(traces=frozenset({Trace()})))
    classifier = Classifier(tiny_models.seeded(tiny_models.TinyCNN))
    with pytest.raises(UserError, match="The model has no layer 'cnv'; did you mean 'conv'"):
        classifier.session(Needs(traces=frozenset({Trace("cnv")})), SHAPE)
    with pytest.raises(UserError, match="The model has no layer 'conv#2'"):
        classifier.session(Needs(traces=frozenset({Trace("conv#2")})), SHAPE).observe(images[:1])
    session = classifier.session()
    session.close()
    for call in (session.observe, session.predict):
        with pytest.raises(UserError, match="This session is closed"):
            call(images[:1])
