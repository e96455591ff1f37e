"""What the tests of the service stand on: a judge that needs no model, and the service in a process of its own."""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from secondguess.guard.judgements import Judgement
from secondguess.guard.verdicts import Verdict
from secondguess.service.judge_worker import Subject
from secondguess.web.connections import ConnectionLimits

if TYPE_CHECKING:
    from secondguess.service.api import Service

SHAPE = (1, 8, 8)
TOKEN = "a-token-of-the-tests"
CARD = {
    "model": "brightness",
    "fingerprint": "f00",
    "class_names": ["dark", "grey", "light"],
    "rate": 0.05,
    "false_alarms": {"value": 0.05, "low": 0.03, "high": 0.08, "n": 400, "level": 0.95},
}
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from functools import partial
from service_house import made
from secondguess.service.server import bind, serve_here
from secondguess.service.workers import supervise
from secondguess.cli.options import print_json

_, _, records, seconds, hangs, files, hosts, patience, head, workers = sys.argv
if int(files):
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(files), int(files)))
make = partial(made, records, float(seconds), hangs == "True", float(patience), float(head))
def announce(address):
    print_json({"address": address})
    sys.stdout.flush()
how = {"announce": announce, "hosts": hosts.split(",")}
if int(workers) > 1:
    supervise(make, bind("127.0.0.1", 0), int(workers), **how)
else:
    serve_here(make, bind("127.0.0.1", 0), **how)
"""


def judgement(image: np.ndarray) -> Judgement:
    """Three classes by mean brightness; an image whose first pixel is 1 is invalid, 0.5 ambiguous."""
    mean = float(image.mean())
    scores = np.exp(-20 * np.abs(np.array([0.15, 0.5, 0.85]) - mean))
    probabilities = scores / scores.sum()
    best, first = int(probabilities.argmax()), float(image.flat[0])
    kinds, action, p = ("nominal",), "accept", 0.5
    if first == 1:
        kinds, action, p = ("invalid",), "refuse", 0.01
    elif first == 0.5:
        kinds, action, p = ("ambiguous", "invalid"), "hedge", 0.02
    chances = {"ambiguous": 0.2, "invalid": 0.8}
    name = CARD["class_names"][best]
    return Judgement(best, name, probabilities, p, Verdict(kinds), action, {"brightness": p}, chances)  # type: ignore[arg-type]


def subject(seconds: float = 0.0, *, hangs: bool = False) -> Subject:
    """A judge that takes its time over every batch, and for ever over one that is not black."""

    def judge(images: np.ndarray) -> list[Judgement]:
        assert images.dtype == np.float32 and images.shape[1:] == SHAPE
        time.sleep(1e6 if hangs and images.any() else seconds)
        return [judgement(image) for image in images]

    return Subject(judge, SHAPE, 0.05, CARD)


def made(records: str, seconds: float, hangs: bool, patience: float, head: float) -> Service:
    """A service of that judge."""
    from secondguess.service.api import Service  # here, since workers import it after their environment is set
    from secondguess.service.limits import Limits
    from secondguess.service.records import Records

    judge, limits = subject(seconds, hangs=hangs), Limits(seconds=patience)
    service = Service(judge, Records(records), TOKEN, limits=limits, thumbnails=True)
    service.connections.head = head
    return service


def picture(level: float = 0.5, first: float | None = None, kind: str = "PNG", size: int = 8) -> bytes:
    """A picture file of one grey, but for its first pixel."""
    pixels = np.full((size, size), round(255 * level), dtype=np.uint8)
    if first is not None:
        pixels[0, 0] = round(255 * first)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes whose header promises that many pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = zlib.compress(b"\x00" * 1000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


class Server:
    """The service in a process of its own.

    Args:
        records: where they are kept.
        seconds: that a batch takes.
        hangs: whether one that is not black takes for ever.
        files: that the process may have open; 0 for as many as usual.
        hosts: names under which it may be called, separated by commas.
        patience: seconds that a body may take to arrive.
        head: seconds that the head of a request may take.
        workers: processes that answer.
    """

    def __init__(
        self,
        records: str,
        seconds: float = 0.0,
        *,
        hangs: bool = False,
        files: int = 0,
        hosts: str = "",
        patience: float = 2.0,
        head: float = ConnectionLimits.head,
        workers: int = 1,
    ) -> None:
        here = str(Path(__file__).parent)
        words = [here, records, str(seconds), str(hangs), str(files), hosts, str(patience), str(head)]
        words.append(str(workers))
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline() for _ in range(3)]
        if not lines[1].strip():
            raise AssertionError(self.process.communicate()[1])
        self.address = str(json.loads("".join(lines))["address"])

    @property
    def memory(self) -> float:
        """Resident MiB of the process."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text("ascii").split()[1])
        return pages * 4096 / (1 << 20)

    def end(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal and wait: the exit code, and what was written to standard error."""
        self.process.send_signal(how)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


def in_time(seconds: float) -> float:
    """What is promised within some seconds, on a machine where more processes want to run than there are cores."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def client_of(server: Server, **options: Any) -> Any:
    """An HTTP client with the token."""
    import httpx

    return httpx.Client(base_url=server.address, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30, **options)
