"""The service in a process of its own: a thousand bad requests, a kill under load, an orderly end."""

from __future__ import annotations

import http.client
import json
import random
import signal
import socket
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from secondguess.errors import UserError
from secondguess.service.server import bind, read_token
from service_house import TOKEN, Server, bomb, client_of, in_time, picture

ENDED = -signal.SIGTERM  # the server passes the signal on when it has finished
GROWTH = 25  # MiB that bad requests may leave behind


@pytest.fixture
def start() -> Iterator[Callable[..., Server]]:
    running: list[Server] = []

    def started(records: Path, seconds: float = 0.0, **options: Any) -> Server:
        running.append(Server(str(records), seconds, **options))
        return running[-1]

    yield started
    for server in running:
        if server.process.poll() is None:
            server.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service for tests that leave it as it was."""
    server = Server(str(tmp_path_factory.mktemp("shared") / "records.sqlite"))
    yield server
    assert server.end()[0] == ENDED


def malformed(rng: random.Random) -> dict[str, Any]:
    """One of many ways to be wrong."""
    png = picture(rng.random(), size=rng.choice([4, 8, 30]))
    noise = rng.randbytes(rng.randrange(1, 400))
    square = [[rng.random()] * 8 for _ in range(8)]
    kind = {"content-type": rng.choice(["image/png", "image/jpeg", "application/octet-stream"])}
    as_json = {"content-type": "application/json"}
    form = f"multipart/form-data; boundary={rng.choice(['x', 'x' * 200, '', chr(34)])}"
    path = rng.choice(["../../etc/passwd", "/dev/zero", "C:\\x", "a\x01b", "%2e%2e/", "; rm -rf /", "'" * 300])
    return rng.choice(
        [
            {"content": png[: rng.randrange(1, len(png) // 2)], "headers": kind},
            {"content": noise, "headers": kind},
            {"content": bomb(rng.choice([9000, 60_000, 2**31 - 1]), rng.choice([1, 60_000])), "headers": kind},
            {"content": picture(kind="JPEG")[: rng.randrange(2, 100)], "headers": kind},
            {"files": {"image": (path, noise, "image/png")}},
            {"files": [("image", (path, png)), ("image", (path, noise))]},
            {"files": {path: (path, b"")}},
            {"content": noise, "headers": {"content-type": form}},
            {"content": b"--x\r\n" + noise, "headers": {"content-type": "multipart/form-data; boundary=x"}},
            {"content": noise, "headers": as_json},
            {"content": b'{"image": ' + b"[" * rng.randrange(1, 5000), "headers": as_json},
            {"content": b'{"image": [[' + b"NaN," * 63 + b"NaN]]}", "headers": as_json},
            {"content": b'{"image": [[' + rng.choice([b"1e400", b"-1e400", b"9" * 5000]) + b"]]}", "headers": as_json},
            {"json": {"image": [row[: rng.randrange(8)] for row in square]}},
            {"json": {"image": [[value + 2 for value in row] for row in square]}},
            {"json": {"image": square[: rng.randrange(1, 8)]}},
            {"json": {"images": [square] * rng.randrange(65, 90)}},
            {"json": {"image": path}},
            {"json": {"image": {"bytes": path}}},
            {"json": {"images": square, "path": path}},
            {"json": rng.choice([None, 1, "x", [], {}, {"images": 5}, {"images": [[]]}, {"image": []}])},
            {"content": png, "headers": {"content-type": rng.choice(["text/html", "", "x" * 500, "image"])}},
            {"content": png, "headers": kind | {"authorization": rng.choice(["", "Bearer", "Bearer " + path[:9]])}},
        ]
    )


def test_a_thousand_malformed_requests_are_the_callers_fault(start: Callable[..., Server], tmp_path: Path) -> None:
    server = start(tmp_path / "records.sqlite")
    rng = random.Random(0)
    with client_of(server) as client:
        before = 0.0
        for turn in range(1000):
            try:
                answer = client.post("/predict", **malformed(rng))
            except (UnicodeEncodeError, httpx.LocalProtocolError):  # what a client cannot even say
                continue
            assert 400 <= answer.status_code < 500, (turn, answer.status_code, answer.text)
            assert answer.json()["detail"].endswith("."), answer.text
            if turn == 300:
                before = server.memory
        for _ in range(2):
            assert (
                client.post("/predict", content=b"x" * 50_000_000, headers={"content-type": "image/png"}).status_code
                == 413
            )
        grown = server.memory - before
        assert client.post("/predict", content=picture(), headers={"content-type": "image/png"}).status_code == 200
    code, said = server.end()
    assert grown < GROWTH, f"{grown:.0f} MiB more"
    assert (code, said) == (ENDED, "")


@pytest.mark.parametrize(("token", "status"), [(TOKEN, 413), ("wrong", 401)])
def test_a_caller_who_listens_only_after_sending_hears_why(shared: Server, token: str, status: int) -> None:
    line = http.client.HTTPConnection(shared.address.removeprefix("http://"), timeout=20)
    for size in (20_000_000, 100):  # the connection is still good for another request
        line.request("POST", "/predict", b"x" * size, {"Authorization": f"Bearer {token}", "Content-Type": "image/png"})
        answer = line.getresponse()
        detail = json.loads(answer.read())["detail"]
        expected = status if size > 100 or status == 401 else 422
        assert answer.status == expected, detail
        assert detail.endswith(".")
    line.close()


def test_half_a_request_is_given_up(shared: Server) -> None:
    host, port = shared.address.removeprefix("http://").split(":")
    head = (
        f"POST /predict HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: image/png\r\nContent-Length: 99\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=20) as line:
        line.sendall(head.encode() + b"half")
        assert b" 408 " in line.recv(4096)
    with socket.create_connection((host, int(port)), timeout=20) as line:
        line.sendall(head.encode() + b"half")  # and hang up
    with socket.create_connection((host, int(port)), timeout=20) as line:
        line.sendall(b"\x00\x01 nonsense\r\n\r\n")
        assert b" 400 " in line.recv(4096)
    with client_of(shared) as client:
        assert client.get("/healthz").status_code == 200


def test_answers_are_sent_at_once() -> None:
    """Head and body of an answer must not wait for each other."""
    with bind("127.0.0.2", 0, exposed=True) as listening, socket.create_connection(listening.getsockname(), timeout=5):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


class Load:
    """Callers who go on until they are told to stop, or nobody answers; `acknowledged` are the ids of the answers."""

    def __init__(self, server: Server, callers: int = 6) -> None:
        self.acknowledged: list[str] = []
        self.statuses: list[int] = []
        self._server, self._stop = server, threading.Event()
        self._threads = [threading.Thread(target=self._call) for _ in range(callers)]
        for one in self._threads:
            one.start()

    def _call(self) -> None:
        file = picture(0.3, first=1)
        with client_of(self._server) as client:
            while not self._stop.is_set():
                try:
                    answer = client.post("/predict", content=file, headers={"content-type": "image/png"})
                except httpx.HTTPError:
                    return
                self.statuses.append(answer.status_code)
                if answer.status_code == 200:
                    self.acknowledged.append(answer.json()["request"])

    def end(self) -> None:
        self._stop.set()
        for one in self._threads:
            one.join()


def recorded(records: Path) -> set[str]:
    """The ids in a store, which must be sound."""
    base = sqlite3.connect(records)
    try:
        assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return {row[0] for row in base.execute("SELECT request FROM secondguess_records")}
    finally:
        base.close()


def assert_kills_lose_nothing(start: Callable[..., Server], records: Path, times: int) -> None:
    rng = random.Random(1)
    acknowledged: set[str] = set()
    for _ in range(times):
        server = start(records)
        load = Load(server)
        enough = len(acknowledged) + 20
        until = time.monotonic() + 20
        while len(acknowledged) + len(load.acknowledged) < enough and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(rng.random() * 0.1)
        server.end(signal.SIGKILL)
        load.end()
        assert len(load.acknowledged) >= 20
        acknowledged |= set(load.acknowledged)
        assert acknowledged <= recorded(records)


def test_a_kill_under_load_loses_no_acknowledged_record(start: Callable[..., Server], tmp_path: Path) -> None:
    assert_kills_lose_nothing(start, tmp_path / "records.sqlite", 3)
    assert (tmp_path / "records.sqlite").stat().st_size > 0


@pytest.mark.slow
def test_ten_kills_under_load_lose_no_acknowledged_record(start: Callable[..., Server], tmp_path: Path) -> None:
    assert_kills_lose_nothing(start, tmp_path / "records.sqlite", 10)
    assert (tmp_path / "records.sqlite").stat().st_size > 0


def test_a_termination_signal_answers_what_was_taken_in(start: Callable[..., Server], tmp_path: Path) -> None:
    server = start(tmp_path / "records.sqlite", 1.5)
    answers: list[int] = []

    def ask() -> None:
        with client_of(server) as client:
            answers.append(
                client.post("/predict", content=picture(), headers={"content-type": "image/png"}).status_code
            )

    callers = [threading.Thread(target=ask) for _ in range(5)]
    for one in callers:
        one.start()
    with client_of(server) as client:
        while "secondguess_waiting_images 5.0" not in client.get("/metrics").text:
            time.sleep(0.02)
    code, said = server.end()
    for one in callers:
        one.join()
    assert answers == [200] * 5
    assert (code, said) == (ENDED, "")
    assert len(recorded(tmp_path / "records.sqlite")) == 5


def test_the_token_file_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token = read_token(file)
    assert len(token) > 30 and read_token(file) == token
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_token(None) != read_token(None)
    for content in ("short", "two words that are long enough", "ü" * 20, ""):
        file.write_text(content, "utf-8")
        with pytest.raises(UserError, match="must hold one word of at least 16 letters"):
            read_token(file)
    with pytest.raises(UserError, match="cannot be read"):
        read_token(tmp_path)
    with pytest.raises(UserError, match="cannot be written"):
        read_token(tmp_path / "no" / "token")


def test_other_machines_are_let_in_on_purpose_only() -> None:
    with pytest.raises(UserError, match=r"--host 0\.0\.0\.0 would let other machines call .* add --exposed"):
        bind("0.0.0.0", 0)
    with bind("0.0.0.0", 0, exposed=True) as one:
        assert one.getsockname()[0] == "0.0.0.0"
    with bind("127.0.0.1", 0) as one:
        assert one.getsockname()[0] == "127.0.0.1"
        with pytest.raises(UserError, match="cannot be used"):
            bind("127.0.0.1", one.getsockname()[1])
    with pytest.raises(UserError, match=r"192\.0\.2\.1:0 cannot be used"):
        bind("192.0.2.1", 0, exposed=True)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o660])
def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "token"
    token = read_token(file)
    file.chmod(mode)
    with pytest.raises(UserError, match=r"can be read by everybody or changed by others; .*chmod 600"):
        read_token(file)
    file.chmod(0o640)  # of a group that the service belongs to
    assert read_token(file) == token


def test_a_model_that_hangs_does_not_hold_up_the_end(start: Callable[..., Server], tmp_path: Path) -> None:
    server = start(tmp_path / "records.sqlite", 0.0, hangs=True)

    heard: list[int] = []

    def ask() -> None:
        with client_of(server) as client:
            heard.append(client.post("/predict", content=picture(), headers={"content-type": "image/png"}).status_code)

    caller = threading.Thread(target=ask)
    caller.start()
    with client_of(server) as client:
        while "secondguess_waiting_images 1.0" not in client.get("/metrics").text:
            time.sleep(0.02)
    began = time.monotonic()
    _, said = server.end()
    assert time.monotonic() - began < in_time(10)  # the promise
    caller.join()
    assert heard == [503]
    assert "not judged and recorded in time" in said and "Traceback" not in said


def test_idle_connections_neither_stop_the_service_nor_fill_the_log(
    start: Callable[..., Server], tmp_path: Path
) -> None:
    """With fewer file descriptors than there are callers, as in the default of many systems."""
    server = start(tmp_path / "records.sqlite", files=200, head=3)
    host, port = server.address.removeprefix("http://").split(":")
    idle = [socket.create_connection((host, int(port)), timeout=20) for _ in range(260)]
    heard = b""
    deadline = time.monotonic() + 30
    while b" 200 " not in heard and time.monotonic() < deadline:  # those who say nothing are given up
        with suppress(OSError), socket.create_connection((host, int(port)), timeout=20) as line:
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            heard = line.recv(4096)
            assert heard == b"" or heard[:12] in (b"HTTP/1.1 200", b"HTTP/1.1 503"), heard
        time.sleep(0.2)
    assert b" 200 " in heard
    with client_of(server) as client:
        lines = client.get("/metrics").text.splitlines()
    for reason in ("many", "head"):
        name = f'secondguess_ended_connections_total{{reason="{reason}"}} '
        (count,) = (one.removeprefix(name) for one in lines if one.startswith(name))
        assert float(count) > 50
    for one in idle:
        one.close()
    code, said = server.end()
    assert (code, said) == (ENDED, "")
