from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pytest
from label_house import NAMES
from PIL import Image
from starlette.testclient import TestClient

from secondguess.labelling.routes import LabelPage, label_app
from secondguess.labelling.session import LabellingSession
from secondguess.labelling.store import Store
from secondguess.search.pool import Pool
from secondguess.web.access import CheckedApp, Keys
from secondguess.web.pictures import Album, png

PORT = 8124
HOME = f"http://127.0.0.1:{PORT}"


@pytest.fixture
def make_client(open_session: Callable[..., LabellingSession], store: Store, keys: Keys) -> Callable[..., TestClient]:
    """`make_client(explain=..., show_answer=...)`: somebody who has opened the link."""

    def made(explain: Any = None, **options: Any) -> TestClient:
        session = open_session(**options)
        page = LabelPage(session, store, keys, Album(session.search.pool.images.images), "Ada", explain)
        client = TestClient(CheckedApp(label_app(page), keys, PORT), base_url=HOME, raise_server_exceptions=False)
        client.get("/", params={"token": keys.token})
        client.headers.update({"origin": HOME, "x-csrf-token": keys.csrf})
        return client

    return made


@pytest.fixture
def client(make_client: Callable[..., TestClient]) -> TestClient:
    return make_client()


def post(client: TestClient, path: str, **body: Any) -> Any:
    answer = client.post(f"/api/{path}", json={"annotator": "Ada"} | body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_session_over_http(client: TestClient, pool: Pool) -> None:
    about = client.get("/api/session").json()
    assert about["classes"] == list(NAMES)
    assert about["shortcuts"] == ["1", "2", "3"]
    assert (about["annotator"], about["shape"], about["explains"]) == ("Ada", [1, 8, 8], False)
    begun = post(client, "next")
    image = begun["question"]["image"]
    assert begun["verdict"] is None
    assert begun["question"]["prediction"] is None
    after = post(client, "answer", image=image, classes=[1], key="k" * 8)
    assert after["verdict"]["said"] == "dog"
    assert after["verdict"]["model"] == NAMES[pool.predictions[image]]
    assert after["progress"]["labelled"] == 1
    assert after["question"]["image"] != image
    again = post(client, "answer", image=image, classes=[1], key="k" * 8)
    assert again == after
    undone = post(client, "undo", key="u" * 8)
    assert (undone["question"]["image"], undone["question"]["before"]) == (image, "dog")
    skipped = post(client, "skip", image=image, key="s" * 8)
    assert (skipped["progress"]["labelled"], skipped["progress"]["skipped"]) == (0, 1)


def test_findings(client: TestClient, pool: Pool) -> None:
    assert client.get("/api/findings").json() == {
        "curve": {"labels": [], "value": [], "low": [], "high": []},
        "errors": [],
    }
    image = post(client, "next")["question"]["image"]
    post(client, "answer", image=image, classes=[], key="k" * 8)
    found = client.get("/api/findings").json()
    assert found["curve"]["labels"] == [1]
    assert found["curve"]["value"] == pytest.approx([1 / (1 - pool.confidence[image])])
    assert [error["image"] for error in found["errors"]] == [image]
    assert (found["errors"][0]["said"], found["errors"][0]["annotators"]) == ("invalid", ["Ada"])


def test_what_cannot_be_is_a_sentence_not_a_failure(client: TestClient) -> None:
    image = post(client, "next")["question"]["image"]
    cases = [
        (409, "answer", {"annotator": "Bob", "image": image, "classes": [0], "key": "a" * 8}),
        (400, "answer", {"annotator": "Ada", "image": image, "classes": [9], "key": "a" * 8}),
        (400, "next", {"annotator": "   "}),
        (422, "answer", {"annotator": "Ada", "image": image, "classes": ["dog"], "key": "a" * 8}),
        (422, "answer", {"annotator": "Ada", "image": image, "classes": [0], "key": "short"}),
        (422, "next", {}),
    ]
    for status, path, body in cases:
        answer = client.post(f"/api/{path}", json=body)
        assert answer.status_code == status, answer.text
        assert answer.json()["detail"]
    assert post(client, "next")["progress"]["labelled"] == 0


def test_images_come_by_number_and_nothing_else_does(client: TestClient, pool: Pool) -> None:
    where = client.get("/api/session").json()["images"]
    answer = client.get(f"{where}3.png")
    assert answer.headers["content-type"] == "image/png"
    assert "immutable" in answer.headers["cache-control"]
    pixels = np.asarray(Image.open(io.BytesIO(answer.content)))
    np.testing.assert_array_equal(pixels, np.rint(pool.images.images[3][0] * 255))
    for path in (
        f"{where}30.png", f"{where}-1.png", "/images/other/3.png", f"{where}../../../etc/passwd",
        f"{where}%2e%2e%2f%2e%2e%2fetc%2fpasswd", f"{where}..%5c..%5csetup.png", "/../pyproject.toml", "/label.py",
        "/routes.py", "/%2e%2e/store.py", "/static/label.js", "/label.html", "/labels.sqlite", "/.access.json",
        "/export/labels.sqlite", "/export/..%2flabels.sqlite", "/docs", "/openapi.json", "/redoc",
    ):  # fmt: skip
        assert client.get(path).status_code in (404, 422), path


def test_the_page_has_no_inline_script_and_asks_nobody_else(client: TestClient, keys: Keys) -> None:
    html = client.get("/").text
    assert f'content="{keys.csrf}"' in html
    assert keys.token not in html
    for text in (html, client.get("/label.js").text, client.get("/page.css").text, client.get("/curve.js").text):
        assert "https://" not in text
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "<script>" not in html and "style=" not in html and "onclick" not in html
    assert client.get("/label.js").headers["content-type"].startswith("text/javascript")
    assert client.get("/page.css").headers["content-type"].startswith("text/css")


def test_explanations_wait_for_the_answer(make_client: Callable[..., TestClient]) -> None:
    client = make_client(explain=lambda image: {"text": f"about {image}", "pictures": []})
    image = post(client, "next")["question"]["image"]
    hidden = client.get(f"/api/explanations/{image}")
    assert (hidden.status_code, hidden.json()["detail"]) == (
        403,
        "The model's answer is hidden until the image has been answered.",
    )
    post(client, "answer", image=image, classes=[0], key="k" * 8)
    assert client.get(f"/api/explanations/{image}").json() == {"text": f"about {image}", "pictures": []}


def test_explanations_are_there_at_once_where_the_answer_is_shown(make_client: Callable[..., TestClient]) -> None:
    client = make_client(explain=lambda image: {"text": "", "pictures": []}, show_answer=True)
    assert client.get("/api/explanations/3").status_code == 200
    for nowhere in (-1, 30, 10**30):
        assert client.get(f"/api/explanations/{nowhere}").status_code == 404


def test_without_captum_there_are_no_explanations(client: TestClient) -> None:
    answer = client.get("/api/explanations/3")
    assert answer.status_code == 404
    assert 'pip install "secondguess[explain]"' in answer.json()["detail"]


@pytest.mark.parametrize(("kind", "begins"), [("csv", b"index,id,"), ("parquet", b"PAR1"), ("npz", b"PK")])
def test_downloads(client: TestClient, kind: str, begins: bytes) -> None:
    image = post(client, "next")["question"]["image"]
    post(client, "answer", image=image, classes=[1], key="k" * 8)
    answer = client.get(f"/export/labels.{kind}")
    assert answer.status_code == 200
    assert answer.headers["content-disposition"] == f'attachment; filename="labels.{kind}"'
    assert answer.content.startswith(begins)


def test_an_album_is_read_by_one_thread_at_a_time() -> None:
    """A source that keeps what it has read, as that of Parquet files does, breaks when two threads are in it."""
    inside, crowds = threading.Semaphore(1), []

    class Source:
        def __getitem__(self, image: int) -> int:
            alone = inside.acquire(blocking=False)
            crowds.append(not alone)
            time.sleep(0.01)
            if alone:
                inside.release()
            return image

    album = Album(cast("Any", Source()))
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(album.__getitem__, range(8))) == list(range(8))
    assert not any(crowds)


