from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from secondguess import load
from secondguess.images import ImageSet, save_npz
from secondguess.metrics import absolute_hubris, acd, relative_hubris, vote_shares
from secondguess.stress.ambiguous import AmbiGuess, PixelBlend, acceptance

KEYS = {"absolute", "relative", "acd", "mean_kl", "over", "under", "n"}


def write(path: Path, **columns: object) -> Path:
    rows = zip(*columns.values(), strict=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([list(columns), *rows])
    return path


def test_a_file_of_predictions(run, tmp_path: Path) -> None:
    file = write(tmp_path / "p.csv", p=[0.1, 0.5, 0.9])
    found = run("hubris", file, "--json").json()
    assert set(found) >= KEYS
    assert found["absolute"]["value"] == pytest.approx(0.719284, abs=1e-6)
    assert set(found["absolute"]) == {"value", "low", "high"}
    assert found["absolute"]["low"] <= found["absolute"]["value"] <= found["absolute"]["high"]
    assert found["acd"] == pytest.approx(0.8 / 3) and found["mean_kl"] == pytest.approx(0.245376, abs=1e-6)
    assert found["relative"] is None and found["under"] == 0 and found["n"] == 3
    printed = run("hubris", file)
    assert printed.code == 0 and "absolute hubris  0.7193" in printed.out and "at most 0.9724" in printed.out


def test_the_scores_of_a_file_are_kept_where_asked(run, tmp_path: Path) -> None:
    file = write(tmp_path / "p.csv", p=[0.1, 0.5, 0.9])
    found = run("hubris", file, "--json", "--out", tmp_path / "out").json()
    assert json.loads((tmp_path / "out" / "hubris.json").read_text()) == found


@pytest.mark.parametrize(("predictions", "value"), [([0.5] * 4, 0), ([0, 1, 1, 0], 0.972366), ([0.9] * 4, 0.851269)])
def test_anchors(run, tmp_path: Path, predictions: list[float], value: float) -> None:
    found = run("hubris", write(tmp_path / "p.csv", p=predictions), "--json").json()
    assert found["absolute"]["value"] == pytest.approx(value, abs=1e-6)


def test_many_classes_in_an_archive(run, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).dirichlet(np.ones(4), 30)
    np.savez(tmp_path / "p.npz", p=rows)
    found = run("hubris", tmp_path / "p.npz", "--json").json()
    assert found["absolute"]["value"] == pytest.approx(absolute_hubris(rows)) and found["acd"] == pytest.approx(
        acd(rows)
    )
    write(tmp_path / "p.csv", **{f"p{k}": rows[:, k] for k in range(4)})
    assert run("hubris", tmp_path / "p.csv", "--json").json() == found


def test_scoring_a_file_needs_no_torch(tmp_path: Path) -> None:
    write(tmp_path / "p.csv", p=[0.5, 0.7])
    code = (
        "import sys; from secondguess.hubris import read_predictions, score; "
        "print(score(read_predictions('p.csv')).to_dict()['n'], 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"]


def test_every_kind_of_reference(run, tmp_path: Path) -> None:
    p, r = np.array([0.9, 0.2, 0.6]), np.array([0.6, 0.5, 0.7])
    file = write(tmp_path / "p.csv", p=p, r=r)
    other = write(tmp_path / "refs.csv", p=r)
    expected = relative_hubris(p, r)
    for reference in (other, "r"):
        found = run("hubris", file, "--reference", reference, "--json").json()
        assert found["relative"]["value"] == pytest.approx(expected)
        assert found["over"] + found["under"] == pytest.approx(found["mean_kl"])
    assert run("hubris", file, "--reference", "0.6", "--json").json()["relative"]["value"] == pytest.approx(
        relative_hubris(p, 0.6)
    )
    assert run("hubris", file, "--reference", "constant", "--json").json()["relative"] is None
    published = run("hubris", file, "--reference", "r", "--compat", "--json").json()
    assert published["relative"]["value"] == pytest.approx(relative_hubris(p, r, compat=True))
    assert "relative hubris" in run("hubris", file, "--reference", "r").out


def test_votes_and_smoothing(run, tmp_path: Path) -> None:
    p = np.array([[0.9, 0.1], [0.2, 0.8]])
    counts = np.array([[3, 0], [5, 5]])
    file = write(tmp_path / "p.csv", p0=p[:, 0], p1=p[:, 1], v0=counts[:, 0], v1=counts[:, 1])
    found = run("hubris", file, "--votes", "v", "--json").json()
    assert found["relative"]["value"] == pytest.approx(relative_hubris(p, vote_shares(counts)))
    hard = write(tmp_path / "hard.csv", p=[0.9, 0.2], r=[1, 0])
    refused = run("hubris", hard, "--reference", "r")
    assert refused.code == 2 and "2 of 2 references call a class impossible" in refused.err
    assert run("hubris", hard, "--reference", "r", "--smoothing", "0.1").code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Give either models with data, or predictions"),
        (["nowhere.csv"], "There is no file nowhere.csv"),
        (["p.csv", "--model", "zoo:lenet"], "Give either"),
        (["p.csv", "--smoothing", "0.1"], "without a reference or votes"),
        (["p.csv", "--votes", "p", "--reference", "p"], "give one of them"),
        (["p.csv", "--data", "digits"], "are for models"),
        (["p.csv", "--between", "3,8"], "are for models"),
        (["p.csv", "--on", "companion"], "is for models"),
        (["p.csv", "--reference", "q"], "a column 'q' is needed"),
        (["--model", "zoo:lenet"], "Models were given without data"),
        (["--model", "zoo:lenet", "--data", "digits", "--compat"], "for bare predictions"),
        (["--model", "zoo:lenet", "--model", "zoo:lenet", "--data", "digits"], "one of them twice"),
    ],
)
def test_mistakes_are_explained(run, tmp_path: Path, words: list[str], message: str) -> None:
    write(tmp_path / "p.csv", p=[0.5])
    found = run("hubris", *words)
    assert found.code == 2 and message in found.err


