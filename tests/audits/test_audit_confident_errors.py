"""The section on confident mistakes: its counts from nothing but images and network, its measures from the searches."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import secondguess as sg
from secondguess import AuditResult, Classifier, Dataset, ImageSet
from secondguess.audits import sections
from secondguess.audits.sections import confident_errors
from secondguess.search import names

SECTION = ["confident_errors"]
SEED = 4


@pytest.fixture(scope="module")
def confused(net: nn.Module) -> nn.Module:
    """The network with a fault: the larger a digit, the readier it is to see it."""
    changed = copy.deepcopy(net)
    with torch.no_grad():
        changed[-1].bias += torch.linspace(0, 3, 10)
    return changed.eval()


@pytest.fixture(scope="module")
def result(confused: nn.Module, digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    torch.set_num_threads(1)
    return sg.audit(
        Classifier(confused, name="confused", device="cpu"),
        digits.test,
        folder=tmp_path_factory.mktemp("confident"),
        supervisors=["entropy", "max_softmax"],
        stress=[],
        gates=["confident_errors.mistakes <= 0", "confident_errors.random.lift >= 0"],
        seed=SEED,
        sections=SECTION,
    )


@pytest.fixture(scope="module")
def page(result: AuditResult) -> str:
    return result.report.read_text("utf-8")


def searched(net: nn.Module, digits: Dataset) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Which confident predictions are wrong, and their confidence."""
    with torch.no_grad():
        p = net(torch.from_numpy(digits.test.materialise())).double().softmax(dim=1).numpy()
    sure = p.max(axis=1) > 0.65
    return (p.argmax(axis=1) != digits.test.labels)[sure], p.max(axis=1)[sure]


def number(result: AuditResult, name: str) -> float:
    return result.numbers[f"confident_errors.{name}"].value


def test_it_follows_the_supervisors() -> None:
    assert sections.names().index("confident_errors") == sections.names().index("risk") + 1


def test_the_pool_is_counted_from_scratch(result: AuditResult, confused: nn.Module, digits: Dataset) -> None:
    assert not result.failed, result.failed[0].reason
    wrong, confidence = searched(confused, digits)
    assert wrong.sum() >= 5
    assert number(result, "mistakes") == wrong.sum()
    assert number(result, "pool_sdr") == pytest.approx(wrong.sum() / (1 - confidence).sum(), rel=1e-4)


def test_every_search_has_its_numbers(result: AuditResult, confused: nn.Module, digits: Dataset) -> None:
    wrong, _ = searched(confused, digits)
    for name in names():
        sdr, lift = number(result, f"{name}.sdr"), number(result, f"{name}.lift")
        assert lift == pytest.approx(sdr / number(result, "pool_sdr"))
        assert 0 <= number(result, f"{name}.errors_at_20") <= number(result, f"{name}.errors_at_50") <= wrong.sum()
        assert 0 < number(result, f"{name}.spread") < 1
        assert number(result, f"{name}.matched_lift") >= 0


def test_the_least_confident_first_by_hand(result: AuditResult, confused: nn.Module, digits: Dataset) -> None:
    """The one search that needs nothing but confidences: what it finds first among all images."""
    wrong, confidence = searched(confused, digits)
    expected = np.flatnonzero(wrong[np.argsort(confidence)][:50])[: confident_errors.SHOWN] + 1
    part = result.report.read_text("utf-8").split(">Low confidence</h4>")[1].split("</ul>")[0]
    assert [int(one) for one in re.findall(r"<br>label (\d+)</li>", part)] == expected.tolist()


def test_the_table_shows_the_numbers(result: AuditResult, page: str) -> None:
    table = page.partition('aria-label="What each search strategy finds"')[2].partition("</table>")[0]
    rows = re.findall(r'<tr><th scope="row"[^>]*>([^<]+)</th>(.*?)</tr>', table, re.DOTALL)
    shown = [[float(cell) for cell in re.findall(r">([\d.]+)<span class=.range.", row)] for _, row in rows]
    keys = ("matched_lift", "lift", "sdr", "errors_at_20", "errors_at_50", "spread")
    expected = [[number(result, f"{name}.{key}") for key in keys] for name in names()]
    order = sorted(range(len(expected)), key=lambda place: -expected[place][0])
    for cells, place in zip(shown, order, strict=True):
        assert cells == pytest.approx(expected[place], abs=0.051)
    assert page.count("over the labels") >= len(expected), "each chart says what it shows"


def test_mistakes_are_shown_with_truth_and_answer(page: str) -> None:
    cards = re.findall(r'class="truth">is (\d)</span><br><span class="wrong">says (\d)</span> \(([\d.]+)%\)', page)
    assert cards
    for truth, guess, confidence in cards:
        assert truth != guess
        assert 65 <= float(confidence) <= 100


@pytest.mark.skipif(find_spec("captum") is None, reason="explanations need captum")
def test_some_are_explained_beside_their_counterexamples(page: str) -> None:
    part = page[page.index("What the model looked at") :]
    pairs = re.findall(r"image:<br><span[^>]*>says (\d)<.*?counterexample:<br><span[^>]*>says (\d)<", part, re.DOTALL)
    assert 1 <= len(pairs) <= confident_errors.EXPLAINED
    assert all(one != other for one, other in pairs), "a counterexample is what the model decides otherwise"
    assert part.count('alt="what speaks for') == 2 * len(pairs)


