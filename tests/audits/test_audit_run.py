from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import defusedxml.ElementTree
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

import secondguess as sg
from secondguess import AuditResult, Classifier, Dataset, ImageSet, Needs, Observation, Supervisor, UserError
from secondguess.audits import Section, sections, train_subject
from secondguess.audits.findings import Findings, SectionResult
from secondguess.audits.sections.calibration import Calibration
from secondguess.planning.pace import FEWEST, MORE, RUNS, WARM

Softmax = Callable[[NDArray[np.float32]], NDArray[np.float32]]
Read = Callable[[Path], dict[str, Any]]
OWN_TESTS = (
    "boundary", "overconfidence", "human_doubt", "risk", "confident_errors", "priorities", "surprise_coverage",
    "label_free", "deploy",
)  # fmt: skip
QUICK = [name for name in sections.names() if name not in OWN_TESTS]
SOFTMAX = ("max_softmax", "pcs", "entropy", "deep_gini")
FILES = ("report.html", "audit.json", "predictions.npz", "junit.xml")


@pytest.fixture
def few(digits: Dataset) -> ImageSet:
    """Eighty labelled digits, enough for every section to have something to say."""
    return digits.test.head(80, seed=1)


def statuses(result: AuditResult) -> dict[str, str]:
    return {section.name: section.status for section in result.sections}


def comparable(result: AuditResult) -> dict[str, object]:
    """The numbers that depend on nothing but model, data and seed."""
    return {name: number for name, number in result.numbers.items() if not name.endswith("seconds")}


def unlabelled(images: ImageSet) -> ImageSet:
    return ImageSet.from_source(images.images, name="nobody knows")


def audit(classifier: Classifier, test: ImageSet, **options: Any) -> AuditResult:
    """An audit without what takes its time: stress sets, supervisors, a section; unless others are named."""
    quick = {"stress": ("corrupted", "invalid"), "supervisors": SOFTMAX, "sections": QUICK}
    return sg.audit(classifier, test, **quick | options)


class Learner(Supervisor):
    """Distance to the mean probabilities of the predicted class, learnt from the training images."""

    name = "learner"

    def __init__(self, logits: bool = False) -> None:
        self.logits = logits

    @property
    def needs(self) -> Needs:
        return Needs(logits=self.logits)

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        assert labels is not None
        self.mean_ = observation.probabilities.mean(axis=0)

    def _score(self, observation: Observation) -> NDArray[np.floating[Any]]:
        return -np.linalg.norm(observation.probabilities - self.mean_, axis=1)


def test_everything_is_there(audited: AuditResult) -> None:
    # There are neither ambiguous images nor supervisors that measure surprise.
    expected = dict.fromkeys(sections.names(), "done") | dict.fromkeys(["boundary", "surprise_coverage"], "skipped")
    del expected["human_doubt"]
    assert statuses(audited) == expected
    assert {path.name for path in audited.folder.iterdir()} == {*FILES, "cache"}
    assert audited.report == audited.folder / "report.html"
    assert not audited.interrupted
    assert not audited.failed


def test_the_summary_is_ten_lines_that_a_manager_can_read(audited: AuditResult) -> None:
    lines = dict(audited.highlights)
    assert len(audited.highlights) == 10
    assert lines["Subject"] == "tiny, 10 classes, audited on 360 images of digits/test"
    assert re.fullmatch(r"9\d\.\d% right on 360 test images \(95% interval .*\)", lines["Accuracy"])
    assert lines["Gates"] == "1 of 3 hold"


def test_failures_and_gates_are_never_cut_from_the_summary(audited: AuditResult) -> None:
    talkative = [replace(section, findings=Findings(summary=[("more", "words")] * 5)) for section in audited.sections]
    talkative[1] = replace(talkative[1], status="failed", reason="It rained.")
    lines = replace(audited, sections=talkative).highlights
    assert len(lines) == 10
    assert lines[-2:] == [("Failed: Accuracy", "It rained."), ("Gates", "1 of 3 hold")]


