"""`secondguess model new|check|convert`, and groups of options."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import torch
import typer
from safetensors.torch import load_file, save_file
from torch import nn

from secondguess import Classifier, load
from secondguess.cli.groups import grouped
from secondguess.images import save_npz

MODULE = """
from torch import nn


def make_model():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was trained on pixels from 0 to 255, and its images."""
    folder = tmp_path_factory.mktemp("house")
    digits = load("digits")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        images, labels = torch.from_numpy(digits.train.materialise()) * 255, torch.from_numpy(digits.train.labels)
        optimiser = torch.optim.Adam(net.parameters(), 1e-3)
        for _ in range(150):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            optimiser.step()
    (folder / "checked_models.py").write_text(MODULE)
    torch.save({"model": nn.DataParallel(net).state_dict(), "epoch": 150}, folder / "checkpoint.pth")
    save_file(net.state_dict(), folder / "weights.safetensors")
    save_npz(digits.test, folder / "test.npz")
    return folder


def test_from_a_checkpoint_to_a_model_that_is_right(
    run: Any, house: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(house)
    converted = run("model", "convert", "checkpoint.pth", "--out", tmp_path, "--json").json()
    assert converted["unwrapped"] == ["model"] and converted["dropped"] == {"epoch": "150"}
    for name, value in load_file(house / "weights.safetensors").items():
        torch.testing.assert_close(load_file(tmp_path / "checkpoint.safetensors")[name], value, rtol=0, atol=0)

    words = ["--weights", tmp_path / "checkpoint.safetensors", "--size", "8", "--channels", "1", "--resize", "pad"]
    made = run("model", "new", "checked_models:make_model", *words, "--out", tmp_path)
    assert made.code == 0 and "It gives 10 classes" in made.out
    assert f"secondguess model check {tmp_path}/model.toml --data DATA" in made.out
    written = tomllib.loads((tmp_path / "model.toml").read_text())
    assert written["weights"] == "checkpoint.safetensors" and written["folder"] == str(house)
    assert written["input"] == {"size": [8, 8], "channels": 1, "resize": "pad"}

    monkeypatch.chdir(tmp_path)
    wrong = run("model", "check", "model.toml", "--data", house / "test.npz", "--json")
    assert wrong.code == 1
    (change,) = [one["change"] for one in wrong.json()["findings"] if one["about"] == "normalisation"]
    assert change["std"] == [pytest.approx(1 / 255)]
    right = run("model", "check", "model.toml", "--data", house / "test.npz", "--std", change["std"][0], "--out", "out")
    assert right.code == 0 and "WRONG" not in right.out and (tmp_path / "out/check.json").is_file()


def test_options_reach_the_file(run: Any, tmp_path: Path) -> None:
    words = ["--classes", "a,b", "--mean", "0.1,0.2,0.3", "--output-kind", "logits", "--layer", "penultimate=fc1"]
    assert run("model", "new", "zoo:lenet", *words, "--output", "0", "--quiet").code == 0
    found = tomllib.loads((tmp_path / "model.toml").read_text())
    assert found == {
        "import": "zoo:lenet",
        "classes": ["a", "b"],
        "input": {"mean": [0.1, 0.2, 0.3]},
        "output": {"kind": "logits", "use": 0},
        "layers": {"penultimate": "fc1"},
    }
    again = run("model", "new", "zoo:lenet")
    assert again.code == 2 and "model.toml is there already" in again.err
    odd = run("model", "new", "zoo:lenet", "--layer", "fc1", "--out", "other")
    assert odd.code == 2 and "is no TRACE=LAYER" in odd.err and not (tmp_path / "other").exists()
    file = run("model", "new", "zoo:lenet", "--out", "other.toml")
    assert file.code == 2 and "where a folder is expected" in file.err


def test_every_command_takes_the_file(run: Any, house: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("foolbox")
    (tmp_path / "model.toml").write_text(
        f'import = "checked_models:make_model"\nfolder = "{house}"\nweights = "{house}/weights.safetensors"\n'
        "[input]\nstd = 0.00392157\nsize = 8\nchannels = 1\n"
    )
    words = ["--data", "digits", "--max-images", "8", "--attacks", "fgsm", "--out", "mine", "--json"]
    card = run("generate", "adversarial", "--model", "model.toml", *words).json()
    assert card["settings"]["model"] == Classifier.open("model.toml").fingerprint
    same = run(
        "generate", "adversarial", "--model", "checked_models:make_model", "--weights", house / "weights.safetensors",
        "--std", "0.00392157", "--size", "8", *words[:-2], "other", "--json",
    ).json()  # fmt: skip
    assert same["settings"]["model"] == card["settings"]["model"]
    np.testing.assert_array_equal(
        np.load(tmp_path / "mine/images.npz")["image"], np.load(tmp_path / "other/images.npz")["image"]
    )


@pytest.mark.parametrize("command", ["new", "check", "convert"])
def test_help(run: Any, command: str) -> None:
    outcome = run("model", command, "--help")
    assert outcome.code == 0 and f"secondguess model {command}" in " ".join(outcome.out.split())


@dataclass(frozen=True, kw_only=True)
class Base:
    colour: Annotated[str, typer.Option("--colour")] = "red"


@dataclass(frozen=True, kw_only=True)
class Shape(Base):
    sides: Annotated[int, typer.Option("--sides")]


def test_groups_become_options() -> None:
    app, told = typer.Typer(), []

    @app.command()
    @grouped
    def draw(*, name: Annotated[str, typer.Argument()], shape: Shape, fast: bool = False) -> int:
        told.append((name, shape, fast))
        return 7

    assert list(draw.__signature__.parameters) == ["name", "sides", "colour", "fast"]  # type: ignore[attr-defined]
    assert app(["it", "--sides", "3", "--fast"], standalone_mode=False) == 7
    assert told == [("it", Shape(sides=3), True)]
    with pytest.raises(TypeError, match="has the option colour twice"):

        @grouped
        def wrong(*, colour: str, shape: Shape) -> None: ...
