"""Callers who hold connections: each of them is given up, the others are served, and the log stays short."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import uvicorn

from secondguess.web.connections import ConnectionLimits, limited_protocol
from secondguess.web.logs import LINES, SECONDS, Outage, Throttle
from secondguess.web.server import listen

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LONG = 20.0  # seconds, after which a test has failed


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers at once, without looking at the body; `/large` with more than a caller's buffers hold."""
    body = b"x" * 20_000_000 if scope["path"] == "/large" else b"fine"
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[str, int]]]:
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def started(limits: ConnectionLimits, keep_alive: int = 20) -> tuple[str, int]:
        listening = listen(0)
        config = uvicorn.Config(
            app, http=limited_protocol(limits), lifespan="off", log_level="critical", timeout_keep_alive=keep_alive
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        running.append((server, thread))
        host, port = listening.getsockname()
        return host, port

    yield started
    for server, thread in running:
        server.should_exit = True
        thread.join(LONG)
        assert not thread.is_alive()


def ask(where: tuple[str, int], what: bytes = GET) -> bytes:
    with socket.create_connection(where, timeout=LONG) as line:
        line.sendall(what)
        return line.recv(65536)


def ended(line: socket.socket) -> bytes:
    """All that still comes, until the other side closes."""
    heard = b""
    try:
        while part := line.recv(65536):
            heard += part
    except ConnectionResetError:
        pass
    return heard


@pytest.mark.parametrize("sent", [b"G", b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nA: "])
def test_a_head_that_does_not_end_is_given_up(serve: Callable[..., Any], sent: bytes) -> None:
    limits = ConnectionLimits(head=0.3)
    with socket.create_connection(serve(limits), timeout=LONG) as line:
        line.sendall(sent)
        heard = ended(line)
    assert heard.startswith(b"HTTP/1.1 408 ")
    assert json.loads(heard.partition(b"\r\n\r\n")[2])["detail"].endswith("within 0.3 seconds; send it faster.")
    assert limits.refused["head"] == 1


def test_a_caller_who_says_nothing_is_given_up_without_a_word(serve: Callable[..., Any]) -> None:
    with socket.create_connection(serve(ConnectionLimits(head=0.3)), timeout=LONG) as line:
        assert ended(line) == b""


def test_a_byte_at_a_time_does_not_help(serve: Callable[..., Any]) -> None:
    where = serve(ConnectionLimits(head=0.5, body=0.5))
    for begun in (b"", GET, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"):
        with socket.create_connection(where, timeout=LONG) as line:
            line.sendall(begun)
            if begun:
                assert b"fine" in line.recv(65536) + line.recv(65536)
            deadline = time.monotonic() + LONG
            with pytest.raises(OSError):
                while time.monotonic() < deadline:
                    line.sendall(b"G")
                    time.sleep(0.05)
            assert time.monotonic() < deadline


def test_a_caller_who_does_not_take_the_answer_is_given_up(serve: Callable[..., Any]) -> None:
    limits = ConnectionLimits(answer=0.3)
    with socket.create_connection(serve(limits), timeout=LONG) as line:
        line.sendall(GET.replace(b"/ ", b"/large ", 1))
        deadline = time.monotonic() + LONG
        while not limits.refused["answer"] and time.monotonic() < deadline:
            time.sleep(0.02)
        assert limits.refused["answer"] == 1
        assert len(ended(line)) < 20_000_000


def test_patient_callers_are_served(serve: Callable[..., Any]) -> None:
    """One connection, many requests, some of them in pieces, one with a large answer."""
    limits = ConnectionLimits(head=LONG, answer=LONG)
    with socket.create_connection(serve(limits), timeout=LONG) as line:
        for _ in range(20):
            line.sendall(GET[:9])
            time.sleep(0.01)
            line.sendall(GET[9:])
            heard = b""
            while not heard.endswith(b"fine"):
                heard += line.recv(65536)
        line.sendall(GET.replace(b"/ ", b"/large ", 1))
        heard = b""
        while not len(heard) > 20_000_000:
            heard += line.recv(1 << 20)
    assert not any(limits.refused.values())


def test_beyond_the_cap_callers_are_told_and_the_others_are_served(serve: Callable[..., Any]) -> None:
    limits = ConnectionLimits(connections=3, head=LONG)
    where = serve(limits)
    held = [socket.create_connection(where, timeout=LONG) for _ in range(3)]
    for one in held:
        one.sendall(GET)
        assert b" 200 " in one.recv(65536)
    heard = ask(where)
    assert heard.startswith(b"HTTP/1.1 503 ") and b"retry-after: 1" in heard
    assert json.loads(heard.partition(b"\r\n\r\n")[2])["detail"].startswith("3 connections are open")
    held[0].sendall(GET)  # who was there before notices nothing
    assert b" 200 " in held[0].recv(65536) + held[0].recv(65536)
    crowd = [socket.create_connection(where, timeout=LONG) for _ in range(100)]
    assert limits.refused["many"] > 0
    for one in [*held, *crowd]:
        one.close()
    deadline, heard = time.monotonic() + LONG, b""
    while b" 200 " not in heard and time.monotonic() < deadline:
        time.sleep(0.05)
        with suppress(ConnectionError):  # a crowd is not spoken to one by one
            heard = ask(where)
    assert b" 200 " in heard


def test_the_cap_leaves_files_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (200, 4096))
    assert ConnectionLimits().connections == 100
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert ConnectionLimits().connections == 512


def test_the_protocol_is_one_of_asyncio() -> None:
    assert issubclass(limited_protocol(ConnectionLimits()), asyncio.Protocol)


def test_a_line_is_written_a_few_times_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    throttle = Throttle(clock=lambda: now[0])
    logger = logging.getLogger("flooded")
    logger.addFilter(throttle)
    for k in range(1000):
        logger.warning("a caller said %d", k)
    logger.warning("something else")
    assert len(caplog.records) == LINES + 1
    assert throttle.dropped == 1000 - LINES
    now[0] += SECONDS
    logger.warning("a caller said %d", 5)
    assert caplog.messages[-1] == "a caller said 5 (995 more like it were not written)"
    for k in range(3000):  # texts made at run time
        logger.warning(f"text {k}")
    assert len(caplog.records) < 1100
    logger.removeFilter(throttle)


def test_an_outage_is_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(logging.getLogger("out"), "It does not work", "It works again")
    outage.worked()
    for _ in range(100):
        outage.failed(ValueError("broken"))
    assert outage.lasts
    for _ in range(100):
        outage.worked()
    assert not outage.lasts
    assert caplog.messages == ["It does not work: broken", "It works again; failures in between: 100."]
