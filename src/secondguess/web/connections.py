"""Connections that cannot be held for ever, nor all at once.

uvicorn closes a connection that is idle between two requests. It waits without end for the first byte, for the rest of
a head or a body that comes a byte at a time, and for a caller who does not take the answer; and it accepts connections
until the process has no file descriptors left. This is uvicorn's protocol with a time for each of these, and with a
number of connections beyond which the next caller is told to come back (503) while those before go on.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["ConnectionLimits", "limited_protocol"]

SPARE = 100  # file descriptors for everything else: records, images, connections that are being refused
LINGERING = 16  # refused connections that are given the time to read why
LINGER = 1.0  # seconds
AWAITED = {h11.IDLE: "head", h11.SEND_BODY: "body"}  # what a caller in this state has yet to send


@dataclass
class ConnectionLimits:
    """What a caller may ask of a server before a request is understood.

    Attributes:
        connections: at a time; fewer where the process may open fewer files.
        head: seconds from the first byte of a request, or from the connection, to the end of its head.
        body: seconds from there to its last byte; applications may be stricter.
        answer: seconds for taking the answer.
        refused: connections ended for a reason, by the reason; counted here.
    """

    connections: int = 512
    head: float = 10.0
    body: float = 60.0
    answer: float = 60.0
    refused: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(("many", "head", "body", "answer"), 0)))

    def __post_init__(self) -> None:
        self.connections = max(1, min(self.connections, _most_files() - SPARE))


def limited_protocol(limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """The class that `uvicorn.Config` takes as `http`."""
    lingering: set[asyncio.Protocol] = set()

    class LimitedProtocol(H11Protocol):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._awaited: str | None = None
            self._begun = False  # whether a byte of the request that is awaited has come
            self._arriving: asyncio.TimerHandle | None = None
            self._leaving: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.set_write_buffer_limits(high=0)  # `pause_writing` then means: the caller is not reading
            if len(self.connections) > limits.connections:
                self._turn_away()
            else:
                self._await("head")

        def connection_lost(self, exc: Exception | None) -> None:
            self._await(None)
            self.resume_writing()
            lingering.discard(self)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self in lingering:
                return
            super().data_received(data)
            self._begun = True
            self._await(None if self.transport.is_closing() else AWAITED.get(self.conn.their_state))

        def on_response_complete(self) -> None:
            self._begun = False
            super().on_response_complete()
            if self.conn.their_state is h11.IDLE:
                self._await(None)  # uvicorn watches connections that are idle between two requests
            else:
                self._await(AWAITED.get(self.conn.their_state))

        def pause_writing(self) -> None:
            super().pause_writing()
            if self._leaving is None:
                self._leaving = self.loop.call_later(limits.answer, self._give_up, "answer")

        def resume_writing(self) -> None:
            if self._leaving is not None:
                self._leaving.cancel()
                self._leaving = None
            if self.flow is not None:
                super().resume_writing()

        def _await(self, what: str | None) -> None:
            """Start the clock for a head or a body, unless it runs for that already."""
            if what == self._awaited:
                return
            self._awaited = what
            if self._arriving is not None:
                self._arriving.cancel()
                self._arriving = None
            if what is not None:
                seconds = limits.head if what == "head" else limits.body
                self._arriving = self.loop.call_later(seconds, self._give_up, what)

        def _give_up(self, why: str) -> None:
            """End a connection; a caller who has begun a request is told why, one who said nothing is not spoken to."""
            limits.refused[why] += 1
            if why != "head":  # there may be bytes that the caller does not take
                self.transport.abort()
                return
            if self._begun:
                seconds = f"{limits.head:g}"
                sentence = f"The head of the request did not arrive within {seconds} seconds; send it faster."
                self.transport.write(_refusal("408 Request Timeout", sentence))
            self.transport.close()

        def _turn_away(self) -> None:
            """Say that there are too many connections; then wait a little, since a reset could overtake the answer."""
            limits.refused["many"] += 1
            self.connections.discard(self)
            if len(lingering) >= LINGERING:
                self.transport.abort()
                return
            lingering.add(self)
            self._arriving = self.loop.call_later(LINGER, self.transport.abort)
            sentence = f"{limits.connections} connections are open, and no more are taken; try again in a moment."
            self.transport.write(_refusal("503 Service Unavailable", sentence))
            with suppress(OSError):  # the caller has gone away
                self.transport.write_eof()

    return LimitedProtocol


def _refusal(status: str, sentence: str) -> bytes:
    body = json.dumps({"detail": sentence})
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        f"retry-after: 1\r\nconnection: close\r\n\r\n{body}"
    ).encode("ascii")


def _most_files() -> int:
    """How many files this process may have open."""
    try:
        import resource
    except ImportError:  # Windows, where sockets are no files
        return sys.maxsize
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if most == resource.RLIM_INFINITY else most
