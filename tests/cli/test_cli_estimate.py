from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from secondguess import Classifier, UserError, load
from secondguess.accuracy.labelled_data import LearntFrom
from secondguess.accuracy.monitor import AccuracyMonitor
from secondguess.accuracy.watched_folder import WatchedFolder, holds_images
from secondguess.cli import main
from secondguess.images import ImageSet, load_images, save_npz
from secondguess.images.decode import BadImage
from secondguess.model.observation import Observation
from secondguess.progress import Silent

METHODS = {
    "validation_accuracy", "average_confidence", "difference_of_confidences", "thresholded_confidence",
    "thresholded_entropy", "nuclear_norm", "label_shift_em", "label_shift_bbse", "icos", "icos_corrected",
    "rules_and_confidence", "synthetic_shifts",
}  # fmt: skip
SHIFTS = ["none", "classes", "appearance", "both"]
MODULE = """
from torch import nn


def make_model():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model and its data as files: train.npz, val.npz and op.npz, a hundred digits each but the first."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("house")
    digits = load("digits")
    train, test = digits.train, digits.test
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
        images, labels = torch.from_numpy(train.materialise()), torch.from_numpy(train.labels)
        optimiser = torch.optim.Adam(net.parameters(), 1e-2)
        for _ in range(40):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            optimiser.step()
    (folder / "estimate_models.py").write_text(MODULE)
    save_file(net.state_dict(), folder / "weights.safetensors")
    save_npz(train.head(300, seed=0), folder / "train.npz")
    save_npz(test.take(np.arange(120)), folder / "val.npz")
    save_npz(test.take(np.arange(120, 220)), folder / "op.npz")
    return folder


@pytest.fixture
def words(house: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command with everything but --validation and --images."""
    monkeypatch.syspath_prepend(house)
    return [
        "estimate", "--model", "estimate_models:make_model", "--weights", str(house / "weights.safetensors"),
        "--train", str(house / "train.npz"), "--device", "cpu", "--size", "8",
    ]  # fmt: skip


@pytest.fixture
def classifier(house: Path, monkeypatch: pytest.MonkeyPatch) -> Classifier:
    monkeypatch.syspath_prepend(house)
    return Classifier("estimate_models:make_model", weights=house / "weights.safetensors", device="cpu")


@pytest.fixture(scope="module")
def found(house: Path) -> dict[str, Any]:
    """What --json prints, for all tests that only look."""
    words = ["--model", "estimate_models:make_model", "--weights", house / "weights.safetensors", "--device", "cpu"]
    words += ["--train", house / "train.npz", "--validation", house / "val.npz", "--images", house / "op.npz"]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as printed:
        patch.syspath_prepend(house)
        assert main(["estimate", *map(str, words), "--json", "--seed", "3"]) == 0
    card: dict[str, Any] = json.loads(printed.getvalue())
    return card


def drop(folder: Path, images: np.ndarray, first: int = 0) -> None:
    """Put images (n, 1, H, W) into a folder as files, those of even number below `a`, the others below `b`."""
    for number, image in enumerate(images, start=first):
        place = folder / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.rint(image[0] * 255).astype(np.uint8)).save(place / f"{number:03}.png")


def test_the_table_in_json(found):
    rows = {one["method"]: one for one in found["estimates"]}
    assert set(rows) == METHODS
    for one in rows.values():
        assert 0 <= one["low"] <= one["value"] <= one["high"] <= 1
        assert [trial["shift"] for trial in one["trust"]] == SHIFTS
        assert one["trusted"] == [trial["shift"] for trial in one["trust"] if trial["error"] <= 0.02]
        assert sorted(one["trusted"] + one["failed"]) == sorted(SHIFTS)
    assert [name for name, one in rows.items() if one["baseline"]] == ["validation_accuracy", "average_confidence"]
    assert [name for name, one in rows.items() if one["recommended"]] == ["synthetic_shifts"]
    assert found["answer"]["method"] == "synthetic_shifts" and found["shift"]["way"] in SHIFTS
    assert found["operation"]["images"] == 100 and found["validation"]["images"] == 120
    assert found["validation"]["held_out_of_training"] is False
    assert found["training"]["images"] == 300


