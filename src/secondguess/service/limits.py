"""How much a request may ask for, and the answer to one that asks for more: a 4xx status and one sentence.

A body is counted while it arrives and refused as soon as it is too long; the bytes of all bodies that are being read
are counted together, so that many requests at once cannot fill the memory either.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect

from secondguess.errors import UserError

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["BodyReader", "Limits", "Refused"]

DRAIN_BYTES, DRAIN_SECONDS = 64 << 20, 10.0  # of a refused request that are waited for


class Refused(Exception):
    """A request that is not served.

    Args:
        status: 4xx, or 503 where the service is at its limit.
        sentence: what was given, what was expected, what to do.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


@dataclass(frozen=True)
class Limits:
    """What is refused.

    Attributes:
        body: bytes of one request.
        bodies: bytes of all requests that are being read or decoded at a time.
        side: pixels, the height or width of an uploaded picture before it is resized.
        pixels: of an uploaded picture, before it is resized.
        images: in one request.
        waiting: images that have been taken in and not yet answered, beyond which callers are asked to come back.
        seconds: that a request may take to arrive.
    """

    body: int = 8 << 20
    bodies: int = 128 << 20
    side: int = 8192
    pixels: int = 4 << 20
    images: int = 64
    waiting: int = 1024
    seconds: float = 30.0

    @classmethod
    def of(cls, body: int, **others: Any) -> Limits:
        """Limits with room for at least one request of that size."""
        return cls(body=body, bodies=max(body, cls.bodies), **others)

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise UserError(f"The limit {name!r} is {value}; it must be larger than 0.")
        if self.bodies < self.body:
            raise UserError("One request may be longer than all requests together; make `bodies` at least `body`.")


class BodyReader:
    """Reads bodies within the limits.

    Args:
        limits: that hold.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._held = 0

    @asynccontextmanager
    async def body(self, request: Request) -> AsyncIterator[bytes]:
        """The body of a request; its bytes count until the block ends."""
        limit = self.limits.body
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > limit:
            raise self._too_long()
        parts: list[bytes] = []
        try:
            await self._collect(request, parts)
            yield b"".join(parts)
        finally:
            self._held -= sum(map(len, parts))

    async def _collect(self, request: Request, parts: list[bytes]) -> None:
        length = 0
        try:
            async with asyncio.timeout(self.limits.seconds):
                async for part in request.stream():
                    length += len(part)
                    if length > self.limits.body:
                        raise self._too_long()
                    if self._held + len(part) > self.limits.bodies:
                        raise Refused(503, "Too many large requests are being read; try again in a moment.")
                    self._held += len(part)
                    parts.append(part)
        except TimeoutError:
            seconds = f"{self.limits.seconds:g}"
            raise Refused(408, f"The request did not arrive within {seconds} seconds; send it faster.") from None

    async def drain(self, request: Request) -> None:
        """Let the rest of a refused request arrive and drop it, so that its caller, who is still sending, can listen.

        Closing the connection at once would reset it, and the answer would be lost. A caller that waits for permission
        to go on (`Expect: 100-continue`) has sent nothing, and the time and the bytes that are waited for are limited.
        """
        if request.headers.get("expect", "").lower() == "100-continue":
            return
        dropped = 0
        with suppress(TimeoutError, ClientDisconnect, RuntimeError):  # the last: nothing is left to read
            async with asyncio.timeout(min(DRAIN_SECONDS, self.limits.seconds)):
                async for part in request.stream():
                    dropped += len(part)
                    if dropped > DRAIN_BYTES:
                        return

    def _too_long(self) -> Refused:
        return Refused(
            413, f"The request is longer than the {self.limits.body:,} bytes allowed; send fewer or smaller images."
        )
