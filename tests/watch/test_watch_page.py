"""What the watch page is told, and who is told."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient
from watch_house import BEGUN, fill

from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.metrics import wilson
from secondguess.model.classifier import Classifier
from secondguess.service.records import Records
from secondguess.watch.estimates import estimator_for, recorded_observation
from secondguess.watch.routes import watch_app
from secondguess.watch.stream import Watch
from secondguess.web.access import CheckedApp, Keys
from service_house import CARD

PORT = 8127


@pytest.fixture
def where(tmp_path: Path) -> Path:
    fill(tmp_path / "r.sqlite", 1500, 500)
    return tmp_path / "r.sqlite"


def rows(where: Path) -> np.ndarray:
    base = sqlite3.connect(where)
    found = base.execute("SELECT time, alarm FROM secondguess_records ORDER BY number").fetchall()
    base.close()
    return np.array(found)


def test_the_numbers_are_those_of_the_records(where: Path) -> None:
    records = Records(str(where), read_only=True)
    state = Watch(records, missed=["corrupted: fog (3%)"]).state()
    times, alarms = rows(where).T
    assert state["images"] == 2000 and (state["first"], state["last"]) == (times[0], times[-1])
    expected = wilson(int(alarms[-1000:].sum()), 1000)
    assert (state["recent"]["value"], state["recent"]["low"]) == (expected.value, expected.low)
    assert sum(one["images"] for one in state["intervals"]) == 2000
    assert 40 <= len(state["intervals"]) <= 48
    for one in state["intervals"]:
        inside = (times >= one["start"]) & (times < one["end"])
        assert one["images"] == inside.sum() == sum(one["verdicts"].values())
        assert one["rate"] == pytest.approx(alarms[inside].mean())
        assert set(one["verdicts"]) <= set(state["order"])
    assert state["guard"]["model"] == "brightness" and state["estimates"] is None
    assert state["missed"] == ["corrupted: fog (3%)"]
    assert abs(state["change"]["since"] - times[1500]) < 60_000 < state["change"]["noticed"] - times[0]
    assert len(state["alarms"]) == 24 and state["alarms"][0]["number"] > state["alarms"][-1]["number"]
    records.close()


def test_spans_end_with_the_latest_image(where: Path) -> None:
    records = Records(str(where), read_only=True)
    watch = Watch(records)
    assert sum(one["images"] for one in watch.state("hour")["intervals"]) == 2000
    base = sqlite3.connect(where)
    base.execute(f"UPDATE secondguess_records SET time = time + 7200000 WHERE time >= {BEGUN + 1_500_000}")
    base.commit()
    base.close()
    state = Watch(records).state("hour")
    assert sum(one["images"] for one in state["intervals"]) == 500
    with pytest.raises(UserError, match="There is no span 'year'; there is hour, day, week, all"):
        watch.state("year")
    records.close()


def test_it_follows_a_stream_and_a_new_guard(tmp_path: Path) -> None:
    where = tmp_path / "r.sqlite"
    writer = Records(str(where))
    reader = Records(str(where), read_only=True)
    watch = Watch(reader)
    assert watch.state() == {"images": 0, "guard": None}
    writer.begin(CARD)
    assert watch.state()["guard"]["model"] == "brightness"
    fill(where, 40, 0)
    assert watch.state()["images"] == 40
    fill(where, 0, 60, seed=1, loud_rate=1.0)
    state = watch.state()
    assert state["images"] == 100 and "since" in state["change"]
    writer.begin(CARD | {"model": "another"})
    state = watch.state()
    assert state["images"] == 0 and state["guard"]["model"] == "another"
    writer.close()
    reader.close()


def test_estimates_see_confidence_fall(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(400, 3))
    table = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = np.array([rng.choice(3, p=row) for row in table])
    pixels = rng.random((400, 1, 4, 4), dtype=np.float32)
    known = {image.tobytes(): row for image, row in zip(pixels, table, strict=True)}
    model = Classifier(
        lambda images: np.stack([known[image.tobytes()] for image in images]), output_kind="probabilities"
    )
    validation = ImageSet.from_arrays(pixels, labels)
    estimate = estimator_for(model, validation)
    accuracy = float((table.argmax(axis=1) == labels).mean())
    confidences, predictions = table.max(axis=1), table.argmax(axis=1)
    same = estimate(predictions, confidences)
    assert [one["method"] for one in same] == ["difference of confidences", "thresholded confidence"]
    assert all(
        one["value"] == pytest.approx(accuracy, abs=0.003) and one["low"] < accuracy < one["high"] for one in same
    )
    lower = estimate(predictions, np.maximum(confidences - 0.2, 0.34))
    assert lower[0]["value"] == pytest.approx(
        accuracy - (confidences - np.maximum(confidences - 0.2, 0.34)).mean(), abs=1e-6
    )
    assert estimate(predictions[:10], confidences[:10]) == []
    evidence = recorded_observation(predictions, confidences, 3)
    np.testing.assert_array_equal(evidence.predictions, predictions)
    np.testing.assert_allclose(evidence.probabilities.sum(axis=1), 1)


@pytest.fixture
def client(where: Path, keys: Keys):  # type: ignore[no-untyped-def]
    records = Records(str(where), read_only=True)
    home = f"http://127.0.0.1:{PORT}"
    yield TestClient(CheckedApp(watch_app(Watch(records)), keys, PORT), base_url=home)
    records.close()


def test_the_page_is_for_who_has_the_link(client: TestClient, keys: Keys) -> None:
    for path in ("/", "/api/watch", "/thumbnails/1.png", "/watch.js"):
        assert client.get(path).status_code == 401
    page = client.get("/", params={"token": keys.token})
    assert page.status_code == 200 and "Latest alarms" in page.text
    state = client.get("/api/watch", params={"span": "day"}).json()
    number = next(one["number"] for one in state["alarms"] if one["pictured"])
    picture = client.get(f"/thumbnails/{number}.png")
    assert picture.content.startswith(b"\x89PNG") and picture.headers["content-type"] == "image/png"
    for missing in (0, -1, 10**9, 2**70, "x"):
        assert client.get(f"/thumbnails/{missing}.png").status_code in (404, 422)
    assert client.get("/api/watch", params={"span": "x"}).status_code == 400
    assert "https://" not in client.get("/watch.js").text
    assert client.get("/watch.css").headers["content-type"].startswith("text/css")
    assert client.post("/api/watch").status_code == 403


def test_a_name_that_turns_the_text_around_is_written_out(tmp_path: Path, keys: Keys) -> None:
    records = Records(str(tmp_path / "records.sqlite"))
    records.begin(CARD | {"model": "a\u202eb\x1b[2J", "class_names": ["\u2066c", "d", "e"]})
    app = CheckedApp(watch_app(Watch(records)), keys, PORT)
    client = TestClient(app, base_url=f"http://127.0.0.1:{PORT}")
    client.get("/", params={"token": keys.token})
    guard = client.get("/api/watch").json()["guard"]
    records.close()
    assert guard["model"] == r"a\u202eb\x1b[2J"
    assert guard["class_names"] == [r"\u2066c", "d", "e"]


def test_it_goes_on_with_the_new_file_after_a_rotation(where: Path) -> None:
    watch = Watch(Records(str(where), read_only=True))
    assert watch.state()["images"] > 2
    writer = Records(str(where))
    writer.begin(CARD)
    writer.rotate()
    assert watch.state()["images"] == 0
    writer.close()
    fill(where, 2, 0)
    assert watch.state()["images"] == 2
