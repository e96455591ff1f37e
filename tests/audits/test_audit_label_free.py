"""The section on accuracy without labels: its numbers from nothing but the images, the network and the labels."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import secondguess as sg
from secondguess import AuditResult, Classifier, Dataset, ImageSet
from secondguess.accuracy.oracles.icos import Icos
from secondguess.audits.sections import get, label_free, names
from secondguess.stress import Corrupted
from secondguess.stress.ambiguous import PixelBlend

METHODS = {
    "validation_accuracy", "average_confidence", "difference_of_confidences", "thresholded_confidence",
    "thresholded_entropy", "nuclear_norm", "label_shift_em", "label_shift_bbse", "icos", "icos_corrected",
    "synthetic_shifts",
}  # fmt: skip
SEED = 5
ALONE: dict[str, Any] = {"supervisors": ["entropy"], "sections": ["label_free"]}


@pytest.fixture(scope="module")
def result(net: nn.Module, digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    torch.set_num_threads(1)
    return sg.audit(
        Classifier(net, name="tiny", device="cpu"),
        digits.test,
        train=digits.train,
        folder=tmp_path_factory.mktemp("label_free"),
        stress=["corrupted", PixelBlend(pairs=[(3, 8)]), "invalid"],
        seed=SEED,
        **ALONE,
    )


@pytest.fixture(scope="module")
def page(result: AuditResult) -> str:
    return result.report.read_text("utf-8")


def test_rows_are_the_numbers(result: AuditResult) -> None:
    rows = {row.pop("number"): row for row in result.rows()}
    assert rows == result.to_dict()["numbers"]


@pytest.fixture(scope="module")
def halves(digits: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Which test images served as validation set, and which as operation."""
    order = np.random.default_rng(SEED).permutation(len(digits.test))
    return np.sort(order[:180]), np.sort(order[180:])


def probabilities(net: nn.Module, images: ImageSet) -> np.ndarray:
    with torch.no_grad():
        return net(torch.from_numpy(images.materialise())).double().softmax(dim=1).numpy()


def test_it_is_part_of_every_audit(result: AuditResult) -> None:
    assert "label_free" in names() and get("label_free").title == "Accuracy without labels"
    assert [section.status for section in result.sections] == ["done"], result.sections[0].reason


def test_truth_and_baselines_by_hand(
    result: AuditResult, net: nn.Module, digits: Dataset, halves: tuple[np.ndarray, np.ndarray]
) -> None:
    validation, operation = halves
    right = probabilities(net, digits.test).argmax(axis=1) == digits.test.labels
    spoilt = Corrupted().make(digits.test, seed=SEED)
    seen = probabilities(net, spoilt)
    truth = {
        "nominal": right[operation].mean(),
        "corrupted": (seen.argmax(axis=1) == digits.test.labels)[operation].mean(),
    }
    for name, expected in truth.items():
        found = result.numbers[f"label_free.{name}.truth"].to_dict()
        assert found["value"] == pytest.approx(expected) and found["n"] == 180
        guess = result.numbers[f"label_free.{name}.validation_accuracy.estimate"].value
        assert guess == pytest.approx(right[validation].mean())
        error = result.numbers[f"label_free.{name}.validation_accuracy.error"].value
        assert error == pytest.approx(abs(guess - expected))
    confidence = probabilities(net, digits.test).max(axis=1)
    difference = right[validation].mean() + seen.max(axis=1)[operation].mean() - confidence[validation].mean()
    found = result.numbers["label_free.corrupted.difference_of_confidences.estimate"]
    assert found.value == pytest.approx(difference, abs=1e-5)
    assert found.data == spoilt.fingerprint


def test_every_method_has_an_estimate_and_an_error_on_every_labelled_set(result: AuditResult) -> None:
    found = {tuple(name.split(".")[1:]) for name in result.numbers}
    sets = {"nominal", "corrupted", "ambiguous_blend"}
    assert {name[0] for name in found} == sets | {"mean"}  # invalid images have no label to be right about
    for method in METHODS:
        assert {(name, method, key) for name in sets for key in ("estimate", "error")} <= found
        errors = [result.numbers[f"label_free.{name}.{method}.error"].value for name in sets]
        assert result.numbers[f"label_free.mean.{method}.error"].value == pytest.approx(np.mean(errors))


