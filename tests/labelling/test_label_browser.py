"""The labelling page in a real browser, with the keyboard alone."""

from __future__ import annotations

import csv
import io
import re
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from label_house import Server, make_pool

from in_browser import MARKS, assert_readable, launched
from secondguess.images import load_images
from secondguess.labelling.routes import LabelPage, label_app
from secondguess.labelling.session import LabellingSession
from secondguess.labelling.store import Store
from secondguess.report.pictures import data_uri
from secondguess.search.chance import RandomSearch
from secondguess.web.access import CheckedApp, Keys
from secondguess.web.pictures import Album
from secondguess.web.server import listen

pytestmark = MARKS

READY = "n => document.getElementById('bar').value === n && !document.body.hasAttribute('aria-busy')"

UNNAMED = """() => [...document.querySelectorAll('button, input, img:not([hidden])')]
  .filter(one => !(one.innerText || one.alt || one.ariaLabel || one.labels?.length || one.querySelector('img')))
  .length"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from launched()


class Person:
    """Somebody before the page, who has only a keyboard."""

    def __init__(self, browser: Any, link: str, name: str = "Ada", **options: Any) -> None:
        self.page = browser.new_context(**options).new_page()
        self.page.set_default_timeout(20_000)
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(link)
        self.page.get_by_role("textbox", name="Name").wait_for()
        self.press(*name, "Enter")
        self.shown().wait_for()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def wait(self, labelled: int) -> None:
        """Until so many images are labelled and the next one can be answered."""
        self.page.wait_for_function(READY, arg=labelled)

    def shown(self) -> Any:
        """The image in question."""
        return self.page.get_by_role("region", name="The image").get_by_role("img", name=re.compile("^Image [0-9]"))

    def text(self, where: str) -> str:
        return str(self.page.locator(where).inner_text())

    def image(self) -> int:
        """The number of the image on the page."""
        return int(self.shown().get_attribute("src").rpartition("/")[2].removesuffix(".png"))


def test_twenty_images_through_undo_reload_and_kill(
    browser: Any, serve_in_process: Callable[..., Server], house: Path, tmp_path: Path
) -> None:
    truth = load_images(house / "incoming.npz").labels
    server = serve_in_process("--search", "random")
    person = Person(browser, server.link)
    page = person.page
    assert "token" not in page.url
    said: dict[int, str] = {}

    def label(labelled: int) -> None:
        image = person.image()
        said[image] = str(truth[image])
        person.press(str(truth[image]))
        person.wait(labelled)
        assert person.text("#notice").startswith(f"You said {truth[image]}, the model said ")

    for labelled in range(1, 9):
        label(labelled)
    first = person.image()

    person.press("9")  # a slip
    person.wait(9)
    person.press("Control+z")
    person.wait(8)
    assert person.image() == first
    assert person.text("#notice") == "Taken back: 9."
    label(9)

    person.press("a")
    assert page.get_by_role("button", name="Confirm").is_disabled()
    image = person.image()
    person.press("3", "8", "5", "5")
    assert person.text("#notice") == "Chosen: 3 or 8."
    assert page.get_by_role("button", name="3 3", exact=True).get_attribute("aria-pressed") == "true"
    person.press("Enter")
    person.wait(10)
    said[image] = "3 or 8"

    image = person.image()
    person.press("i")
    person.wait(11)
    said[image] = "invalid"
    skipped = person.image()
    person.press("s")
    page.wait_for_function("old => !document.getElementById('image').src.endsWith(`/${old}.png`)", arg=skipped)
    person.wait(11)

    before = person.image()
    page.reload()
    person.shown().wait_for()
    person.wait(11)
    assert person.image() == before

    for labelled in range(12, 16):
        label(labelled)
    assert person.complaints == []

    server.end(signal.SIGKILL)
    image = person.image()
    said[image] = str(truth[image])
    person.press(str(truth[image]))  # into the void
    page.get_by_role("alert").filter(has_text="Your last answer is kept in this browser").wait_for()
    page.wait_for_timeout(700)  # tried more than once
    assert person.text("#tally").startswith("15 of")
    again = serve_in_process("--search", "random")
    assert (again.link, again.labelled) == (server.link, 15)
    person.wait(16)
    assert page.get_by_role("alert").count() == 0
    person.complaints.clear()  # the browser has said that it could not connect
    for labelled in range(17, 21):
        label(labelled)
    assert person.text("#tally").startswith("20 of 60 labelled")
    assert "1 skipped" in person.text("#tally")

    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").press("Enter")
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    assert {int(row["index"]): row["answer"] for row in rows} == said
    assert len(rows) == 20  # nothing twice
    assert {row["annotator"] for row in rows} == {"Ada"}
    assert skipped not in said
    wrong = [row for row in rows if row["wrong"] == "True"]
    page.wait_for_function("n => document.querySelectorAll('#errors li').length === n", arg=len(wrong))
    assert person.complaints == []
    page.context.close()


@contextmanager
def local(folder: Path, names: tuple[str, ...], **options: Any) -> Iterator[str]:
    """The page served by a thread of this process; the link to it."""
    import uvicorn

    pool, store, keys = make_pool(40, names), Store(folder), Keys.new()
    store.begin({"classes": list(names)})
    picture = data_uri(np.full((3, 8, 8), 0.5, np.float32))

    def explain(image: int) -> dict[str, Any]:
        return {"text": "Teal parts speak for it.", "pictures": [{"image": picture, "caption": f"Image {image}"}]}

    session, album = LabellingSession(RandomSearch().fit(pool), store, **options), Album(pool.images.images)
    page = LabelPage(session, store, keys, album, explain=explain)
    listening = listen()
    port = listening.getsockname()[1]
    config = uvicorn.Config(CheckedApp(label_app(page), keys, port), log_level="warning", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield keys.link(port)
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
        store.close()


def test_the_page_is_readable_and_named(browser: Any, tmp_path: Path) -> None:
    with local(tmp_path, ("cat", "dog", "owl")) as link:
        for width, height, scheme in ((1280, 900, "light"), (820, 1180, "dark"), (390, 844, "light")):
            person = Person(browser, link, viewport={"width": width, "height": height}, color_scheme=scheme)
            page = person.page
            labelled = int(page.locator("#bar").evaluate("bar => bar.value"))
            for more in (1, 2, 3):
                person.press("1")
                person.wait(labelled + more)
            page.get_by_role("img", name="Discovery ratio").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert_readable(page, skip="svg, :disabled")
            for heading in ("The image", "Which class is it?", "Why this image", "Discovery ratio", "Errors found"):
                assert page.get_by_role("heading", name=heading, exact=True).count() == 1
            assert page.get_by_role("heading", level=1).inner_text() == "What do you see?"
            assert page.get_by_role("progressbar").count() == 1
            assert page.get_by_role("status").first.inner_text().startswith("You said cat")
            for name in ("cat 1", "dog 2", "owl 3", "Ambiguous a", "Invalid i", "Skip s", "Undo u", "Explain e", "CSV"):
                assert page.get_by_role("button", name=name, exact=True).is_enabled()
            assert page.evaluate(UNNAMED) == 0
            assert person.complaints == []
            page.context.close()


def test_keys_alone_reach_everything(browser: Any, tmp_path: Path) -> None:
    with local(tmp_path, tuple(f"class {k}" for k in range(40)), goal=2) as link:
        person = Person(browser, link, reduced_motion="reduce")
        page = person.page
        person.press("?")
        assert page.get_by_role("dialog", name="Keys").is_visible()
        person.press("1", "s")  # not an answer while the help is open
        person.press("Escape")
        assert page.get_by_role("dialog").count() == 0

        person.press("Tab")
        seen = []
        for _ in range(8):
            name, outline = page.evaluate(
                "[document.activeElement.id || document.activeElement.innerText,"
                " getComputedStyle(document.activeElement).outlineStyle]"
            )
            seen.append(name)
            assert outline == "solid", name
            person.press("Tab")
        assert seen[:5] == ["Jump to the classes", "rename", "help-open", "filter", "class 0\n1"]

        person.press("/", *"class 3")
        assert page.locator("#classes button:visible").count() == 11  # 3, 30 ... 39
        person.press("8", "Enter")
        person.wait(1)
        assert "You said class 38" in person.text("#notice")
        assert page.locator("#classes button:visible").count() == 40
        person.press("Escape", "e")
        dialog = page.get_by_role("dialog", name="What the model looked at")
        dialog.get_by_role("img", name="Image").wait_for()
        assert "Teal parts speak for it." in dialog.inner_text()
        person.press("Escape", "q")
        person.wait(2)
        assert "You said class 10" in person.text("#notice")
        assert page.get_by_role("heading", name="All done").is_visible()
        assert "start again with a larger --labels" in person.text("#done-text")
        person.press("1", "i", "s", "a")  # nothing to answer
        person.press("u")
        person.wait(1)
        assert person.shown().is_visible()
        assert person.complaints == []
        page.context.close()


def test_a_name_is_asked_for_until_there_is_one(browser: Any, tmp_path: Path) -> None:
    with local(tmp_path, ("cat", "dog")) as link:
        page = browser.new_context().new_page()
        page.goto(link)
        page.get_by_role("dialog", name="Who is labelling?").wait_for()
        page.keyboard.press("Enter")
        page.keyboard.press("Escape")
        page.get_by_role("dialog", name="Who is labelling?").wait_for()
        page.get_by_role("textbox", name="Name").fill("Bob\u202e")  # turns the text after it around
        page.keyboard.press("Enter")
        page.get_by_role("alert").filter(has_text="cannot be used").wait_for()
        page.get_by_role("textbox", name="Name").fill("Bob")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Annotator Bob: change the name").wait_for()
        page.reload()
        page.get_by_role("button", name="Annotator Bob: change the name").wait_for()
        page.get_by_role("region", name="The image").get_by_role("img").wait_for()  # and none of an earlier answer
        assert page.get_by_role("dialog").count() == 0
        page.context.close()


def test_the_page_says_that_nothing_can_be_saved(
    browser: Any, serve_in_process: Callable[..., Server], tmp_path: Path
) -> None:
    """Another program holds the file of labels, to which the server answers as to a full disk."""
    server = serve_in_process("--search", "random")
    person = Person(browser, server.link)
    person.wait(0)
    base = sqlite3.connect(tmp_path / "labels" / "labels.sqlite", isolation_level=None)
    base.execute("BEGIN IMMEDIATE")
    person.press("3")
    banner = person.page.locator("#offline")
    banner.filter(has_text="Nothing can be saved at the moment").wait_for(timeout=30_000)
    assert "database is locked" in banner.inner_text()
    assert banner.inner_text().endswith("Your last answer is kept in this browser and will be sent again.")
    base.execute("ROLLBACK")
    base.close()
    person.wait(1)  # it was sent again
    assert banner.is_hidden()
    said = server.end()
    assert said.count("Answers cannot be saved") == 1 and "Traceback" not in said
    person.page.context.close()
