"""`sg.estimate` from Python, and the monitor behind it."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import secondguess as sg
from secondguess import zoo
from secondguess.accuracy import AccuracyMonitor, EstimateResult, ValidationAccuracy, recommend
from secondguess.accuracy.oracles.icos import InputRules, Partition
from secondguess.accuracy.oracles.selfchecker import SelfChecker
from secondguess.contracts.sealed import read_json, write_json_sealed
from secondguess.errors import UserError
from secondguess.images import Dataset, ImageSet
from secondguess.images.decode import BadImage
from secondguess.results import Result

FEW = ("validation-accuracy", "average_confidence", "icos", "icos_corrected")
Model = Callable[[np.ndarray], np.ndarray]


@pytest.fixture(scope="module")
def digits() -> Dataset:
    """Training, validation and test images, 240, 100 and 60 of them."""
    whole = sg.load("digits")
    assert whole.train is not None
    test = whole.test
    return Dataset("digits", whole.train.head(240, seed=0), test.take(np.arange(60)), test.take(np.arange(60, 160)))


@pytest.fixture(scope="module")
def model(digits: Dataset) -> Model:
    """The nearest of ten means."""
    train = digits.train
    assert train is not None
    flat = train.materialise().reshape(len(train), -1)
    centres = np.stack([flat[train.labels == k].mean(axis=0) for k in range(10)])

    def answer(pixels: np.ndarray) -> np.ndarray:
        apart = ((pixels.reshape(len(pixels), 1, -1) - centres) ** 2).sum(axis=2)
        scores = np.exp(2 * (apart.min(axis=1, keepdims=True) - apart))
        return np.asarray(scores / scores.sum(axis=1, keepdims=True))

    return answer


@pytest.fixture(scope="module")
def monitor(model: Model, digits: Dataset) -> AccuracyMonitor:
    return AccuracyMonitor.fit(model, digits.train, digits.validation, estimators=FEW)


@pytest.fixture(scope="module")
def found(monitor: AccuracyMonitor, digits: Dataset) -> EstimateResult:
    return monitor.estimate(digits.test)


def test_one_call_does_what_the_monitor_does(model: Model, digits: Dataset, found: EstimateResult) -> None:
    """A data set has training and validation images; the test images are those in question."""
    once = sg.estimate(model, digits.test, like=digits, estimators=FEW)
    assert isinstance(once, Result)
    content, learnt = once.to_dict(), found.to_dict()
    plan = content.pop("plan")
    assert [part["name"] for part in plan["parts"]] == ["images", "validation", "train", "copies", "estimators"]
    assert all(part["seconds"] is not None and not part["remark"] for part in plan["parts"])
    assert content == {key: value for key, value in learnt.items() if key != "plan"}
    assert list(once.estimates) == ["synthetic_shifts", *(name.replace("-", "_") for name in FEW)]
    assert once.about["validation"]["images"] == 100 and not once.about["validation"]["held_out_of_training"]


def test_values_by_hand(model: Model, digits: Dataset, found: EstimateResult) -> None:
    assert digits.validation is not None
    right = model(digits.validation.materialise()).argmax(axis=1) == digits.validation.labels
    assert found.estimates["validation_accuracy"].value == pytest.approx(right.mean())
    assert found.estimates["icos"].value == pytest.approx(1 - len(found.judged_wrong) / 60)
    assert found.truth is not None
    assert found.truth.value == pytest.approx(
        (model(digits.test.materialise()).argmax(axis=1) == digits.test.labels).mean()
    )
    lead = found.estimates["synthetic_shifts"]
    assert found.answer.method == "synthetic_shifts"
    said = None if found.answer.withheld else lead.value
    assert found.value == said and (found.low is None) == (found.high is None) == (said is None)


def test_rules_and_confidence_is_the_one_to_report(model: Model, digits: Dataset) -> None:
    rules = InputRules([Partition("all", list(range(10)), ids=["*"])])
    images = ImageSet.from_arrays(digits.test.materialise(), ids=[f"{i}.png" for i in range(60)])
    wanted = ["rules-and-confidence", ValidationAccuracy()]
    result = sg.estimate(model, images, like=digits, rules=rules, estimators=wanted)
    lead = result.estimates["rules_and_confidence"]
    assert result.answer == recommend({"rules_and_confidence": lead}, covered=1.0) and result.truth is None
    assert recommend(result.estimates, covered=0.4).method == "synthetic_shifts", "rules about few images do not lead"
    assert any("about 100.0% of the images" in note for note in result.notes)


def test_arrays_and_files_are_the_same_images(monitor: AccuracyMonitor, digits: Dataset, tmp_path: Path) -> None:
    levels = np.rint(digits.test.materialise()[:20] * 255).astype(np.uint8)
    for number, image in enumerate(levels):
        place = tmp_path / "ab"[number // 10]  # sorted into folders that are no classes
        place.mkdir(exist_ok=True)
        Image.fromarray(image[0]).save(place / f"{number:02}.png")
    from_array, from_files = monitor.estimate(levels), monitor.estimate(tmp_path)
    for name, one in from_files.estimates.items():
        assert one.value == pytest.approx(from_array.estimates[name].value), name
    assert from_files.about["operation"]["images"] == 20
    assert all(one.image.startswith(("a/", "b/")) for one in from_files.judged_wrong)
    first = next(monitor.watch(tmp_path))
    assert first.to_dict() == from_files.to_dict()


def test_a_saved_monitor_estimates_the_same(
    monitor: AccuracyMonitor, model: Model, found: EstimateResult, digits: Dataset, tmp_path: Path
) -> None:
    monitor.save(tmp_path / "kept")
    monitor.save(tmp_path / "kept")  # replaces it
    again = AccuracyMonitor.load(tmp_path / "kept", model)
    assert again.estimate(digits.test).to_dict() == found.to_dict()
    with pytest.raises(UserError, match="cannot be opened from a file; give it"):
        AccuracyMonitor.load(tmp_path / "kept")
    with pytest.raises(UserError, match="There is no accuracy monitor in"):
        AccuracyMonitor.load(tmp_path)
    card = tmp_path / "kept/monitor.json"
    card.write_text(card.read_text().replace("digits", "numbers"))
    with pytest.raises(UserError, match="is damaged"):
        AccuracyMonitor.load(tmp_path / "kept", model)


def test_an_interrupted_save_leaves_the_old_monitor(
    monitor: AccuracyMonitor, model: Model, found: EstimateResult, digits: Dataset, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    kept = tmp_path / "kept"
    monitor.save(kept)
    files = {path.relative_to(kept) for path in kept.rglob("*") if path.is_file()}
    other = replace(monitor, estimators=list(reversed(monitor.estimators)), seed=monitor.seed + 1)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("secondguess.accuracy.stored_monitor.write_json_sealed", killed)
        other.save(kept)
    again = AccuracyMonitor.load(kept, model)
    assert again.seed == monitor.seed
    assert again.estimate(digits.test).to_dict() == found.to_dict()
    other.save(kept)
    assert AccuracyMonitor.load(kept, model).seed == monitor.seed + 1
    assert len({path for path in kept.rglob("*") if path.is_file()}) == len(files), "what the old one named is gone"


def test_a_monitor_of_format_2_is_read(
    monitor: AccuracyMonitor, model: Model, found: EstimateResult, digits: Dataset, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    monitor.save(kept)
    card = read_json(kept / "monitor.json")
    older = {
        name: re.sub(r"-[0-9a-f]{16}", "", name) for name in (card["oracle"], card["leading"], *card["estimators"])
    }
    for name, old in older.items():
        (kept / name).rename(kept / old)
    card = {key: value for key, value in card.items() if key not in ("oracle", "leading")}
    (kept / card.pop("canary")).unlink()
    known = sg.Classifier(model, version="1")  # by its fingerprint alone could a model be recognised then
    card["model"]["fingerprint"] = known.fingerprint
    card |= {"format": 2, "estimators": [older[name] for name in card["estimators"]]}
    write_json_sealed(kept / "monitor.json", card)
    again = AccuracyMonitor.load(kept, known).estimate(digits.test).to_dict()
    assert again["model"].pop("fingerprint") == known.fingerprint
    expected = found.to_dict()
    assert again == expected | {"model": {"name": expected["model"]["name"]}}
    AccuracyMonitor.load(kept, known).save(kept)
    assert not (kept / "oracle.safetensors").exists() and AccuracyMonitor.load(kept, known).seed == monitor.seed


def test_a_changed_part_of_a_monitor_is_refused(monitor: AccuracyMonitor, model: Model, tmp_path: Path) -> None:
    monitor.save(tmp_path / "kept")
    oracle = next((tmp_path / "kept").glob("oracle-*.safetensors"))
    oracle.write_bytes(next((tmp_path / "kept").glob("leading-*.safetensors")).read_bytes())
    with pytest.raises(UserError, match="is damaged: its content is not what its name says; fit the monitor again"):
        AccuracyMonitor.load(tmp_path / "kept", model)
    oracle.unlink()
    with pytest.raises(UserError, match="is missing; copy the whole folder, or fit the monitor again"):
        AccuracyMonitor.load(tmp_path / "kept", model)


def test_what_a_person_reads(found: EstimateResult) -> None:
    lines = str(found).splitlines()
    assert len(lines) <= 10
    assert lines[0].startswith("Accuracy of answer on 60 images of digits/test: ")
    assert ("95% interval" in lines[0]) != ("cannot be said for these images, because" in lines[0])
    assert lines[1] == found.shift.sentence()
    assert any("predictions are judged wrong by rules" in line for line in lines)
    assert "truth, not used" in found.table()
    html = found._repr_html_()
    assert html.count("<tr>") == 2 + len(FEW) and "<td>icos_corrected</td>" in html


def test_a_number_or_the_reason_why_there_is_none(
    monitor: AccuracyMonitor, model: Model, digits: Dataset, found: EstimateResult
) -> None:
    few = {"like": digits, "estimators": "validation_accuracy"}
    sure, unsure = (sg.estimate(model, digits.test, widest=widest, **few) for widest in (1.0, 0.001))
    assert sure.value == found.estimates["synthetic_shifts"].value and sure.low <= sure.value <= sure.high
    assert f"{sure.value:.1%} (95% interval" in str(sure) and "was off by" in str(sure)
    assert (unsure.value, unsure.low, unsure.high) == (None, None, None)
    assert re.search(r": cannot be said for these images, because anything from \d+% to \d+% is plausible", str(unsure))
    said = unsure.to_dict()["answer"]
    assert said["value"] is None and said["withheld"].startswith("anything from")
    with pytest.raises(UserError, match="The widest interval is 0; give a share above 0"):
        sg.estimate(model, digits.test, widest=0, **few)
    dark = monitor.estimate(digits.test.materialise() * np.float32(0.4))
    assert dark.shift.way in ("appearance", "both") and dark.shift.appearance.what in ("darker", "of less contrast")
    assert "The images look shifted in appearance" in str(dark)
    assert found.shift.way == "none" and "The images look like the validation images" in str(found)


def test_an_interval_is_shown_with_its_own_level(model: Model, digits: Dataset, found: EstimateResult) -> None:
    """That of the answer stands above the column, another one beside its interval; .999 is not 100 percent."""
    assert "95% interval" in found.table() and "<th>95% interval</th>" in found._repr_html_()
    levels = {"synthetic_shifts": 0.999, "icos": 0.9}
    estimates = {name: replace(one, level=levels.get(name, 0.999)) for name, one in found.estimates.items()}
    other = replace(found, estimates=estimates, answer=replace(found.answer, level=0.999, withheld=""))
    assert "(99.9% interval" in str(other)
    for text in (other.table(), other._repr_html_()):
        assert "99.9% interval" in text and "95%" not in text
        assert re.search(r"icos\b.*% to \d+\.\d% \(90%\)", text) and text.count("(90%)") == 1
    first, *rows = other.table().splitlines()[: 1 + len(estimates)]
    assert len({row.index(" to ") for row in rows}) <= 2 and all("%" in row for row in rows) and "none" not in first


def test_what_was_reported_before_is_not_shown_again(found: EstimateResult) -> None:
    assert found.judged_wrong, "a model that nobody accuses shows nothing here"
    shown = [line for line in found.table().splitlines() if line.startswith("  image ")]
    assert len(shown) == len(found.judged_wrong)
    precision = found.estimates["icos_corrected"].details["precision"]
    assert f"Judged wrong ({precision:.0%} of validation images that are judged so really are wrong):" in found.table()
    assert not [line for line in found.table(found.judged_wrong).splitlines() if line.startswith("  image ")]


def test_rows_are_a_data_frame(found: EstimateResult) -> None:
    frame = pd.DataFrame(found.rows()).set_index("method")
    assert list(frame.index) == list(found.estimates)
    assert frame.loc["icos", "value"] == found.estimates["icos"].value
    assert frame.index[frame["recommended"]].tolist() == [found.answer.method]
    trial = found.estimates["icos"].trust[0]
    assert frame.loc["icos", f"error under {trial.shift}"] == trial.error


def test_what_is_saved(found: EstimateResult, tmp_path: Path) -> None:
    assert found.save(tmp_path / "out") == tmp_path / "out"
    assert [one.name for one in (tmp_path / "out").iterdir()] == ["estimate.json"]
    assert json.loads((tmp_path / "out/estimate.json").read_text()) == json.loads(json.dumps(found.to_dict()))


def test_the_validation_images_are_recognised(monitor: AccuracyMonitor, digits: Dataset, found: EstimateResult) -> None:
    itself = monitor.estimate(digits.validation)
    assert "These are the validation images themselves, whose labels every method has learnt from." in itself.notes
    assert not any("themselves" in note for note in found.notes)


def test_a_data_set_without_validation_images(model: Model, digits: Dataset) -> None:
    """Its test images, unless they are in question themselves: then a part of the training images is held out."""
    two = Dataset("digits", digits.train, digits.test)
    few: Any = {"like": two, "estimators": "validation_accuracy"}
    other = sg.estimate(model, digits.validation, **few)
    assert other.about["validation"]["images"] == 60 and not other.about["validation"]["held_out_of_training"]
    same = sg.estimate(model, two.test, **few)
    assert same.about["validation"]["held_out_of_training"]
    assert any("48 of the 240 training images were held out" in note for note in same.notes)


def test_validation_images_of_a_data_set_come_before_its_test_images(model: Model, digits: Dataset) -> None:
    """As with `like`, whose training images they are, too."""
    few: Any = {"estimators": "validation_accuracy"}
    both = sg.estimate(model, digits.test, train=digits, validation=digits, **few)
    assert both.to_dict()["validation"] == sg.estimate(model, digits.test, like=digits, **few).to_dict()["validation"]
    assert both.about["validation"]["images"] == 100 and both.about["training"]["images"] == 240
    two = Dataset("two", digits.train, digits.test)
    fitted = AccuracyMonitor.fit(model, two, two, **few)
    assert fitted.validation.images == 60, "test images where there are no others"


def files(folder: Path, images: ImageSet) -> Path:
    folder.mkdir(exist_ok=True)
    for number, image in enumerate(np.rint(images.materialise() * 255).astype(np.uint8)):
        Image.fromarray(image[0]).save(folder / f"{number:02}.png")
    return folder


@pytest.mark.parametrize("content", [b"", b"<html>Not found</html>", b"\x89PNG not really"])
def test_a_file_that_is_no_image_is_named_before_the_work(
    content: bytes, model: Model, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = files(tmp_path / "in", digits.test.take(np.arange(12)))
    (folder / "07.png").write_bytes(content)
    few: Any = {"like": digits, "estimators": "validation_accuracy"}
    found = sg.estimate(model, folder, skip_bad=True, **few)
    assert [Path(name).name for name in found.about["operation"]["skipped"]] == ["07.png"]
    monkeypatch.setattr(AccuracyMonitor, "fit", None)
    with pytest.raises(BadImage, match=r"07\.png could not be read \(not an image in a known format\)"):
        sg.estimate(model, folder, **few)
    (folder / "07.png").unlink()
    (folder / "03.png").rename(tmp_path / "elsewhere.png")
    (folder / "03.png").symlink_to(tmp_path / "elsewhere.png")
    with pytest.raises(BadImage, match=r"03\.png is not a file within the folder"):
        sg.estimate(model, folder, **few)


def test_watching_takes_what_an_estimate_takes(model: Model, digits: Dataset, tmp_path: Path) -> None:
    folder = files(tmp_path / "in", digits.test.take(np.arange(12)))
    options: Any = {"like": digits, "estimators": [ValidationAccuracy(), "average_confidence"], "seed": 3}
    once = sg.estimate(model, folder, widest=0.001, resize="stretch", **options)
    watched = next(sg.accuracy.watch(model, folder, widest=0.001, resize="stretch", every=0.1, **options))
    assert watched.to_dict() | {"plan": None} == once.to_dict() | {"plan": None}
    assert list(watched.estimates) == ["synthetic_shifts", "validation_accuracy", "average_confidence"]
    assert watched.about["seed"] == 3 and watched.value is None
    unused: Any = {"referees": (), "selfchecker": False}
    sg.accuracy.watch(model, folder, minutes=None, **options, **unused)


def test_watching_refuses_what_looks_at_the_images(
    model: Model, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, not when the first image has come."""
    monkeypatch.setattr(AccuracyMonitor, "fit", None)
    for option in ({"referees": [model]}, {"selfchecker": True}):
        with pytest.raises(UserError, match=f"`{next(iter(option))}` was given, but referees and SelfChecker look at"):
            sg.accuracy.watch(model, tmp_path, like=digits, **option)
    with pytest.raises(UserError, match="watch has no parameter 'estimator'; did you mean 'estimators'"):
        sg.accuracy.watch(model, tmp_path, like=digits, estimator="icos")
    with pytest.raises(UserError, match="The widest interval is 2; give a share"):
        sg.accuracy.watch(model, tmp_path, like=digits, widest=2)


