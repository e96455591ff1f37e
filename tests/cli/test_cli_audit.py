from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from defusedxml import ElementTree
from PIL import Image
from safetensors.torch import save_file

from secondguess.images import load_images, save_npz

QUICK = ["--data", "digits", "--architecture", "fully_connected", "--epochs", "1", "--device", "cpu", "--quiet"]
QUICK += ["--stress", "corrupted,invalid", "--supervisors", "max_softmax,pcs,entropy,deep_gini"]
QUICK += ["--max-test", "100"]  # too few mistakes to search for confident ones, which takes longest
GATED = [*QUICK, "--sections", "accuracy,supervisors"]


def test_an_audit_without_a_model_trains_one_and_reports(run, tmp_path):
    outcome = run("audit", *QUICK, "--out", "mine")
    assert outcome.code == 0
    assert "Accuracy" in outcome.out and "Report: mine/report.html" in outcome.out
    assert len(outcome.out.strip().splitlines()) <= 12
    assert outcome.err == ""
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == [
        "audit.json",
        "cache",
        "junit.xml",
        "model",
        "predictions.npz",
        "report.html",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_json_is_the_audit_and_nothing_else_and_a_second_run_gives_the_same_numbers(run, tmp_path):
    outcome = run("audit", *QUICK, "--json", "--seed", "3")
    assert outcome.code == 0
    assert outcome.json() == json.loads((tmp_path / "out/audit/audit.json").read_text())
    assert outcome.json()["seed"] == 3
    assert {number["seed"] for number in outcome.json()["numbers"].values()} == {3}
    first, second = (one.json()["numbers"] for one in (outcome, run("audit", *QUICK, "--json", "--seed", "3")))
    timed = [name for name in first if name.endswith("seconds")]
    for name in timed:
        first.pop(name), second.pop(name)
    assert first == second


def test_gates_decide_the_exit_code(run, tmp_path):
    gates = ["--assert", "accuracy.test>=10%", "--assert", "supervisor.entropy.invalid.auroc>=1.5"]
    outcome = run("audit", *GATED, *gates)
    assert outcome.code == 1
    assert "Gate failed: supervisor.entropy.invalid.auroc is" in outcome.out
    suite = ElementTree.parse(tmp_path / "out/audit/junit.xml").getroot()
    assert suite.attrib["failures"] == "1"
    assert run("audit", *GATED, "--assert", "accuracy.test>=10%").code == 0


@pytest.mark.filterwarnings("ignore:No number seems to be called acuracy")  # said before the work begins
def test_a_mistyped_gate_is_a_mistake_not_a_failure(run):
    outcome = run("audit", *GATED, "--assert", "acuracy.test>=0.5")
    assert outcome.code == 2
    assert "did you mean accuracy.test" in outcome.out
    asked = run("audit", *GATED, "--assert", "acuracy.test>=0.5", "--json")
    assert (asked.code, asked.json()["gates"][0]["outcome"]) == (2, "error")


def test_train_takes_the_training_split_and_never_the_test_images(run, tmp_path):
    words = ["--model", "zoo:fully_connected", "--size", "28", "--stress", "invalid:textures", "--quiet", "--json"]
    words += ["--supervisors", "max_softmax,entropy", "--sections", "overview"]
    card = run("audit", *words, "--test", "mnist5k", "--train", "mnist5k", "--max-test", "50").json()
    assert card["data"]["train"]["images"] == 4000
    save_npz(load_images("digits"), tmp_path / "only.npz")
    outcome = run("audit", *words, "--test", "only.npz", "--train", "only.npz")
    assert outcome.code == 2 and "are the same images" in outcome.err


def test_a_failed_section_is_not_success(run, monkeypatch):
    from secondguess.audits.sections.calibration import Calibration

    monkeypatch.setattr(Calibration, "run", lambda self, context: 1 / 0)
    assert run("audit", *QUICK, "--sections", "accuracy,calibration").code == 1


def test_ctrl_c_before_anything_was_found(run, monkeypatch):
    from secondguess.audits.context import Context

    def interrupted(self, images, label):
        raise KeyboardInterrupt

    monkeypatch.setattr(Context, "observe", interrupted)
    assert run("audit", *QUICK).code == 130


def test_a_gate_that_is_none_is_refused_before_anything_runs(run, tmp_path):
    outcome = run("audit", *QUICK, "--assert", "accuracy.test")
    assert outcome.code == 2 and "is not a gate" in outcome.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "zoo:lenet"], "A model was given without images"),
        (["--test", "images/"], "without a model"),
        (["--model", "weights.pt", "--test", "digits"], "is a pickle"),
        (["--model", "missing.onnx", "--test", "digits"], "There is no model file at missing.onnx"),
        (["--model", "zoo:nothing", "--test", "digits"], "nothing"),
        (["--model", "zoo:lenet", "--train", "digits"], "without images"),
        (["--model", "zoo:lenet", "--data", "digits", "--test", "digits"], "not both"),
        (["--data", "nowhere/"], "nowhere"),
        (["--data", "photos"], "no labelled training images"),
        ([*QUICK, "--size", "12x"], "--size is '12x'"),
        (["--model", "zoo:lenet", "--test", "digits", "--mean", "a,b"], "is not a number or a list of numbers"),
        ([*QUICK, "--device", "cuda:99"], "cuda:99"),
        ([*QUICK, "--supervisors", "entropie"], "did you mean 'entropy'"),
        ([*QUICK, "--stress", "drunk"], "no stress set 'drunk'"),
    ],
)
def test_mistakes_get_one_sentence(run, words, message):
    import re

    outcome = run("audit", *words)
    assert outcome.code == 2
    assert re.search(message, outcome.err), outcome.err
    assert outcome.err.startswith("Error: ") and outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.err


