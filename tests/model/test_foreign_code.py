"""Models and factories that raise, exit or give nonsense: one sentence, and never their exit code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from secondguess import Classifier, UserError
from secondguess.cli import main
from secondguess.images import ImageSet, save_npz

IMAGES = np.zeros((3, 1, 8, 8), dtype=np.float32)

HOUSE = """
import sys
import torch
from torch import nn

class Odd(nn.Module):
    def forward(self, images):
        {body}

def make():
    return Odd()

def broken():
    {body}
"""
FAILURES = {
    "raise KeyError('no weights')": "KeyError: 'no weights'",
    "raise RuntimeError": "RuntimeError",
    "raise ZeroDivisionError('1/0\\nmore')": "ZeroDivisionError: 1/0",
    "sys.exit(7)": "SystemExit: 7",
    "raise MemoryError": "MemoryError",
}


class Failing(nn.Module):
    def __init__(self, failure: BaseException) -> None:
        super().__init__()
        self.failure = failure

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        raise self.failure


@pytest.mark.parametrize("wrap", [Failing, lambda failure: Failing(failure).forward])
@pytest.mark.parametrize(
    "failure", [KeyError("weights"), SystemExit(7), MemoryError(), OSError(5, "disk"), AssertionError()]
)
def test_whatever_a_model_raises_is_one_sentence(wrap: Callable, failure: BaseException) -> None:
    with pytest.raises(UserError, match=rf"The model failed on images of shape \(1, 8, 8\) \({type(failure).__name__}"):
        Classifier(wrap(failure)).observe(IMAGES)


def test_an_error_without_a_message() -> None:
    with pytest.raises(UserError, match=r"cannot take images of shape \(1, 8, 8\).*: RuntimeError"):
        Classifier(Failing(RuntimeError())).observe(IMAGES)


def test_an_interrupt_is_no_failure() -> None:
    with pytest.raises(KeyboardInterrupt):
        Classifier(Failing(KeyboardInterrupt())).observe(IMAGES)


@pytest.mark.parametrize("body", FAILURES)
def test_factories_and_modules(body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "odd_factory.py").write_text(HOUSE.format(body=body))
    (tmp_path / "odd_module.py").write_text(f"import sys\n{body}\n")
    try:
        with pytest.raises(UserError, match=r"odd_factory:broken failed to make the model \(\w+: .*\); --debug shows"):
            Classifier("odd_factory:broken")
        with pytest.raises(UserError, match=r"The module 'odd_module' failed while it was imported \("):
            Classifier("odd_module:make")
    finally:
        sys.modules.pop("odd_factory", None)


@pytest.mark.parametrize("factory", ["make", "broken"])
def test_a_command_ends_with_its_own_exit_code(
    factory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "odd.py").write_text(HOUSE.format(body="sys.exit(7)"))
    save_npz(ImageSet.from_arrays(IMAGES, [0, 1, 0]), tmp_path / "few.npz")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    command = ["audit", "--model", f"odd:{factory}", "--data", "few.npz", "--out", "x"]
    try:
        assert main(command) == 2
        said = capsys.readouterr().err
        assert "SystemExit: 7" in said and "Traceback" not in said
        with pytest.raises(UserError, match="SystemExit: 7"):  # whose traceback Python prints
            main([*command, "--debug"])
    finally:
        sys.modules.pop("odd", None)


def test_with_debug_the_process_shows_where_it_happened(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(HOUSE.format(body="sys.exit(7)"))
    save_npz(ImageSet.from_arrays(IMAGES, [0, 1, 0]), tmp_path / "few.npz")
    words = ["audit", "--model", "odd:make", "--data", "few.npz", "--out", "x", "--debug"]
    command = [sys.executable, "-m", "secondguess", *words]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Traceback" in told.stderr and told.returncode != 7


@pytest.mark.parametrize("cached", [False, True])
def test_images_with_an_answer_of_nan_are_named(tmp_path: Path, cached: bool) -> None:
    def model(images: np.ndarray) -> np.ndarray:
        out = images.reshape(len(images), -1)[:, :3].copy()
        out[images[:, 0, 0, 0] == 1] = np.nan
        return out

    pixels = np.random.default_rng(0).random((70, 1, 4, 4)).astype(np.float32) * 0.9
    bad = [33, 41] if not cached else [3, 41]
    pixels[bad, 0, 0, 0] = 1
    images = ImageSet.from_arrays(pixels, ids=[f"{row}.png" for row in range(70)], layout="NCHW")
    options = {"version": "1", "cache": tmp_path} if cached else {}
    classifier = Classifier(model, output_kind="logits", batch_size=32, **options)
    names = "3.png" if cached else "33.png, 41.png"
    with pytest.raises(
        UserError, match=rf"returned NaN or infinity for \d of 32 images \({names}\); check its weights"
    ):
        classifier.observe(images)
    if not cached:
        with pytest.raises(UserError, match=r"for 2 of 32 images \(image 33, image 41\)"):
            classifier.observe(pixels)