def test_what_the_oracle_finds_is_counted(
    result: AuditResult, page: str, net: nn.Module, digits: Dataset, halves: tuple[np.ndarray, np.ndarray]
) -> None:
    classifier = Classifier(net, class_names=digits.test.class_names, device="cpu")
    validation, operation = (classifier.observe(digits.test.take(half)) for half in halves)
    oracle = Icos(seed=SEED).fit(classifier.observe(digits.train), validation)
    verdicts = oracle.judge(operation)
    assert result.numbers["label_free.nominal.icos.estimate"].value == pytest.approx(1 - verdicts.judged_wrong.mean())
    wrong = ~operation.correct
    tpr = (verdicts.judged_wrong & wrong).sum() / max(wrong.sum(), 1)
    assert result.numbers["label_free.nominal.icos.tpr"].value == pytest.approx(tpr)
    alarms, hits = int(verdicts.judged_wrong.sum()), int((verdicts.judged_wrong & wrong).sum())
    row = re.search(r'<th scope="row">both</th><td>(\d+)<span class="range">(\d+) of (\d+) mistakes found', page)
    assert row is not None
    assert [int(text) for text in row.groups()] == [alarms, hits, int(wrong.sum())]


def test_the_table_shows_the_numbers(result: AuditResult, page: str) -> None:
    page, misses = page.replace("<wbr>", ""), []
    for method in METHODS:
        row = re.search(rf'<tr><th scope="row">{method}[<\n].*?</tr>', page, re.DOTALL)
        assert row is not None, method
        cells = re.findall(r">([+−]?[\d.]+)<span class=.range.>([\d.]+)%: [\d.]+% to [\d.]+%(.*?)</span>", row[0])
        assert len(cells) == 3
        for name, (off, estimate, missed) in zip(("nominal", "corrupted", "ambiguous_blend"), cells, strict=True):
            truth = result.numbers[f"label_free.{name}.truth"].value
            found = result.numbers[f"label_free.{name}.{method}.estimate"]
            assert float(estimate) == pytest.approx(100 * found.value, abs=0.051)
            assert float(off.replace("−", "-")) == pytest.approx(100 * (found.value - truth), abs=0.051)
            assert found.interval is not None
            assert ("misses" in missed) == (not found.interval.low <= truth <= found.interval.high)
            misses.append("misses" in missed)
    assert any(misses) and not all(misses)
    assert page.count(">baseline</span>") == 2


def test_examples_show_a_violated_rule(page: str) -> None:
    cards = re.findall(
        r"The model says <span class=\"(\w+)\">(\d)</span> \(\d+%\), the rule says (\d); it is "
        r"<span class=\"truth\">(\d)</span>",
        page,
    )
    assert 1 <= len(cards) <= label_free.SHOWN
    for style, guess, rule, truth in cards:
        assert guess != rule
        assert (style == "wrong") == (guess != truth)
    hits = [rule == truth for _, _, rule, truth in cards]
    assert hits == sorted(hits, reverse=True)
    assert len(re.findall(r'alt="a training image of \d"', page)) >= len(cards)
    assert "Green must be dark, red must be bright" in page


def test_the_summary_compares_with_the_baseline(result: AuditResult, page: str) -> None:
    words = dict(result.highlights)["Accuracy without labels"]
    said = re.match(
        r"off by ([\d.]+) points on average over ([\w, ]+) images, where validation accuracy, [\w ,]+ off by ([\d.]+)",
        words,
    )
    assert said is not None
    given, sets = re.split(", | and ", said[2]), {"nominal", "corrupted", "ambiguous blend"}
    assert set(given) <= sets and page.count('<td class="words">cannot be said') == len(sets) - len(given)
    assert all(name in words.partition("; for ")[2] for name in sets - set(given))
    for method, number in zip(("synthetic_shifts", "validation_accuracy"), (said[1], said[3]), strict=True):
        keys = [name.replace(" ", "_") for name in given]
        errors = [result.numbers[f"label_free.{key}.{method}.error"].value for key in keys]
        assert float(number) == pytest.approx(100 * np.mean(errors), abs=0.051)
    assert page.count("The images look") == 3


def reason(classifier: Classifier, test: ImageSet, train: ImageSet | None, out: Path) -> str:
    (section,) = sg.audit(classifier, test, train=train, folder=out, stress=[], **ALONE).sections
    assert section.status == "skipped"
    return section.reason