def test_gates_pass_fail_and_miss(audited: AuditResult) -> None:
    assert [verdict.outcome for verdict in audited.gates] == ["passed", "failed", "error"]
    assert "did you mean supervisor.entropy.invalid.auroc" in audited.gates[2].reason
    assert not audited.passed


def test_junit_lists_sections_and_gates(audited: AuditResult) -> None:
    root = defusedxml.ElementTree.parse(audited.folder / "junit.xml").getroot()
    assert [root.get(key) for key in ("tests", "failures", "errors", "skipped")] == [
        str(len(sections.names()) + 2),
        "1",
        "1",
        "2",  # the boundary and the surprise coverage
    ]
    found = {(case.get("classname"), case.get("name")): [child.tag for child in case] for case in root}
    assert found["audit.section", "overview"] == []
    assert found["audit.section", "boundary"] == ["skipped"]
    assert found["audit.gate", "accuracy.test >= 0.9"] == []
    assert found["audit.gate", "calibration.ece <= 1e-06"] == ["failure"]
    assert found["audit.gate", "supervisor.entropie.invalid.auroc > 0.5"] == ["error"]


def test_a_gate_that_is_none_is_refused_before_any_work(classifier: Classifier, few: ImageSet, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a gate"):
        audit(classifier, few, folder=tmp_path / "out", gates=["nonsense"])
    assert not (tmp_path / "out").exists()


def test_a_gate_that_seems_misspelt_is_said_before_any_work(classifier: Classifier, few: ImageSet) -> None:
    told = r"No number seems to be called acuracy\.test\.low; did you mean accuracy\.test\.low\?"
    for gates in ("acuracy.test.low>=0.9", ["accuracy.test>=0.5", "acuracy.test.low>=0.9"]):
        with pytest.warns(UserWarning, match=told) as heard:
            audit(classifier, few, sections=["accuracy"], gates=gates, stress=(), supervisors=["entropy"])
        assert len(heard) == 1
    with pytest.raises(UserError, match="max_test is 0; an audit takes at least one test image"):
        audit(classifier, few, max_test=0)


def test_same_seed_same_numbers_whatever_the_batch(net: nn.Module, few: ImageSet, tmp_path: Path) -> None:
    first, second = (
        audit(Classifier(net, batch_size=size), few, folder=tmp_path / str(size), seed=3) for size in (7, 256)
    )
    assert comparable(first).keys() == comparable(second).keys()
    for name, number in first.numbers.items():
        if not name.endswith("seconds"):
            assert second.numbers[name].value == pytest.approx(number.value, abs=1e-6), name
    again = audit(Classifier(net, batch_size=256), few, folder=tmp_path / "again", seed=3)
    assert comparable(again) == comparable(second)
    other = audit(Classifier(net, batch_size=256), few, folder=tmp_path / "other", seed=4)
    assert other.numbers["accuracy.stress.corrupted"].data != first.numbers["accuracy.stress.corrupted"].data


def test_a_second_run_asks_the_model_for_nothing_but_canaries(softmax: Softmax, few: ImageSet, tmp_path: Path) -> None:
    asked: list[int] = []

    def counted(images: NDArray[np.float32]) -> NDArray[np.float32]:
        asked.append(len(images))
        return softmax(images)

    first = audit(Classifier(counted, version="1"), few, folder=tmp_path)
    canary = 2 + 30  # noise, and the first real images
    assert asked[0] == 1, "how many classes there are"
    # Nominal, corrupted, invalid: one pass each. The rest: two short calls, and runs of which the best counts.
    runs, rest = divmod(sum(size for size in asked[1:] if size != canary) - 3 * len(few) - 2 * WARM, FEWEST)
    assert rest == 0 and RUNS <= runs <= MORE
    asked.clear()
    second = audit(Classifier(counted, version="1"), few, folder=tmp_path)
    assert asked[0] == 1 and set(asked[1:]) == {canary}
    assert comparable(first) == comparable(second)


def test_a_black_box_is_audited_and_nothing_of_it_is_cached(
    softmax: Softmax, few: ImageSet, tmp_path: Path, read_json: Read
) -> None:
    result = audit(Classifier(softmax), few, folder=tmp_path)
    assert set(statuses(result).values()) == {"done"}
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)
    assert read_json(tmp_path / "audit.json")["model"]["fingerprint"] is None


