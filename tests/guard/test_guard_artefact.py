"""A guard on disk: read again as it was, refused for another model, never half written, migrated."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

from secondguess import Classifier, Dataset, UserError
from secondguess.contracts.sealed import write_json_sealed
from secondguess.guard import Guard, Guarded, StressSplit
from secondguess.guard.artefact import FORMAT, read_card
from secondguess.images import ImageSet
from secondguess.supervisors import SupervisorSet


@pytest.fixture
def folder(guard: Guard, tmp_path: Path) -> Path:
    return guard.save(tmp_path / "guard")


def test_a_guard_is_read_as_it_was_written(
    folder: Path, guard: Guard, classifier: Classifier, digits: Dataset, strangers: ImageSet
) -> None:
    read = Guard.load(folder, classifier)
    for images in (digits.test, strangers):
        first, second = guard.judge(images), read.judge(images)
        assert first.p_values.tolist() == second.p_values.tolist()
        assert first.codes.tolist() == second.codes.tolist()
        assert first.scores.tolist() == second.scores.tolist()
    assert read.report == guard.report
    assert read.record == guard.record
    assert read.judge(strangers)[0].action == guard.judge(strangers)[0].action
    assert Guarded(classifier, folder)(strangers).alarms.tolist() == guard.judge(strangers).alarms.tolist()
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} == {".json", ".safetensors"}


def test_settings_and_a_cascade_are_kept(
    classifier: Classifier, digits: Dataset, stress_split: StressSplit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        SupervisorSet, "costs", lambda jury, observation: np.array([0.02, 0.1])
    )  # whatever the machine does
    options = {"false_alarms": 0.1, "per_class": True, "min_probability": 0.9, "actions": {"invalid": "ask"}}
    made = Guard(["entropy", "relative_mahalanobis"], latency_ms=0.03, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.fit(classifier, digits.train, digits.test, stress_split)
    read = Guard.load(made.save(tmp_path / "guard"), classifier)
    assert (read.false_alarms, read.per_class, read.min_probability, read.latency_ms) == (0.1, True, 0.9, 0.03)
    assert read.actions.of("invalid") == "ask"
    assert read.judge(digits.test).p_values.tolist() == made.judge(digits.test).p_values.tolist()


def test_another_model_is_refused(folder: Path, other_classifier: Classifier) -> None:
    with pytest.raises(UserError, match=r"was fitted on the model 'Sequential' .* is another one; fit a guard on it"):
        Guard.load(folder, other_classifier)


def test_the_same_model_in_another_wrapping_is_known_by_its_answers(
    folder: Path, guard: Guard, classifier: Classifier, digits: Dataset
) -> None:
    from torch import nn

    class Wrapped(nn.Sequential):
        """The same layers under another name."""

    same = Wrapped(*classifier.backend.module)
    with pytest.warns(UserWarning, match="it answers alike"):
        read = Guard.load(folder, Classifier(same, class_names=classifier.class_names, device="cpu"))
    assert read.judge(digits.test).p_values == pytest.approx(guard.judge(digits.test).p_values)


def test_a_model_that_is_read_in_another_way_is_refused(
    classifier: Classifier, digits: Dataset, stress_split: StressSplit, tmp_path: Path
) -> None:
    """Its fingerprint is the same, its probabilities are not."""
    from torch import nn

    module = nn.Sequential(classifier.backend.module, nn.Softmax(dim=1))
    made = Guard(["entropy"], false_alarms=0.1, rule="bonferroni")
    made.fit(Classifier(module, device="cpu"), digits.train, digits.test, stress=None)
    folder = made.save(tmp_path / "read")
    with pytest.raises(UserError, match="read as probabilities, but here it is read as logits; open the model with"):
        Guard.load(folder, Classifier(module, output_kind="logits", device="cpu"))
    for kind in ("auto", "probabilities"):
        again = Guard.load(folder, Classifier(module, output_kind=kind, device="cpu"))
        assert again.judge(digits.test).p_values.tolist() == made.judge(digits.test).p_values.tolist()


def test_a_guard_of_another_shape_is_refused(folder: Path) -> None:
    from torch import nn

    small = nn.Sequential(nn.Flatten(), nn.Linear(9, 4), nn.ReLU(), nn.Linear(4, 10))
    with pytest.raises(UserError, match="is another one"):
        Guard.load(folder, Classifier(small, device="cpu"))


def test_an_older_guard_is_replaced_and_leaves_nothing_behind(
    folder: Path, classifier: Classifier, digits: Dataset, stress_split: StressSplit
) -> None:
    new = Guard(["pcs"], false_alarms=0.1).fit(classifier, digits.train, digits.test, stress_split)
    new.save(folder)
    assert len(list((folder / "supervisors").iterdir())) == 1
    assert len(list(folder.glob("panel*"))) == 1
    assert Guard.load(folder, classifier).pipeline.labels == ("pcs",)


def test_a_kill_while_writing_leaves_the_old_guard(
    folder: Path, guard: Guard, classifier: Classifier, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    import secondguess.guard.artefact as artefact

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    changed = Guard.load(folder, classifier).recalibrate(digits.train.head(400))
    for step in ("store_arrays", "write_json_sealed"):
        with monkeypatch.context() as patched:
            patched.setattr(artefact, step, killed)
            with pytest.raises(KeyboardInterrupt):
                changed.save(folder)
        assert Guard.load(folder, classifier).report == guard.report
    changed.save(folder)
    assert Guard.load(folder, classifier).report.calibrated_on == 400


def test_formats_1_to_4_are_migrated(folder: Path, guard: Guard, classifier: Classifier, digits: Dataset) -> None:
    card = read_card(folder)  # without its digest, which earlier versions did not write
    assert card["format"] == FORMAT == 5
    if card["naming"] is not None:
        del card["naming"]["changes"]
    (folder / "guard.json").write_text(json.dumps(card | {"format": 4}))
    assert Guard.load(folder, classifier).judge(digits.test).codes.tolist() == guard.judge(digits.test).codes.tolist()
    for name in ("protect", "risk", "confidence"):
        del card["settings"][name]
    for name in ("protect", "alarms", "mistakes", "promise"):
        del card["report"][name]
    for one in card["report"]["seen"].values():
        del one["by_answer"]
    (folder / "guard.json").write_text(json.dumps(card | {"format": 3}))
    assert Guard.load(folder, classifier).protect == Guard.load(folder, classifier).report.protect == "novelty"
    card["settings"]["sure"] = card["settings"].pop("min_probability")
    card["panel"]["troubles"] = card["panel"].pop("anomalies")
    (folder / "guard.json").write_text(json.dumps(card | {"format": 2}))
    expected = guard.judge(digits.test).p_values.tolist()
    second = Guard.load(folder, classifier)
    assert second.min_probability == guard.min_probability
    assert second.judge(digits.test).p_values.tolist() == expected
    (folder / card["arrays"]).rename(folder / "panel.safetensors")
    labels = list(guard.pipeline.supervisors.labels)
    for label, name in zip(labels, card["supervisors"], strict=True):
        (folder / name).rename(folder / "supervisors" / f"{label}.safetensors")
    old = {key: value for key, value in card.items() if key not in ("settings", "arrays")}
    (folder / "guard.json").write_text(json.dumps(old | card["settings"] | {"format": 1, "supervisors": labels}))
    read = Guard.load(folder, classifier)
    assert read.false_alarms == guard.false_alarms
    assert read.judge(digits.test).p_values.tolist() == expected
    read.save(folder)
    assert read_card(folder)["format"] == 5
    assert not (folder / "panel.safetensors").exists()


def swap(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_damage_is_said(folder: Path, classifier: Classifier, tmp_path: Path) -> None:
    def broken(change, message: str) -> None:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        change(copy)
        with pytest.raises(UserError, match=message):
            Guard.load(copy, classifier)

    def edit(**changes: object):
        def change(copy: Path) -> None:
            write_json_sealed(copy / "guard.json", read_card(copy) | changes)

        return change

    panel = next(folder.glob("panel*")).name
    broken(lambda copy: (copy / "guard.json").unlink(), "There is no guard in")
    broken(lambda copy: (copy / "guard.json").write_text("{"), "damaged or not a guard")
    broken(lambda copy: swap(copy / "guard.json", '"false_alarms": 0.0', '"false_alarms": 0.1'), "not hold what was")
    broken(lambda copy: (copy / panel).write_bytes(b"x" * 99), "its content is not what its name says")
    broken(lambda copy: (copy / panel).unlink(), "is missing; copy the whole folder")
    broken(edit(format=99), "format 99, but this version of secondguess reads up to 5")
    broken(edit(arrays="../../etc/passwd"), "is no file of a guard")
    broken(edit(panel={}), "is damaged")
    assert np.isfinite(Guard.load(folder, classifier).report.false_alarms.value)


def test_a_folder_with_something_else_is_left_alone(guard: Guard, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="holds something else than a guard"):
        guard.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_equal_learners_are_equal_files(tmp_path: Path) -> None:
    """Whatever the order in which safetensors writes its metadata, which differs from process to process."""
    from secondguess.contracts.sealed import seal_tensors

    contents = set()
    for order in (("a", "b"), ("b", "a")):
        header = json.dumps({"__metadata__": dict.fromkeys(order, "1")}).encode()
        contents.add(seal_tensors(len(header).to_bytes(8, "little") + header))
    assert len(contents) == 1
