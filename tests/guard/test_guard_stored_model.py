"""A guard's folder holds its model, or says where it is."""

from __future__ import annotations

import shutil
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from secondguess import Classifier, Dataset, UserError
from secondguess.guard import Guard, stored_model


@pytest.fixture(scope="module")
def exported(classifier: Classifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The classifier as an ONNX file, which takes seconds to make."""
    pytest.importorskip("onnxscript")
    path = tmp_path_factory.mktemp("exported") / "m.onnx"
    shapes = ({0: torch.export.Dim("n")},)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            classifier.backend.module, (torch.rand(2, 1, 8, 8),), path, dynamo=True, dynamic_shapes=shapes,
            external_data=False, verbose=False,
        )  # fmt: skip
    return path


@pytest.fixture
def onnx_file(exported: Path, tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return Path(shutil.copy(exported, tmp_path / "home"))


def fitted(model: Classifier, digits: Dataset) -> Guard:
    guard = Guard(["entropy"], rule="bonferroni", false_alarms=0.1)
    return guard.fit(model, digits.train, digits.test, None)


def test_a_file_is_copied_and_the_folder_moves(onnx_file: Path, digits: Dataset, tmp_path: Path) -> None:
    model = Classifier.open(onnx_file, classes=digits.class_names, mean=0.1, resize="pad")
    guard = fitted(model, digits)
    guard.save(tmp_path / "guard")
    shutil.rmtree(onnx_file.parent)
    shutil.move(tmp_path / "guard", tmp_path / "moved")
    read = Guard.load(tmp_path / "moved", device="cpu")
    assert read.judge(digits.test).p_values.tolist() == guard.judge(digits.test).p_values.tolist()
    assert read.classifier.description.mean == (0.1,) and read.classifier.name == "m.onnx"
    assert read.resized_by == "pad" and read.class_names == digits.class_names
    described = tomllib.loads((tmp_path / "moved/model.toml").read_text())
    (copy,) = (tmp_path / "moved").glob("model-*.onnx")
    assert described["path"] == copy.name and described["input"]["size"] == [8, 8]
    read.save(tmp_path / "moved")
    assert list((tmp_path / "moved").glob("model-*.onnx")) == [copy]


def test_external_weights_are_copied_with_the_file(onnx_file: Path, digits: Dataset, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    options = {"save_as_external_data": True, "location": "m.onnx.data", "size_threshold": 256}
    onnx.save(onnx.load(onnx_file), onnx_file, **options)
    guard = fitted(Classifier.open(onnx_file), digits)
    guard.save(tmp_path / "guard")
    shutil.rmtree(onnx_file.parent)
    shutil.move(tmp_path / "guard", tmp_path / "moved")
    read = Guard.load(tmp_path / "moved", device="cpu")
    assert read.judge(digits.test).p_values.tolist() == guard.judge(digits.test).p_values.tolist()
    (copies,) = (tmp_path / "moved").glob("model-*")
    assert {path.name for path in copies.iterdir()} == {"m.onnx", "m.onnx.data"}
    read.save(tmp_path / "moved")
    assert list((tmp_path / "moved").glob("model-*")) == [copies]
    onnx.save(onnx.load(copies / "m.onnx"), tmp_path / "whole.onnx")
    fitted(Classifier.open(tmp_path / "whole.onnx"), digits).save(tmp_path / "moved")
    (whole,) = (tmp_path / "moved").glob("model-*")
    assert whole.is_file(), "what an older guard left is removed"


def test_a_large_file_stays_where_it_is(
    onnx_file: Path, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_model, "COPIED", 100)
    fitted(Classifier.open(onnx_file), digits).save(tmp_path / "guard")
    assert not list((tmp_path / "guard").glob("model-*"))
    assert tomllib.loads((tmp_path / "guard/model.toml").read_text())["path"] == str(onnx_file)
    assert Guard.load(tmp_path / "guard").classifier.name == "m.onnx"


def test_code_is_imported_from_where_it_is(
    classifier: Classifier, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "guarded_code.py").write_text("import torch\n\n\ndef make():\n    return MODEL\n")
    monkeypatch.chdir(home)
    save_file(classifier.backend.module.state_dict(), home / "w.safetensors")
    import importlib
    import sys

    monkeypatch.syspath_prepend(home)
    importlib.import_module("guarded_code").MODEL = classifier.backend.module
    fitted(Classifier.open("guarded_code:make", weights="w.safetensors"), digits).save(tmp_path / "guard")
    described = tomllib.loads((tmp_path / "guard/model.toml").read_text())
    assert described["folder"] == str(home) and described["weights"].startswith("weights-")
    monkeypatch.chdir(tmp_path)
    assert Guard.load("guard").judge(digits.test).p_values.shape == (len(digits.test),)
    sys.modules.pop("guarded_code")


def test_a_guard_remembers_what_the_model_returns(
    onnx_file: Path, classifier: Classifier, digits: Dataset, tmp_path: Path
) -> None:
    """A single image that is judged later could not tell."""
    fitted(Classifier.open(onnx_file), digits).save(tmp_path / "guard")
    assert tomllib.loads((tmp_path / "guard/model.toml").read_text())["output"]["kind"] == "logits"
    fitted(Classifier(classifier.backend.module), digits).save(tmp_path / "memory")
    given = Classifier(classifier.backend.module)
    assert given.output_kind == "auto"
    Guard.load(tmp_path / "memory", given)
    assert given.output_kind == "logits"
    other = Classifier(lambda pixels: np.full((len(pixels), 10), 0.1), version="1")
    with pytest.raises(UserError, match="is another one"):
        Guard.load(tmp_path / "memory", other)
    assert other.output_kind != "logits", "it returns probabilities, whatever the guard's own model returned"


def test_a_model_in_memory_is_asked_for(guard: Guard, tmp_path: Path) -> None:
    guard.save(tmp_path / "guard")
    assert not (tmp_path / "guard/model.toml").exists()
    with pytest.raises(UserError, match="was fitted on a model that cannot be opened from a file; say which it is"):
        Guard.load(tmp_path / "guard")
    with pytest.raises(UserError, match="There is no guard in"):
        Guard.load(tmp_path)
