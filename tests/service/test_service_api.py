"""The service over HTTP, in this process: what it answers, what it records, what it refuses."""

from __future__ import annotations

import io
import json
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from secondguess.database import DatabaseFailed
from secondguess.errors import UserError
from secondguess.images.decode import decode
from secondguess.images.fitting import fit_image
from secondguess.service import api, judge_worker
from secondguess.service.api import Service, service_app
from secondguess.service.hosts import KnownHosts
from secondguess.service.judge_worker import Subject
from secondguess.service.limits import Limits
from secondguess.service.records import Records
from secondguess.service.server import bind, run
from secondguess.service.writer import Writer
from service_house import CARD, SHAPE, TOKEN, bomb, in_time, judgement, picture, subject

PNG = {"content-type": "image/png"}


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "records.sqlite"


@pytest.fixture
def make_client(where: Path) -> Iterator[Callable[..., TestClient]]:
    opened: list[TestClient] = []

    def made(judge: Subject | None = None, **options: Any) -> TestClient:
        service = Service(judge or subject(), Records(str(where)), TOKEN, **options)
        client = TestClient(service_app(service), headers={"Authorization": f"Bearer {TOKEN}"})
        opened.append(client.__enter__())
        client.service = service  # type: ignore[attr-defined]
        return client

    yield made
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def client(make_client: Callable[..., TestClient]) -> TestClient:
    return make_client()


def rows(where: Path) -> list[tuple[Any, ...]]:
    base = sqlite3.connect(where)
    try:
        return base.execute(
            "SELECT prediction, confidence, verdict FROM secondguess_records ORDER BY number"
        ).fetchall()
    finally:
        base.close()


def test_every_form_of_one_image_gets_the_same_answer(client: TestClient, where: Path) -> None:
    file = picture(0.2, first=1)
    pixels = decode(file, "it")
    expected = judgement(pixels)
    forms = [
        {"content": file, "headers": PNG},
        {"content": file, "headers": {"content-type": "application/octet-stream"}},
        {"files": {"image": ("../../etc/passwd", file, "text/plain")}},
        {"json": {"image": pixels[0].astype(float).tolist()}},
        {"json": {"image": pixels.astype(float).tolist()}},
        {"json": {"image": np.moveaxis(pixels, 0, 2).astype(float).tolist()}},
        {"json": {"image": (255 * pixels[0]).round().astype(int).tolist(), "scale": 255}},
        {"json": {"images": [pixels[0].astype(float).tolist()]}},
    ]
    for form in forms:
        answer = client.post("/predict", **form)
        assert answer.status_code == 200, answer.text
        (result,) = answer.json()["results"]
        assert result["prediction"] == expected.prediction and result["class_name"] == expected.class_name
        assert result["confidence"] == pytest.approx(expected.probabilities.max(), abs=1e-6)
        assert (result["verdict"], result["action"], result["p_value"]) == (["invalid"], "refuse", 0.01)
    assert len(rows(where)) == len(forms)
    assert {row[2] for row in rows(where)} == {"invalid"}


def test_several_images_keep_their_order(client: TestClient, where: Path) -> None:
    levels = [0.1, 0.5, 0.9, 0.12]
    files = [("image", (f"{k}.png", picture(level, first=0), "image/png")) for k, level in enumerate(levels)]
    answer = client.post("/predict", files=files).json()
    assert [one["class_name"] for one in answer["results"]] == ["dark", "grey", "light", "dark"]
    arrays = client.post("/predict", json={"images": [[[level] * 8] * 8 for level in levels]}).json()
    assert [one["class_name"] for one in arrays["results"]] == ["dark", "grey", "light", "dark"]
    assert answer["request"] != arrays["request"]
    assert len(rows(where)) == 8


def test_pictures_are_resized_as_everywhere_else(client: TestClient) -> None:
    rng = np.random.default_rng(0)
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 255, (40, 23, 3), dtype=np.uint8)).save(file, "PNG")
    expected = judgement(fit_image(decode(file.getvalue(), "it"), SHAPE, "stretch"))
    (result,) = client.post("/predict", content=file.getvalue(), headers=PNG).json()["results"]
    assert result["confidence"] == pytest.approx(expected.probabilities.max(), abs=1e-6)


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer x", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer ümläut"]
)
def test_nobody_is_served_without_the_token(client: TestClient, where: Path, header: str | None) -> None:
    client.headers.pop("Authorization")
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    for answer in (
        client.post("/predict", content=picture(), headers=PNG | headers),  # type: ignore[arg-type]
        client.get("/metrics", headers=headers),  # type: ignore[arg-type]
    ):
        assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
        assert "Authorization: Bearer TOKEN" in answer.json()["detail"]
    assert rows(where) == []