MODULE = """
from pathlib import Path
from safetensors.torch import load_file
from torch import nn


def make(weights):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
    model.load_state_dict(load_file(Path(__file__).parent / weights))
    return model


def hasty():
    return make("hasty.safetensors")


def thorough():
    return make("thorough.safetensors")
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models and a companion set as files."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("hubris")
    train = load("digits").train
    images, labels = torch.from_numpy(train.materialise()), torch.from_numpy(train.labels)
    for name, steps in (("hasty", 20), ("thorough", 120)):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            net = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
            optimiser = torch.optim.Adam(net.parameters(), 1e-2)
            for _ in range(steps):
                optimiser.zero_grad()
                nn.functional.cross_entropy(net(images), labels).backward()
                optimiser.step()
        save_file(net.state_dict(), folder / f"{name}.safetensors")
    (folder / "hubris_models.py").write_text(MODULE)
    PixelBlend(pairs=[(9, 8), (3, 8)], delta_max=0.8).generate(train, 120).save(folder / "companion")
    return folder


@pytest.fixture
def words(house: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.syspath_prepend(house)
    models = ["--model", "hubris_models:hasty", "--model", "hubris_models:thorough"]
    return ["hubris", *models, "--data", "digits", "--device", "cpu", "--on", str(house / "companion")]


def test_models_are_compared(run, words: list[str], tmp_path: Path) -> None:
    found = run(*words, "--between", "9,8", "--out", tmp_path / "out", "--json")
    content = found.json()
    assert found.code == 0 and content["classes"] == [9, 8] and content["companion"]["images"] == 60
    assert [row["model"] for row in content["models"]] == ["hubris_models:hasty", "hubris_models:thorough"]
    for row in content["models"]:
        assert {"accuracy", "temperature", "mass", "ambiguous", "ambiguous_scaled", "clean", "response"} <= set(row)
        assert set(row["ambiguous"]) >= KEYS
    assert json.loads((tmp_path / "out" / "hubris.json").read_text()) == content
    lines = list(csv.DictReader((tmp_path / "out" / "hubris.csv").read_text().splitlines()))
    assert len(lines) == 8 and {line["images"] for line in lines} == {"ambiguous", "clean"}
    assert (tmp_path / "out" / "hubris.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"hubris.json", "hubris.csv", "hubris.png"}


def test_the_table_on_the_terminal(run, words: list[str]) -> None:
    found = run(*words, "--quiet")
    assert found.code == 0 and found.err == ""
    assert "120 ambiguous images, reference: soft_labels" in found.out
    lines = [line for line in found.out.splitlines() if line.startswith("hubris_models:")]
    assert len(lines) >= 2 and "cannot exceed 0.972" in found.out


def test_classes_have_names_or_numbers(run, words: list[str]) -> None:
    assert "There is no class 'nine'" in run(*words, "--between", "nine,8").err
    assert "give two different classes" in run(*words, "--between", "9").err
    assert "No image of" in run(*words, "--between", "0,1").err


def test_a_companion_is_made_where_none_is_given(
    run, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"epochs": 2, "realism": False, "autoencoders": 1}.items():
        monkeypatch.setitem(AmbiGuess.__init__.__kwdefaults__, name, value)
    monkeypatch.setattr(acceptance, "FOOLED", (0.0, 1.0))
    monkeypatch.setattr(acceptance, "TELLS_APART", 0.0)
    options = [*words[:-2], "--between", "3,8", "--count", "40", "--json"]
    content = run(*options, "--out", tmp_path / "out").json()
    assert content["companion"]["images"] == 40 and content["classes"] == [3, 8]
    again = run(*options, "--on", tmp_path / "out" / "companion").json()
    assert again["models"] == content["models"], "what was made can be given"


def test_images_without_labels_make_no_companion(run, words: list[str], tmp_path: Path) -> None:
    test = load("digits").test.head(20)
    save_npz(ImageSet.from_source(test.images, test.labels, class_names=test.class_names), tmp_path / "test.npz")
    options = [word if word != "digits" else str(tmp_path / "test.npz") for word in words[:-2]]
    found = run(*options)
    assert found.code == 2 and "no labelled training images" in found.err
