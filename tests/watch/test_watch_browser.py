"""The watch page in a real browser: phone and desktop, light and dark, while records arrive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from watch_house import fill

from in_browser import MARKS, assert_readable, launched
from secondguess.service.records import Records
from secondguess.watch.routes import watch_app
from secondguess.watch.stream import Watch
from secondguess.web.access import CheckedApp, Keys
from secondguess.web.server import listen

pytestmark = MARKS


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from launched()


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """`serve(records)` gives the link of a page over them."""
    running: list[tuple[uvicorn.Server, threading.Thread, Records]] = []

    def started(where: Path) -> str:
        records, keys, listening = Records(str(where), read_only=True), Keys.new(), listen(0)
        port = listening.getsockname()[1]
        watch = Watch(records, missed=["corrupted: fog (3%)"])
        app = CheckedApp(watch_app(watch), keys, port)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        running.append((server, thread, records))
        return keys.link(port)

    yield started
    for server, thread, records in running:
        server.should_exit = True
        thread.join()
        records.close()


def opened(browser: Any, link: str, width: int = 1280, scheme: str = "light") -> tuple[Any, list[str]]:
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    events: list[str] = []
    home = link.partition("/?")[0]
    page.on("console", lambda message: events.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: events.append(str(error)))
    page.on("requestfailed", lambda request: events.append(f"failed: {request.url}"))
    page.on("request", lambda request: None if request.url.startswith(home) else events.append(request.url))
    page.goto(link)
    return page, events


def assert_becomes(page: Any, expression: str) -> None:
    """Wait until something is true; the page's own policy forbids what Playwright has for that."""
    for _ in range(200):
        if page.evaluate(expression):
            break
        page.wait_for_timeout(50)
    assert page.evaluate(expression), expression


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_change_is_told_and_shown(
    browser: Any, serve: Callable[[Path], str], tmp_path: Path, width: int, scheme: str
) -> None:
    fill(tmp_path / "r.sqlite", 3000, 600)
    page, events = opened(browser, serve(tmp_path / "r.sqlite"), width, scheme)
    page.wait_for_selector("#status.changed")
    assert "token" not in page.url
    assert page.locator("#status-title").inner_text().startswith("Something changed, around ")
    assert "calibration leaves room for" in page.locator("#status-text").inner_text()
    assert page.locator("#rate svg .since").count() == 1
    assert page.locator("#mix svg rect[data-kind=invalid]").count() > 5
    assert page.locator("#alarms li").count() == 24
    for picture in page.locator("#alarms img").all():  # they are loaded when they are looked at
        picture.scroll_into_view_if_needed()
    assert_becomes(page, "[...document.images].every(one => one.complete && one.naturalWidth > 0)")
    assert "fog (3%)" in page.locator("#missed").inner_text()
    assert page.locator("#rate svg").get_attribute("aria-label").startswith("Alarm rate over time: at most ")
    page.locator("summary").click()
    assert page.locator("#numbers tbody tr").count() >= 40
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert_readable(page, skip="svg title", least=100)
    assert events == []
    page.context.close()


def test_it_follows_what_arrives_and_can_be_paused(browser: Any, serve: Callable[[Path], str], tmp_path: Path) -> None:
    where = tmp_path / "r.sqlite"
    Records(str(where)).close()
    page, events = opened(browser, serve(where))
    assert_becomes(page, "document.getElementById('status-title').textContent === 'Nothing recorded yet'")
    assert page.locator("#rate-box").is_hidden()
    fill(where, 300, 0, pictures=False)
    page.wait_for_selector("#rate svg", timeout=10_000)
    assert "Nothing has changed" in page.locator("#status-title").inner_text()
    assert "300 images" in page.locator("#about").inner_text()
    assert page.locator("#no-pictures").is_visible()
    page.get_by_role("button", name="Pause").click()
    fill(where, 0, 200, seed=2, loud_rate=1.0)
    page.wait_for_timeout(2500)
    assert "300 images" in page.locator("#about").inner_text()
    page.get_by_role("button", name="Go on").click()
    page.wait_for_selector("#status.changed")
    page.get_by_role("button", name="Hour").click()
    assert_becomes(page, "document.querySelector('[data-span=hour]').getAttribute('aria-pressed') === 'true'")
    assert page.locator("[data-span=all]").get_attribute("aria-pressed") == "false"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.span") == "day"
    assert events == []
    page.context.close()


def test_a_server_that_has_gone_is_told(browser: Any, serve: Callable[[Path], str], tmp_path: Path) -> None:
    fill(tmp_path / "r.sqlite", 60, 0)
    page, _ = opened(browser, serve(tmp_path / "r.sqlite"))
    page.wait_for_selector("#rate svg")
    page.context.set_offline(True)
    page.wait_for_selector("#offline:not([hidden])", timeout=10_000)
    assert "cannot be reached" in page.locator("#offline").inner_text()
    page.context.set_offline(False)
    page.wait_for_selector("#offline", state="hidden", timeout=10_000)
    assert page.locator("#rate svg").count() == 1
    page.context.close()


def test_hostile_records_do_not_run(browser: Any, serve: Callable[[Path], str], tmp_path: Path) -> None:
    import sqlite3

    fill(tmp_path / "r.sqlite", 0, 50)
    evil = '<img src=x onerror="alert(1)">' * 3
    with sqlite3.connect(tmp_path / "r.sqlite") as base:
        base.execute(
            "UPDATE secondguess_records SET label = ?, verdict = ?, action = ? WHERE alarm = 1", (evil, evil, evil)
        )
    base.close()
    page, events = opened(browser, serve(tmp_path / "r.sqlite"), 390)
    page.wait_for_selector("#alarms li")
    assert page.locator("#alarms b").first.inner_text() == evil
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert events == []
    page.context.close()
