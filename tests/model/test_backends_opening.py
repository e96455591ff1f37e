from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import tiny_models
from secondguess import Classifier, UserError, zoo
from secondguess.cli import main
from secondguess.model.backends import Backend, open_backend
from secondguess.model.backends.torch_module import TorchBackend

CODE = """
import torch
from torch import nn

def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 3))

ready = Net()

def make_endpoint():
    return lambda images: [[0.2, 0.8]] * len(images)

def make_wide(width):
    return nn.Linear(width, 3)

def make_nothing():
    return None

number = 3
"""


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A user's own file in the working folder, as its module's name."""
    (tmp_path / "models_in_the_folder.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "models_in_the_folder"
    sys.modules.pop("models_in_the_folder", None)


def test_a_network_of_the_zoo() -> None:
    images = np.random.default_rng(0).random((3, 1, 28, 28), dtype=np.float32)
    classifier = Classifier("zoo:lenet", output_kind="logits")
    assert classifier.predict(images).shape == (3, 10)
    with pytest.raises(UserError, match="no architecture 'lennet'; did you mean 'lenet'"):
        Classifier("zoo:lennet")


@pytest.mark.parametrize("name", ["make_model", "Net", "ready", "make_endpoint"])
def test_a_name_in_a_python_module(user_module: str, images: np.ndarray, name: str) -> None:
    found = Classifier(f"{user_module}:{name}", output_kind="probabilities" if name == "make_endpoint" else "logits")
    assert found.predict(images).shape == (19, 2 if name == "make_endpoint" else 3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("make_modell", "has no 'make_modell'; it has: torch, nn, make_model, Net"),
        ("make_wide", r"a function without arguments that returns the model \(.*missing 1 required.*'width'\)"),
        ("make_nothing", "returned NoneType; a torch module or a callable was expected"),
        ("number", r"a function without arguments that returns the model \('int' object is not callable\)"),
    ],
)
def test_names_that_give_no_model(user_module: str, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Classifier(f"{user_module}:{name}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no_such_package.models:make", "No Python module 'no_such_package.models' was found from the folder"),
        (".models:make", "No Python module '.models' was found"),
        (
            "resnet",
            "'resnet' is not a model: give a model.toml, an .onnx or .pt2 file, zoo:NAME, or package.module:make_model",
        ),
        ("zoo:", "'zoo:' is not a model"),
        (":make", "':make' is not a model"),
        ("missing.onnx", "There is no model file at missing.onnx"),
        ("missing.pt2", "There is no model file at missing.pt2"),
        ("model.h5", "model.h5 cannot be run directly; export it to ONNX with tf2onnx"),
        ("model.keras", "cannot be run directly; export it to ONNX"),
        ("model.tflite", "cannot be run directly; export the original model to ONNX"),
        ("model.safetensors", "these are weights alone: give"),
    ],
)
def test_texts_that_are_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(UserError, match=message):
        Classifier(text)


def test_a_module_that_imports_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models_that_need_more.py").write_text("import no_such_library_at_all\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(UserError, match="No module named 'no_such_library_at_all'"):
        Classifier("models_that_need_more:make")


def test_torchscript_is_refused_with_what_can_be_done(tmp_path: Path) -> None:
    """No checkpoint can be taken out of it."""
    archive, checkpoint = tmp_path / "script.pt", tmp_path / "weights.pt"
    with zipfile.ZipFile(archive, "w") as file:  # as torch.jit.save lays it out
        file.writestr("script/constants.pkl", b"")
        file.writestr("script/code/__torch__.py", b"")
    with pytest.raises(UserError, match=r"is a TorchScript archive.*export the original with torch.export.save"):
        Classifier(archive)
    torch.save({"w": torch.zeros(1)}, checkpoint)
    with pytest.raises(UserError, match="is a pickle"):
        Classifier(checkpoint)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".PT", ".pkl", ".pickle", ".ckpt", ".bin"])
def test_pickles_are_refused_unopened_with_the_way_to_convert_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cnn: nn.Module, suffix: str
) -> None:
    def never(*_: Any, **__: Any) -> None:
        pytest.fail("the file was opened")

    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"anything")
    monkeypatch.setattr(torch, "load", never)
    monkeypatch.setattr(Path, "open", never)
    with pytest.raises(UserError, match=r"is a pickle.*`secondguess model convert .*model.*`, then give --model"):
        Classifier(path)
    if suffix != ".PT":
        with pytest.raises(UserError, match=r"package.module:make_model --weights .*model.safetensors"):
            Classifier(cnn, weights=path)


def test_the_conversion_recipe_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_cnn: Callable[..., nn.Module], images: np.ndarray
) -> None:
    torch.save(make_cnn(1).state_dict(), tmp_path / "model.pt")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        Classifier("model.pt")
    command = str(caught.value).split("`secondguess ")[1].split("`")[0]
    assert main(command.split()) == 0
    ours = Classifier(make_cnn(2), weights="model.safetensors").predict(images)
    np.testing.assert_array_equal(ours, Classifier(make_cnn(1)).predict(images))


def test_weights_are_read_from_safetensors(
    tmp_path: Path, make_cnn: Callable[..., nn.Module], images: np.ndarray
) -> None:
    save_file(make_cnn(1).state_dict(), tmp_path / "w.safetensors")
    model = make_cnn(2)
    assert not np.array_equal(Classifier(model).predict(images), Classifier(make_cnn(1)).predict(images))
    ours = Classifier(model, weights=tmp_path / "w.safetensors").predict(images)
    np.testing.assert_array_equal(ours, Classifier(make_cnn(1)).predict(images))


def test_weights_of_the_zoo(tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((3, 1, 28, 28), dtype=np.float32)
    model = zoo.make("lenet", seed=3)
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    ours = Classifier("zoo:lenet", weights=tmp_path / "w.safetensors", output_kind="logits").predict(images)
    np.testing.assert_array_equal(ours, Classifier(model, output_kind="logits").predict(images))


def test_weights_that_do_not_fit(tmp_path: Path, cnn: nn.Module) -> None:
    path = tmp_path / "w.safetensors"
    state = cnn.state_dict()
    save_file({name: value for name, value in state.items() if name != "head.bias"}, path)
    with pytest.raises(UserError, match=r"do not fit the model: it lacks head.bias"):
        Classifier(cnn, weights=path)
    save_file(state | {"tail.weight": torch.zeros(2)}, path)
    with pytest.raises(UserError, match=r"do not fit the model: it has tail.weight, which the model has not"):
        Classifier(cnn, weights=path)
    save_file(state | {"head.weight": torch.zeros(5, 8)}, path)
    with pytest.raises(UserError, match=r"do not fit the model: size mismatch for head.weight"):
        Classifier(cnn, weights=path)


def test_weights_that_cannot_be_read(tmp_path: Path, cnn: nn.Module) -> None:
    path = tmp_path / "w.safetensors"
    with pytest.raises(UserError, match="There is no weights file at"):
        Classifier(cnn, weights=path)
    save_file(cnn.state_dict(), path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(UserError, match="is not a readable safetensors file"):
        Classifier(cnn, weights=path)
    path.write_bytes(b"")
    with pytest.raises(UserError, match="is not a readable safetensors file"):
        Classifier(cnn, weights=path)


def test_weights_for_what_brings_its_own(tmp_path: Path, exported: Callable[..., tuple[nn.Module, Path]]) -> None:
    _, path = exported(tiny_models.TinyCNN, "pt2")
    for model, words in [(lambda x: x, "a callable"), (path, "an exported program")]:
        with pytest.raises(UserError, match=f"Weights were given, but {words} brings its own"):
            Classifier(model, weights="w.safetensors")


@pytest.mark.parametrize("thing", [3, None, [1, 2], np.zeros(3)])
def test_what_is_no_model_at_all(thing: Any) -> None:
    with pytest.raises(UserError, match=rf"A model was expected .* but {type(thing).__name__} was given"):
        Classifier(thing)


def test_a_backend_is_taken_as_it_is(cnn: nn.Module) -> None:
    backend: Backend = TorchBackend(cnn, device="cpu")
    assert open_backend(backend) is backend


def test_a_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.onnx").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r"needs the package 'onnxruntime'.*pip install \"secondguess\[onnx\]\""):
        Classifier(tmp_path / "m.onnx")