def test_the_users_classifier_is_not_touched(classifier: Classifier, few: ImageSet, tmp_path: Path) -> None:
    audit(classifier, few, folder=tmp_path / "one", sections=["overview"])
    assert classifier.class_names == ()
    assert classifier.cache is None
    shutil.rmtree(tmp_path / "one")
    audit(classifier, few, folder=tmp_path / "two", sections=["overview"])
    assert [path.name for path in tmp_path.iterdir()] == ["two"]


def test_a_section_that_raises_is_reported_and_the_others_run(
    classifier: Classifier, few: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_json: Read
) -> None:
    def broken(self: Section, context: object) -> Findings:
        raise ZeroDivisionError("<b>by</b> nothing")

    monkeypatch.setattr(Calibration, "run", broken)
    result = audit(classifier, few, folder=tmp_path, gates=["calibration.ece<1", "accuracy.test>0"])
    assert statuses(result) == {
        "overview": "done", "accuracy": "done", "calibration": "failed", "ambiguity": "done",
        "supervisors": "done", "gallery": "done",
    }  # fmt: skip
    (failed,) = result.failed
    assert re.fullmatch(r"ZeroDivisionError: <b>by</b> nothing \(test_audit_run\.py, line \d+\)", failed.reason)
    assert ("Failed: Calibration", failed.reason) in result.highlights
    assert [verdict.outcome for verdict in result.gates] == ["error", "passed"]
    page = result.report.read_text("utf-8")
    assert "This section could not be made: ZeroDivisionError: &lt;b&gt;by&lt;/b&gt; nothing" in page
    assert read_json(tmp_path / "audit.json")["sections"][2]["reason"] == failed.reason
    root = defusedxml.ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert root.find("testcase[@name='calibration']/error").get("message") == failed.reason


def test_a_template_that_fails_takes_only_its_section_down(
    classifier: Classifier, few: ImageSet, tmp_path: Path
) -> None:
    def section(name: str) -> Section:
        parts: Any = {"name": name, "title": name.title(), "template": f"{name}.html"}
        return type("Broken", (Section,), parts | {"run": lambda self, context: Findings(view={})})()

    broken = (section("accuracy"), section("no_such_template"), "overview")
    result = audit(classifier, few, folder=tmp_path, sections=broken)
    assert statuses(result) == {"accuracy": "failed", "no_such_template": "failed", "overview": "done"}
    assert "UndefinedError" in result.sections[0].reason
    assert "TemplateNotFound" in result.sections[1].reason
    assert all((tmp_path / name).stat().st_size for name in FILES)


@pytest.mark.parametrize("stage", ["section", "first look"])
def test_an_interrupt_leaves_a_usable_partial_result(
    stage: str, net: nn.Module, few: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_json: Read
) -> None:
    def interrupted(*args: object, **kwargs: object) -> Any:
        raise KeyboardInterrupt

    if stage == "section":
        monkeypatch.setattr(Calibration, "run", interrupted)
        expected = ["done", "done"] + ["skipped"] * 4
    else:
        monkeypatch.setattr(Classifier, "observe", interrupted)
        expected = ["skipped"] * 6
    result = audit(Classifier(net), few, folder=tmp_path, gates=["accuracy.test>0"])
    assert result.interrupted
    assert list(statuses(result).values()) == expected
    content = read_json(tmp_path / "audit.json")
    assert content["status"] == "interrupted"
    assert ("accuracy.test" in content["numbers"]) == (stage == "section")
    page = result.report.read_text("utf-8")
    assert "The audit was interrupted." in page
    assert "Not done: Interrupted." in page
    root = defusedxml.ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert root.get("skipped") == str(expected.count("skipped"))
    monkeypatch.undo()
    complete = audit(Classifier(net), few, folder=tmp_path, gates=["accuracy.test>0"])
    assert set(statuses(complete).values()) == {"done"}