def test_health_and_pages_need_no_token(client: TestClient) -> None:
    client.headers.pop("Authorization")
    assert client.get("/healthz").json()["status"] == "ok"
    schema = client.get("/openapi.json").json()
    assert set(schema["paths"]) == {"/predict", "/healthz", "/readyz", "/metrics"}
    predict = schema["paths"]["/predict"]["post"]
    assert set(predict["requestBody"]["content"]) == {"image/*", "multipart/form-data", "application/json"}
    assert {"200", "400", "401", "413", "415", "422", "503"} <= predict["responses"].keys()
    assert schema["components"]["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
    page = client.get("/")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert not re.search(r"<script|https?://(?!127\.0\.0\.1:8000)", page.text)
    assert client.get("/docs").status_code == 404


def test_openapi_names_what_is_answered(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()["paths"]["/predict"]["post"]["responses"]["200"]
    result = schema["content"]["application/json"]["schema"]["properties"]["results"]["items"]
    for first in (0.5, 0.0):
        (given,) = client.post("/predict", content=picture(0.3, first=first), headers=PNG).json()["results"]
        assert set(given) <= set(result["properties"]) and set(result["required"]) <= set(given)
    (hedged,) = client.post("/predict", json={"image": [[0.5] * 8] * 8}).json()["results"]
    assert set(hedged) == set(result["properties"])


def test_prometheus_counts_what_was_recorded(client: TestClient, where: Path) -> None:
    for first in (0, 0, 1):
        client.post("/predict", content=picture(0.3, first=first), headers=PNG)
    client.post("/predict", content=b"nonsense", headers=PNG)
    page = client.get("/metrics")
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page.text)
        for sample in family.samples
    }
    assert found["secondguess_images_total", "nominal"] == 2
    assert found["secondguess_images_total", "invalid"] == found["secondguess_alarms_total",] == 1
    assert found["secondguess_images_total", "adversarial"] == 0
    assert found["secondguess_requests_total", "200"] == 3 == len(rows(where))
    assert found["secondguess_requests_total", "422"] == 1
    assert found["secondguess_request_seconds_count",] == 4
    assert found["secondguess_alarm_rate",] == pytest.approx(1 / 3)
    assert found["secondguess_calibrated_alarm_rate",] == 0.05
    assert found["secondguess_waiting_images",] == 0


