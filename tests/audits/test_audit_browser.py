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

# Boxes that scroll sideways and neither say so nor, where the browser cannot tell, show a shadow.
UNANNOUNCED = """() => [...document.querySelectorAll('.scroll')]
  .filter(box => box.scrollWidth > box.clientWidth + 1)
  .filter(box => {
    const hint = getComputedStyle(box, '::before');
    return !(hint.visibility === 'visible' && parseFloat(hint.height) > 10 && /Scroll/.test(hint.content));
  })
  .map(box => box.getAttribute('aria-label'))"""

# Text that its own box cuts off, and text that sticks out of the page, except where a box scrolls.
CLIPPED = """() => {
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walk.nextNode();) {
    const parent = node.parentElement;
    if (!node.data.trim() || !parent.checkVisibility() || parent.closest('svg')) continue;
    const range = document.createRange(); range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    const scroller = parent.closest('.scroll');
    const inside = !scroller || scroller.scrollWidth <= scroller.clientWidth + 1;
    const out = box.right > innerWidth + 1 || box.left < -1;
    if (inside && out) found.push('outside: ' + node.data.trim().slice(0, 40));
    for (let at = parent; at && at !== document.body; at = at.parentElement) {
      if (at === scroller || getComputedStyle(at).overflowX === 'visible') continue;
      if (box.right > at.getBoundingClientRect().right + 1) found.push('cut: ' + node.data.trim().slice(0, 40));
    }
  }
  return found.slice(0, 5);
}"""

# Words that stand on two lines although one line would be wide enough for them; <wbr> divides words, digests may break.
BROKEN = """() => {
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walk.nextNode();) {
    const parent = node.parentElement;
    if (!parent.checkVisibility() || parent.closest('svg, .digest')) continue;
    for (const word of node.data.matchAll(/[\\p{L}\\p{N}_]+/gu)) {
      const range = document.createRange();
      range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top)));
      const block = parent.closest('p, li, td, th, dd, dt, h1, h2, h3, h4, figcaption, summary, a, div');
      const wide = [...range.getClientRects()].reduce((sum, box) => sum + box.width, 0);
      if (lines.size > 1 && wide < block.clientWidth - 2) found.push(word[0]);
    }
  }
  return found.slice(0, 5);
}"""

OVERFLOWING = """() => [...document.querySelectorAll('body *')]
  .filter(e => !e.closest('.scroll') && !e.closest('svg') && e.getBoundingClientRect().right > innerWidth + 1)
  .map(e => e.tagName + '.' + e.className).slice(0, 5)"""


# Scroll timelines take effect with the next pictures that the browser paints.
PAINTED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(done))))"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from launched()


@pytest.fixture(params=[(1280, 900), (768, 1024), (390, 844)], ids=["desktop", "tablet", "phone"])
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

    page.evaluate(PAINTED)
    assert page.evaluate(UNANNOUNCED) == []
    assert page.evaluate(CLIPPED) == []
    assert page.evaluate(BROKEN) == []
    if size[0] >= 1280:
        wide = "[...document.querySelectorAll('.scroll')].filter(b => b.scrollWidth > b.clientWidth + 1)"
        assert page.evaluate(f"{wide}.map(b => b.getAttribute('aria-label'))") == []

    broken = page.evaluate("[...document.images].filter(one => !(one.complete && one.naturalWidth > 0)).length")
    assert broken == 0
    assert page.evaluate("document.images.length") > 40

    page.evaluate(STRONGEST)
    assert_readable(page, skip="svg, td.zero", least=100)

    assert page.evaluate("[...document.querySelectorAll('table')].filter(one => !one.closest('.scroll')).length") == 0
    assert page.locator("h1").count() == 1
    assert page.locator("h2").all_inner_texts()[:3] == [audited.verdict.headline, "In short", "What was audited"]
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
    page.evaluate(PAINTED)
    assert page.evaluate(UNANNOUNCED) == page.evaluate(CLIPPED) == page.evaluate(BROKEN) == []
    chart = page.locator("svg.chart")
    assert chart.count() == 1 and chart.bounding_box()["width"] > 200
    context.close()


def test_a_table_that_scrolls_says_so_and_one_that_does_not_is_silent(browser: Any, audited: AuditResult) -> None:
    hints = {}
    for width in (390, 1280):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto(audited.report.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        page.evaluate(PAINTED)
        boxes = """[...document.querySelectorAll('.scroll')].map(box => [
          box.scrollWidth > box.clientWidth + 1, getComputedStyle(box, '::before').visibility === 'visible'])"""
        hints[width] = page.evaluate(boxes)
        page.close()
    assert [True, True] in hints[390] and [False, False] in hints[390]
    assert all(scrolls == hints_at for scrolls, hints_at in hints[390] + hints[1280])


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
