"""The page in a real browser, as a phone and as a desk sees it."""

from __future__ import annotations

import pytest

import secondguess as sg
from compare_house import flipped
from in_browser import MARKS, assert_readable, launched

pytestmark = MARKS


@pytest.fixture(scope="module")
def browser():
    yield from launched()


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_the_page_is_readable_and_fits(browser, tmp_path, width, scheme):
    found = sg.compare(*flipped(30, 2), no_worse_than=1, folder=tmp_path)
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("requestfailed", lambda request: troubles.append(request.url))
    page.goto(found.page.as_uri())
    assert page.locator("h2").first.inner_text() == "Worse than allowed: a gate does not hold"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    overall = page.locator("#overall .scroll")
    assert overall.evaluate("one => one.scrollWidth <= one.clientWidth"), "nobody has to scroll for the numbers"
    for fold in page.locator("details > summary").all():
        fold.click()
    assert_readable(page, least=30)
    assert troubles == []
    page.close()
