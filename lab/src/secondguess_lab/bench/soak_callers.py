"""Callers of a service that is soaked: those who want predictions, and those who do everything wrong.

HTTP is written by hand, since most of what bad callers do no client would let them do.
"""

from __future__ import annotations

import asyncio
import io
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

__all__ = ["BAD", "Callers", "Tally"]

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]
LATEST = 60.0  # seconds, longer than any limit of the service
BOUNDARY = "a-boundary"


@dataclass
class Tally:
    """What callers heard.

    Attributes:
        acknowledged: the number of images of every request that was answered with a prediction, by its id.
        statuses: how often each status was answered.
        announced: answers 503 with `Retry-After`.
        unreachable: requests without an answer: nobody listened, or the connection was cut.
        latencies: seconds from when a good request was due to its prediction.
        surprises: answers to bad callers that they should not have got.
    """

    acknowledged: dict[str, int] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    announced: int = 0
    unreachable: int = 0
    latencies: list[float] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)

    @property
    def failures(self) -> int:
        """Answers 5xx, but for announced ones."""
        return sum(number for status, number in self.statuses.items() if status >= 500) - self.announced


class Callers:
    """Calls a service until it is told to stop.

    Args:
        address: gives the present address of the service.
        token: that good callers have.
        images: PNG files of the model's shape.
        seed: of what is called.
    """

    def __init__(self, address: Callable[[], str], token: str, images: Sequence[bytes], seed: int) -> None:
        self.tally = Tally()
        self._address, self._token, self._images = address, token, images
        self._rng = random.Random(seed)
        self._arrays = [np.asarray(Image.open(io.BytesIO(one))).tolist() for one in images[:8]]

    async def call(self, rate: float, bad_rate: float, seconds: float) -> None:
        """Send that many good and bad requests a second; return when the last good one has been answered."""
        tasks: dict[bool, list[asyncio.Task[None]]] = {True: [], False: []}
        began = time.perf_counter()
        moments = [(number / rate, True) for number in range(round(rate * seconds))]
        moments += [(number / bad_rate, False) for number in range(round(bad_rate * seconds))]
        lines: asyncio.Queue[Line | None] = asyncio.Queue()
        for _ in range(16):
            lines.put_nowait(None)
        for moment, good in sorted(moments):
            due = began + moment
            if (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            work = self._good(lines, due) if good else self._bad()
            tasks[good].append(asyncio.create_task(work))
            if len(tasks[good]) > 1000:  # else those that have ended would be kept, too
                tasks[good] = [task for task in tasks[good] if not task.done()]
        await asyncio.gather(*tasks[True])
        for task in tasks[False]:
            task.cancel()
        await asyncio.gather(*tasks[False], return_exceptions=True)
        while not lines.empty():
            if (line := lines.get_nowait()) is not None:
                line[1].close()

    async def _good(self, lines: asyncio.Queue[Line | None], due: float) -> None:
        line = await lines.get()
        try:
            line = line or await self._connected()
            line[1].write(self._request())
            status, head, body = await asyncio.wait_for(_answer(line[0]), LATEST)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            self.tally.unreachable += 1
            if line is not None:
                line[1].close()
            line = None
            await asyncio.sleep(0.2)  # a service that is being started is not asked a thousand times
        else:
            self._count(status, head)
            if status == 200:
                said = json.loads(body)
                self.tally.acknowledged[said["request"]] = len(said["results"])
                self.tally.latencies.append(time.perf_counter() - due)
        lines.put_nowait(line)

    async def _bad(self) -> None:
        name = self._rng.choice(list(BAD))
        line = None
        try:
            line = await self._connected()
            await asyncio.wait_for(BAD[name](self, *line), LATEST)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass  # the connection was cut, as it may be
        finally:
            if line is not None:
                line[1].close()

    async def expect(self, reader: asyncio.StreamReader, *statuses: int) -> None:
        """Read an answer, and remember it if it is none of these."""
        status, head, body = await _answer(reader)
        self._count(status, head)
        if status not in statuses and not (status == 503 and "retry-after" in head):
            self.tally.surprises.append(f"{status} instead of {statuses}: {body[:200]!r}")

    def head(self, length: int, **changes: str) -> bytes:
        """The head of a request for predictions."""
        fields = {"Host": "localhost", "Authorization": f"Bearer {self._token}", "Content-Type": "image/png"}
        fields |= {"Content-Length": str(length)} | {name.replace("_", "-"): value for name, value in changes.items()}
        return ("POST /predict HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in fields.items()) + "\r\n").encode()

    def picture(self) -> bytes:
        """One of the images."""
        return self._rng.choice(self._images)

    async def _connected(self) -> Line:
        host, _, port = self._address().removeprefix("http://").partition(":")
        return await asyncio.wait_for(asyncio.open_connection(host, int(port)), LATEST)

    def _request(self) -> bytes:
        """A request as it should be: a picture, several in a form, or arrays."""
        kind = self._rng.random()
        if kind < 0.8:
            body = self.picture()
            return self.head(len(body)) + body
        if kind < 0.9:
            parts = [b"Content-Disposition: form-data; name=i; filename=i\r\n\r\n" + self.picture() for _ in range(3)]
            body = b"".join(b"--%s\r\n%s\r\n" % (BOUNDARY.encode(), part) for part in parts)
            body += b"--%s--\r\n" % BOUNDARY.encode()
            return self.head(len(body), Content_Type=f"multipart/form-data; boundary={BOUNDARY}") + body
        some = [self._rng.choice(self._arrays) for _ in range(2)]
        body = json.dumps({"images": some, "scale": 255}).encode()
        return self.head(len(body), Content_Type="application/json") + body

    def _count(self, status: int, head: dict[str, str]) -> None:
        self.tally.statuses[status] += 1
        self.tally.announced += status == 503 and "retry-after" in head


async def _answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    head = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    body = await reader.readexactly(int(head.get("content-length", "0")))
    return int(lines[0].split(" ", 2)[1]), head, body


async def _silent(callers: Callers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)


async def _slow_head(callers: Callers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _drip(callers, reader, writer, callers.head(10))


async def _slow_body(callers: Callers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(callers.head(1000))
    await _drip(callers, reader, writer, b"x" * 999)


async def _drip(callers: Callers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, content: bytes) -> None:
    """Send a byte now and then until that is refused."""
    answer = asyncio.create_task(callers.expect(reader, 408))
    try:
        for byte in content:
            if answer.done() or writer.is_closing():
                break
            writer.write(bytes([byte]))
            await asyncio.sleep(0.3)
        await answer
    finally:  # also where the service was killed, or the run is over
        answer.cancel()
        await asyncio.gather(answer, return_exceptions=True)


async def _half_body(callers: Callers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(callers.head(1000) + b"half")
    await writer.drain()


async def _hang_up(callers: Callers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    body = callers.picture()
    writer.write(callers.head(len(body)) + body)
    await writer.drain()


async def _nonsense(callers: Callers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")  # TLS, to a port without
    await callers.expect(reader, 400)


async def _not_reading(callers: Callers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500)
    await asyncio.sleep(5)


def _refused(status: int, body: bytes | None = None, **changes: str) -> Callable[..., Awaitable[None]]:
    """A request that is sent in full, and must be answered with that status."""

    async def sent(callers: Callers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        content = callers.picture() if body is None else body
        writer.write(callers.head(len(content), **changes) + content)
        await callers.expect(reader, status)

    return sent


BAD: dict[str, Callable[..., Awaitable[Any]]] = {
    "silent": _silent,
    "slow head": _slow_head,
    "slow body": _slow_body,
    "half a body": _half_body,
    "hang up": _hang_up,
    "nonsense": _nonsense,
    "not reading": _not_reading,
    "wrong token": _refused(401, Authorization="Bearer wrong"),
    "another host": _refused(400, Host="example.com"),
    "no picture": _refused(422, b"no picture at all"),
    "no JSON": _refused(400, b'{"image": [[', Content_Type="application/json"),
    "too long": _refused(413, b"x" * 9_000_000),
    "a type": _refused(415, Content_Type="text/html"),
}