@pytest.mark.parametrize(
    ("form", "status", "sentence"),
    [
        ({"content": b""}, 400, "has no body"),
        ({"content": b"x", "headers": {"content-type": "text/csv"}}, 415, "'text/csv' is not understood"),
        ({"content": b"{", "headers": {"content-type": "application/json"}}, 400, "not valid JSON"),
        ({"content": b"[" * 100_000, "headers": {"content-type": "application/json"}}, 400, "not valid JSON"),
        ({"content": b"\xff\xfe", "headers": {"content-type": "application/json"}}, 400, "not valid JSON"),
        ({"content": b'{"image": [[NaN]]}', "headers": {"content-type": "application/json"}}, 422, "holds NaN"),
        ({"json": []}, 422, "must be a JSON object"),
        ({"json": {}}, 422, 'must hold "image" or "images"'),
        ({"json": {"image": [[0.5]], "images": []}}, 422, 'must hold "image" or "images"'),
        ({"json": {"image": [[0.5]], "path": "/etc/passwd"}}, 422, "nothing else"),
        ({"json": {"image": "a.png"}}, 422, "array of numbers"),
        ({"json": {"image": [["0.5"] * 8] * 8}}, 422, "array of numbers"),
        ({"json": {"image": [[None] * 8] * 8}}, 422, "array of numbers"),
        ({"json": {"image": [[True] * 8] * 8}}, 422, "array of numbers"),
        ({"json": {"image": [[0.5] * 8] * 7}}, 422, r"\(1, 8, 8\) .*, but an image of shape \(7, 8\) was given"),
        ({"json": {"image": [[0.5] * 8] * 7 + [[0.5]]}}, 422, "differ in length"),
        ({"json": {"image": [[1.5] * 8] * 8}}, 422, "not between 0 and 1"),
        ({"json": {"image": [[-0.1] * 8] * 8}}, 422, "not between 0 and 1"),
        ({"json": {"image": [[256] * 8] * 8, "scale": 255}}, 422, "not between 0 and 255"),
        ({"json": {"image": [[0.5] * 8] * 8, "scale": 7}}, 422, 'The "scale" must be 1 or 255'),
        ({"json": {"image": [[0.5] * 8] * 8, "scale": True}}, 422, 'The "scale" must be 1 or 255'),
        ({"json": {"images": []}}, 422, "no image in"),
        ({"json": {"images": [[[0.5] * 8] * 8] * 65}}, 413, "More than 64 images"),
        ({"content": b'{"image": [[1e999]]}', "headers": {"content-type": "application/json"}}, 422, "not between 0"),
        ({"content": picture()[:40], "headers": PNG}, 422, "Image 1 cannot be read"),
        ({"content": b"GIF89a", "headers": PNG}, 422, "Image 1 cannot be read"),
        ({"files": {"image": ("x.png", b"", "image/png")}}, 422, "Image 1 cannot be read"),
        ({"data": {"image": "a.png"}}, 415, "not understood"),
        ({"files": [("a", ("a", picture())), ("b", (None, "text"))]}, 422, "a field that is no file"),
        ({"files": [("a", ("a", b"x")) for _ in range(65)]}, 413, "More than 64 images"),
        ({"content": b"--", "headers": {"content-type": "multipart/form-data"}}, 400, "form could not be read"),
        ({"content": b"a", "headers": {"content-type": "multipart/form-data; boundary=x"}}, 400, "could not be read"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_request_is_said(
    client: TestClient, where: Path, form: dict[str, Any], status: int, sentence: str
) -> None:
    answer = client.post("/predict", **form)
    assert answer.status_code == status, answer.text
    assert re.search(sentence, answer.json()["detail"]), answer.text
    assert rows(where) == []


@pytest.mark.parametrize("size", [(3000, 3000), (9000, 1), (60000, 60000), (2**31 - 1, 2**31 - 1)])
def test_huge_dimensions_are_refused_before_they_are_decoded(client: TestClient, size: tuple[int, int]) -> None:
    answer = client.post("/predict", content=bomb(*size), headers=PNG)
    assert answer.status_code in (413, 422)
    assert re.search(r"make it smaller|cannot be read", answer.json()["detail"])


def test_a_long_body_is_refused_while_it_arrives(make_client: Callable[..., TestClient]) -> None:
    client = make_client(limits=Limits(body=10_000))
    sent: list[int] = []

    def parts() -> Iterator[bytes]:
        for _ in range(1000):
            sent.append(1)
            yield b"x" * 1000

    assert client.post("/predict", content=b"x" * 10_001, headers=PNG).status_code == 413
    answer = client.post("/predict", content=parts(), headers=PNG)  # without a length
    assert answer.status_code == 413 and "10,000 bytes" in answer.json()["detail"]
    door = client.service.reader  # type: ignore[attr-defined]
    assert door._held == 0


def test_limits_must_make_sense() -> None:
    with pytest.raises(UserError, match="The limit 'images' is 0; it must be larger than 0"):
        Limits(images=0)
    with pytest.raises(UserError, match="make `bodies` at least `body`"):
        Limits(body=100, bodies=10)


def test_what_cannot_be_recorded_is_not_answered(
    make_client: Callable[..., TestClient], monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client = make_client()

    def full(*records: Any) -> None:
        raise DatabaseFailed("The database at db.internal:5432 cannot be written.")

    monkeypatch.setattr(client.service.records, "append", full)  # type: ignore[attr-defined]
    for _ in range(5):
        answer = client.post("/predict", content=picture(), headers=PNG)
        assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
        assert answer.json() == {
            "detail": "The prediction could not be recorded, so it is not given; try again in a moment."
        }
    monkeypatch.undo()
    for _ in range(3):
        assert client.post("/predict", content=picture(), headers=PNG).status_code == 200
    assert [one.getMessage() for one in caplog.records if one.name.startswith("secondguess")] == [
        "Records cannot be written, nothing is answered: The database at db.internal:5432 cannot be written.",
        "Records are written again; failures in between: 5.",
    ]


def test_ready_means_that_an_image_can_be_judged_and_recorded(
    make_client: Callable[..., TestClient], monkeypatch: Any, where: Path
) -> None:
    monkeypatch.setattr(api, "TRIED", 0.0)
    monkeypatch.setattr(api, "TRIAL", 0.3)
    broken, slow = threading.Event(), threading.Event()

    def judge(images: np.ndarray) -> list[Any]:
        if broken.is_set():
            raise RuntimeError("a defect")
        while slow.is_set():
            time.sleep(0.01)
        return [judgement(image) for image in images]

    def ready() -> tuple[int, str]:
        answer = client.get("/readyz", headers={"authorization": ""})
        assert answer.status_code == 200 or answer.headers["retry-after"] == "1"
        return answer.status_code, answer.json().get("detail", "")

    client = make_client(Subject(judge, SHAPE, 0.05, CARD))  # type: ignore[arg-type]
    assert ready() == (200, "")
    assert rows(where) == []  # a trial is no prediction
    broken.set()
    assert ready() == (503, "The model fails.")
    broken.clear()
    slow.set()
    assert ready() == (503, "An image could not be judged and recorded within 0.3 seconds.")
    slow.clear()
    monkeypatch.setattr(api, "TRIAL", 30)
    assert ready() == (200, "")
    base = client.service.records._base  # type: ignore[attr-defined]
    base.run("PRAGMA query_only = ON")
    assert ready() == (503, "Records cannot be written.")
    assert client.get("/healthz").status_code == 200  # a restart would not help
    base.run("PRAGMA query_only = OFF")
    assert ready() == (200, "")


def test_asking_whether_it_is_ready_costs_one_image_a_second(make_client: Callable[..., TestClient]) -> None:
    judged: list[int] = []

    def judge(images: np.ndarray) -> list[Any]:
        judged.append(len(images))
        return [judgement(image) for image in images]

    client = make_client(Subject(judge, SHAPE, 0.05, CARD))  # type: ignore[arg-type]
    before, began = len(judged), time.monotonic()
    for _ in range(50):
        assert client.get("/readyz").status_code == 200
    assert len(judged) - before <= 2 + (time.monotonic() - began)


@pytest.mark.parametrize("path", ["/predict/", "/healthz/", "/metrics/", "/openapi.json/"])
def test_no_address_is_guessed(client: TestClient, path: str) -> None:
    answer = client.post(path, headers={"host": "evil.example"}, follow_redirects=False)
    assert answer.status_code == 404 and "location" not in answer.headers


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("127.0.0.1", True), ("127.0.0.1:8000", True), ("localhost:8000", True), ("LOCALHOST.", True), ("[::1]", True),
        ("[::1]:8000", True), ("10.1.2.3:80", True), ("guard.example", True), ("Guard.Example:443", True),
        ("evil.example", False), ("evil.example:8000", False), ("guard.example.evil", False), ("", False),
        ("127.0.0.1.evil.example", False), ("localhost:x", False), ("a:b:c", False), ("guard.example:", False),
    ],
)  # fmt: skip
def test_it_answers_to_its_own_names(where: Path, host: str, known: bool) -> None:
    service = Service(subject(), Records(str(where)), TOKEN)
    with TestClient(KnownHosts(service_app(service), ["guard.example"])) as client:
        answer = client.get("/healthz", headers={"host": host})
    assert answer.status_code == (200 if known else 400), answer.text
    assert known or "names another server" in answer.json()["detail"]


def test_a_defect_is_a_500_that_is_counted_and_the_service_goes_on(make_client: Callable[..., TestClient]) -> None:
    def judge(images: np.ndarray) -> list[Any]:
        if images.max() == 1:
            raise RuntimeError("a defect")
        return [judgement(image) for image in images]

    client = make_client(Subject(judge, SHAPE, 0.05, CARD))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="a defect"):  # which a server writes to its log
        client.post("/predict", content=picture(0.3, first=1), headers=PNG)
    assert 'secondguess_requests_total{status="500"} 1.0' in client.get("/metrics").text
    assert client.post("/predict", content=picture(0.3, first=0), headers=PNG).status_code == 200


def test_too_much_at_once_is_asked_to_come_back(make_client: Callable[..., TestClient]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    client = make_client(subject(0.2), limits=Limits(waiting=2))
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: client.post("/predict", content=picture(), headers=PNG), range(12)))
    refused = [one for one in answers if one.status_code == 503]
    assert refused and {one.status_code for one in answers} == {200, 503}
    assert all(one.headers["retry-after"] == "1" for one in refused)