@pytest.fixture
def photos(tmp_path) -> Path:
    """Folders of colour images of two sizes: class `dark` and class `light`."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 12), ("test", 16)):
        for name, level in (("dark", 60), ("light", 190)):
            folder = tmp_path / "photos" / split / name
            folder.mkdir(parents=True)
            for index in range(count):
                side = 12 if index % 2 else 16
                pixels = rng.normal(level, 40, (side, side, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{index}.{'png' if index % 3 else 'jpg'}")
    return tmp_path / "photos"


class Brightness(torch.nn.Module):
    """Light or dark, by the mean pixel; its layers are there to be traced."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = torch.nn.AdaptiveAvgPool2d(1)
        self.flatten = torch.nn.Flatten()
        self.head = torch.nn.Linear(3, 2)
        with torch.no_grad():
            self.head.weight.copy_(torch.tensor([[-4.0] * 3, [4.0] * 3]))
            self.head.bias.copy_(torch.tensor([6.0, -6.0]))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.flatten(self.pool(images)))


def test_an_onnx_file_and_image_folders_need_no_python(run, tmp_path, photos):
    example = (torch.zeros(2, 3, 10, 10),)
    shapes = ({0: torch.export.Dim("images")},)
    torch.onnx.export(Brightness().eval(), example, tmp_path / "m.onnx", dynamo=True, dynamic_shapes=shapes)
    words = ["--test", "photos/test", "--train", "photos/train", "--out", "out/mine", "--quiet", "--json"]
    words += ["--stress", "corrupted,invalid"]
    card = run("audit", "--model", "m.onnx", *words).json()
    assert card["data"]["test"]["images"] == 32 and card["data"]["test"]["shape"] == [3, 10, 10]
    assert card["data"]["test"]["name"] == "photos/test"
    assert card["numbers"]["accuracy.test"]["value"] > 0.9
    statuses = {section["name"]: section["status"] for section in card["sections"]}
    assert statuses.pop("deploy") == "skipped"  # 32 images set no threshold
    assert statuses.pop("risk") == statuses.pop("priorities") == "skipped"  # no answer is wrong, or none is right
    assert statuses.pop("boundary") == "skipped"  # there are no ambiguous images
    assert set(statuses.values()) == {"done"}


def test_a_module_of_ones_own_with_weights(run, tmp_path, photos, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    source = Path(__file__).read_text()
    code = source[source.index("class Brightness") : source.index("def test_an_onnx_file")]
    (tmp_path / "my_models.py").write_text(
        f"import torch\n\n\n{code}\n\n\ndef make_model():\n    return Brightness()\n"
    )
    save_file(Brightness().state_dict(), tmp_path / "weights.safetensors")
    words = ["--model", "my_models:make_model", "--weights", "weights.safetensors", "--size", "10", "--max-test", "20"]
    outcome = run("audit", *words, "--test", "photos/test", "--stress", "corrupted,invalid", "--quiet", "--json")
    assert outcome.code == 0
    assert outcome.json()["data"]["test"]["images"] == 20
    assert outcome.json()["numbers"]["accuracy.test"]["value"] > 0.9


def test_a_bad_image_is_named_and_skipped_only_on_request(run, tmp_path, photos, monkeypatch):
    (photos / "test/dark/broken.png").write_bytes(b"\x89PNG not really")
    words = ["audit", "--model", "zoo:lenet", "--test", "photos/test", "--size", "28", "--quiet"]
    outcome = run(*words)
    assert outcome.code == 2
    assert "broken.png" in outcome.err and "--skip-bad" in outcome.err


def test_ctrl_c_leaves_a_report_and_the_command_to_go_on(run, tmp_path, monkeypatch):
    from secondguess.audits.sections.supervisors import Supervisors

    def interrupted(self, context):
        raise KeyboardInterrupt

    monkeypatch.setattr(Supervisors, "run", interrupted)
    outcome = run("audit", *QUICK)
    assert outcome.code == 130
    assert "run it again: secondguess audit --data digits" in outcome.err
    card = json.loads((tmp_path / "out/audit/audit.json").read_text())
    assert card["status"] == "interrupted"
    assert {section["name"]: section["status"] for section in card["sections"]} == {
        "overview": "done",
        "accuracy": "done",
        "calibration": "done",
        "gallery": "done",
        "ambiguity": "done",
        "boundary": "skipped",
        "overconfidence": "done",
        "supervisors": "skipped",
        "risk": "skipped",
        "confident_errors": "skipped",
        "priorities": "skipped",
        "surprise_coverage": "skipped",
        "label_free": "skipped",
        "deploy": "skipped",
    }
    assert "The audit was interrupted" in (tmp_path / "out/audit/report.html").read_text()


def test_a_training_that_was_interrupted_goes_on(tmp_path):
    words = [sys.executable, "-m", "secondguess", "audit", "--data", "digits", "--architecture", "fully_connected"]
    words += ["--epochs", "400", "--device", "cpu"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    began = time.monotonic()
    while not list(tmp_path.glob("out/audit/model/*/state.json")) and time.monotonic() - began < 120:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "run it again: secondguess audit --data digits" in errors
    assert "Traceback" not in errors
    states = [json.loads(path.read_text()) for path in tmp_path.glob("out/audit/model/*/state.json")]
    assert len(states) == 1