def test_pictures_of_any_number_of_channels() -> None:
    rng = np.random.default_rng(0)
    for channels, mode in ((1, "L"), (2, "L"), (3, "RGB"), (4, "RGB")):
        image = rng.random((channels, 4, 5), dtype=np.float32)
        opened = Image.open(io.BytesIO(png(image)))
        assert (opened.mode, opened.size) == (mode, (5, 4))


@pytest.mark.parametrize("name", [r'"Z\ud800"', r'"\udfff"'])
def test_half_a_character_in_a_name_is_a_sentence(client: TestClient, name: str) -> None:
    body = f'{{"annotator": {name}}}'
    answer = client.post("/api/next", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["detail"]) == (
        400,
        "The annotator holds half a character; write it anew.",
    )


def test_a_request_of_another_shape_is_one_sentence(client: TestClient) -> None:
    for body in (
        b"{",
        b"[]",
        b'{"annotator": 3}',
        b'{"annotator": "Ada", "image": 1e400}',
        b'{"x": "\\ud800"}',
        b"\xff",
    ):
        answer = client.post("/api/answer", content=body, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 422), answer.text
        assert isinstance(answer.json()["detail"], str)


def test_a_full_disk_is_a_sentence_and_nothing_is_lost(
    make_client: Callable[..., TestClient], store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    client = make_client()
    first = post(client, "next")["question"]["image"]
    (pages,) = store._base.rows("PRAGMA page_count")[0]
    store._base.run(f"PRAGMA max_page_count = {pages}")  # SQLite then fails as on a full disk
    said: list[int] = []
    for _ in range(40):  # until the last page is full
        begun = client.post("/api/next", json={"annotator": "Ada"})
        if begun.status_code == 200:
            image = begun.json()["question"]["image"]
            body = {"annotator": "Ada", "image": image, "classes": [1], "key": f"key {image:6d}" + "x" * 80}
            answer = client.post("/api/answer", json=body)
            said += [image] if answer.status_code == 200 else []
            begun = answer
    assert begun.status_code == 503, "the disk is not full"
    assert "Nothing can be saved at the moment" in begun.json()["detail"]
    assert "full" in begun.json()["detail"]
    assert len([one for one in caplog.records if "Answers cannot be saved" in one.getMessage()]) == 1

    store._base.run("PRAGMA max_page_count = 1000000")
    image = post(client, "next")["question"]["image"]
    while len(said) < 30 and image is not None:
        after = post(client, "answer", image=image, classes=[1], key=f"key {image:6d}" + "x" * 80)
        said = list(dict.fromkeys([*said, image]))
        image = after["question"] and after["question"]["image"]
    assert first in said and len(said) == 30  # no image was lost to a question that could not be stored
    assert after["progress"]["labelled"] == 30
    assert "Answers are saved again" in caplog.text


def test_names_that_are_not_utf_8_can_be_shown(
    open_session: Callable[..., LabellingSession], store: Store, keys: Keys
) -> None:
    """As the names of folders and words of the command line may be."""
    session = open_session()
    page = LabelPage(session, store, keys, Album(session.search.pool.images.images), os.fsdecode(b"Andr\xe9"))
    client = TestClient(CheckedApp(label_app(page), keys, PORT), base_url=HOME, raise_server_exceptions=False)
    client.get("/", params={"token": keys.token})
    answer = client.get("/api/session")
    assert answer.status_code == 200
    assert answer.json()["annotator"] == os.fsdecode(b"Andr\xe9")


def test_a_name_that_turns_the_text_around_is_written_out(
    open_session: Callable[..., LabellingSession], store: Store, keys: Keys
) -> None:
    session = open_session()
    page = LabelPage(session, store, keys, Album(session.search.pool.images.images), "Ada\u202e")
    client = TestClient(CheckedApp(label_app(page), keys, PORT), base_url=HOME)
    client.get("/", params={"token": keys.token})
    assert client.get("/api/session").json()["annotator"] == r"Ada\u202e"
