"""The page and its promises: one file, no network, no script, nobody's text taken for markup."""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import defusedxml.ElementTree
import numpy as np
import pytest
from PIL import Image
from torch import nn

import secondguess as sg
from secondguess import AuditResult, Classifier, Dataset, ImageSet
from secondguess.audits import sections

VOID = {"meta", "img", "br", "wbr", "link", "input", "hr"}


class Page(HTMLParser):
    """Every element with its attributes, all text, and whether the tags are balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.parents: list[list[str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.parents.append(list(self._open))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.parents.append(list(self._open))

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1] == tag, f"</{tag}> closes {self._open[-1:]}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def source(audited: AuditResult) -> str:
    return audited.report.read_text("utf-8")


@pytest.fixture(scope="module")
def page(source: str) -> Page:
    return Page(source)


def test_it_is_one_small_file(audited: AuditResult) -> None:
    assert 20_000 < audited.report.stat().st_size < 5_000_000


def test_nothing_is_fetched_from_anywhere(source: str, page: Page) -> None:
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            if name in ("src", "href", "xlink:href", "srcset", "data", "action", "poster"):
                assert (value or "").startswith(("#", "data:image/png;base64,")), (tag, name, value)
            assert not name.startswith("on"), f"{tag} has a script in {name}"
    assert not {"script", "link", "iframe", "object", "embed", "base", "form"} & {tag for tag, _ in page.elements}
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", source))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, not places
    policies = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policies and "default-src 'none'" in str(policies[0])


def test_every_link_inside_the_page_leads_somewhere(page: Page) -> None:
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    links = [str(link["href"]) for link in page.all("a")]
    assert len(links) == len(sections.names()) + 2  # not the votes of people, but the reasons of the verdict
    assert {link.removeprefix("#") for link in links} <= set(ids)


def test_headings_say_what_follows_and_there_is_one_title(page: Page) -> None:
    outside_charts = [
        tag for (tag, _), parents in zip(page.elements, page.parents, strict=True) if "svg" not in parents
    ]
    assert outside_charts.count("h1") == outside_charts.count("title") == 1
    assert outside_charts.count("h2") == len(sections.names()) + 1  # not the votes of people, but verdict and summary
    assert page.all("html")[0]["lang"] == "en"


def test_every_image_is_a_picture_with_words(page: Page, digits: Dataset) -> None:
    pictures = page.all("img")
    assert len(pictures) > 40
    for picture in pictures:
        assert picture["alt"]
        content = base64.b64decode(str(picture["src"]).partition(",")[2], validate=True)
        assert Image.open(io.BytesIO(content)).size in {(8, 8), (336, 336)}  # as it is, or with a rule drawn over it


def test_the_first_mistake_shown_is_the_most_confident_one(source: str, digits: Dataset, net: nn.Module) -> None:
    seen = Classifier(net).observe(digits.test)
    wrong = np.flatnonzero(seen.predictions != digits.test.labels)
    first = wrong[np.argmax(seen.confidences[wrong])]
    gallery = source[source.index("Mistakes, the most confident first") :]
    match = re.search(r'src="data:image/png;base64,([^"]+)" alt="([^"]+)"', gallery)
    assert match is not None
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(match[1]))))
    np.testing.assert_array_equal(shown, np.rint(digits.test.images[int(first)][0] * 255).astype(np.uint8))
    assert match[2] == f"image {first}"


def test_charts_are_drawn_in_the_colours_of_the_page(source: str) -> None:
    charts = re.findall(r"<svg.*?</svg>", source, flags=re.DOTALL)
    assert len(charts) > 3  # reliability, one histogram for each stress set, and those of later sections
    for chart in charts:
        root = defusedxml.ElementTree.fromstring(chart)
        assert root.get("role") == "img" and root.get("aria-label")
        assert not re.search("#0[1-6]0[2-7]0[3-8]", chart)


def test_tables_scroll_inside_themselves(page: Page) -> None:
    tables = [parents for (tag, _), parents in zip(page.elements, page.parents, strict=True) if tag == "table"]
    assert len(tables) >= 6
    assert all(parents[-1] == "div" for parents in tables)
    regions = [attributes for tag, attributes in page.elements if tag == "div" and attributes.get("class") == "scroll"]
    assert len(regions) == len(tables)
    assert all(region["tabindex"] == "0" and region["aria-label"] for region in regions)


def test_gates_and_provenance_are_shown(source: str, page: Page, digits: Dataset) -> None:
    words = "".join(page.text)
    assert "accuracy.test >= 0.9" in words
    assert "secondguess audit --data digits" in words
    assert digits.test.fingerprint in words
    assert "95% interval" in words


def test_hostile_names_are_shown_and_not_obeyed(hostile: AuditResult, hostile_names: tuple[str, ...]) -> None:
    assert not hostile.failed
    source = hostile.report.read_text("utf-8")
    page = Page(source)
    words = "".join(page.text)
    assert not {"script", "b", "i"} & {tag for tag, _ in page.elements}
    assert not [attributes for _, attributes in page.elements if any(name.startswith("on") for name in attributes)]
    assert all(str(picture["src"]).startswith("data:") for picture in page.all("img"))
    for name in hostile_names:
        assert name in words
    assert 'Is <i>model</i>" guessing?' in words


def test_hostile_names_survive_in_the_machine_readable_files(
    hostile: AuditResult, hostile_names: tuple[str, ...], read_json: Callable[[Path], dict[str, Any]]
) -> None:
    content = read_json(hostile.folder / "audit.json")
    assert list(content["data"]["test"]["classes"]) == list(hostile_names)
    assert f"accuracy.class.{hostile_names[0]}.recall" in content["numbers"]
    assert defusedxml.ElementTree.parse(hostile.folder / "junit.xml").getroot().get("errors") == "1"


def test_hundreds_of_classes_are_in_a_file_of_their_own() -> None:
    rng, names = np.random.default_rng(0), [f"class {k}" for k in range(250)]
    noise = ImageSet.from_arrays(rng.random((60, 1, 4, 4)), np.arange(60), class_names=names, layout="NCHW")

    def guess(images: np.ndarray) -> np.ndarray:
        return np.asarray(np.random.default_rng(1).dirichlet(np.ones(250), len(images)))

    result = sg.audit(
        Classifier(guess, output_kind="probabilities"),
        noise,
        supervisors=["entropy"],
        stress=[],
        sections=["accuracy", "calibration"],
    )
    assert not result.failed
    (found,) = re.findall(r'download="classes.csv" href="data:text/csv;charset=utf-8;base64,([^"]*)"', _html(result))
    rows = list(csv.DictReader(io.StringIO(base64.b64decode(found).decode())))
    assert [row["class"] for row in rows] == names and rows[0]["images"] == "1" and rows[-1]["recall"] == ""
    assert "no better than always giving the most frequent class" in dict(result.highlights)["Confidence"]


def _html(result: AuditResult) -> str:
    return "".join(str(one.html) for one in result.sections)


def test_many_large_colour_photographs_do_not_make_it_heavy(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 3, 200, 160), dtype=np.uint8)
    noise = ImageSet.from_arrays(pixels, np.arange(60) % 30, class_names=[f"class {k}" for k in range(30)])

    def guess(images: np.ndarray) -> np.ndarray:
        weights = 1 + images.reshape(len(images), 30, -1).mean(axis=2)
        return weights / weights.sum(axis=1, keepdims=True)

    result = sg.audit(
        Classifier(guess, output_kind="probabilities"), noise, folder=tmp_path, stress=["corrupted:contrast"]
    )
    assert not result.failed
    assert result.report.stat().st_size < 5_000_000
    assert "Confusion matrix" not in result.report.read_text("utf-8")  # thirty classes: the pairs say more