def test_without_labels_what_needs_none_still_works(classifier: Classifier, few: ImageSet, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="The test images have no labels, so that accuracy"):
        result = audit(classifier, unlabelled(few), folder=tmp_path)
    assert statuses(result) == {
        "overview": "done", "accuracy": "skipped", "calibration": "skipped", "ambiguity": "done",
        "supervisors": "done", "gallery": "done",
    }  # fmt: skip
    for failed in result.failed:
        assert failed.reason.startswith("The test images have no labels")
    assert "supervisor.entropy.invalid.auroc" in result.numbers
    assert not any(".mistakes." in name for name in result.numbers)
    assert "unknown" in result.report.read_text("utf-8")


def test_unlabelled_images_get_the_models_own_class_names(net: nn.Module, few: ImageSet, tmp_path: Path) -> None:
    names = [f"digit {k}" for k in range(10)]
    with pytest.warns(UserWarning, match="have no labels"):
        result = audit(Classifier(net, class_names=names), unlabelled(few), folder=tmp_path, sections=["gallery"])
    assert "digit 3" in result.report.read_text("utf-8")


def test_partly_labelled_images_count_where_they_are_labelled(
    classifier: Classifier, few: ImageSet, tmp_path: Path
) -> None:
    labels = few.labels.copy()
    labels[::2] = -1
    result = audit(classifier, replace(few, labels=labels), folder=tmp_path, stress=["invalid"])
    assert set(statuses(result).values()) == {"done"}
    assert result.numbers["accuracy.test"].to_dict()["n"] == 40
    assert result.numbers["calibration.ece"].to_dict()["n"] == 40


def test_all_labelled_images_wrong_and_the_rest_unknown(softmax: Softmax, few: ImageSet, tmp_path: Path) -> None:
    guesses = softmax(few.materialise()).argmax(axis=1)
    labels = np.where(np.arange(len(few)) < 10, (guesses + 1) % 10, -1)
    result = audit(Classifier(softmax), replace(few, labels=labels), folder=tmp_path, stress=["invalid"])
    assert statuses(result)["supervisors"] == "done"
    assert result.numbers["accuracy.test"].value == 0
    assert not any(".mistakes." in name for name in result.numbers)


def test_a_model_that_is_fed_wrongly_is_told_how_it_should_be(net: nn.Module, digits: Dataset, tmp_path: Path) -> None:
    fed_wrongly = Classifier(net, mean=(3.0,), std=(0.2,), device="cpu")
    result = audit(fed_wrongly, digits.test, sections=["accuracy"], stress="none", folder=tmp_path)
    assert result.numbers["accuracy.test"].value < 0.5
    assert result.numbers["accuracy.renormalised"].value > 0.8
    assert result.verdict.headline == "Not before its pixels are normalised as in its training"
    words = dict(result.sections[0].findings.summary)["Fed wrongly?"]
    assert words.startswith("Another normalisation fits better: ") and "with none (mean 0, std 1)" in words
    assert "mean = [0.0]" in (tmp_path / "report.html").read_text("utf-8")


def test_a_poor_model_that_is_fed_rightly_is_just_poor(digits: Dataset, tmp_path: Path) -> None:
    torch.manual_seed(0)
    untrained = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), device="cpu")
    result = audit(untrained, digits.test, sections=["accuracy"], stress="none", folder=tmp_path)
    assert result.numbers["accuracy.test"].value < 0.5 and "accuracy.renormalised" not in result.numbers
    assert [name for name, _ in result.sections[0].findings.summary] == ["Accuracy", "Weakest class"]


