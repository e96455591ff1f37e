"""What docs/service.md promises: the numbers are those of the program, which keeps them at their real size."""

from __future__ import annotations

import re
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import pytest

from secondguess import database
from secondguess.service import api, judge_worker, limits, metrics, server, workers, writer
from secondguess.service.api import Service
from secondguess.service.limits import Limits
from secondguess.service.records import Records
from secondguess.watch import change, stream
from secondguess.web import connections, logs
from secondguess.web.connections import ConnectionLimits
from service_house import CARD, TOKEN, Server, client_of, picture, subject

PAGE = " ".join((Path(__file__).parents[2] / "docs" / "service.md").read_text("utf-8").split())
EVERY = int(re.findall(r"const EVERY = (\d+);", (files("secondguess.watch") / "static/watch.js").read_text())[0])
NUMBERS = {2: "two", 5: "five", 7: "seven", 10: "ten"}
SENTENCES = [
    f"the head of the request takes more than {ConnectionLimits.head:g} seconds to arrive, or its body more than "
    f"{Limits.seconds:g}",
    f"`--max-images` images ({Limits.images}) or `--max-pixels` pixels a picture ({Limits.pixels:,}, and "
    f"{Limits.side:,} on a side)",
    f"more than {Limits.waiting:,} images wait",
    f"{ConnectionLimits.connections} connections are open",
    f"dropped, up to {limits.DRAIN_BYTES >> 20} MB or {NUMBERS[int(limits.DRAIN_SECONDS)]} seconds",
    f"`--max-wait` milliseconds ({1000 * api.WAIT:g})",
    f"After {NUMBERS[server.PATIENCE]} seconds what is left is answered with 503; the process is gone within ten",
    f"nothing is said is closed after {ConnectionLimits.head:g} seconds, one that is idle between two requests after "
    f"{server.IDLE}, and one whose caller does not take the answer after {ConnectionLimits.answer:g}",
    f"Beyond {ConnectionLimits.connections} connections (fewer where the process may open fewer files: the limit less "
    f"{connections.SPARE})",
    f"at most {NUMBERS[logs.LINES]} times a minute",
    f"does not accept a connection within {database.CONNECTING} seconds, or does not finish a transaction within "
    f"{database.SILENCE:g}, is given up: callers get 503 within five seconds",
    f"given up after {writer.LATEST:g} seconds",
    f"a PNG of at most {judge_worker.THUMBNAIL} pixels a side",
    f"it tries, at most once {'a second' if api.TRIED == 1 else '?'}",
    f"`secondguess_alarm_rate` (latest {metrics.LATEST:,} images)",
    f"the latest images ({metrics.LATEST:,} of each worker) are those of the living, at most "
    f"{'a second' if api.COUNTED == 1 else '?'} old",
    f"after 2, 4, ... {workers.LONGEST:g} seconds where it cannot start",
    f"follows the records every {NUMBERS[EVERY // 1000]} seconds",
    f"accuracy without labels](accuracy.md) of the latest {stream.RECENT:,} images",
    f"averaged over {NUMBERS[len(change.ODDS)]} k from {change.ODDS[0]:g} to {change.ODDS[-1]:g}",
]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_the_page_has_the_numbers_of_the_program(sentence: str) -> None:
    assert sentence in PAGE


def test_together_they_keep_what_is_promised() -> None:
    assert server.PATIENCE + api.CLOSING < workers.GRACE < 10
    assert database.CONNECTING + database.SILENCE < writer.LATEST < 5
    assert logs.SECONDS == 60
    (megabytes,) = re.findall(r"more than `--max-body` megabytes \((\d+)\)", PAGE)
    assert float(megabytes) * 1e6 <= Limits.body


def test_the_page_names_the_columns_and_the_metrics_there_are(tmp_path: Path) -> None:
    records = Records(str(tmp_path / "records.sqlite"))
    records.begin(CARD)
    with closing(sqlite3.connect(tmp_path / "records.sqlite")) as base:
        columns = {row[1] for row in base.execute("PRAGMA table_info(secondguess_records)")}
    (table,) = re.findall(r"`secondguess_records`: \| column \| \| \|---\|---\| (.*?) A service that", PAGE)
    named = [re.findall(r"`(\w+)`", row.split("|")[0]) for row in table.removeprefix("| ").split(" | | ")]
    assert {name for row in named for name in row} == columns
    shown = Service(subject(), records, TOKEN).metrics.page().decode()
    records.close()
    (told,) = re.findall(r" Metrics: (.*?) ## Behind a proxy", PAGE)
    names = set(re.findall(r"`(secondguess_\w+)", told))
    families = set(re.findall(r"# TYPE (\w+) ", shown))
    assert names == {name for name in families if not name.endswith("_created")}


def ended(address: str, sent: bytes, within: float) -> tuple[float, bytes]:
    """Send something and say nothing more: after how many seconds the connection ended, and what was heard."""
    host, port = address.removeprefix("http://").split(":")
    began, heard = time.monotonic(), b""
    with socket.create_connection((host, int(port)), timeout=within) as line:
        line.sendall(sent)
        while part := line.recv(1 << 16):
            heard += part
    return time.monotonic() - began, heard


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Server]:
    started = Server(str(tmp_path / "records.sqlite"), patience=Limits.seconds)
    yield started
    started.end()


@pytest.mark.slow
def test_time_limits_at_their_real_size(service: Server) -> None:
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: image/png\r\n"
    cases = {
        "silent": (b"", 10, b""),
        "half a head": (head.encode(), 10, b" 408 "),
        "half a body": (head.encode() + b"Content-Length: 99\r\n\r\nhalf", 30, b" 408 "),
        "idle": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 30, b" 200 "),
    }
    found: dict[str, tuple[float, bytes]] = {}

    def tried(name: str, sent: bytes) -> Callable[[], None]:
        return lambda: found.update({name: ended(service.address, sent, 100)})

    threads = [threading.Thread(target=tried(name, sent)) for name, (sent, _, _) in cases.items()]
    host, port = service.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=100) as deaf:
        deaf.setblocking(False)
        for _ in range(2000):  # more than fits into the buffers between
            try:
                deaf.send(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
            except BlockingIOError:
                break
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        for name, (_, seconds, answer) in cases.items():
            took, heard = found[name]
            assert seconds - 1 < took < seconds + 15, name
            assert answer in heard[:40], name
        with client_of(service) as client:
            deadline = time.monotonic() + 90
            while 'ended_connections_total{reason="answer"} 1.0' not in client.get("/metrics").text:
                assert time.monotonic() < deadline
                time.sleep(1)


@pytest.mark.slow
def test_the_connection_after_the_last_is_told_to_come_back(service: Server) -> None:
    host, port = service.address.removeprefix("http://").split(":")
    most = ConnectionLimits().connections
    lines = []
    for _ in range(most):
        line = socket.create_connection((host, int(port)), timeout=30)
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 200 " in line.recv(4096)[:40]
        lines.append(line)
    with socket.create_connection((host, int(port)), timeout=30) as line:
        assert b" 503 " in line.recv(4096)[:40]
    for line in lines:
        line.close()
    with client_of(service) as client:
        assert client.post("/predict", content=picture(), headers={"content-type": "image/png"}).status_code == 200
