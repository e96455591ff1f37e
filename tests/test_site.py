"""The finished site in a real browser, from its files and without the net; `make site-test` builds it and runs this."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from in_browser import MARKS, launched

SITE = Path(__file__).parent.parent / "site"
PAGES = (
    "index",
    "tutorials/ten-minutes",
    "howto/threshold",
    "generated/commands/audit",
    "evidence/supervisors",
    "gallery/index",
    "gallery/1_see/compare_supervisors",
)
WIDTHS = {"phone": (390, 844), "desk": (1280, 900)}
SCHEMES = ("light", "dark")

pytestmark = [
    *MARKS,
    pytest.mark.slow,
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="there is no site/index.html: make docs builds it"),
]

# What stands out of the page to the right, and in no box that scrolls or hides it.
OVERFLOW = """() => {
  const width = document.documentElement.clientWidth;
  const fixed = one => getComputedStyle(one).position === 'fixed';
  const boxed = one => one && one !== document.body &&
    (getComputedStyle(one).overflowX !== 'visible' || fixed(one) || boxed(one.parentElement));
  return [...document.querySelectorAll('body *')]
    .filter(one => one.checkVisibility() && one.getBoundingClientRect().right > width + 1
      && !fixed(one) && !boxed(one.parentElement))
    .map(one => one.tagName + '.' + one.className + ': ' + one.textContent.trim().slice(0, 60));
}"""
# Pictures that are shown and could not be read.
BROKEN = "() => [...document.images].filter(one => one.complete && !one.naturalWidth).map(one => one.src)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from launched()


class Visit:
    """A reader with a window and a scheme, and everything that goes wrong while they read."""

    def __init__(self, browser: Any, width: str, scheme: str) -> None:
        across, down = WIDTHS[width]
        self.context = browser.new_context(viewport={"width": across, "height": down}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.troubles: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        self.page.on("request", self._asked)
        self.page.on("requestfailed", lambda request: self.troubles.append(f"not there: {request.url}"))

    def _said(self, message: Any) -> None:
        if message.type == "error":
            self.troubles.append(f"console: {message.text}")

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.troubles.append(f"the net: {request.url}")

    def open(self, name: str) -> None:
        self.page.goto((SITE / f"{name}.html").as_uri())


@pytest.fixture
def visit(browser: Any, request: pytest.FixtureRequest) -> Iterator[Visit]:
    reader = Visit(browser, *request.param)
    yield reader
    reader.context.close()


every_reader = pytest.mark.parametrize(
    "visit",
    [(width, scheme) for width in WIDTHS for scheme in SCHEMES],
    indirect=True,
    ids=lambda param: "-".join(param),
)


@every_reader
def test_pages_fit_their_window_and_ask_nobody(visit: Visit) -> None:
    for name in PAGES:
        visit.open(name)
        page = visit.page
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), f"{name} scrolls sideways"
        assert page.evaluate(OVERFLOW) == [], name
        assert page.evaluate(BROKEN) == [], name
        assert page.locator("h1").count() == 1, name
    assert visit.troubles == []


@every_reader
def test_the_scheme_is_that_of_the_reader(visit: Visit, request: pytest.FixtureRequest) -> None:
    visit.open("index")
    colour = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    darkness = sum(map(int, re.findall(r"\d+", colour)[:3])) / 765
    assert (darkness < 0.5) == ("dark" in request.node.callspec.id), colour


@every_reader
def test_search_answers_a_word_offline(visit: Visit) -> None:
    visit.page.goto((SITE / "search.html").as_uri() + "?q=entropy")
    # The hits are shown one after the other; the sentence with their number comes last.
    visit.page.wait_for_function("() => /found \\d+ page/.test(document.querySelector('#search-results').innerText)")
    assert visit.page.locator("#search-results ul.search li a").count() >= 5
    assert visit.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert visit.troubles == []


@pytest.mark.parametrize("visit", [("phone", "light")], indirect=True)
def test_wide_tables_scroll_within_their_own_box(visit: Visit) -> None:
    visit.open("evidence/supervisors")
    boxes = "() => [...document.querySelectorAll('table')].filter(one => one.scrollWidth > innerWidth).map(one => \
        { const box = one.closest('.table-wrapper'); return !!box && getComputedStyle(box).overflowX === 'auto' \
          && box.clientWidth <= innerWidth })"
    found = visit.page.evaluate(boxes)
    assert found and all(found)
