"""A stored monitor and the model that it is given: the one that it was fitted on, read in the same way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from torch import manual_seed, nn, random

import secondguess as sg
from secondguess.accuracy import AccuracyMonitor
from secondguess.contracts.sealed import read_json, write_json_sealed
from secondguess.errors import UserError
from secondguess.images import ImageSet

NAMES = ("a", "b", "c")
WEIGHTS = np.random.default_rng(0).normal(size=(64, 3))


def answer(pixels: np.ndarray) -> np.ndarray:
    """Logits."""
    return np.asarray((pixels.reshape(len(pixels), -1) - 0.5) @ WEIGHTS)


def nearly(pixels: np.ndarray) -> np.ndarray:
    return answer(pixels) * (1 + 1e-5)


def other(pixels: np.ndarray) -> np.ndarray:
    return answer(pixels)[:, [1, 2, 0]]


def certain(pixels: np.ndarray) -> np.ndarray:
    """Another model, with the same predictions and confidences of 1."""
    return 1e4 * answer(pixels) ** 3


def images(n: int, seed: int) -> ImageSet:
    pixels = np.random.default_rng(seed).random((n, 1, 8, 8), dtype=np.float32)
    return ImageSet.from_arrays(pixels, answer(pixels).argmax(axis=1), class_names=NAMES)


def fitted(model: object) -> AccuracyMonitor:
    return AccuracyMonitor.fit(model, images(200, 0), images(60, 1), estimators=["validation_accuracy"])


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A monitor of a model without a fingerprint."""
    return fitted(answer).save(tmp_path_factory.mktemp("monitor") / "kept")


def test_a_model_without_a_fingerprint_is_recognised_by_its_answers(kept: Path) -> None:
    for same in (answer, nearly):
        assert AccuracyMonitor.load(kept, same).estimate(images(50, 2)).truth.value == 1.0
    assert AccuracyMonitor.load(kept, sg.Classifier(answer, version="1")).classifier.fingerprint is not None
    for another in (other, certain):
        with pytest.raises(UserError, match=rf"'answer' \(without a fingerprint\), but '{another.__name__}' \(without"):
            AccuracyMonitor.load(kept, another)
    with pytest.raises(UserError, match=r"is another one; fit a monitor on it.*\(The model failed on images of shape"):
        AccuracyMonitor.load(kept, lambda pixels: pixels.reshape(len(pixels), 7, 7))


def test_noise_decides_neither_how_another_model_is_read_nor_this_one(kept: Path) -> None:
    same, another = sg.Classifier(answer), sg.Classifier(other)
    assert AccuracyMonitor.load(kept, same).classifier.output_kind == "logits"
    with pytest.raises(UserError, match="is another one"):
        AccuracyMonitor.load(kept, another)
    assert another.output_kind == "auto"


def test_another_fingerprint_is_accepted_where_the_answers_are_the_same(tmp_path: Path) -> None:
    fitted(sg.Classifier(answer, version="1")).save(tmp_path / "kept")
    AccuracyMonitor.load(tmp_path / "kept", sg.Classifier(answer, version="1"))
    with pytest.warns(
        UserWarning, match="'answer' is not the one that the monitor was fitted on, but it answers alike"
    ):
        AccuracyMonitor.load(tmp_path / "kept", sg.Classifier(answer, version="2"))
    with pytest.raises(UserError, match=r"'other' \(fingerprint \w{8}\) is another one; fit a monitor on it"):
        AccuracyMonitor.load(tmp_path / "kept", sg.Classifier(other, version="2"))


def test_a_model_that_is_read_otherwise_is_refused(tmp_path: Path) -> None:
    """Its fingerprint is the same, but a softmax that is taken for logits is another model."""
    with random.fork_rng():
        manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3), nn.Softmax(1)).eval()
    fitted(sg.Classifier(net, device="cpu")).save(tmp_path / "kept")
    as_logits = sg.Classifier(net, device="cpu", output_kind="logits")
    assert as_logits.fingerprint == sg.Classifier(net, device="cpu").fingerprint
    with pytest.raises(UserError, match="read as probabilities, but here it is read as logits; open the model with"):
        AccuracyMonitor.load(tmp_path / "kept", as_logits)
    for kind in ("auto", "probabilities"):
        given = sg.Classifier(net, device="cpu", output_kind=kind)
        assert AccuracyMonitor.load(tmp_path / "kept", given).classifier.output_kind == "probabilities"


def test_a_monitor_of_format_3_knows_models_by_their_fingerprints_only(kept: Path, tmp_path: Path) -> None:
    """Which is what it says, and what to do; a model with a fingerprint is read as before."""
    for version, sentence in (
        (None, "which has no fingerprint, and did not keep its answers either, .* fit the monitor again"),
        ("1", r"'answer' \(without a fingerprint\) is another one"),
    ):
        folder = fitted(sg.Classifier(answer, version=version)).save(tmp_path / f"version {version}")
        card = read_json(folder / "monitor.json")
        (folder / card.pop("canary")).unlink()
        write_json_sealed(folder / "monitor.json", card | {"format": 3})
        with pytest.raises(UserError, match=sentence):
            AccuracyMonitor.load(folder, answer)
    again = AccuracyMonitor.load(folder, sg.Classifier(answer, version="1"))
    again.save(folder)
    assert read_json(folder / "monitor.json")["format"] == 4
    AccuracyMonitor.load(folder, answer)  # now it can be recognised


def test_a_format_that_nobody_knows_is_refused(kept: Path, tmp_path: Path) -> None:
    card = read_json(kept / "monitor.json")
    for number in (1, 5):
        write_json_sealed(tmp_path / "monitor.json", card | {"format": number})
        with pytest.raises(
            UserError, match=rf"in format {number}, but this version of secondguess reads 2 to 4; install"
        ):
            AccuracyMonitor.load(tmp_path, answer)


def test_a_changed_canary_is_refused(tmp_path: Path) -> None:
    folder = fitted(answer).save(tmp_path / "kept")
    canary = next(folder.glob("canary-*.safetensors"))
    canary.write_bytes(canary.read_bytes()[:-1] + b"!")
    with pytest.raises(UserError, match="is damaged: its content is not what its name says; fit the monitor again"):
        AccuracyMonitor.load(folder, answer)
