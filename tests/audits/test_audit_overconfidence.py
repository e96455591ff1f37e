"""The section on overconfidence: its numbers from nothing but the images and the network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import secondguess as sg
from secondguess import AuditResult, Classifier, Dataset, ImageSet
from secondguess.audits.sections import overconfidence
from secondguess.metrics import absolute_hubris, relative_hubris
from secondguess.stress.ambiguous import PixelBlend

ALONE: dict[str, Any] = {"supervisors": ["entropy"], "sections": ["overconfidence"]}
PAIRS = [(3, 8), (4, 9), (1, 7)]


@pytest.fixture(scope="module")
def result(net: nn.Module, digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    torch.set_num_threads(1)
    return sg.audit(
        Classifier(net, name="tiny", device="cpu"),
        digits.test.head(120, seed=0),
        train=digits.train,
        folder=tmp_path_factory.mktemp("overconfidence"),
        stress=[PixelBlend(pairs=PAIRS, delta_max=0.8)],
        seed=2,
        **ALONE,
    )


@pytest.fixture(scope="module")
def made(digits: Dataset) -> ImageSet:
    """The images of the audit, made again."""
    return PixelBlend(pairs=PAIRS, delta_max=0.8).make(digits.test.head(120, seed=0), train=digits.train, seed=2)


@pytest.fixture(scope="module")
def page(result: AuditResult) -> str:
    return result.report.read_text("utf-8")


def answers(net: nn.Module, made: ImageSet) -> tuple[np.ndarray, np.ndarray]:
    """The model's share of class_1 among the two, and that of the soft label."""
    with torch.no_grad():
        p = net(torch.from_numpy(made.materialise())).double().softmax(dim=1).numpy()
    rows, first, second = np.arange(len(made)), made.columns["class_1"], made.columns["class_2"]
    assert made.soft_labels is not None
    return p[rows, first] / (p[rows, first] + p[rows, second]), made.soft_labels[rows, first]


def test_the_numbers_by_hand(result: AuditResult, net: nn.Module, made: ImageSet) -> None:
    assert not result.failed, result.failed[0].reason
    p, r = answers(net, made)
    start = "overconfidence.ambiguous_blend"
    expected = {
        "absolute": absolute_hubris(p),
        "relative": relative_hubris(p, r),
        "acd": np.abs(p - 0.5).mean(),
    }
    for name, value in expected.items():
        number = result.numbers[f"{start}.{name}"]
        assert number.value == pytest.approx(value, abs=1e-5), name
        assert number.data == made.fingerprint and number.interval is not None
        assert number.interval.low <= number.value <= number.interval.high
    temperature = result.numbers[f"{start}.temperature"].value
    scaled = 1 / (1 + np.exp(-np.log(p / (1 - p)) / temperature))
    assert result.numbers[f"{start}.absolute_after_temperature"].value == pytest.approx(
        absolute_hubris(scaled), abs=1e-4
    )
    assert result.numbers[f"{start}.relative_after_temperature"].value == pytest.approx(
        relative_hubris(scaled, r), abs=1e-4
    )
    assert 0 < result.numbers[f"{start}.mass"].value < 1
    assert result.numbers[f"{start}.slope"].value > 0


def test_clear_images_are_the_control(result: AuditResult, net: nn.Module, digits: Dataset) -> None:
    number = result.numbers["overconfidence.ambiguous_blend.clean"]
    assert number.data == digits.test.head(120, seed=0).fingerprint
    assert number.value > result.numbers["overconfidence.ambiguous_blend.absolute"].value
    assert number.to_dict()["n"] == 60, "the other half is for the temperature"


def test_the_table_shows_the_numbers(result: AuditResult, page: str) -> None:
    cells = re.findall(r"<tr><td>(Ambiguous|Clear)(, with temperature)?</td><td>([\d.]+)<span", page)
    assert [(kind, bool(scaled)) for kind, scaled, _ in cells] == [
        ("Ambiguous", False),
        ("Ambiguous", True),
        ("Clear", False),
        ("Clear", True),
    ]
    values = [float(value) for *_, value in cells]
    start = "overconfidence.ambiguous_blend"
    names = [f"{start}.absolute", f"{start}.absolute_after_temperature", f"{start}.clean"]
    assert values[:3] == pytest.approx([result.numbers[name].value for name in names], abs=6e-4)
    assert page.count("not applicable") == 2, "clear images have no soft labels to compare with"
    assert 'aria-label="Response curve' in page
    assert ".972 is always certain" in page


def test_the_gallery_begins_with_the_proudest_answer(page: str, net: nn.Module, made: ImageSet) -> None:
    p, r = answers(net, made)
    kl = p * np.log(p / r) + (1 - p) * np.log((1 - p) / (1 - r))
    surer = np.abs(p - 0.5) >= np.abs(r - 0.5)
    worst = int(np.argmax(np.where(surer, kl, -kl)))
    gallery = page[page.index("Where it is most overconfident") :]
    shares = r'truth">(\d) (\d+)%</span><span class="line truth">(\d) (\d+)%</span>'
    card = re.search(rf'{shares}\s*<span class="line wrong">says (\d) (\d+)%', gallery)
    assert card is not None
    assert [int(card[1]), int(card[3])] == [made.columns["class_1"][worst], made.columns["class_2"][worst]]
    assert float(card[2]) == pytest.approx(100 * r[worst], abs=0.51)
    surest = max((p[worst], card[1]), (1 - p[worst], card[3]))
    assert card[5] == surest[1] and float(card[6]) == pytest.approx(100 * surest[0], abs=0.51)
    assert gallery.count("<img src=") == overconfidence.SHOWN


def test_the_summary_names_ceiling_temperature_and_control(result: AuditResult) -> None:
    words = dict(result.highlights)["Overconfidence"]
    start = "overconfidence.ambiguous_blend"
    value, after, clean, temperature = (
        result.numbers[f"{start}.{name}"].value
        for name in ("absolute", "absolute_after_temperature", "clean", "temperature")
    )
    assert words == (
        f"hubris {value:.2f} of at most 0.97 on ambiguous images, {after:.2f} with temperature {temperature:.2f}; "
        f"{clean:.2f} on clear ones, where being sure is right"
    )


def test_without_ambiguous_images_it_says_so(classifier: Classifier, digits: Dataset, tmp_path: Path) -> None:
    result = sg.audit(classifier, digits.test.head(20), folder=tmp_path, stress=["invalid"], **ALONE)
    assert not result.failed
    assert "There are no ambiguous images in this audit: No ambiguous images were asked for." in (
        result.report.read_text("utf-8")
    )


@pytest.mark.filterwarnings("ignore:The test images have no labels")
def test_it_is_skipped_where_its_controls_are_missing(classifier: Classifier, digits: Dataset, tmp_path: Path) -> None:
    options = {"train": digits.train, "stress": [PixelBlend(pairs=[(3, 8)])], **ALONE}
    unlabelled = ImageSet.from_source(digits.test.head(20).images, name="nobody knows")
    few = digits.test.take(digits.test.labels == 0).head(20)
    for name, test, words in (("a", unlabelled, "have no labels"), ("b", few, "0 real images of the classes 3 and 8")):
        result = sg.audit(classifier, test, folder=tmp_path / name, **options)
        (section,) = result.sections
        assert section.status == "skipped" and words in section.reason


def test_it_costs_little(result: AuditResult) -> None:
    (section,) = result.sections
    assert section.seconds < 5
