"""`model.toml`: read, written, and opened as a classifier."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import secondguess as sg
from secondguess import Classifier, ImageSet, Needs, Trace, UserError
from secondguess.model.agreement import agree
from secondguess.model.describe import describe_model
from secondguess.model.description import Description
from tiny_models import TinyCNN, seeded

FULL = """
path = "m.onnx"
name = "my model"
classes = ["cat", "dog", 'with "quotes" and ü']

[input]
size = [60, 73]
channels = 3
mean = [0.485, 0.456, 0.406]
std = 0.00392157
resize = "crop"

[output]
kind = "logits"
use = "scores"

[layers]
penultimate = "avgpool"
"an odd one" = "conv 1"
"""


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).random((7, 1, 8, 8), dtype=np.float32)


def test_everything_is_read(tmp_path: Path) -> None:
    (tmp_path / "model.toml").write_text(FULL)
    found = Description.read(tmp_path / "model.toml")
    assert found == Description(
        path=tmp_path / "m.onnx",
        name="my model",
        classes=("cat", "dog", 'with "quotes" and ü'),
        size=(60, 73),
        channels=3,
        mean=(0.485, 0.456, 0.406),
        std=(0.00392157,),
        resize="crop",
        output_kind="logits",
        output="scores",
        layers={"penultimate": "avgpool", "an odd one": "conv 1"},
    )


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "model.toml").write_text(FULL)
    found = Description.read(tmp_path / "model.toml")
    found.write(tmp_path / "copy.toml")
    text = (tmp_path / "copy.toml").read_text()
    assert tomllib.loads(text)["path"] == "m.onnx", "files beside it are named relative to it"
    assert Description.read(tmp_path / "copy.toml") == found
    (tmp_path / "elsewhere").mkdir()
    found.write(tmp_path / "elsewhere/model.toml")
    assert tomllib.loads((tmp_path / "elsewhere/model.toml").read_text())["path"] == str(tmp_path / "m.onnx")
    assert Description.read(tmp_path / "elsewhere/model.toml") == found


def test_only_what_is_known_is_written() -> None:
    assert Description(source="zoo:lenet").to_toml() == 'import = "zoo:lenet"\n'
    text = Description(path=Path("/m.onnx"), mean=1e-7, channels=1).to_toml()
    assert text == 'path = "/m.onnx"\n\n[input]\nchannels = 1\nmean = [1e-07]\n'
    assert tomllib.loads(text)["input"]["mean"] == [1e-7]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('pth = "m.onnx"', "There is no key 'pth'; did you mean 'path'?"),
        ("[inputs]", "There is no key 'inputs'; did you mean 'input'?"),
        ("[input]\nmena = 1", r"\[input\] has no key 'mena'; did you mean 'mean'?"),
        ("[input]\nfoo = 1", r"\[input\] has no key 'foo'; there is size, channels, mean, std, resize."),
        ("path = 3", "path is 3; the path of an .onnx or .pt2 file is expected."),
        ('classes = "cat,dog"', "classes is 'cat,dog'; a list of names is expected."),
        ('classes = ["a", "b", "a"]', "classes has 'a' twice"),
        ("[input]\nsize = [32]", r"\[input\] size is \[32\]; \[height, width\] is expected."),
        ("[input]\nsize = [0, 3]", r"\[height, width\] is expected"),
        ("[input]\nchannels = true", r"\[input\] channels is True; a number such as 1 or 3 is expected."),
        ("[input]\nmean = []", r"\[input\] mean is \[\]; a number or one per channel is expected."),
        ("[input]\nstd = 0", r"\[input\] std is 0; a number other than 0"),
        ("[input]\nmean = nan", r"\[input\] mean is nan"),
        ('[input]\nresize = "fold"', r"\[input\] resize is 'fold'; one of stretch, crop, pad is expected."),
        ('[output]\nkind = "odds"', r"\[output\] kind is 'odds'; one of auto, logits, probabilities is expected."),
        ("[output]\nuse = -1", r"\[output\] use is -1; the name or the number of an output is expected."),
        ("[layers]\npenultimate = 3", "a table of traces and layers"),
        ("input = 3", r"input is 3; a table \[input\] is expected."),
        ('path = "m.onnx"\nimport = "a:b"', "both a path and an import"),
        ("path = ", "is not valid TOML"),
        ("classes = []", "names no model; add path ="),
    ],
)
def test_what_cannot_be_understood_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "model.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=sentence) as caught:
        Description.read(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"There is no file .*model.toml; `secondguess model new` writes one"):
        Classifier.open(tmp_path / "model.toml")


def test_two_folders_with_a_module_of_the_same_name(tmp_path: Path, images: np.ndarray) -> None:
    for seed in (1, 2):
        home = tmp_path / f"model{seed}"
        home.mkdir()
        (home / "same_named.py").write_text(
            f"from tiny_models import TinyCNN, seeded\n\n\ndef make():\n    return seeded(TinyCNN, seed={seed})\n"
        )
        (home / "model.toml").write_text('import = "same_named:make"\nclasses = ["a", "b", "c"]\n')
    for seed in (1, 2, 1):  # and back again
        opened = Classifier.open(tmp_path / f"model{seed}" / "model.toml", device="cpu")
        same = Classifier(seeded(TinyCNN, seed=seed), device="cpu")
        np.testing.assert_allclose(opened.predict(images), same.predict(images), rtol=1e-6)


def test_a_model_by_import_beside_the_file_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, images: np.ndarray
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "described_models.py").write_text(
        "from tiny_models import TinyCNN, seeded\n\n\ndef make():\n    return seeded(TinyCNN, seed=5)\n"
    )
    model = seeded(TinyCNN, seed=1)
    save_file(model.state_dict(), home / "w.safetensors")
    (home / "model.toml").write_text(
        'import = "described_models:make"\nweights = "w.safetensors"\nclasses = ["a", "b", "c"]\n'
        "[input]\nmean = 0.5\nstd = 0.25\nsize = 8\nchannels = 1\n"
    )
    monkeypatch.chdir(tmp_path)
    opened = Classifier.open("home/model.toml", device="cpu")
    same = Classifier(model, mean=0.5, std=0.25)
    np.testing.assert_allclose(opened.predict(images), same.predict(images), rtol=1e-6)
    assert opened.class_names == ("a", "b", "c") and opened.input_shape == (1, 8, 8)
    assert opened.loading == {"size": (8, 8), "channels": 1, "resize": "stretch"}
    assert opened.name == "described_models:make"
    other = Classifier.open("home/model.toml", mean=0, classes=["x", "y", "z"], batch_size=3)
    assert other.class_names == ("x", "y", "z") and other.description.std == (0.25,) and other.batch_size == 3
    np.testing.assert_allclose(other.predict(images), Classifier(model, std=0.25).predict(images), rtol=1e-6)


def test_a_classifier_keeps_its_description(exported, images: np.ndarray, tmp_path: Path) -> None:
    _, path = exported(TinyCNN, "onnx")
    first = Classifier(path, class_names=["a", "b", "c"], mean=[0.1], output_kind="logits")
    first.description.write(tmp_path / "model.toml")
    second = Classifier.open(tmp_path / "model.toml")
    assert second.fingerprint == first.fingerprint and second.class_names == first.class_names
    np.testing.assert_array_equal(first.predict(images), second.predict(images))


def test_open_takes_everything_that_is_a_model(images: np.ndarray) -> None:
    model = seeded(TinyCNN)
    opened = Classifier.open(model, mean=0.5)
    assert Classifier.open(opened) is opened
    fed_otherwise = Classifier.open(opened, mean=0.0, output_kind="logits", batch_size=2)
    assert fed_otherwise.backend is opened.backend and fed_otherwise.batch_size == 2
    np.testing.assert_array_equal(fed_otherwise.predict(images), Classifier(model).predict(images))
    assert Classifier.open("zoo:lenet").description == Description(source="zoo:lenet")
    assert Classifier.open(Description(source="zoo:lenet"), classes=list("0123456789")).class_names[3] == "3"
    few = Classifier.open("zoo:lenet", classes=["cat", "dog"], size=(20, 24), channels=3, output_kind="logits")
    assert few.predict(np.zeros((1, 3, 20, 24), dtype=np.float32)).shape == (1, 2), "as it is described"
    assert Classifier.open(lambda x: np.full((len(x), 2), 0.5)).predict(images).shape == (7, 2)
    with pytest.raises(UserError, match=r"Classifier.open has no argument 'means'; did you mean 'mean'?"):
        Classifier.open(model, means=3)
    with pytest.raises(UserError, match="The model is open already, so its weights cannot be changed"):
        Classifier.open(opened, weights="w.safetensors")
    with pytest.raises(UserError, match="lives in memory cannot be described"):
        opened.description.write("model.toml")


def test_a_shape_that_is_not_the_file_s_is_refused(exported) -> None:
    _, path = exported(TinyCNN, "onnx")
    with pytest.raises(UserError, match=r"takes images of shape \(1, 8, 8\).*described with \(3, 8, 8\)"):
        Classifier.open(path, size=8, channels=3)


class Two(nn.Module):
    """Features and class scores, in that order."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = seeded(TinyCNN)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.flatten(1).exp(), self.inner(x)