def test_numbers_by_hand(house, found, classifier):
    rows = {one["method"]: one for one in found["estimates"]}
    validation, operation = (load_images(house / name) for name in ("val.npz", "op.npz"))
    seen, now = classifier.observe(validation), classifier.observe(operation)
    accuracy = (seen.predictions == validation.labels).mean()
    assert rows["validation_accuracy"]["value"] == pytest.approx(accuracy)
    difference = accuracy + now.confidences.mean() - seen.confidences.mean()
    assert rows["difference_of_confidences"]["value"] == pytest.approx(min(difference, 1))
    assert found["truth"]["value"] == pytest.approx((now.predictions == operation.labels).mean())
    wrong = found["judged_wrong"]
    assert rows["icos"]["value"] == pytest.approx(1 - len(wrong) / 100)
    assert sum(one["credited"] for one in found["oracle"]["contributions"]) == len(wrong)
    assert all(re.match("(training data: rule|algorithm: )", one["reason"]) for one in wrong)
    for one in wrong:
        row = int(one["image"].removeprefix("image "))
        assert one["predicted"] == str(now.predictions[row])
        assert one["confidence"] == pytest.approx(now.confidences[row])


def test_what_a_person_reads(run, house, words, tmp_path):
    drop(tmp_path / "incoming", load_images(house / "op.npz").materialise()[:40])
    outcome = run(*words, "--images", "incoming/", "--out", "mine", "--max-train", "200")
    assert outcome.code == 0, outcome.err
    headline, *rest = outcome.out.splitlines()
    assert headline.startswith("Accuracy of estimate_models:make_model on 40 images of incoming: ")
    assert headline.endswith(", by synthetic_shifts") or "cannot be said for these images, because" in headline
    assert any(line.startswith("average_confidence (baseline)") for line in rest)
    for method in METHODS:
        assert re.search(rf"^{method}( \(baseline\))? +\d+\.\d% +\d+\.\d% to \d+\.\d%( +\d+\.\d (ok|no)){{4}}$",
                         outcome.out, re.MULTILINE), method  # fmt: skip
    assert "No validation images were given, so 60 of the 300 training images were held out" in outcome.out
    assert "Rules were learnt from 200 of 240 training images; --max-train changes that." in outcome.out
    assert re.search(r"\d+ predictions are judged wrong by rules \(0 by input data, \d+ by training data", outcome.out)
    assert "truth" not in outcome.out
    assert "Observing new images" in outcome.err and "Trying estimators" in outcome.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["incoming", "mine"]
    kept = json.loads((tmp_path / "mine/estimate.json").read_text())
    assert kept["validation"]["held_out_of_training"] and kept["truth"] is None
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["estimate.json"]


def test_rules_count_what_they_exclude(run, house, words, classifier, tmp_path):
    """Rules by a column that the operation has and the validation images have not."""
    operation = load_images(house / "op.npz")
    side = np.where(operation.labels < 5, "low", "high")
    save_npz(ImageSet.from_arrays(operation.materialise(), columns={"side": side}), tmp_path / "told.npz")
    (tmp_path / "rules.toml").write_text(
        'column = "side"\n\n[[partition]]\nname = "low"\nlabels = [0, 1, 2, 3, 4]\n'
        '\n[[partition]]\nname = "high"\nlabels = [5, 6, 7, 8, 9]\n'
    )
    common = [*words, "--validation", house / "val.npz", "--images", "told.npz", "--json"]
    found = run(*common, "--rules", "rules.toml").json()
    predicted = classifier.observe(operation).predictions
    outside = (predicted < 5) != (operation.labels < 5)
    assert found["oracle"]["contributions"][0] == {
        "kind": "input data", "violations": int(outside.sum()), "credited": int(outside.sum())
    }  # fmt: skip
    rows = {one["method"]: one for one in found["estimates"]}
    assert rows["rules_and_confidence"]["details"]["certainly_wrong"] == pytest.approx(outside.mean())
    assert any("The rules say something about 100.0% of the images." in note for note in found["notes"])
    assert any("they could not be tried" in note for note in found["notes"])
    excluded = [one for one in found["judged_wrong"] if one["reason"].startswith("input data")]
    assert all("cannot occur in" in one["reason"] for one in excluded) and len(excluded) == outside.sum()