def test_referees_agree_or_outvote(model: Model, digits: Dataset) -> None:
    """Against votes counted by hand."""

    def shy(pixels: np.ndarray) -> np.ndarray:  # says 0 whenever the model says 9
        found = model(pixels)
        found[found.argmax(axis=1) == 9] = np.eye(10)[0]
        return found

    few: Any = {"like": digits, "estimators": "validation_accuracy"}
    found = sg.estimate(model, digits.test, referees=[shy, shy], **few)
    says = model(digits.test.materialise()).argmax(axis=1)
    assert found.estimates["cross_reference"].value == pytest.approx((says != 9).mean())
    assert "cross_reference_corrected" in found.estimates
    alone = sg.estimate(model, digits.test, referees=[shy], **few)
    known = digits.validation
    assert known is not None
    own = model(known.materialise()).argmax(axis=1)
    expected = (own == known.labels).mean() + (says != 9).mean() - (own != 9).mean()
    assert alone.estimates["ensemble_agreement"].value == pytest.approx(np.clip(expected, 0, 1))
    assert "cross_reference" not in alone.estimates
    assert found.answer.method == alone.answer.method == "synthetic_shifts"  # referees are never the ones to report
    named = sg.Classifier(model, class_names=tuple("abcdefghij"))
    with pytest.raises(UserError, match="a referee needs the same classes, in any order"):
        sg.estimate(model, digits.test, referees=[named], **few)
    turned = sg.Classifier(lambda pixels: shy(pixels)[:, ::-1], class_names=tuple("9876543210"))
    same = sg.estimate(model, digits.test, referees=[turned, turned], **few)
    assert same.estimates["cross_reference"] == found.estimates["cross_reference"]
    assert same.estimates["ensemble_agreement"] == found.estimates["ensemble_agreement"]