class Named(Two):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:  # type: ignore[override]
        features, scores = super().forward(x)
        return {"features": features, "scores": scores}


def test_one_of_several_outputs(images: np.ndarray, tmp_path: Path) -> None:
    expected = Classifier(seeded(TinyCNN)).predict(images)
    np.testing.assert_array_equal(Classifier.open(Two(), output=1).predict(images), expected)
    np.testing.assert_array_equal(Classifier.open(Named(), output="scores").predict(images), expected)
    by_function = Classifier(lambda x: Two()(torch.from_numpy(x)), output=1)
    np.testing.assert_allclose(by_function.predict(images), expected, rtol=1e-6)
    assert Classifier.open(Two(), output=1).fingerprint != Classifier.open(Two(), output=0).fingerprint
    with pytest.raises(UserError, match=r"returned dict \(outputs features, scores\).*say which has the class scores"):
        Classifier.open(Named()).predict(images)
    with pytest.raises(UserError, match="has no output 'score'"):
        Classifier.open(Named(), output="score").predict(images)
    example = torch.rand(2, 1, 8, 8)
    torch.export.save(torch.export.export(Two().eval(), (example,)), tmp_path / "two.pt2")
    from_program = Classifier.open(tmp_path / "two.pt2", output=1).predict(images)
    np.testing.assert_allclose(from_program, expected, rtol=1e-5)