def test_the_records_say_which_guard_judged(client: TestClient, where: Path) -> None:
    client.post("/predict", content=picture(0.3, first=1), headers=PNG)
    base = sqlite3.connect(where)
    (card,) = base.execute("SELECT card FROM secondguess_guards").fetchone()
    likeliest, pixels = base.execute("SELECT likeliest, pixels FROM secondguess_records").fetchone()
    base.close()
    assert json.loads(card) == CARD
    assert sum(p for _, p in json.loads(likeliest)) == pytest.approx(1, abs=1e-5)
    assert re.fullmatch(r"[0-9a-f]{32}", pixels)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30, -1.0, 255.5])
def test_a_picture_of_impossible_numbers_is_refused_as_an_array_is(
    client: TestClient, where: Path, value: float
) -> None:
    from PIL import Image

    pixels = np.full((8, 8), 100, dtype=np.float32)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "TIFF")
    assert client.post("/predict", content=file.getvalue(), headers={"content-type": "image/tiff"}).status_code == 200
    pixels[3, 4] = value
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "TIFF")
    answer = client.post("/predict", content=file.getvalue(), headers={"content-type": "image/tiff"})
    assert answer.status_code == 422 and "Image 1 cannot be read" in answer.json()["detail"]
    assert len(rows(where)) == 1


