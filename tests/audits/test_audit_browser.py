"""The report in a real browser: phone and desktop, light and dark, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from torch import nn

import secondguess as sg
from in_browser import MARKS, assert_readable, launched
from secondguess import AuditResult, Classifier, Dataset
from secondguess.audits.sections import ambiguity
from secondguess.stress.ambiguous import AmbiGuess, acceptance

pytestmark = MARKS

# Every heat map turned up to its strongest colour.
STRONGEST = """() => {
  document.querySelectorAll('td.heat').forEach(cell => cell.style.setProperty('--heat', '100%'));
  document.querySelectorAll('table.matrix td').forEach(cell => cell.style.setProperty('--heat', '1'));
}"""

OVERFLOWING = """() => [...document.querySelectorAll('body *')]
  .filter(e => !e.closest('.scroll') && !e.closest('svg') && e.getBoundingClientRect().right > innerWidth + 1)
  .map(e => e.tagName + '.' + e.className).slice(0, 5)"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from launched()


@pytest.fixture(params=[(1280, 900), (390, 844)], ids=["desktop", "phone"])
def size(request: pytest.FixtureRequest) -> tuple[int, int]:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_report_is_readable(browser: Any, audited: AuditResult, size: tuple[int, int], scheme: str) -> None:
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page = context.new_page()
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(f"failed: {request.url[:80]}"))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(audited.report.as_uri(), wait_until="load")
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")

    assert complaints == []
    assert [url for url in requests if not url.startswith("data:")] == [audited.report.as_uri()]

    width, inside = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= inside, page.evaluate(OVERFLOWING)
    assert page.evaluate(OVERFLOWING) == []

    broken = page.evaluate("[...document.images].filter(one => !(one.complete && one.naturalWidth > 0)).length")
    assert broken == 0
    assert page.evaluate("document.images.length") > 40

    page.evaluate(STRONGEST)
    assert_readable(page, skip="svg, td.zero", least=100)

    assert page.evaluate("[...document.querySelectorAll('table')].filter(one => !one.closest('.scroll')).length") == 0
    assert page.locator("h1").count() == 1
    assert page.locator("h2").all_inner_texts()[:2] == ["In short", "What was audited"]
    assert page.locator("svg.chart").count() > 3
    assert page.evaluate(
        "[...document.querySelectorAll('svg.chart')].every(one => one.getBoundingClientRect().width > 200)"
    )
    context.close()


@pytest.fixture(scope="module")
def ambiguous(net: nn.Module, digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    """The section on ambiguity with all that can be in it, from autoencoders that have hardly been trained."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(acceptance, "FOOLED", (0.0, 1.0))
        patch.setattr(acceptance, "TELLS_APART", 0.0)
        return sg.audit(
            Classifier(net, device="cpu"),
            digits.test.head(40, seed=0),
            train=digits.train,
            folder=tmp_path_factory.mktemp("ambiguous"),
            stress=[AmbiGuess(pairs=[(3, 8), (4, 9)], autoencoders=1, epochs=2, realism=False)],
            sections=["ambiguity"],
        )


def test_the_section_on_ambiguity_is_readable(
    browser: Any, ambiguous: AuditResult, size: tuple[int, int], scheme: str
) -> None:
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page = context.new_page()
    page.goto(ambiguous.report.as_uri(), wait_until="load")
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), page.evaluate(OVERFLOWING)
    assert page.evaluate(OVERFLOWING) == []
    assert_readable(page)
    assert page.evaluate("[...document.images].every(one => one.complete && one.naturalWidth > 0)")
    assert page.evaluate("document.images.length") == 2 * ambiguity.SHOWN
    chart = page.locator("svg.chart")
    assert chart.count() == 1 and chart.bounding_box()["width"] > 200
    context.close()


def test_dark_is_dark_and_light_is_light(browser: Any, audited: AuditResult) -> None:
    shades = {}
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        page = context.new_page()
        page.goto(audited.report.as_uri())
        ink = "getComputedStyle(document.querySelector('svg.chart text')).fill"
        paper = "getComputedStyle(document.body).backgroundColor"
        shades[scheme] = [sum(map(int, page.evaluate(what)[4:-1].split(","))) for what in (ink, paper)]
        context.close()
    assert shades["light"][0] < shades["light"][1], "dark ink on light paper, in the charts too"
    assert shades["dark"][0] > shades["dark"][1], "light ink on dark paper, in the charts too"


def test_long_and_hostile_names_neither_widen_the_page_nor_run(browser: Any, hostile: AuditResult) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    events: list[str] = []
    page.on("console", lambda message: events.append(message.text))
    page.on("dialog", lambda dialog: (events.append(dialog.message), dialog.dismiss()))
    page.goto(hostile.report.as_uri(), wait_until="load")
    assert events == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), page.evaluate(OVERFLOWING)
    assert page.evaluate(OVERFLOWING) == []
    context.close()