def test_without_captum_it_names_the_extra(
    confused: nn.Module, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confident_errors, "find_spec", lambda name: None)
    monkeypatch.setattr(confident_errors, "REPETITIONS", 1)
    result = sg.audit(
        Classifier(confused, device="cpu"),
        digits.test,
        folder=tmp_path,
        supervisors=["entropy"],
        stress=[],
        sections=SECTION,
    )
    assert not result.failed
    assert 'pip install "secondguess[explain]"' in result.report.read_text("utf-8")


def test_a_black_box_is_searched_by_its_decisions(
    softmax: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    digits: Dataset,
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(confident_errors, "REPETITIONS", 1)
    labels = digits.test.labels.copy()
    labels[::9] = (labels[::9] + 1) % 10  # mistakes of whoever labelled them: the box itself makes few
    test = replace(digits.test, labels=labels)
    result = sg.audit(Classifier(softmax), test, folder=tmp_path, supervisors=["entropy"], stress=[], sections=SECTION)
    assert not result.failed, result.failed[0].reason
    html = result.report.read_text("utf-8")
    assert "from the model's decisions alone" in html and "by gradients of the model" in page
    assert "the scores of 1 supervisor<" in html
    assert re.search(r"\d+ of 250 predictions with a confidence above 65% are wrong", html)
    spent = re.search(r"decisions alone, (\d+) questions an image", html)
    assert spent is not None and int(spent[1]) <= confident_errors.QUESTIONS


def outcome(classifier: Classifier, test: ImageSet, out: Path) -> tuple[AuditResult, str]:
    result = sg.audit(classifier, test, folder=out, supervisors=["entropy"], stress=[], sections=SECTION)
    assert not result.failed, result.failed[0].reason
    return result, result.sections[0].reason


@pytest.mark.filterwarnings("ignore:The test images have no labels")
def test_where_nothing_can_be_searched_it_says_so(classifier: Classifier, digits: Dataset, tmp_path: Path) -> None:
    unlabelled = ImageSet.from_source(digits.test.images, name="nobody knows")
    assert "have no labels" in outcome(classifier, unlabelled, tmp_path / "a")[1]
    few, _ = outcome(classifier, digits.test.head(60), tmp_path / "b")
    said = r">\d\d labelled test images have a prediction with a confidence above 65%; at least 100 are needed"
    assert not few.numbers and re.search(said, few.report.read_text("utf-8"))


def test_a_model_without_a_confident_mistake(net: nn.Module, digits: Dataset, tmp_path: Path) -> None:
    with torch.no_grad():
        answers = net(torch.from_numpy(digits.test.materialise())).argmax(dim=1).numpy()
    result, _ = outcome(Classifier(net, device="cpu"), replace(digits.test, labels=answers), tmp_path)
    assert number(result, "mistakes") == 0 and len(result.numbers) == 1
    assert "there is nothing to search for" in result.report.read_text("utf-8")
    assert dict(result.highlights)["Confidently wrong"].startswith("nowhere: ")


def test_same_seed_same_numbers_whatever_the_batch(
    confused: nn.Module, digits: Dataset, result: AuditResult, tmp_path: Path
) -> None:
    again = sg.audit(
        Classifier(confused, batch_size=37, device="cpu"),
        digits.test,
        folder=tmp_path,
        supervisors=["entropy", "max_softmax"],
        stress=[],
        seed=SEED,
        sections=SECTION,
    )
    assert again.numbers.keys() == result.numbers.keys()
    for name, one in result.numbers.items():
        assert again.numbers[name].value == pytest.approx(one.value, abs=1e-3), name


def test_gates_can_use_the_numbers(result: AuditResult) -> None:
    assert [verdict.outcome for verdict in result.gates] == ["failed", "passed"]


def test_the_summary_compares_with_chance(result: AuditResult, page: str) -> None:
    words = dict(result.highlights)["Confidently wrong"]
    said = re.search(r"find ([\d.]+) with (\w+), ([\d.]+) at random(.*)", words)
    there = re.match(r"([\d,]+) of ([\d,]+) predictions", words)
    assert said is not None and there is not None
    wrong, looked = (int(text.replace(",", "")) for text in there.groups())
    most = max(number(result, f"{name}.errors_at_50") for name in names())
    assert float(said[1]) == pytest.approx(most, abs=0.051)
    assert number(result, f"{said[2]}.errors_at_50") == most
    assert float(said[3]) == pytest.approx(50 * wrong / looked, abs=0.051)
    best = max(names(), key=lambda name: number(result, f"{name}.matched_lift"))
    first = re.search(r'<tr><th scope="row".*?<span class="range">([\d.]+) to', page, re.DOTALL)
    assert first is not None
    if float(first[1]) > 1:
        value = number(result, f"{best}.matched_lift")
        assert said[4] == f"; {best} finds {value:.1f} times what the confidences explain"
    else:
        assert said[4] == ", and no search reliably more than the confidences explain"
        assert "No strategy reliably found more" in page
