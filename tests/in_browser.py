"""What the tests in a real browser share: where it is, when they are skipped, and how readable a page is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")
REQUIRED = os.environ.get("SECONDGUESS_REQUIRE_BROWSER") == "1"

MARKS = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not CHROMIUM.exists() and not REQUIRED,
        reason=f"no browser at {CHROMIUM}: install chromium to check the pages in one",
    ),
]

# The contrast after WCAG 2, (lighter + .05) / (darker + .05), of every visible element with text of its own, and that
# text. Backgrounds are painted one over the other, as the browser does it; what has been painted is remembered, because
# reading a pixel takes long and a page has few colours.
CONTRAST = """skip => {
  const paint = Object.assign(document.createElement('canvas'), {width: 1, height: 1})
    .getContext('2d', {willReadFrequently: true});
  const painted = new Map(), below = new Map();
  const remembered = (known, key, make) => known.get(key) ?? known.set(key, make()).get(key);
  const luminance = colours => remembered(painted, colours.join(), () => {
    colours.forEach(colour => { paint.fillStyle = colour; paint.fillRect(0, 0, 1, 1); });
    const [r, g, b] = [...paint.getImageData(0, 0, 1, 1).data].map(v => v / 255)
      .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  });
  const papersOf = one => one ? remembered(below, one, () =>
    [...papersOf(one.parentElement), getComputedStyle(one).backgroundColor]) : ['white'];
  const contrast = one => {
    const papers = papersOf(one), style = getComputedStyle(one);
    const [paper, ink] = [luminance(papers), luminance([...papers, one.closest('svg') ? style.fill : style.color])];
    return (Math.max(paper, ink) + .05) / (Math.min(paper, ink) + .05);
  };
  const speaks = one => [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim());
  return [...document.querySelectorAll('body *')]
    .filter(one => one.checkVisibility() && !one.closest(skip) && speaks(one))
    .map(one => [contrast(one), one.tagName + '.' + one.className + ': ' + one.textContent.slice(0, 60)]);
}"""


def launched() -> Iterator[Any]:
    """A browser, closed at the end; for a fixture."""
    assert CHROMIUM.exists(), f"SECONDGUESS_REQUIRE_BROWSER is set, but there is no browser at {CHROMIUM}"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield started
        started.close()


def assert_readable(page: Any, *, skip: str = "svg", least: int = 1) -> None:
    """Every text of a page stands out from its background by 4.5, except inside of what matches the selector `skip`."""
    contrasts = page.evaluate(CONTRAST, skip)
    assert len(contrasts) >= least
    assert [found for found in contrasts if found[0] < 4.5] == []