def test_selfchecker_judges_by_inner_layers(digits: Dataset) -> None:
    """Against the oracle by itself; a model without layers is refused."""
    assert digits.train is not None and digits.validation is not None
    network = zoo.make("fully_connected", num_classes=10, input_shape=digits.test.shape, seed=0)
    classifier = sg.Classifier(network, device="cpu", output_kind="logits")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = sg.estimate(classifier, digits.test, like=digits, estimators="validation_accuracy", selfchecker=True)
        oracle = SelfChecker()
        seen = [classifier.observe(one, oracle.needs) for one in (digits.train, digits.validation, digits.test)]
        alone = oracle.fit(*seen[:2]).judge(seen[2])
    assert found.estimates["selfchecker"].value == pytest.approx(1 - alone.judged_wrong.mean())
    with pytest.raises(UserError, match=r"layers|traces"):
        sg.estimate(lambda x: np.full((len(x), 10), 0.1), digits.test, like=digits, selfchecker=True)


def test_class_names_come_from_the_data(model: Model, digits: Dataset) -> None:
    assert digits.train is not None
    names = tuple("abcdefghij")
    train = ImageSet.from_arrays(digits.train.materialise(), digits.train.labels, class_names=names)
    classifier = sg.Classifier(model)
    found = sg.estimate(classifier, digits.test.materialise(), train=train, estimators=["icos"])
    assert {one.predicted for one in found.judged_wrong} <= set(names)
    assert classifier.class_names == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no labelled images to learn from; give a data set of the same kind"),
        ({"like": "digits", "train": "digits"}, "not both"),
        ({"like": 3}, "`like` is a int"),
        ({"train": 3}, "The training images are a int"),
        ({"train": "digits", "estimators": "psychic"}, "There is no estimator 'psychic'"),
        ({"train": "digits", "validation": "digits", "max_train": 9}, None),
    ],
)
def test_mistakes_get_one_sentence(
    model: Model, digits: Dataset, options: dict[str, Any], message: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if message is None:  # the test images of "digits" are other images than its training images
        found = sg.estimate(model, digits.test, estimators="validation_accuracy", **options)
        assert any("Rules were learnt from 9 of" in note for note in found.notes)
        return
    with pytest.raises(UserError, match=message):
        sg.estimate(model, digits.test, **options)


def test_a_mistyped_name_is_refused_before_the_work_begins(
    model: Model, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AccuracyMonitor, "fit", None)
    with pytest.raises(UserError, match="nowhere"):
        sg.estimate(model, "nowhere.npz", like=digits)
    with pytest.raises(UserError, match="There is no folder nowhere for images to arrive in"):
        sg.accuracy.watch(model, "nowhere", like=digits)
