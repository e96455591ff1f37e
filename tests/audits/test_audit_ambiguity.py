"""The section on ambiguous images: its numbers from nothing but the images and the network."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import secondguess as sg
from secondguess import AuditResult, Classifier, Dataset, ImageSet, metrics
from secondguess.audits.sections import ambiguity
from secondguess.stress.ambiguous import AmbiGuess, PixelBlend, acceptance
from secondguess.stress.ambiguous.autoencoders import RaaeFleet

MEASURES = ("top_1", "top_2", "top_pair", "entropy_bits", "cross_entropy", "calibration", "distance")
ALONE: dict[str, Any] = {"supervisors": ["entropy"], "sections": ["ambiguity"]}


@pytest.fixture(scope="module")
def blend() -> PixelBlend:
    return PixelBlend(pairs=[(3, 8), (4, 9), (1, 7)])


@pytest.fixture(scope="module")
def result(net: nn.Module, digits: Dataset, blend: PixelBlend, tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    torch.set_num_threads(1)
    return sg.audit(
        Classifier(net, name="tiny", device="cpu"),
        digits.test.head(120, seed=0),
        train=digits.train,
        folder=tmp_path_factory.mktemp("ambiguity"),
        stress=[blend],
        seed=2,
        **ALONE,
    )


@pytest.fixture(scope="module")
def made(digits: Dataset) -> ImageSet:
    """The images of the audit, made again."""
    again = PixelBlend(pairs=[(3, 8), (4, 9), (1, 7)])
    return again.make(digits.test.head(120, seed=0), train=digits.train, seed=2)


@pytest.fixture(scope="module")
def page(result: AuditResult) -> str:
    return result.report.read_text("utf-8")


def probabilities(net: nn.Module, images: ImageSet) -> np.ndarray:
    with torch.no_grad():
        return net(torch.from_numpy(images.materialise())).double().softmax(dim=1).numpy()


def test_ambiguous_numbers_by_hand(result: AuditResult, net: nn.Module, made: ImageSet) -> None:
    p, soft = probabilities(net, made), made.soft_labels
    assert soft is not None and len(made) == 120
    order = np.argsort(-p, axis=1)
    right = [set(np.flatnonzero(row)) for row in soft]
    expected = {
        "top_1": (order[:, 0] == made.labels).mean(),
        "top_2": (order[:, :2] == made.labels[:, None]).any(axis=1).mean(),
        "top_pair": np.mean([set(row[:2]) == pair for row, pair in zip(order, right, strict=True)]),
        "entropy_bits": -(p * np.log2(p)).sum(axis=1).mean(),
        "cross_entropy": -(soft * np.log(p)).sum(axis=1).mean(),
        "distance": np.abs(p - soft).sum(axis=1).mean() / 2,
        "calibration": metrics.soft_ece_interval(p, soft).value,
    }
    assert sorted(expected) == sorted(MEASURES)
    for measure, number in expected.items():
        found = result.numbers[f"ambiguity.ambiguous_blend.{measure}"]
        assert found.value == pytest.approx(number, abs=1e-4), measure
        assert found.data == made.fingerprint
        interval = found.to_dict()
        assert interval["low"] <= interval["value"] <= interval["high"]


def test_nominal_numbers_by_hand(result: AuditResult, net: nn.Module, digits: Dataset) -> None:
    test = digits.test.head(120, seed=0)
    p = probabilities(net, test)
    assert result.numbers["ambiguity.nominal.top_1"].value == pytest.approx((p.argmax(axis=1) == test.labels).mean())
    log = np.log(p[np.arange(120), test.labels])
    assert result.numbers["ambiguity.nominal.cross_entropy"].value == pytest.approx(-log.mean(), rel=1e-3)
    assert result.numbers["ambiguity.nominal.top_1"].data == test.fingerprint


def test_two_right_classes_cannot_be_named_where_there_is_one(result: AuditResult, page: str) -> None:
    assert "ambiguity.nominal.top_pair" not in result.numbers
    row = re.search(r"<tr><td>Top pair: both classes right</td>(.*?)</tr>", page)
    assert row is not None
    assert re.match(r"<td>not calculable</td><td>.*\d", row[1])
    assert page.count("not calculable") == 1


def test_the_table_shows_the_numbers(result: AuditResult, page: str) -> None:
    rows = re.findall(r"<tr><td>[^<]+</td><td>.*?</td><td>([\d.]+)<span class=.range.>([\d.]+) to ([\d.]+)<", page)
    assert len(rows) == len(MEASURES)
    for measure, shown in zip(MEASURES, rows, strict=True):
        number = result.numbers[f"ambiguity.ambiguous_blend.{measure}"].to_dict()
        expected = [number[key] for key in ("value", "low", "high")]
        assert [float(text) for text in shown] == pytest.approx(expected, abs=6e-4)


def test_the_gallery_shows_each_pair_with_its_shares(page: str, made: ImageSet, net: nn.Module) -> None:
    assert re.findall(r"<h3>(.*?)\?</h3>", page) == ["1 or 7", "3 or 8", "4 or 9"]
    assert page.count("<img src=") == 3 * ambiguity.SHOWN
    first = int(np.flatnonzero(made.columns["class_1"] == 1)[0])
    assert made.soft_labels is not None
    share = made.soft_labels[first, 1]
    card = page[page.index("<h3>1 or 7") :]
    truth = re.search(r'truth">1 ([\d.]+)%</span><span class="line truth">7 ([\d.]+)%</span>', card)
    assert truth is not None
    assert float(truth[1]) == pytest.approx(100 * share, abs=0.51)
    assert float(truth[2]) == pytest.approx(100 - 100 * share, abs=0.51)
    p = probabilities(net, made.take([first]))[0]
    guess = re.search(r"says (\d) (\d+)%", card)
    assert guess is not None
    assert int(guess[1]) == p.argmax()
    assert float(guess[2]) == pytest.approx(100 * p.max(), abs=0.51)


def test_a_guess_outside_the_pair_is_marked(page: str, made: ImageSet, net: nn.Module) -> None:
    guesses = probabilities(net, made).argmax(axis=1)
    shown = [
        row
        for first in (1, 3, 4)
        for row in np.flatnonzero(made.columns["class_1"] == first)[: ambiguity.SHOWN]
        if guesses[row] not in (made.columns["class_1"][row], made.columns["class_2"][row])
    ]
    assert page.count('<span class="line wrong">') == len(shown)


def test_the_summary_says_how_sure_the_model_is(result: AuditResult, net: nn.Module, made: ImageSet) -> None:
    lines = dict(result.highlights)
    pair = result.numbers["ambiguity.ambiguous_blend.top_pair"].value
    sure = (probabilities(net, made).max(axis=1) >= 0.95).mean()
    assert lines["Ambiguous images"] == (
        f"both right classes on top in {pair:.0%} of 120 images; in {sure:.0%} it is 95% sure or more; these are plain "
        "blends, a weak stand-in"
    )


def test_how_they_were_made_is_told(page: str, blend: PixelBlend) -> None:
    assert blend.last is not None
    assert "made by PixelBlend from the training images alone" in page
    assert f"<dt>Label entropy</dt><dd>{blend.last.card['label_entropy_bits']:.2f} bits</dd>" in page


class Dialled(PixelBlend):
    """Blends that a plan can shorten."""

    name, dial = "dialled", "rounds"

    def __init__(self, rounds: int = 3) -> None:
        super().__init__(pairs=[(3, 8)])
        self.rounds = rounds


def test_a_generator_that_the_plan_has_shortened_says_how_they_were_made(
    classifier: Classifier, digits: Dataset, tmp_path: Path
) -> None:
    plan = {"plan": {"parts": [{"name": "stress.dialled", "size": 1}]}}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    options: Any = {**ALONE, "plan": tmp_path / "plan.json"}
    result = sg.audit(classifier, digits.test.head(20), train=digits.train, stress=[Dialled()], **options)
    assert not result.failed and "20 images to which two classes are right" in result.sections[0].html
    assert [part["size"] for part in result.about["plan"]["parts"] if part["name"] == "stress.dialled"] == [1]


def test_without_ambiguous_images_it_says_so(classifier: Classifier, digits: Dataset, tmp_path: Path) -> None:
    result = sg.audit(classifier, digits.test.head(20), folder=tmp_path, stress=["invalid"], **ALONE)
    assert not result.failed
    assert "There are no ambiguous images in this audit: No ambiguous images were asked for." in (
        result.report.read_text("utf-8")
    )
    assert not any(name.startswith("ambiguity.") for name in result.numbers)


def test_the_reason_is_told_when_they_cannot_be_made(classifier: Classifier, digits: Dataset, tmp_path: Path) -> None:
    threes = digits.train.take(digits.train.labels == 3).head(10)
    result = sg.audit(classifier, digits.test.head(10), train=threes, folder=tmp_path, stress=["ambiguous"], **ALONE)
    assert not result.failed
    assert "There are no ambiguous images in this audit: Ambiguous images lie between two classes, but" in (
        result.report.read_text("utf-8")
    )


@pytest.mark.filterwarnings("ignore:The test images have no labels")
def test_unlabelled_images_have_no_nominal_column(classifier: Classifier, digits: Dataset, tmp_path: Path) -> None:
    test = ImageSet.from_source(digits.test.head(20).images, name="nobody knows")
    stress = [PixelBlend(pairs=[(3, 8)])]
    result = sg.audit(classifier, test, train=digits.train, folder=tmp_path, stress=stress, **ALONE)
    assert not result.failed, result.failed[0].reason
    page = result.report.read_text("utf-8")
    assert '<th scope="col">Nominal</th>' not in page and '<th scope="col">Ambiguous</th>' in page
    assert not any(name.startswith("ambiguity.nominal") for name in result.numbers)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Autoencoders of one pair, hardly trained and accepted nevertheless."""
    for name, value in {"epochs": 2, "realism": False, "pairs": [(3, 8)]}.items():
        monkeypatch.setitem(AmbiGuess.__init__.__kwdefaults__, name, value)
    monkeypatch.setattr(acceptance, "FOOLED", (0.0, 1.0))
    monkeypatch.setattr(acceptance, "TELLS_APART", 0.0)