def test_rules_by_folder(run, house, words, tmp_path):
    drop(tmp_path / "incoming", load_images(house / "op.npz").materialise()[:30])
    (tmp_path / "rules.toml").write_text('[[partition]]\nname = "left"\nids = ["a/*"]\nlabels = [3]\n')
    found = run(*words, "--images", "incoming", "--rules", "rules.toml", "--json").json()
    assert "error" not in found, found
    excluded = [one for one in found["judged_wrong"] if one["reason"].startswith("input data")]
    assert excluded and all(one["image"].startswith("a/") and one["advice"] == "3" for one in excluded)
    assert any("about 50.0% of the images" in note for note in found["notes"])


def test_the_same_seed_gives_the_same_numbers(run, house, words, found):
    command = [*words, "--validation", house / "val.npz", "--images", house / "op.npz", "--json", "--seed", "3"]
    outcome = run(*command, "--batch-size", "7")
    assert outcome.code == 0 and outcome.err == ""
    again = outcome.json()
    assert again["seed"] == 3 and again["operation"] == found["operation"]
    for one, other in zip(again["estimates"], found["estimates"], strict=True):
        assert one["value"] == pytest.approx(other["value"], abs=1e-4), one["method"]
    assert [one["image"] for one in again["judged_wrong"]] == [one["image"] for one in found["judged_wrong"]]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--images", "nowhere/"], "nowhere"),
        (["--images", "op.npz", "--watch"], "--watch needs a folder into which images arrive"),
        (["--images", ".", "--watch", "--json"], "--json prints one object, but --watch has no end"),
        (["--images", "op.npz", "--validation", "train.npz"], "are the same images"),
        (["--images", "op.npz", "--validation", "unlabelled.npz"], "have no labels"),
        (["--images", "op.npz", "--validation", "few.npz"], "There are 4 labelled validation images"),
        (["--images", "op.npz", "--rules", "missing.toml"], "There is no rule file at missing.toml"),
        (
            ["--images", "op.npz", "--rules", "bad.toml"],
            "bad.toml, line 4: in the partition 'a', the label 12 is unknown",
        ),
        (["--images", ".", "--watch", "--selfchecker"], "--watch keeps only the model's answers"),
        (["--images", "op.npz", "--referee", "none.onnx"], "none.onnx"),
        (["--images", "op.npz", "--size", "8x"], "--size is '8x'"),
        (["--images", "op.npz", "--like", "digits"], "Give labelled images as --like, or as --train and --validation"),
    ],
)
def test_mistakes_get_one_sentence(run, house, words, tmp_path, more, message):
    images = load_images(house / "op.npz")
    save_npz(ImageSet.from_arrays(images.materialise()), tmp_path / "unlabelled.npz")
    save_npz(images.head(4), tmp_path / "few.npz")
    (tmp_path / "bad.toml").write_text('[[partition]]\nname = "a"\nids = ["*"]\nlabels = [1, 12]\n')
    for name in ("train.npz", "op.npz"):
        (tmp_path / name).symlink_to(house / name)
    outcome = run(*words, *more)
    assert outcome.code == 2
    said = outcome.err.splitlines()[-1]
    assert said.startswith("Error: ") and re.search(message, said), outcome.err
    assert "Traceback" not in outcome.err
    assert outcome.out == "" or "--json" in more


def test_help_shows_an_example_and_what_is_missing_is_named(run):
    missing = run("estimate", "--model", "m.onnx")
    assert missing.code == 2 and "--images" in missing.err
    text = " ".join(run("estimate", "--help").out.split())
    assert "secondguess estimate --model m.onnx --images incoming/ --like photos/" in text
    for option in ("--rules", "--watch", "--every", "--out", "--train", "--validation", "--max-train", "--resize"):
        assert option in text


def test_a_bad_image_is_named_and_skipped_only_on_request(run, house, words, tmp_path):
    drop(tmp_path / "incoming", load_images(house / "op.npz").materialise()[:12])
    (tmp_path / "incoming/a/broken.png").write_bytes(b"\x89PNG not really")
    command = [*words, "--validation", house / "val.npz", "--images", "incoming"]
    outcome = run(*command, "--quiet")
    assert outcome.code == 2 and "broken.png" in outcome.err and "--skip-bad" in outcome.err
    found = run(*command, "--skip-bad", "--json").json()
    assert found["operation"]["images"] == 12
    assert [Path(name).name for name in found["operation"]["skipped"]] == ["broken.png"]


