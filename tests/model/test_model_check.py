"""`check_model` finds what is wrong with a description, on small models trained on the embedded digits."""

from __future__ import annotations

import json
import tomllib
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from secondguess import Classifier, UserError, load
from secondguess.images import ImageSet
from secondguess.model.check import ModelCheck, check_model
from secondguess.model.normalisations import USUAL, assigned

DIGITS = tuple("0123456789")


@pytest.fixture(scope="module")
def trained() -> Callable[..., nn.Module]:
    """`trained(mean, std)` gives a network that was trained on digits normalised like this, made once."""
    made: dict[Any, nn.Module] = {}
    train = load("digits").train
    assert train is not None
    pixels, labels = torch.from_numpy(train.materialise()), torch.from_numpy(train.labels)

    def make(mean: float = 0.0, std: float = 1.0) -> nn.Module:
        if (mean, std) not in made:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                net = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
                optimiser = torch.optim.Adam(net.parameters(), 1e-2 if std > 0.01 else 1e-3)
                for _ in range(200):
                    optimiser.zero_grad()
                    nn.functional.cross_entropy(net((pixels - mean) / std), labels).backward()
                    optimiser.step()
            made[mean, std] = net.eval()
        return made[mean, std]

    return make


def found(model: Any, **changes: Any) -> ModelCheck:
    checked = check_model(Classifier.open(model, device="cpu", **changes), load("digits"))
    assert len(checked.summary().splitlines()) <= 10
    json.dumps(checked.to_dict(), allow_nan=False)
    return checked


def severities(checked: ModelCheck) -> dict[str, str]:
    return {one.about: one.severity for one in reversed(checked.findings)}


def finding(checked: ModelCheck, about: str) -> Any:
    return next(one for one in checked.findings if one.about == about)


def test_a_model_as_it_is_described(trained: Callable[..., nn.Module]) -> None:
    checked = found(trained(), classes=DIGITS)
    assert checked.passed and checked.findings == () and "Nothing seems wrong." in checked.summary()
    assert checked.accuracy.value > 0.95 and checked.output_kind == "logits"
    assert severities(found(trained())) == {"classes": "note"}


@pytest.mark.parametrize("true", ["pixels from 0 to 255", "pixels from -1 to 1"])
def test_the_normalisation_that_explains_it(trained: Callable[..., nn.Module], true: str) -> None:
    (mean,), (std,) = USUAL[1][true]
    model = trained(mean, std)
    checked = found(model, classes=DIGITS)
    wrong = finding(checked, "normalisation")
    assert not checked.passed and wrong.severity == "wrong"
    assert true in wrong.text and f"{checked.accuracy.value:.1%} with the described one" in wrong.text
    again = found(model, classes=DIGITS, **wrong.change)
    assert again.passed and again.accuracy.value == pytest.approx(wrong.numbers["better"])
    measured = {one.name: one.accuracy.value for one in checked.normalisations}
    for name, ((one_mean,), (one_std,)) in USUAL[1].items():
        predictions = Classifier(model, mean=one_mean, std=one_std).observe(load("digits").test).predictions
        assert measured[name] == pytest.approx((predictions == load("digits").test.labels).mean())


def test_the_right_normalisation_is_left_alone(trained: Callable[..., nn.Module]) -> None:
    for (mean,), (std,) in USUAL[1].values():
        assert "normalisation" not in severities(found(trained(mean, std), mean=mean, std=std))