def test_a_perfect_model_without_stress_has_a_report_too(few: ImageSet, tmp_path: Path) -> None:
    answers = {image.tobytes(): label for image, label in zip(few.materialise(), few.labels, strict=True)}

    def oracle(images: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.eye(10)[[answers[image.tobytes()] for image in images]]

    result = audit(Classifier(oracle), few, folder=tmp_path, stress=[])
    assert set(statuses(result).values()) == {"done"}, [section.reason for section in result.failed]
    assert result.numbers["accuracy.test"].value == 1


@pytest.mark.parametrize("rows", [[0], [0, 1], [0, 1, 2]], ids=len)
def test_very_few_images_will_do(rows: list[int], classifier: Classifier, digits: Dataset, tmp_path: Path) -> None:
    result = audit(classifier, digits.test.take(rows), folder=tmp_path)
    assert set(statuses(result).values()) == {"done"}, [section.reason for section in result.failed]
    assert ("calibration.temperature" in result.numbers) == (len(rows) > 1)
    assert ("No temperature was fitted" in result.report.read_text("utf-8")) == (len(rows) == 1)


def test_images_of_one_class_only_will_do(classifier: Classifier, digits: Dataset, tmp_path: Path) -> None:
    threes = digits.test.take(digits.test.labels == 3)
    result = audit(classifier, threes, folder=tmp_path, stress=["invalid"])
    assert set(statuses(result).values()) == {"done"}, [section.reason for section in result.failed]
    assert "accuracy.class.3.recall" in result.numbers
    assert "accuracy.class.4.recall" not in result.numbers  # nobody knows, and 0 would be a lie


def test_a_model_whose_layers_cannot_be_listed_is_audited_without_them(
    classifier: Classifier, few: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(self: Classifier) -> None:
        raise UserError("The layers cannot be told.")

    monkeypatch.setattr(Classifier, "layers", unknown)
    result = audit(classifier, few, folder=tmp_path, sections=["overview"])
    assert statuses(result) == {"overview": "done"}


def test_another_number_of_classes_than_the_datas_is_an_error(few: ImageSet, tmp_path: Path) -> None:
    def three_classes(images: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.full((len(images), 3), 1 / 3)

    with pytest.raises(UserError, match="three_classes gives 3 classes, but 10 class names were given"):
        audit(Classifier(three_classes), few, folder=tmp_path)


def test_images_that_the_model_cannot_take_are_an_error(classifier: Classifier, tmp_path: Path) -> None:
    large = ImageSet.from_arrays(np.zeros((4, 9, 9), dtype=np.uint8), [0, 1, 2, 3], class_names=list("0123456789"))
    with pytest.raises(UserError, match=r"cannot take images of shape \(1, 9, 9\)"):
        audit(classifier, large, folder=tmp_path)


def test_class_names_must_agree(net: nn.Module, few: ImageSet, tmp_path: Path) -> None:
    letters, backwards = tuple("abcdefghij"), list("9876543210")
    named = replace(few, class_names=letters)
    with pytest.raises(UserError, match="has the class 'j', which the model has not; its classes are a, b, c"):
        audit(Classifier(net, class_names=[*letters[:9], "z"]), named, folder=tmp_path)
    # The same classes in another order are brought into the model's.
    turned = replace(few, class_names=letters[::-1], labels=9 - few.labels)
    options: Any = {"stress": [], "sections": ["accuracy"]}
    first, second = (audit(Classifier(net, class_names=letters), images, **options) for images in (named, turned))
    assert first.numbers["accuracy.test"].value == second.numbers["accuracy.test"].value > 0.8
    with pytest.raises(UserError, match=r"The classes of train and test differ in digits/test \(another order\)"):
        audit(Classifier(net), few, train=replace(few, class_names=tuple(backwards)), folder=tmp_path)


def test_the_same_name_twice_is_an_error(classifier: Classifier, few: ImageSet, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="The stress set 'invalid' was given more than once"):
        audit(classifier, few, folder=tmp_path, stress=["invalid", "invalid"])
    with pytest.raises(UserError, match="The supervisor 'entropy' was given more than once"):
        audit(classifier, few, folder=tmp_path, supervisors=["entropy", "pcs", "entropy"])


def test_unknown_names_are_errors(classifier: Classifier, few: ImageSet, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no supervisor 'entropi'"):
        audit(classifier, few, folder=tmp_path, supervisors="entropi")
    with pytest.raises(UserError, match="no stress set 'storm'"):
        audit(classifier, few, folder=tmp_path, stress="storm")


def test_a_file_where_the_folder_should_be_is_an_error(classifier: Classifier, few: ImageSet, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(UserError, match="is a file, but a folder is needed"):
        audit(classifier, few, folder=tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_a_learning_supervisor_is_fitted_on_the_training_images(
    classifier: Classifier, few: ImageSet, digits: Dataset, tmp_path: Path
) -> None:
    learner = Learner()
    result = audit(
        classifier, few, train=digits.train, folder=tmp_path, supervisors=["entropy", learner], stress=["invalid"]
    )
    assert "supervisor.learner.invalid.auroc" in result.numbers
    assert not learner.is_fitted  # the user's own stays as it was
    fitted = Learner().fit(classifier.observe(digits.train), digits.train.labels)
    ready = audit(classifier, few, folder=tmp_path / "ready", supervisors=["entropy", fitted], stress=["invalid"])
    name = "supervisor.learner.invalid.auroc"
    assert ready.numbers[name].value == pytest.approx(result.numbers[name].value, abs=1e-9)


def test_a_supervisor_that_cannot_be_used_is_left_out_with_its_reason(
    classifier: Classifier, few: ImageSet, tmp_path: Path
) -> None:
    result = audit(classifier, few, folder=tmp_path, supervisors=["entropy", Learner()], stress=["invalid"])
    assert set(statuses(result).values()) == {"done"}
    assert "learner was left out: This needs the images the model was trained on" in result.report.read_text("utf-8")
    assert not any("learner" in name for name in result.numbers)


@pytest.mark.parametrize("version", [None, "1"])
def test_a_black_box_asks_for_what_it_lacks(
    version: str | None, softmax: Softmax, few: ImageSet, digits: Dataset, tmp_path: Path
) -> None:
    for _ in range(2):  # the second time, what a box with a version said comes from the cache
        result = audit(
            Classifier(softmax, name="box", version=version),
            few,
            train=digits.train,
            folder=tmp_path,
            supervisors=["entropy", Learner(logits=True)],
            stress=["invalid"],
        )
        assert set(statuses(result).values()) == {"done"}
        page = result.report.read_text("utf-8")
        assert "learner was left out: The supervisor &#39;learner&#39; needs logits, but box (a callable) gives" in page


def test_no_usable_supervisor_is_a_failed_section_with_every_reason(
    classifier: Classifier, few: ImageSet, tmp_path: Path
) -> None:
    result = audit(classifier, few, folder=tmp_path, supervisors=[Learner()], stress=["invalid"])
    assert statuses(result) == {
        "overview": "done", "accuracy": "done", "calibration": "done", "ambiguity": "done",
        "supervisors": "failed", "gallery": "failed",
    }  # fmt: skip
    assert "None of the supervisors can be used: This needs the images" in result.failed[0].reason


def test_progress_names_what_is_looked_at(classifier: Classifier, few: ImageSet, tmp_path: Path) -> None:
    from contextlib import contextmanager

    seen: dict[str, tuple[int, int]] = {}

    class Recorder:
        @contextmanager
        def task(self, label: str, total: int) -> Any:
            yield lambda done, total: seen.__setitem__(label, (done, total))

    audit(classifier, few, folder=tmp_path, progress=Recorder())
    done, total = seen.pop("Timing the model")
    assert done == total > 1, "it says how far it is"
    compared = [seen.pop(label) for label in ("Comparing supervisors", "Comparing kinds of images")]
    assert all(done == total > 1 for done, total in compared)
    looked_at = ["Observing test images", "Corrupting images", "Observing corrupted images", "Observing invalid images"]
    assert seen == dict.fromkeys(looked_at, (80, 80))


def test_the_verb_is_public_whatever_was_imported() -> None:
    import secondguess.audits
    from secondguess.audits.run import audit as verb

    assert sg.audit is verb and callable(sg.audit)
    assert sg.audits is secondguess.audits


def test_without_a_folder_nothing_is_written_until_the_result_is_saved(
    classifier: Classifier, few: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_json: Read
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = audit(classifier, few, gates=["accuracy.test>0"], seed=3)
    assert list(tmp_path.iterdir()) == [], "the temporary folder of the cache is gone"
    assert result.folder is None and result.to_dict()["files"] is None
    with pytest.raises(UserError, match="has not been saved yet"):
        _ = result.report
    assert result.save("mine") == Path("mine")
    assert {path.name for path in tmp_path.rglob("*")} == {"mine", *FILES}
    assert read_json(tmp_path / "mine" / "audit.json") == result.to_dict()
    assert result.to_dict()["files"] == {"report": "mine/report.html", "junit": "mine/junit.xml"}
    kept = audit(classifier, few, folder=tmp_path / "kept", gates=["accuracy.test>0"], seed=3)
    assert comparable(kept) == comparable(result)


def test_the_result_in_words_and_in_a_notebook(audited: AuditResult, hostile: AuditResult) -> None:
    assert len(audited.summary().splitlines()) == 10
    assert str(audited) == audited.summary()
    lines = [re.split(" {2,}", line, maxsplit=1) for line in audited.summary().splitlines()]
    assert lines[0] == ["Verdict", audited.verdict.headline]
    assert lines[1:4] == [[one.title, one.text] for one in audited.verdict.reasons]
    assert ["Subject", dict(audited.highlights)["Subject"]] in lines[4:]
    shown = audited._repr_html_()
    assert shown.count("<table>") == 4 and audited.verdict.headline in shown and "audited on 360 images" in shown
    assert f"{len(audited.numbers):,} numbers" in shown and "supervisor.entropy.invalid.auroc" in shown
    assert "<script>" not in hostile._repr_html_() and "&lt;i&gt;model&lt;/i&gt;" in hostile._repr_html_()
    assert "12 of 14 sections" in repr(audited)


def test_the_images_may_be_given_in_every_way(
    classifier: Classifier, digits: Dataset, few: ImageSet, net: nn.Module
) -> None:
    options: dict[str, Any] = {"stress": [], "supervisors": ["entropy"], "sections": ["overview"]}
    ways = [
        sg.audit(classifier, digits, **options),
        sg.audit(classifier, "digits", **options),
        sg.audit(classifier, test=digits.test, train=digits.train, **options),
        sg.audit(net, digits.test, train=digits, **options),
    ]
    fingerprints = {(way.about["data"]["test"]["fingerprint"], way.about["data"]["train"]["images"]) for way in ways}
    assert len(fingerprints) == 1
    assert sg.audit(net, digits, max_test=30, **options).about["data"]["test"]["images"] == 30
    with pytest.raises(UserError, match="either `data`, or `test` and `train`, not both"):
        sg.audit(net, digits, train=digits, **options)
    with pytest.raises(UserError, match="are the same images"):
        sg.audit(net, few, train=few, **options)
    with pytest.raises(UserError, match="A model was given without images"):
        sg.audit(net, train=digits, **options)
    with pytest.raises(UserError, match="without a model"):
        sg.audit(None, test=digits, **options)


def test_training_images_of_another_size_are_no_silent_match(tmp_path: Path) -> None:
    """A network that takes any size: what supervisors learn of the ones says nothing about the others."""

    def folder(name: str, side: int, shade: int) -> str:
        for label, value in (("dark", shade), ("light", 255 - shade)):
            (tmp_path / name / label).mkdir(parents=True)
            for k in range(4):
                Image.new("RGB", (side, side), (value, k, 0)).save(tmp_path / name / label / f"{k}.png")
        return str(tmp_path / name)

    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    network = Classifier(nn.Sequential(*layers), output_kind="logits")
    of_a_size = Classifier(nn.Sequential(*layers), output_kind="logits", input_shape=(3, 16, 16))
    large, small, same = folder("large", 16, 0), folder("small", 8, 5), folder("same", 16, 10)
    options: dict[str, Any] = {"stress": [], "supervisors": ["entropy"], "sections": ["overview"]}
    said = (
        f"The training images {small} have 8x8 pixels, but the test images {large} 16x16, and the model does not say "
        "which it takes; say it with size (--size 8x8 if it was trained on them as they are), or under [input] in its "
        "model.toml."
    )
    for test in (large, sg.load_images(large)):
        with pytest.raises(UserError) as refused:
            sg.audit(network, test=test, train=small, **options)
        assert str(refused.value) == (said if test == large else said.replace(large, "large"))
    with pytest.raises(UserError, match=r"differ in shape in .* load them with one size"):
        sg.audit(network, test=large, train=sg.load_images(small), **options)
    shapes = [
        [card["shape"] for card in result.about["data"].values()]
        for result in (
            sg.audit(network, test=large, train=same, **options),
            sg.audit(network, test=large, train=small, size=8, **options),
            sg.audit(of_a_size, test=large, train=small, **options),
        )
    ]
    assert shapes == [[[3, 16, 16]] * 2, [[3, 8, 8]] * 2, [[3, 16, 16]] * 2], "where a size is said, both have it"


def test_grey_training_images_of_the_same_size_are_brought_to_the_colours_of_the_test_images(tmp_path: Path) -> None:
    for name, mode, shade in (("train", "L", 20), ("test", "RGB", (20, 40, 60))):
        for label in ("a", "b"):
            (tmp_path / name / label).mkdir(parents=True)
            Image.new(mode, (8, 8), shade).save(tmp_path / name / label / "1.png")
    network = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(192, 2)), output_kind="logits")
    options: dict[str, Any] = {"stress": [], "supervisors": ["entropy"], "sections": ["overview"]}
    found = sg.audit(network, test=tmp_path / "test", train=tmp_path / "train", **options).about["data"]
    assert found["train"]["shape"] == found["test"]["shape"] == [3, 8, 8]


def test_without_a_model_one_is_trained(digits: Dataset, tmp_path: Path) -> None:
    assert digits.train is not None
    small = replace(digits, train=digits.train.head(200, seed=0))
    options: dict[str, Any] = {"stress": [], "supervisors": ["entropy"], "sections": ["overview"], "device": "cpu"}
    result = sg.audit(None, small, epochs=1, folder=tmp_path, **options)
    assert result.about["model"]["name"] == "fully_connected"
    assert len(list((tmp_path / "model").iterdir())) == 1


def test_a_subject_is_trained_and_the_second_time_only_loaded(digits: Dataset, tmp_path: Path) -> None:
    assert digits.train is not None
    small = replace(digits, train=digits.train.head(200, seed=0))
    labels: list[str] = []

    class Recorder:
        def task(self, label: str, total: int) -> Any:
            from contextlib import nullcontext

            labels.append(f"{label} {total}")
            return nullcontext(lambda done, total: None)

    first, second = (
        train_subject("fully_connected", small, folder=tmp_path, epochs=2, seed=1, progress=Recorder()) for _ in "ab"
    )
    assert first.fingerprint == second.fingerprint
    assert first.class_names == digits.class_names
    assert labels == ["Training fully_connected 2"] * 2
    assert len(list(tmp_path.iterdir())) == 1
    other = train_subject("fully_connected", small, folder=tmp_path, epochs=2, seed=2)
    assert other.fingerprint != first.fingerprint
    assert len(list(tmp_path.iterdir())) == 2


def test_a_subject_needs_labelled_training_images(digits: Dataset, tmp_path: Path) -> None:
    for train in (None, unlabelled(digits.test)):
        with pytest.raises(UserError, match="has no labelled training images, so no model can be trained"):
            train_subject("fully_connected", replace(digits, train=train), folder=tmp_path)


def test_the_summary_has_every_section_s_first_line_before_any_second(tmp_path: Path) -> None:
    results = [
        SectionResult(f"s{n}", f"S{n}", "done", findings=Findings(summary=[(f"s{n}", f"line {k}") for k in range(4)]))
        for n in range(6)
    ]
    lines = AuditResult({}, results).highlights
    assert len(lines) == 10
    assert lines[:5] == [("s0", "line 0"), ("s0", "line 1"), ("s1", "line 0"), ("s1", "line 1"), ("s2", "line 0")]
    assert lines[-2:] == [("s4", "line 0"), ("s5", "line 0")]