def test_layers_by_the_names_of_traces(images: np.ndarray) -> None:
    model = seeded(TinyCNN)
    plain, named = Classifier(model), Classifier.open(model, layers={"penultimate": "hidden", "early": "conv"})
    theirs = plain.observe(images, Needs(traces=[Trace("hidden"), Trace("conv")]))
    ours = named.observe(images, Needs(traces=[Trace(), Trace("early")]))
    np.testing.assert_array_equal(ours.traces[Trace()], theirs.traces[Trace("hidden")])
    np.testing.assert_array_equal(ours.traces[Trace("early")], theirs.traces[Trace("conv")])
    assert named.fingerprint != plain.fingerprint


def test_classes_of_model_and_data_are_brought_together() -> None:
    pixels = np.zeros((4, 1, 8, 8), np.float32)
    data = ImageSet.from_arrays(pixels, [0, 1, 2, -1], class_names=["a", "b", "c"], layout="NCHW")
    bare = Classifier(seeded(TinyCNN))
    named, same, none = agree(bare, data)
    assert named.class_names == ("a", "b", "c") and same is data and none is None
    assert bare.class_names == (), "the user's own stays as it is"
    model = bare.with_classes(["c", "a", "b"])
    _, ours, some = agree(model, data, ImageSet.from_arrays(pixels[:2], ["b", "c"]))
    assert ours.labels.tolist() == [1, 2, 0, -1] and ours.class_names == ("c", "a", "b")
    assert some is not None and some.labels.tolist() == [2, 0], "some of the classes, by name"
    numbered = ImageSet.from_arrays(pixels, [0, 1, 2, 2])
    assert agree(model, numbered)[1].labels.tolist() == [0, 1, 2, 2], "numbers have no names of their own"
    soft = ImageSet.from_arrays(pixels[:1], soft_labels=[[0.2, 0.5, 0.3]], class_names=["a", "b", "c"])
    np.testing.assert_array_equal(agree(model, soft)[1].soft_labels, [[0.3, 0.2, 0.5]])
    strange = ImageSet.from_arrays(pixels, ["a", "a", "d", "b"], name="photos")
    with pytest.raises(UserError, match="photos has the class 'd', which the model has not; its classes are c, a, b"):
        agree(model, strange)


def test_observing_brings_labels_into_the_order_of_the_model() -> None:
    pixels = np.random.default_rng(0).random((4, 1, 8, 8), dtype=np.float32)
    model = Classifier(seeded(TinyCNN), class_names=["c", "a", "b"])
    images = ImageSet.from_arrays(pixels, ["a", "b", "c", "c"])
    seen = model.observe(images)
    assert seen.labels is not None and seen.labels.tolist() == [1, 2, 0, 0]
    assert seen.class_names == ("c", "a", "b") == seen.images.class_names  # type: ignore[union-attr]
    expected = [("c", "a", "b")[one] == name for one, name in zip(seen.predictions, "abcc", strict=True)]
    assert seen.correct.tolist() == expected
    strange = model.observe(ImageSet.from_arrays(pixels, ["a", "d", "c", "c"], name="photos"))
    assert len(strange.probabilities) == 4, "images of other classes can be observed"
    for ask in (lambda: strange.labels, lambda: strange.correct):
        with pytest.raises(UserError, match=r"knows the classes \(c, a, b.*'photos' has \(a, c, d"):
            ask()


def test_a_new_description_says_what_the_file_says(exported, tmp_path: Path) -> None:
    _, path = exported(TinyCNN, "onnx")
    made = describe_model(path, classes=["a", "b", "c"], mean=[0.5]).written(tmp_path)
    text = (tmp_path / "model.toml").read_text()
    assert "# It gives 3 classes: logits." in text
    read = Description.read(tmp_path / "model.toml")
    assert read == made.description
    assert (read.size, read.channels, read.output_kind) == ((8, 8), 1, "logits")
    assert Classifier.open(tmp_path / "model.toml").class_names == ("a", "b", "c")
    with pytest.raises(UserError, match="is there already"):
        made.save(tmp_path)
    with pytest.raises(UserError, match="gives 3 classes, but 2 names were given"):
        describe_model(path, classes=["a", "b"])
    assert "which images it takes; add size and channels" in describe_model("zoo:lenet").summary()
    assert sg.Classifier.open(str(path)).description.path == path


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "9" * 5000])
def test_what_python_cannot_parse_is_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.toml").write_text(text)
    with pytest.raises(UserError, match=r"model.toml is not valid TOML: "):
        Description.read(tmp_path / "model.toml")