def test_what_always_gives_one_answer_is_no_better_normalisation() -> None:
    """A model of two classes that answers 0 to everything, unless its pixels are normalised as they should be."""

    class Doubtful(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            marked, right = (images[:, 0, 0, 0] - 0.25) / 0.5, images[:, 0, 1, 1] > 0
            is_one = (marked > 0) & right
            return torch.stack([~is_one, is_one], dim=1).float() * 4

    rng = np.random.default_rng(0)
    pixels = rng.random((220, 1, 8, 8), dtype=np.float32)
    labels = np.r_[np.zeros(200, int), np.ones(20, int)]
    pixels[:, 0, 0, 0] = np.where(labels == 1, 0.9, rng.choice([0.1, 0.9], 220, p=[0.8, 0.2]))
    pixels[:, 0, 1, 1] = 0.4
    images = ImageSet.from_arrays(pixels, labels, class_names=("cat", "dog"), layout="NCHW")
    model = Classifier(Doubtful(), class_names=("cat", "dog"), device="cpu")
    both = check_model(model, images)
    tried = {one.name: one for one in both.normalisations}
    always = tried["pixels from -1 to 1"]
    assert always.fitting > both.accuracy.value + 0.05 and set(always.predictions) == {0}
    assert "normalisation" not in severities(both)
    alone = check_model(model, images.take(np.arange(200)))
    assert "normalisation" not in severities(alone)
    assert finding(alone, "classes").text.startswith("All of these images are of the class cat; normalisation and")


def test_confidences_that_another_normalisation_explains(trained: Callable[..., nn.Module]) -> None:
    checked = found(trained(0.1307, 0.3081), classes=DIGITS)
    doubt = finding(checked, "normalisation")
    assert checked.passed and doubt.severity == "doubtful" and "the confidences fit better" in doubt.text


def test_classes_in_another_order(trained: Callable[..., nn.Module]) -> None:
    shuffled = tuple("1023456798")
    checked = found(trained(), classes=shuffled)
    wrong = finding(checked, "classes")
    assert wrong.severity == "wrong" and wrong.change == {"classes": DIGITS}
    assert ", ".join(DIGITS) in wrong.text and checked.summary().endswith("\n  " + checked.toml())
    assert tomllib.loads(checked.toml()) == {"classes": list(DIGITS)}
    assert found(trained(), **wrong.change).passed

    class Turned(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return trained()(x).flip(1)

    unnamed = finding(found(Turned()), "classes")
    assert unnamed.severity == "wrong" and unnamed.change == {"classes": DIGITS[::-1]}
    assert found(Turned(), classes=DIGITS[::-1]).passed


def test_order_and_normalisation_at_once(trained: Callable[..., nn.Module]) -> None:
    model = trained(0.0, 1 / 255)
    checked = found(model, classes=DIGITS[1:] + DIGITS[:1])
    assert severities(checked) == {"normalisation": "wrong", "classes": "wrong", "accuracy": "wrong"}
    assert "each with the classes in its best order" in finding(checked, "normalisation").text
    assert "are right as they are named (normalised by pixels from 0 to 255)" in finding(checked, "classes").text
    assert tomllib.loads(checked.toml()) == {
        "classes": list(DIGITS), "input": {"mean": [0.0], "std": [pytest.approx(1 / 255)]}
    }  # fmt: skip
    changes = {**finding(checked, "normalisation").change, **finding(checked, "classes").change}
    assert found(model, **changes).passed


def test_names_that_do_not_match(trained: Callable[..., nn.Module]) -> None:
    data = replace(load("digits").test, class_names=tuple("abcdefghij"))
    checked = check_model(Classifier.open(trained(), classes=[*"abcdefghi", "jay"]), data)
    assert finding(checked, "classes").text.startswith(
        "The data have classes that the model has not (j), and the model has some that the data have not (jay)"
    )
    assert checked.accuracy.value > 0.9, "still measured, by their numbers"
    few = found(trained(), classes=("a", "b"))
    assert "The model gives 10 classes, but 2 names are described." in few.summary()
    cut = nn.Sequential(trained(), nn.Linear(10, 4))
    assert "The data have 10 classes, but the model gives 4" in found(cut).summary()


@pytest.mark.parametrize(
    ("end", "described", "severity", "words"),
    [
        (nn.Softmax(1), "auto", None, ""),
        (nn.Softmax(1), "logits", "wrong", "softmax would be applied a second time"),
        (nn.Identity(), "probabilities", "wrong", "described to return probabilities, but its outputs are logits"),
        (nn.Sigmoid(), "auto", "wrong", "neither probabilities of exclusive classes nor"),
        (nn.Sigmoid(), "logits", "doubtful", "neither probabilities of exclusive classes nor"),
        (nn.LogSoftmax(1), "auto", None, ""),
    ],
)
def test_the_kind_of_output(
    trained: Callable[..., nn.Module], end: nn.Module, described: str, severity: str | None, words: str
) -> None:
    checked = found(nn.Sequential(trained(), end), classes=DIGITS, output_kind=described)
    assert severities(checked).get("output_kind") == severity
    assert words in checked.summary() and checked.accuracy.value > 0.95


def test_outputs_that_cannot_be_read(trained: Callable[..., nn.Module]) -> None:
    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return trained()(x) * torch.nan

    checked = found(Broken())
    assert not checked.passed and "returned NaN or infinity for 256 of 256 images" in checked.summary()


def test_a_saturated_softmax(trained: Callable[..., nn.Module]) -> None:
    hot = found(trained(), classes=DIGITS, std=1 / 255)
    assert hot.findings[0].about == "softmax" and hot.findings[0].severity == "doubtful"
    assert "softmax is saturated" in hot.summary().splitlines()[1]
    assert hot.findings[0].change == {"mean": (0.0,), "std": (1.0,)}
    ends = found(nn.Sequential(trained(), nn.Softmax(1)), classes=DIGITS, std=0.1)
    assert "of the confidences are exactly 1" in ends.summary() and "return its logits" in ends.summary()


def test_a_model_that_knows_nothing() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        blank = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    checked = found(blank, classes=DIGITS)
    assert not checked.passed and severities(checked) == {"accuracy": "wrong"}
    assert "guessing among 10 classes gives 10.0%" in checked.summary()
    assert "are the weights trained" in checked.summary()


def test_several_outputs(trained: Callable[..., nn.Module], tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = trained()

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            scores = self.inner(x)
            return scores.flip(1) * 1.0, scores

    path = tmp_path / "two.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = ({0: torch.export.Dim("n")},)
        options: Any = {"dynamo": True, "dynamic_shapes": shapes, "external_data": False, "verbose": False}
        torch.onnx.export(Two().eval(), (torch.rand(2, 1, 8, 8),), path, output_names=["turned", "scores"], **options)
    with pytest.warns(UserWarning, match=r"two\.onnx has 2 outputs \(turned, scores\); 'turned', the first, is used"):
        checked = found(path, classes=DIGITS)
    wrong = finding(checked, "outputs")
    assert wrong.change == {"output": "scores"} and "2 outputs (turned, scores); turned is used" in wrong.text
    again = found(path, classes=DIGITS, **wrong.change)
    assert again.passed and finding(again, "outputs").severity == "note"


def test_what_it_needs(trained: Callable[..., nn.Module], tmp_path: Path) -> None:
    unlabelled = replace(load("digits").test, labels=np.full(360, -1))
    with pytest.raises(UserError, match="has no labels; a model is checked on labelled images"):
        check_model(trained(), unlabelled)
    few = check_model(Classifier.open(trained(), size=8, channels=1), "digits", max_images=50)
    assert few.images == 50
    assert json.loads((few.save(tmp_path / "out") / "check.json").read_text())["passed"] is True


def test_outputs_are_assigned_to_labels() -> None:
    labels = np.repeat(np.arange(4), 20)
    turn = np.array([2, 0, 3, 1])
    expected, places = assigned(turn[labels], labels, 5)
    np.testing.assert_array_equal(places[:4], turn)
    np.testing.assert_array_equal(expected, turn[labels])
