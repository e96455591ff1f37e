"""A load generator in its own process: requests to a service at a steady rate, and the latency of each.

Requests are sent when they are due, whether or not earlier ones have been answered, and the time of a request counts
from when it was due: a service that falls behind cannot hide it. HTTP is written directly to a few open connections,
because a full client would take more of the two cores than the service itself.

    python -m secondguess_lab.bench.http_load ADDRESS TOKEN-FILE IMAGES REQUESTS-A-SECOND SECONDS

IMAGES is a folder of PNG files. One JSON object is printed.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["call", "main"]

CONNECTIONS = 32
LATEST = 30.0  # seconds, after which a request counts as an error


def main(arguments: Sequence[str]) -> int:
    """Call a service as the arguments say and print the result."""
    address, token_file, folder, rate, seconds = arguments
    token = Path(token_file).read_text("utf-8").strip()
    images = [path.read_bytes() for path in sorted(Path(folder).glob("*.png"))]
    gc.disable()  # a collection in the caller is not latency of the service
    found = asyncio.run(call(address, token, images, float(rate), float(seconds)))
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


async def call(address: str, token: str, images: Sequence[bytes], rate: float, seconds: float) -> dict[str, Any]:
    """Send `rate` requests a second for `seconds` seconds, one image each.

    Returns:
        `requests`, `errors` (answers other than 200, and none at all), `statuses`, `seconds`, and the latencies `p50`,
        `p99` and `max` in milliseconds.
    """
    host, _, port = address.removeprefix("http://").partition(":")
    requests = [_request(host, token, image) for image in images]
    lines: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter] | None] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        lines.put_nowait(await asyncio.open_connection(host, int(port)))
    latencies: list[float] = []
    statuses: Counter[str] = Counter()

    async def one(number: int, due: float) -> None:
        line = await lines.get()
        try:
            line = line or await asyncio.open_connection(host, int(port))
            status = await asyncio.wait_for(_asked(*line, requests[number % len(requests)]), LATEST)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            if line is not None:
                line[1].close()
            status, line = type(error).__name__, None
        lines.put_nowait(line)
        latencies.append(time.perf_counter() - due)
        statuses[status] += 1

    began = time.perf_counter()
    tasks = []
    for number in range(round(rate * seconds)):
        due = began + number / rate
        if (early := due - time.perf_counter()) > 0:
            await asyncio.sleep(early)
        tasks.append(asyncio.create_task(one(number, due)))
    await asyncio.gather(*tasks)
    took = time.perf_counter() - began
    while not lines.empty():
        if (line := lines.get_nowait()) is not None:
            line[1].close()
    latencies.sort()
    at = [1000 * latencies[min(len(latencies) - 1, int(share * len(latencies)))] for share in (0.5, 0.99, 1.0)]
    return {
        "requests": len(latencies),
        "errors": len(latencies) - statuses["200"],
        "statuses": dict(statuses),
        "seconds": took,
        **dict(zip(("p50", "p99", "max"), at, strict=True)),
    }


def _request(host: str, token: str, image: bytes) -> bytes:
    head = (
        f"POST /predict HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: image/png\r\nContent-Length: {len(image)}\r\n\r\n"
    )
    return head.encode("ascii") + image


async def _asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> str:
    """The status of the answer, which is read to its end."""
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = next(line for line in head.split("\r\n") if line.startswith("content-length:"))
    await reader.readexactly(int(length.partition(":")[2]))
    return head.split(" ", 2)[1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