def test_incoming_looks_at_every_file_once(tmp_path, house, classifier, monkeypatch):
    like = load_images(house / "val.npz")
    digits = load_images(house / "op.npz").materialise()
    drop(tmp_path / "in", digits[:6])
    looks: list[int] = []
    observe = classifier.observe
    monkeypatch.setattr(
        classifier, "observe", lambda images, **more: looks.append(len(images)) or observe(images, **more)
    )
    incoming = WatchedFolder(tmp_path / "in", classifier, like, skip_bad=True)
    assert incoming.scan(Silent()) and not incoming.scan(Silent())
    drop(tmp_path / "in", digits[6:9], first=6)
    (tmp_path / "in/half.png").write_bytes((tmp_path / "in/a/000.png").read_bytes()[:40])
    assert incoming.scan(Silent()) and looks == [6, 3]
    assert [Path(name).name for name in incoming.unreadable] == ["half.png"]
    assert not incoming.scan(Silent())
    (tmp_path / "in/half.png").write_bytes((tmp_path / "in/a/000.png").read_bytes())
    assert incoming.scan(Silent()) and looks == [6, 3, 1] and incoming.unreadable == ()
    (tmp_path / "in/a/002.png").unlink()
    assert incoming.scan(Silent()) and looks == [6, 3, 1] and len(incoming) == 9
    evidence = incoming.observation()
    assert evidence.images.ids[:2] == ("a/000.png", "a/004.png") and evidence.images.ids[-1] == "half.png"
    assert evidence.labels is None
    expected = classifier.predict(evidence.images)
    np.testing.assert_allclose(evidence.probabilities, expected, atol=1e-6)


def test_incoming_reads_files_within_the_folder_and_nothing_else(tmp_path, house, classifier):
    like = load_images(house / "val.npz")
    folder, outside = tmp_path / "in", tmp_path / "outside"
    digits = load_images(house / "op.npz").materialise()
    drop(folder, digits[:3])
    drop(outside, digits[3:6])
    (folder / "loop").symlink_to(folder)
    (folder / "elsewhere").symlink_to(outside)
    (folder / "self.png").symlink_to("self.png")
    (folder / "nowhere.png").symlink_to("no such file")
    (folder / "out.png").symlink_to(outside / "a/000.png")
    (folder / "same.png").symlink_to("a/000.png")  # an image counts once
    os.mkfifo(folder / "pipe.png")
    for way in (folder, tmp_path / "link"):  # the folder itself may be reached by a link
        if way != folder:
            way.symlink_to(folder)
        incoming = WatchedFolder(way, classifier, like, skip_bad=True)
        assert incoming.scan(Silent()) and not incoming.scan(Silent())
        assert incoming.observation().images.ids == ("a/000.png", "a/002.png", "b/001.png")
        odd = ("nowhere.png", "out.png", "pipe.png", "self.png")
        assert incoming.unreadable == tuple(str(way / name) for name in odd)
    with pytest.raises(UserError, match=r"nowhere\.png is not a file within the folder .*--skip-bad"):
        WatchedFolder(folder, classifier, like).scan(Silent())


def test_a_look_that_fails_loses_nothing(tmp_path, house, classifier, monkeypatch):
    like = load_images(house / "val.npz")
    drop(tmp_path, load_images(house / "op.npz").materialise()[:2])
    incoming = WatchedFolder(tmp_path, classifier, like, skip_bad=True)
    assert incoming.scan(Silent())
    (tmp_path / "a/000.png").rename(tmp_path / "moved.png")

    def fails(images: ImageSet, **more: Any) -> None:
        raise BadImage("gone")

    with monkeypatch.context() as patch, pytest.raises(BadImage):
        patch.setattr(classifier, "observe", fails)
        incoming.scan(Silent())
    assert incoming.scan(Silent())
    assert incoming.observation().images.ids == ("b/001.png", "moved.png")