def test_a_class_whose_name_is_not_utf_8_is_answered_and_recorded(
    make_client: Callable[..., TestClient], where: Path
) -> None:
    name = os.fsdecode(b"caf\xe9")

    def judge(images: np.ndarray) -> list[Any]:
        return [replace(judgement(image), class_name=name) for image in images]

    client = make_client(Subject(judge, SHAPE, 0.05, CARD | {"class_names": [name]}))  # type: ignore[arg-type]
    answer = client.post("/predict", content=picture(), headers=PNG)
    assert answer.status_code == 200
    assert answer.json()["results"][0]["class_name"] == name
    records = Records(str(where), read_only=True)
    assert records.periods()[-1].card["class_names"] == [name]
    assert len(rows(where)) == 1
    records.close()


def test_what_cannot_record_is_not_served(where: Path) -> None:
    records = Records(str(where))
    records._base.run("PRAGMA query_only = ON")
    with bind("127.0.0.1", 0) as listening, pytest.raises(UserError, match="cannot be read or written now"):
        run(Service(subject(), records, TOKEN), listening, announce=lambda address: None)
    records.close()


def test_a_disk_that_does_not_answer_holds_up_nobody(
    make_client: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch, where: Path
) -> None:
    """As an fsync on a network folder may."""
    monkeypatch.setattr(judge_worker, "Writer", lambda: Writer(0.5))  # at its real size a promise holds it: 4.8 seconds
    client = make_client()
    stalls, goes_on = threading.Event(), threading.Event()
    append = Records.append

    def stalled(self: Records, records: Any) -> None:
        stalls.set()
        goes_on.wait(60)
        append(self, records)

    monkeypatch.setattr(Records, "append", stalled)
    began = time.monotonic()
    first = client.post("/predict", content=picture(), headers=PNG)
    second = client.post("/predict", content=picture(), headers=PNG)
    assert 0.5 <= time.monotonic() - began < in_time(5)
    assert [first.status_code, second.status_code] == [503, 503]
    assert stalls.is_set() and client.get("/readyz").status_code == 503
    assert client.get("/healthz").status_code == 200
    goes_on.set()
    while client.post("/predict", content=picture(), headers=PNG).status_code == 503:
        time.sleep(0.05)
    assert len(rows(where)) == 2  # what was given up came through, and nothing twice