@pytest.mark.filterwarnings("ignore:The test images have no labels")
def test_what_it_needs_is_said(classifier: Classifier, digits: Dataset, tmp_path: Path) -> None:
    assert "give them with train" in reason(classifier, digits.test, None, tmp_path)
    nobody_knows = replace(digits.train, labels=np.full(len(digits.train), -1))
    assert "learnt from labelled training images" in reason(classifier, digits.test, nobody_knows, tmp_path)
    assert "There are 8 labelled test images" in reason(classifier, digits.test.head(8), digits.train, tmp_path)
    unlabelled = ImageSet.from_source(digits.test.images, name="nobody knows")
    assert "The test images have no labels" in reason(classifier, unlabelled, digits.train, tmp_path)


def test_partly_labelled_images_count_where_they_are_labelled(
    classifier: Classifier, digits: Dataset, tmp_path: Path
) -> None:
    labels = digits.test.labels.copy()
    labels[::3] = -1
    test, train = replace(digits.test, labels=labels), digits.train.head(300, seed=0)
    result = sg.audit(classifier, test, train=train, folder=tmp_path, stress=["corrupted"], **ALONE)
    assert not result.failed
    assert result.numbers["label_free.nominal.truth"].to_dict()["n"] == 120
    assert result.numbers["label_free.corrupted.truth"].to_dict()["n"] == 120


def test_a_model_without_a_mistake_is_a_remark(digits: Dataset, tmp_path: Path) -> None:
    train, test = digits.train.head(200, seed=0), digits.test.head(60, seed=0)
    labels = {
        image.tobytes(): int(label)
        for images in (train, test)
        for image, label in zip(images.materialise(), images.labels, strict=True)
    }

    def perfect(images: np.ndarray) -> np.ndarray:
        return np.eye(10)[[labels.get(image.tobytes(), 0) for image in images]]  # unknown ones are shifted copies

    result = sg.audit(Classifier(perfect), test, train=train, folder=tmp_path, stress=[], **ALONE)
    assert not result.failed, result.failed[0].reason
    assert '<p class="note">Every prediction on the 30 validation images is right' in result.report.read_text("utf-8")


def test_same_seed_same_numbers_whatever_the_batch(net: nn.Module, digits: Dataset, tmp_path: Path) -> None:
    test, train = digits.test.head(80, seed=1), digits.train.head(200, seed=1)
    first, second = (
        sg.audit(
            Classifier(net, batch_size=size, device="cpu"),
            test,
            train=train,
            folder=tmp_path / str(size),
            stress=["corrupted"],
            **ALONE,
        ).numbers
        for size in (7, 256)
    )
    assert first.keys() == second.keys()
    for name, number in first.items():
        assert second[name].value == pytest.approx(number.value, abs=1e-4), name


def test_rules_are_judged_by_and_lead_where_they_say_something(net: nn.Module, digits: Dataset, tmp_path: Path) -> None:
    """Against a count by hand: images of the left camera show even digits only."""
    side = np.where(digits.test.labels % 2 == 0, "left", "right")
    test = replace(digits.test, columns={**digits.test.columns, "camera": side})
    tables = [
        f'[[partition]]\nname = "{name}"\ncolumn = "camera"\nlabels = {[str(k) for k in range(first, 10, 2)]}\n'
        for name, first in (("left", 0), ("right", 1))
    ]
    (tmp_path / "rules.toml").write_text("\n".join(tables))
    found = sg.audit(
        Classifier(net, name="tiny", device="cpu"), test, train=digits.train, stress="none", folder=tmp_path / "out",
        rules=tmp_path / "rules.toml", seed=SEED, **ALONE,
    )  # fmt: skip
    asked = np.sort(np.random.default_rng(SEED).permutation(len(test))[180:])
    said = probabilities(net, test)[asked].argmax(axis=1)
    broken = int((said % 2 != test.labels[asked] % 2).sum())
    assert broken > 0
    section = next(one for one in found.sections if one.name == "label_free")
    contributed = section.findings.view["contributions"]["nominal"]["input data"]
    assert (contributed.credited, contributed.caught) == (broken, broken)
    assert section.findings.view["answers"]["nominal"].method == "rules_and_confidence"
    page = found.report.read_text("utf-8")
    assert "your rules for 2 parts of the input" in page and "<code>--rules</code>" not in page