def test_by_default_all_four_kinds_are_made(
    classifier: Classifier,
    digits: Dataset,
    tmp_path: Path,
    hasty: None,
    read_json: Callable[[Path], dict[str, Any]],
) -> None:
    pytest.importorskip("foolbox")
    test = digits.test.head(12, seed=0)
    result = sg.audit(classifier, test, train=digits.train, folder=tmp_path, supervisors=["entropy"])
    assert not result.failed, result.failed[0].reason
    content = read_json(tmp_path / "audit.json")
    assert content["stress"] == ["ambiguous", "corrupted", "adversarial", "invalid"]
    for kind in content["stress"]:
        assert f"supervisor.entropy.{kind}.auroc" in content["numbers"]
    assert result.numbers["ambiguity.ambiguous.top_pair"].to_dict()["n"] == 12
    page = result.report.read_text("utf-8")
    assert 'aria-label="Latent space between 3 and 8"' in page
    assert "1 of 1 accepted" in page


def test_test_images_never_stand_in_for_training_images(
    classifier: Classifier, digits: Dataset, tmp_path: Path, hasty: None
) -> None:
    result = sg.audit(classifier, digits.test, folder=tmp_path, stress=["ambiguous"], **ALONE)
    assert not result.failed
    assert "ambiguity.ambiguous.top_pair" not in result.numbers
    page = result.report.read_text("utf-8")
    assert 'give them with <span class="flag">--train</span>' in page, "an option is not broken behind a hyphen"


def test_autoencoders_are_kept_for_the_next_audit(
    classifier: Classifier, digits: Dataset, tmp_path: Path, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"train": digits.train, "folder": tmp_path, "stress": ["ambiguous"], **ALONE}
    first = sg.audit(classifier, digits.test, **settings)
    monkeypatch.setattr(RaaeFleet, "fit", lambda *_args, **_kwargs: pytest.fail("trained again"))
    again = sg.audit(classifier, digits.test, **settings)
    assert {k: v.value for k, v in again.numbers.items()} == {k: v.value for k, v in first.numbers.items()}


@pytest.mark.slow
def test_the_real_default_on_digits(classifier: Classifier, digits: Dataset, tmp_path: Path) -> None:
    result = sg.audit(classifier, digits.test, train=digits.train, folder=tmp_path)
    assert not result.failed
    assert {"ambiguous", "corrupted", "adversarial", "invalid"} <= {
        name.split(".")[2] for name in result.numbers if name.startswith("supervisor.entropy.")
    }
    assert (
        result.numbers["ambiguity.ambiguous.entropy_bits"].value
        > result.numbers["ambiguity.nominal.entropy_bits"].value
    )
    assert result.about["seconds"] < 300
