"""The commands of a guard, from a model and its training images to a running, watched service."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from secondguess import load
from secondguess.contracts.sealed import read_json, write_json_sealed
from secondguess.guard.thresholds import realised_rate
from secondguess.images import save_npz
from secondguess.service import stream
from secondguess.service.stream_sources import JsonLines

MODULE = """
from torch import nn


def make_model():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model and its images as files."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("house")
    digits = load("digits")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
        images, labels = torch.from_numpy(digits.train.materialise()), torch.from_numpy(digits.train.labels)
        optimiser = torch.optim.Adam(net.parameters(), 1e-2)
        for _ in range(40):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            optimiser.step()
    (folder / "guarded_models.py").write_text(MODULE)
    save_file(net.state_dict(), folder / "weights.safetensors")
    save_file({name: value + 0.5 for name, value in net.state_dict().items()}, folder / "other.safetensors")
    save_npz(digits.train.head(600, seed=0), folder / "train.npz")
    save_npz(digits.test, folder / "nominal.npz")
    save_npz(digits.train.head(150, seed=1), folder / "fresh.npz")
    for number, image in enumerate(digits.test.materialise()[:3]):
        Image.fromarray(np.rint(255 * image[0]).astype(np.uint8)).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def model(house: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.syspath_prepend(house)
    return ["--model", "guarded_models:make_model", "--weights", str(house / "weights.safetensors"), "--device", "cpu"]


@pytest.fixture
def fit(run: Any, house: Path, model: list[str], tmp_path: Path) -> Callable[..., Any]:
    """`fit(...)` fits a guard without stress sets, which is quick, into `guard`."""

    def fitted(*words: str) -> Any:
        return run(
            "guard", "fit", *model, "--train", house / "train.npz", "--validation", house / "nominal.npz",
            "--supervisors", "entropy,mdsa", "--rule", "bonferroni", "--false-alarms", "0.05", "--size", "8",
            "--out", tmp_path / "guard", "--quiet", *words,
        )  # fmt: skip

    return fitted


def test_from_a_model_to_judgements(
    run: Any,
    fit: Callable[..., Any],
    house: Path,
    model: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fitted = fit("--json").json()
    right = fitted["report"]["calibrated_on"]  # of 180, those that are answered rightly
    expected = realised_rate(right, 0.05)
    assert 150 < right < 180
    assert fitted["report"]["false_alarms"]["value"] == pytest.approx(expected.value)
    assert (tmp_path / "guard/guard.json").is_file()

    shown = run("guard", "show", "guard")
    assert shown.code == 0 and "supervisors   entropy, mdsa" in shown.out
    said = f"Of a thousand nominal images that are answered rightly, {1000 * expected.value:.3g} raise a false alarm"
    assert said in " ".join(shown.out.split())
    assert run("guard", "show", "guard", "--json").json()["settings"]["false_alarms"] == 0.05

    several = run("guard", "judge", "guard", house / "0.png", house / "1.png", house / "nominal.npz", *model, "--json")
    judged = several.json()["judgements"]
    assert len(judged) == 2 + 360
    assert judged[0]["image"] == str(house / "0.png") and judged[2]["image"].endswith("nominal.npz[0]")
    for picture, row in zip(judged[:2], judged[2:4], strict=True):  # written to PNG in 255 steps and read again
        assert picture["prediction"] == row["prediction"]
        assert picture["p_value"] == pytest.approx(row["p_value"], abs=0.03)
    truth = load("digits").test.labels
    wrong = np.array([one["prediction"] for one in judged[2:]]) != truth
    alarms = np.array([one["p_value"] <= 0.05 for one in judged[2:]])
    assert 0.01 < alarms[~wrong].mean() < 0.12
    assert alarms[wrong].mean() > alarms[~wrong].mean()

    files = run("guard", "judge", "guard", house / "nominal.npz", *model, "--out", "judged", "--json").json()
    assert files["parts"] == ["part-00000.parquet"] and sum(files["verdicts"].values()) == 360
    text = run("guard", "judge", "guard", house / "0.png", *model)
    assert text.code == 0 and "nominal, p = " in text.out and "-> accept" in text.out

    (tmp_path / "lines").write_text("".join(f'{{"id": {k}, "image": "{house}/{k}.png"}}\n' for k in range(3)) + "?")
    for words in ((), ("--json",)):
        with (tmp_path / "lines").open("rb") as lines, monkeypatch.context() as patch:
            patch.setattr(stream, "open_source", lambda place: JsonLines(lines.fileno()))
            streamed = run("guard", "judge", "guard", "-", "--stream", *model, *words)
        assert streamed.code == 0
        if words:
            assert [json.loads(line).get("again", False) for line in streamed.out.splitlines()] == [True] * 3 + [False]
        else:
            assert "0: " in streamed.out and "-> accept\n" in streamed.out and "line 4: It is no JSON" in streamed.out
            assert "3 images judged, 0 recorded before, 1 not judged" in streamed.out

    again = run("guard", "recalibrate", "guard", house / "fresh.npz", *model, "--json").json()
    assert [one["images"] for one in again["record"]["calibrations"]] == [180, 150]
    assert "calibrated 2 times" in run("guard", "show", "guard").out


def test_a_risk_may_be_promised(run: Any, fit: Callable[..., Any], tmp_path: Path) -> None:
    promise = fit("--risk", "0.1", "--confidence", "0.9", "--protect", "errors", "--json").json()["report"]["promise"]
    assert promise["risk"] == 0.1 and promise["wrong"]["value"] < 0.1 < promise["accepted"]["value"]
    assert "at most 10.00% of the accepted predictions are wrong" in " ".join(run("guard", "show", "guard").out.split())
    refused = fit("--risk", "0.0001")
    assert refused.code == 2 and "A risk of 0.0001 cannot be promised" in refused.err
    assert fit("--protect", "everything").code == 2


def test_the_folder_is_all_that_is_needed(
    run: Any, fit: Callable[..., Any], house: Path, model: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxscript")
    assert fit("--classes", "zero,one,two,three,four,five,six,seven,eight,nine").code == 0
    named = run("guard", "judge", "guard", house / "0.png", *model, "--json").json()["judgements"]
    (tmp_path / "elsewhere").mkdir()
    shutil.move(tmp_path / "guard", tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "elsewhere")
    moved = tmp_path / "moved"
    judged = run("guard", "judge", moved, house / "0.png", "--json").json()["judgements"]
    assert [one["p_value"] for one in judged] == [one["p_value"] for one in named]
    assert judged[0]["class_name"] in ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    assert run("guard", "recalibrate", moved, house / "fresh.npz").code == 0
    assert run("guard", "export", moved, "--out", "exported").code == 0
    other = run("guard", "judge", moved, house / "0.png", "--model", "zoo:lenet")
    assert other.code == 2 and "is another one; fit a guard on it" in other.err
    assert len(list(moved.glob("weights-*.safetensors"))) == 1, "a copy, which the second save has left in its place"


def test_the_printed_command_works_as_printed(
    run: Any, fit: Callable[..., Any], start: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    fitted = fit("--out", "my guard")
    (words,) = re.findall(r"serve it: secondguess (.*)$", fitted.out, flags=re.MULTILINE)
    assert shlex.split(words) == ["guard", "serve", "my guard"]
    served = start(*shlex.split(words), "--port", "0")
    assert httpx.get(f"{served['address']}/healthz").status_code == 200
    assert run("guard", "watch", "my guard", "--validation", "nowhere").code == 2


def test_images_are_resized_as_when_the_guard_was_fitted(
    run: Any, fit: Callable[..., Any], house: Path, model: list[str], tmp_path: Path
) -> None:
    wide = tmp_path / "wide.png"
    Image.open(house / "0.png").resize((24, 8)).save(wide)

    def judged(*words: str) -> Any:
        (one,) = run("guard", "judge", "guard", wide, *model, *words, "--json").json()["judgements"]
        return one["p_value"], one["evidence"]

    assert fit("--resize", "crop").code == 0
    assert run("guard", "show", "guard", "--json").json()["record"]["resized_by"] == "crop"
    assert "1 x 8 x 8 (crop)" in run("guard", "show", "guard").out
    assert judged() == judged("--resize", "crop") != judged("--resize", "stretch")
    assert run("guard", "recalibrate", "guard", house / "fresh.npz", *model).code == 0
    assert judged() == judged("--resize", "crop"), "a guard that was calibrated anew remembers"
    wrong = run("guard", "judge", "guard", wide, *model, "--resize", "fold")
    assert wrong.code == 2 and "The way of resizing 'fold' is not known" in wrong.err
    card = tmp_path / "guard/guard.json"
    kept = read_json(card)
    del kept["record"]["resized_by"]
    write_json_sealed(card, kept)
    assert judged() == judged("--resize", "stretch"), "an older guard says nothing"


def test_actions_of_one_s_own(run: Any, fit: Callable[..., Any], house: Path, model: list[str]) -> None:
    fitted = fit("--action", "suspicious=alarm", "--min-probability", "0.9")
    assert fitted.code == 0, fitted.err
    card = run("guard", "show", "guard", "--json").json()
    assert card["actions"] == {"suspicious": "alarm"} and card["settings"]["min_probability"] == 0.9
    judged = run("guard", "judge", "guard", house / "nominal.npz", *model, "--json").json()["judgements"]
    assert {(*one["verdict"], one["action"]) for one in judged} == {("nominal", "accept"), ("suspicious", "alarm")}


def test_an_exported_guard_judges_alike(
    run: Any, fit: Callable[..., Any], house: Path, model: list[str], tmp_path: Path
) -> None:
    pytest.importorskip("onnxscript")
    from secondguess.guard.runtime import Runtime

    assert fit("--protect", "novelty").code == 0  # no image lies on its threshold, where rounding decides
    exported = run("guard", "export", "guard", *model[:4], "--out", "exported", "--json")
    assert exported.json() == {"guard": "guard", "exported": "exported"}
    told = run("guard", "judge", "guard", house / "nominal.npz", *model, "--json").json()["judgements"]
    found = Runtime(tmp_path / "exported").judge(load("digits").test.materialise())
    assert [list(one.verdict.kinds) for one in found] == [one["verdict"] for one in told]
    # A p-value is a rank: where two scores tie but for rounding, it may jump.
    apart = np.abs(np.subtract([one.p_value for one in found], [one["p_value"] for one in told]))
    assert (apart < 1 / 180).mean() > 0.95 and [one.prediction for one in found] == [one["prediction"] for one in told]


def test_what_cannot_be_used_is_one_sentence(
    run: Any, fit: Callable[..., Any], house: Path, model: list[str], tmp_path: Path
) -> None:
    assert fit().code == 0
    other = [*model[:3], str(house / "other.safetensors"), *model[4:]]
    refused = run("guard", "judge", "guard", house / "0.png", *other)
    assert refused.code == 2 and "is another one; fit a guard on it" in refused.err
    cases = {
        "There is no guard in nowhere": ("guard", "show", "nowhere"),
        "weights.safetensors is a file, not the folder of a guard": ("guard", "show", house / "weights.safetensors"),
        "model.toml is a model, not the folder of a guard; fit one": ("guard", "show", tmp_path / "guard/model.toml"),
        "is a folder, not a model; give guard/model.toml": ("guard", "fit", "--model", "guard", "--train", "digits",
                                                            "--out", "g"),
        "did you mean 'entropy'?": ("guard", "fit", "--model", "nowhere.onnx", "--train", "nowhere", "--supervisors",
                                    "entropi", "--out", "g"),
        "model.toml is a model, but images are expected": ("data", tmp_path / "guard/model.toml"),
        "model.toml is a model, not a file of predictions": ("hubris", tmp_path / "guard/model.toml"),
        "but 2 were given; start one for each": ("guard", "judge", "guard", "a", "b", "--stream"),
        "leave out --out and --engine": ("guard", "judge", "guard", "-", "--stream", "--out", "g"),
        "--records is for --stream": ("guard", "judge", "guard", "a.png", "--records", "r.sqlite"),
        "There is no image nope.png": ("guard", "judge", "guard", "nope.png", *model),
        "cannot be promised": ("guard", "fit", *model, "--train", house / "train.npz", "--validation",
                               house / "fresh.npz", "--supervisors", "entropy", "--rule", "bonferroni", "--size", "8",
                               "--false-alarms", "0.001", "--out", "g", "--quiet"),
        "There is no action 'dance' for 'invalid'": ("guard", "fit", *model, "--train", house / "train.npz",
                                                     "--action", "invalid=dance", "--out", "g", "--quiet"),
        "--action 'invalid' is no KIND=ACTION": ("guard", "fit", *model, "--train", house / "train.npz",
                                                 "--action", "invalid", "--out", "g", "--quiet"),
        "add --exposed if that is meant": ("guard", "serve", "guard", *model, "--host", "0.0.0.0"),
        "There is no file of records nope.sqlite": ("guard", "watch", "nope.sqlite"),
        "say which with --model, or give --guard": ("guard", "watch", "r.db", "--validation", house / "nominal.npz"),
        "The limit 'body' is 0": ("guard", "serve", "guard", *model, "--max-body", "0"),
        "'zoom' is not known": ("guard", "serve", "guard", *model, "--resize", "zoom"),
    }  # fmt: skip
    for sentence, words in cases.items():
        outcome = run(*words)
        assert outcome.code == 2, (sentence, outcome.out)
        assert sentence in outcome.err and "Traceback" not in outcome.err, outcome.err
    assert not (tmp_path / "g").exists()


@pytest.fixture
def start(house: Path, tmp_path: Path) -> Iterator[Callable[..., dict[str, Any]]]:
    """`start("guard", "serve", ...)` runs a command that serves, and gives what it announced.

    With `hang_up_at` it gets a SIGHUP as soon as that file is there, long before it serves.
    """
    running: list[subprocess.Popen[str]] = []

    def started(*words: object, hang_up_at: Path | None = None) -> dict[str, Any]:
        process = subprocess.Popen(
            [sys.executable, "-m", "secondguess", *map(str, words), "--json"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(house), *sys.path]), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        while hang_up_at is not None and not hang_up_at.exists() and process.poll() is None:
            time.sleep(0.01)
        if hang_up_at is not None:
            process.send_signal(signal.SIGHUP)
        assert process.stdout is not None
        told = ""
        for line in process.stdout:
            told += line
            if line.startswith("}"):
                return dict(json.loads(told)) | {"process": process}
        raise AssertionError(process.communicate()[1])

    yield started
    for process in running:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def test_two_workers_share_a_postgresql(
    fit: Callable[..., Any], start: Callable[..., dict[str, Any]], house: Path, model: list[str], postgres: str
) -> None:
    import psycopg

    assert fit().code == 0
    served = start("guard", "serve", "guard", *model, "--port", "0", "--workers", "2", "--records", postgres)
    headers = {"Authorization": f"Bearer {served['token']}"}
    answered = []
    for number in range(12):
        with httpx.Client(base_url=served["address"], headers=headers, timeout=30) as client:
            answer = client.post("/predict", files=[("image", (house / f"{number % 3}.png").read_bytes())])
        assert answer.status_code == 200, answer.text
        answered.append(answer.json()["request"])
    served["process"].send_signal(signal.SIGTERM)
    said = served["process"].communicate(timeout=60)[1]
    assert "Traceback" not in said
    with psycopg.connect(postgres, autocommit=True) as base:
        kept = [row[0] for row in base.execute("SELECT request FROM secondguess_records").fetchall()]
    assert sorted(kept) == sorted(answered)


def test_a_service_and_its_watch_page(
    fit: Callable[..., Any], start: Callable[..., dict[str, Any]], house: Path, model: list[str], tmp_path: Path
) -> None:
    assert fit().code == 0
    words = ("--port", "0", "--thumbnails", "--token-file", "token")
    served = start("guard", "serve", "guard", *model, *words, hang_up_at=tmp_path / "token")
    token = (tmp_path / "token").read_text().strip()
    assert served["token"] is None and served["records"] == "guard/records.sqlite"
    headers = {"Authorization": f"Bearer {token}"}
    noise = np.random.default_rng(0).random((8, 8)).round(3).tolist()
    with httpx.Client(base_url=served["address"], headers=headers, timeout=30) as client:
        files = [("image", (house / f"{k}.png").read_bytes()) for k in range(3)]
        pictures = client.post("/predict", files=files)
        assert pictures.status_code == 200 and len(pictures.json()["results"]) == 3
        arrays = client.post("/predict", json={"images": [noise] * 40})
        assert arrays.status_code == 200, arrays.text
        assert {one["verdict"][0] for one in arrays.json()["results"]} == {"suspicious"}
        assert "secondguess_alarms_total 4" in client.get("/metrics").text
    base = sqlite3.connect(tmp_path / "guard/records.sqlite")
    assert base.execute("SELECT COUNT(*) FROM secondguess_records").fetchone() == (43,)
    base.close()

    watched = start(
        "guard", "watch", "guard", "--guard", "guard", *model, "--validation", house / "nominal.npz", "--no-browser"
    )
    with httpx.Client() as client:
        home = watched["link"].partition("/?")[0]
        assert client.get(watched["link"]).status_code == 200
        state = client.get(f"{home}/api/watch").json()
    assert state["images"] == 43 and "since" in state["change"]
    assert state["missed"] == [] and len(state["estimates"]) == 2
    served["process"].send_signal(signal.SIGTERM)
    said = served["process"].communicate(timeout=30)[1]  # the signal while it was loading was obeyed, and nothing else
    (aside,) = (tmp_path / "guard").glob("records-*.sqlite")
    assert said == f"Records until now are in guard/{aside.name}.\n"


def test_the_benchmark_prints_what_it_measured(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from secondguess_lab.bench import guard as bench

    row = {"batch": 1, "bare_ms": 0.2, "guard_ms": 0.23, "overhead": 0.15, "median_overhead": 0.16, "target": 0.2}
    held = {"requests": 600, "rate": 200.0, "errors": 0, "p50": 4.0, "p99": 20.0, "target_p99": 100.0}
    parts = {"session": 0.15, "mdsa": 0.05}
    asked: dict[str, Any] = {}

    def measured(**options: Any) -> dict[str, Any]:
        asked.update(options)
        rows = {"overhead": [row], "exported": [row | {"guard_ms": 0.21, "overhead": 0.05}]}
        rows["photographs"] = [row | {"bare_ms": 4.0, "guard_ms": 3.0, "overhead": -0.25}]
        return {
            "supervisors": ["max_softmax", "mdsa"],
            "model": "m",
            "cores": 2,
            "parts_ms": parts,
            **rows,
            "service": held,
        }

    monkeypatch.setattr(bench, "run", measured)
    text = run("bench", "guard", "--seconds", "3", "--quiet")
    assert asked["seconds"] == 3 and asked["requests"] == 200
    assert re.search(r"guarded +0.230 ms +overhead \+15.0% \(median \+16.0%; target 20%\)", text.out)
    assert re.search(r"exported +0.210 ms +overhead \+5.0%", text.out)
    assert re.search(r"guarded resnet20 +3.000 ms +overhead -25.0%", text.out)
    assert "of a single image, in ms: session 0.150, mdsa 0.050" in text.out
    assert "600 requests at 200 a second   0 errors   p50 4.0 ms   p99 20.0 ms (target 100)" in text.out
    assert run("bench", "guard", "--json").json()["service"] == held