def test_a_watch_reports_what_came_while_another_image_broke(tmp_path, house, classifier, monkeypatch):
    """An image that was seen is overwritten, with its time and length kept, just when another one arrives."""
    digits = load_images(house / "op.npz").materialise()
    drop(tmp_path, digits[:3])
    broken = tmp_path / "a/000.png"
    reports: list[tuple[str, ...]] = []
    naps: list[float] = []

    class StandIn:
        training = LearntFrom.of(load_images(house / "val.npz").head(10))
        loading: ClassVar = {"resize": "stretch"}
        estimators: ClassVar = []
        _arriving = AccuracyMonitor._arriving

        def estimate(self, seen: Observation) -> tuple[str, ...]:
            return seen.require_images("A test").ids or ()

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 1:
            status, whole = broken.stat(), broken.read_bytes()
            broken.write_bytes(whole[:20] + bytes(len(whole) - 20))
            os.utime(broken, ns=(status.st_atime_ns, status.st_mtime_ns))
            drop(tmp_path, digits[3:4], first=3)
        elif len(naps) == 4:
            raise KeyboardInterrupt

    monitor = StandIn()
    monitor.classifier = classifier
    monkeypatch.setattr("secondguess.accuracy.monitor.time.sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        reports.extend(AccuracyMonitor.watch(monitor, tmp_path, every=0.5))
    assert reports == [("a/000.png", "a/002.png", "b/001.png"), ("a/002.png", "b/001.png", "b/003.png")]
    assert naps == [0.5] * 4


def test_rules_by_column_cannot_judge_files_and_are_refused_at_once(run, house, words, tmp_path, monkeypatch):
    drop(tmp_path / "incoming", load_images(house / "op.npz").materialise()[:4])
    (tmp_path / "rules.toml").write_text('column = "camera"\n[[partition]]\nname = "north"\nlabels = [0, 1]\n')
    looked: list[str] = []
    monkeypatch.setattr(Classifier, "observe", lambda *_, **__: looked.append("at something"))
    for more in ([], ["--watch"]):
        outcome = run(*words, "--images", "incoming", "--rules", "rules.toml", *more)
        assert outcome.code == 2 and not looked
        said = outcome.err.splitlines()[-1]
        assert "The partition 'north' of the rules uses the column 'camera'" in said
        assert "folder incoming have no columns; give it ids instead" in said


def test_incoming_needs_a_folder_and_an_image(tmp_path, house, classifier):
    like = load_images(house / "val.npz")
    with pytest.raises(UserError, match=r"There is no folder .* for images to arrive in"):
        WatchedFolder(tmp_path / "no", classifier, like)
    (tmp_path / ".hidden.png").write_bytes(b"")
    assert not holds_images(tmp_path)
    incoming = WatchedFolder(tmp_path, classifier, like)
    assert not incoming.scan(Silent())
    with pytest.raises(UserError, match=r"There is no image \(.png"):
        incoming.observation()


def test_watching_estimates_again_and_ends_with_ctrl_c(house, words, tmp_path):
    """In a process of its own: it waits for the first image, takes in a second batch, and is interrupted."""
    folder = tmp_path / "incoming"
    folder.mkdir()
    digits = load_images(house / "op.npz").materialise()
    command = [sys.executable, "-m", "secondguess", *words, "--validation", str(house / "val.npz"), "--out", "kept"]
    where = os.pathsep.join([str(house), *sys.path])
    environment = {"PYTHONPATH": where, "PATH": "", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    told = tmp_path / "told.txt"
    with told.open("w", encoding="utf-8") as stdout:
        process = subprocess.Popen(
            [*command, "--images", str(folder), "--watch", "--every", "0.1"],
            cwd=tmp_path, env=environment,
            stdout=stdout, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    guard = threading.Timer(120, process.kill)
    guard.start()
    try:
        for count, part in ((10, digits[:10]), (25, digits[10:25])):
            drop(folder, part, first=count - len(part))
            while process.poll() is None and f"on {count} images of" not in told.read_text("utf-8"):
                time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        guard.cancel()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert f"Watching {folder}; Ctrl-C ends it." in err and "Interrupted." in err
    assert "on 25 images of" in told.read_text("utf-8")
    assert json.loads((tmp_path / "kept/estimate.json").read_text())["operation"]["images"] == 25
