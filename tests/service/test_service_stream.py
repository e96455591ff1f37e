"""Streams: every image is recorded once, whoever is killed when; JSON lines, a folder, and a topic of Kafka."""

from __future__ import annotations

import base64
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from secondguess.database import DatabaseFailed
from secondguess.errors import MissingExtra, UserError
from secondguess.service import stream, stream_sources
from secondguess.service.once import OnceRecords
from secondguess.service.stream import Stream
from secondguess.service.stream_sources import FolderSource, JsonLines, KafkaSource, event_of, open_source
from service_house import picture, subject

PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from service_house import subject
from secondguess.service.once import OnceRecords
from secondguess.service.stream import Stream, _ending
from secondguess.service.stream_sources import JsonLines

def said(lines):
    for line in lines:
        print(json.dumps(line), flush=True)

made = Stream(subject(0.01), OnceRecords(sys.argv[2]), said=said)
with _ending() as is_ending:
    result = made.run(JsonLines(), 12, is_ending)
made.close()
print(json.dumps(result.to_dict()))
"""


def encoded(level: float = 0.5, first: float | None = None) -> str:
    return base64.b64encode(picture(level, first)).decode()


def rows(records: Path) -> list[str]:
    base = sqlite3.connect(records)
    assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    found = [row[0] for row in base.execute("SELECT request FROM secondguess_records ORDER BY number")]
    base.close()
    return found


def test_a_killed_stream_goes_on_where_it_was_and_records_every_id_once(tmp_path: Path) -> None:
    records, wanted = tmp_path / "stream.sqlite", 120
    lines = [json.dumps({"id": f"image {number}", "image": encoded(number / wanted)}) for number in range(wanted)]
    words = [sys.executable, "-c", PROGRAM, str(Path(__file__).parents[1]), str(records)]
    seen: list[list[dict[str, Any]]] = []
    for stop in (signal.SIGKILL, signal.SIGTERM, None):
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.flush()
        seen.append([])
        if stop is not None:
            while sum("again" not in line for line in seen[-1]) < 30:
                seen[-1].append(json.loads(process.stdout.readline()))
            process.send_signal(stop)
        rest, _ = process.communicate(timeout=60)
        seen[-1] += [json.loads(line) for line in rest.splitlines() if line.endswith("}")]
        assert process.returncode == (-stop if stop is signal.SIGKILL else 0)
    assert sorted(rows(records)) == sorted(json.loads(line)["id"] for line in lines)
    *last, result = seen[-1]
    assert [line["id"] for line in last] == [json.loads(line)["id"] for line in lines]
    assert result["judged"] + result["again"] == wanted and 60 <= result["again"] < wanted and result["failed"] == 0
    told = {line["id"]: (line["prediction"], line["verdict"], line["action"]) for line in last}
    assert seen[1].pop()["again"] >= 30
    for line in seen[0] + seen[1]:  # what was said before a kill is what was recorded
        assert told[line["id"]] == (line["prediction"], line["verdict"], line["action"])


@pytest.mark.parametrize(
    ("line", "trouble"),
    [
        ("nonsense", 'no JSON object {"id": ..., "image": ...}'),
        ("[1]", "no JSON object"),
        ('{"id": "a"}', "no JSON object"),
        ('{"id": null, "image": "x"}', '"id" must be a text of at most 1,000 letters'),
        ('{"id": true, "image": "x"}', '"id" must be a text'),
        ('{"id": "", "image": "x"}', '"id" must be a text'),
        ('{"id": 5, "image": 7}', '"image" must be the path of a file, or a file in base64'),
        ('{"id": 5, "image": "no/such file.png"}', "neither a file nor base64"),
        ('{"id": 5, "image": "a\\u0000b"}', "neither a file nor base64"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(line: str, trouble: str) -> None:
    event = event_of(line.encode(), "line 9")
    assert trouble in event.trouble and event.id in ("line 9", "5")


def test_lines_are_read_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_sources, "LONGEST_LINE", 300)
    file = tmp_path / "größe.png"
    file.write_bytes(picture())
    reading, writing = os.pipe()
    source = JsonLines(reading)
    assert source.take(5) == []  # nothing has come
    url = f"data:image/png;base64,{encoded()}"
    first = json.dumps({"id": 1, "image": str(file)}) + "\n\n" + json.dumps({"id": 2, "image": url})
    os.write(writing, first.encode())
    assert [(one.id, one.image) for one in source.take(5) or []] == [("1", file)]
    os.write(writing, b"\n" + b"x" * 400)
    assert [(one.id, one.image) for one in source.take(5) or []] == [("2", picture())]
    os.write(writing, b"y" * 400 + b'\n{"id": "last", "image": "' + encoded().encode() + b'"}')
    os.close(writing)
    found = source.take(1) or []
    assert "longer than" in found[0].trouble
    assert [one.id for one in source.take(5) or []] == ["last"]
    assert source.take(5) is None
    os.close(reading)


def test_bad_images_repeated_ids_and_a_failing_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PAUSE", 0.0)
    reading, writing = os.pipe()
    given = [("a", encoded(first=1)), ("b", base64.b64encode(b"no picture").decode()), ("a", encoded()), ("b", "?")]
    os.write(writing, "\n".join(json.dumps({"id": name, "image": image}) for name, image in given).encode())
    os.close(writing)
    lines: list[dict[str, Any]] = []
    records = OnceRecords(str(tmp_path / "stream.sqlite"))
    append, failures = records.append, iter([DatabaseFailed("The disk is full."), None])

    def failing(some: Any) -> None:
        append(some)  # a write that was given up may have succeeded
        if (error := next(failures)) is not None:
            raise error

    monkeypatch.setattr(records, "append", failing)
    made = Stream(subject(), records, said=lines.extend)
    result = made.run(JsonLines(reading), 10)
    made.close()
    os.close(reading)
    assert (result.judged, result.again, result.failed) == (1, 1, 2)
    assert rows(tmp_path / "stream.sqlite") == ["a"]
    assert [line.get("verdict", line.get("error")) for line in lines[::2]] == [["invalid"], ["invalid"]]
    assert "cannot be read" in lines[1]["error"] and "neither" in lines[3]["error"] and lines[2]["again"]
    assert "1 images judged, 1 recorded before, 2 not judged" in result.summary()


def test_a_watched_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_sources, "EVERY", 0.0)
    folder = tmp_path / "incoming"
    (folder / "camera").mkdir(parents=True)
    for name in ("a.png", "camera/b.png"):
        (folder / name).write_bytes(picture())
    looks = 0

    def run(until: int, act: Callable[[int], None] = lambda look: None) -> list[dict[str, Any]]:
        nonlocal looks
        looks = 0

        def is_over() -> bool:
            nonlocal looks
            looks += 1
            act(looks)
            return looks > until

        lines: list[dict[str, Any]] = []
        made = Stream(subject(), OnceRecords(str(tmp_path / "stream.sqlite")), said=lines.extend)
        made.run(FolderSource(folder), 10, is_over)
        made.close()
        return lines

    def change(look: int) -> None:
        if look == 4:  # replaced: another image; and one that grows from look to look
            (folder / "a.png").write_bytes(picture(size=9))
        if look < 6:
            (folder / "growing.png").write_bytes(picture()[: 10 + look])

    first = run(3)
    assert [line["id"].partition("@")[0] for line in first] == ["a.png", "camera/b.png"]
    second = run(8, change)
    assert ["again" in line for line in second] == [True, True, False, False]
    assert second[2]["id"].startswith("a.png@") and second[2]["id"] != second[0]["id"]
    assert "cannot be read" in second[3]["error"]  # it has stopped growing, but is not whole
    assert len(rows(tmp_path / "stream.sqlite")) == 3
    with pytest.raises(UserError, match=r"is no stream; give - for JSON lines .* a folder, or kafka://"):
        open_source(str(tmp_path / "nowhere"))


class FakeKafka(ModuleType):
    """A stand-in for `confluent_kafka` with what its documentation says of Consumer and Message; there is no broker.

    Messages behind the committed offset are handed out again to the next consumer, as a broker does.
    """

    class KafkaException(Exception):
        pass

    def __init__(self, values: list[bytes]) -> None:
        super().__init__("confluent_kafka")
        fake, self.committed, self.settings = self, 0, {}
        self.unreachable = False

        class Consumer:
            def __init__(self, settings: dict[str, Any]) -> None:
                fake.settings, self.position, self.topic = settings, fake.committed, ""

            def list_topics(self, topic: str | None = None, timeout: float = -1) -> None:
                if fake.unreachable:
                    raise FakeKafka.KafkaException("_TRANSPORT")

            def subscribe(self, topics: list[str]) -> None:
                (self.topic,) = topics

            def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:
                some = values[self.position : self.position + num_messages]
                found = [message(self.topic, self.position + place, value) for place, value in enumerate(some)]
                self.position += len(some)
                return found

            def commit(self, message: Any = None, offsets: Any = None, asynchronous: bool = True) -> None:
                assert not asynchronous
                fake.committed = self.position

            def close(self) -> None:
                self.topic = ""

        def message(topic: str, offset: int, value: bytes) -> Any:
            failure = SimpleNamespace(fatal=lambda: value == b"fatal") if value in (b"fatal", b"error") else None
            return SimpleNamespace(
                error=lambda: failure,
                value=lambda: value,
                topic=lambda: topic,
                partition=lambda: 3,
                offset=lambda: offset,
            )

        self.Consumer = Consumer


def test_a_topic_of_kafka_by_a_fake_of_its_documented_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_json = [json.dumps({"id": f"photo {number}", "image": encoded()}).encode() for number in range(4)]
    fake = FakeKafka([*as_json[:3], picture(), b"error", as_json[1], as_json[3], b""])
    monkeypatch.setitem(sys.modules, "confluent_kafka", fake)
    (tmp_path / "client.properties").write_text("# secret\nsasl.password = x=y\n")
    url = f"kafka://one:9092,two:9092/photos?group=g&security.protocol=SASL_SSL&config={tmp_path / 'client.properties'}"

    def consume(turns: int, *, killed: bool = False) -> tuple[list[dict[str, Any]], Any]:
        lines: list[dict[str, Any]] = []
        left = iter([False] * turns + [True])
        source = open_source(url)
        if killed:  # between the records and the commit of the offsets
            monkeypatch.setattr(source, "done", lambda: None)
        made = Stream(subject(), OnceRecords(str(tmp_path / "stream.sqlite")), said=lines.extend)
        result = made.run(source, 2, lambda: next(left))
        made.close()
        source.close()
        return lines, result

    consume(1)
    assert fake.committed == 2
    consume(2, killed=True)
    assert fake.committed == 2
    lines, result = consume(4)
    assert fake.committed == 8
    assert [line["id"] for line in lines] == ["photo 2", "photos/3/3", "photo 1", "photo 3", "photos/3/7"]
    assert (result.judged, result.again, result.failed) == (1, 3, 1)  # the last message is empty
    assert rows(tmp_path / "stream.sqlite") == ["photo 0", "photo 1", "photo 2", "photos/3/3", "photo 3"]
    assert fake.settings == {
        "bootstrap.servers": "one:9092,two:9092",
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "security.protocol": "SASL_SSL",
        "sasl.password": "x=y",
        "enable.auto.commit": False,
    }
    monkeypatch.setitem(sys.modules, "confluent_kafka", FakeKafka([b"fatal"]))
    with pytest.raises(UserError, match="The topic t cannot be read"):
        KafkaSource("kafka://one/t").take(5)
    fake.unreachable = True
    monkeypatch.setitem(sys.modules, "confluent_kafka", fake)
    with pytest.raises(UserError, match="The brokers one:9092 cannot be reached"):
        KafkaSource("kafka://one:9092/t")
    for bad in ("kafka://one", "kafka:///t", "kafka://one/a/b"):
        with pytest.raises(UserError, match="names no topic"):
            KafkaSource(bad)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(MissingExtra, match=r"secondguess\[kafka\]"):
        KafkaSource("kafka://one/t")


@pytest.fixture
def broker() -> Iterator[tuple[str, Any]]:
    """The address of a broker that speaks Kafka's protocol on a port of this machine, and a producer.

    It is the one that librdkafka brings for its own tests: sockets, groups and committed offsets are real, its storage
    is memory, and it lives as long as the producer.
    """
    library = pytest.importorskip("confluent_kafka", reason="NO KAFKA TEST: pip install secondguess[kafka]")
    producer = library.Producer({"test.mock.num.brokers": 1, "log_level": 3, "bootstrap.servers": "nowhere"})
    (found,) = producer.list_topics(timeout=30).brokers.values()
    yield f"{found.host}:{found.port}", producer
    producer.flush(30)


@pytest.mark.slow  # it waits for groups of consumers to settle, three times
def test_a_topic_of_a_broker_is_recorded_once(tmp_path: Path, broker: tuple[str, Any]) -> None:
    address, producer = broker
    for number in range(12):
        message = json.dumps({"id": f"photo {number % 10}", "image": encoded()}) if number % 4 else picture()
        producer.produce("photos", message, partition=number % 3)
    assert producer.flush(30) == 0

    def consume(most: int, *, killed: bool = False) -> tuple[list[dict[str, Any]], Any]:
        """Until that many were seen."""
        lines: list[dict[str, Any]] = []
        source = open_source(f"kafka://{address}/photos?group=g&session.timeout.ms=6000")
        if killed:  # between the records and the commit of the offsets
            source.done = lambda: None  # type: ignore[method-assign]
        made = Stream(subject(), OnceRecords(str(tmp_path / "stream.sqlite")), said=lines.extend)
        until = time.monotonic() + 60
        result = made.run(source, 4, lambda: len(lines) >= most or time.monotonic() > until)
        made.close()
        source.close()
        return lines, result

    pictures = [f"photos/{partition}/{offset}" for partition, offset in ((0, 0), (1, 1), (2, 2))]
    every = {*pictures, *(f"photo {number}" for number in (1, 2, 3, 5, 6, 7, 9, 0))}
    before, result = consume(5, killed=True)
    assert len(before) >= 5 and result.judged + result.again == len(before)
    lines, result = consume(12)  # nothing was committed, so all of them come again
    assert {line["id"] for line in lines} == every and len(lines) == 12
    assert result.again >= len({line["id"] for line in before}) and result.failed == 0
    kept = rows(tmp_path / "stream.sqlite")
    assert sorted(kept) == sorted(every)
    producer.produce("photos", json.dumps({"id": "the last", "image": encoded()}))
    assert producer.flush(30) == 0
    lines, result = consume(1)  # what was committed does not come again
    assert [line["id"] for line in lines] == ["the last"] and result.judged == 1


def test_a_signal_ends_a_stream_in_good_order() -> None:
    assert threading.current_thread() is threading.main_thread()
    with stream._ending() as is_ending:
        assert not is_ending()
        signal.raise_signal(signal.SIGTERM)
        assert is_ending()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
