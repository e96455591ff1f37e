"""A service under good and bad callers for a long time: is anything lost, does it fail, does it grow?

Two services of the same guard run side by side. Both are called by good callers at a steady rate and by bad ones (see
`soak_callers`), and both rotate their records again and again. One is killed (`kill -9`) at random moments and started
again; the other is not, so that its memory and its file descriptors can be followed. At the end both are stopped in
good order, and every prediction that a caller has seen must be in the records, once for each image.

Memory: what the process holds for itself (RssAnon), sampled every second; its slope is that of the straight line
through the medians of tenths of the time after the warm-up, the first third. The load of the machine (how many
processes wanted to run, over a minute) stands beside it: it changes the latencies, not what is lost or held.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

from secondguess.environment import versions
from secondguess.errors import require
from secondguess.progress import Progress, Silent
from secondguess_lab.bench.serving import SERVE, Serving
from secondguess_lab.bench.soak_callers import Callers, Tally

__all__ = ["lines", "run", "soak"]

SLOPE = 1.0  # MiB an hour, the target
LIFE = 20.0  # seconds that a service which is killed lives, on average
WARM_UP = 1 / 3  # of the time


def run(
    *,
    minutes: float = 30.0,
    requests: float = 20.0,
    bad_requests: float = 5.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Soak the service of a small guard.

    Args:
        minutes: how long it is called.
        requests: good ones per second, to each of the two services.
        bad_requests: likewise.
        seed: of what is called, and of the moments of kills.
        progress: where to report.

    Returns:
        `acknowledged`, `lost`, `doubled`, `5xx`, `memory`, `file_descriptors`, `p99` (milliseconds) and what they rest
        on; `met` says whether the targets are.
    """
    from secondguess_lab.bench.guard import ARCHITECTURE, prepared

    require("fastapi", "app")
    progress = progress or Silent()
    with tempfile.TemporaryDirectory(prefix="secondguess-soak-") as name:
        folder = Path(name)
        prepared(folder, progress)
        model = ["--model", f"zoo:{ARCHITECTURE}", "--weights", str(folder / "weights.safetensors"), "--device", "cpu"]
        token = folder / "token"
        words = [*model, "--port", "0", "--token-file", str(token), "--thumbnails", "--json"]
        command = [*SERVE, str(folder / "guard"), *words]
        token.touch(0o600)
        token.write_text("a-token-of-the-soak-run")
        images = [path.read_bytes() for path in sorted((folder / "images").glob("*.png"))]
        with progress.task("Calling the services", 1) as advance:
            found = soak(
                command,
                token.read_text(),
                images,
                folder,
                seconds=60 * minutes,
                rate=requests,
                bad_rate=bad_requests,
                seed=seed,
            )
            advance(1, 1)
    return {"cores": os.cpu_count(), "versions": versions(), "minutes": minutes, **found}


def soak(
    command: Sequence[str],
    token: str,
    images: Sequence[bytes],
    folder: Path,
    *,
    seconds: float,
    rate: float,
    bad_rate: float,
    seed: int = 0,
    life: float = LIFE,
) -> dict[str, Any]:
    """Soak a service.

    Args:
        command: that starts it; `--records FILE` is added.
        token: that it asks for.
        images: PNG files of the model's shape.
        folder: for records and logs.
        seconds: how long it is called.
        rate: good requests per second, to each of the two services.
        bad_rate: bad ones.
        seed: of what is called, and of the moments of kills.
        life: seconds between two kills, on average.
    """
    steady = _Soaked([*command, "--records", str(folder / "steady.sqlite")], folder / "steady.log")
    killed = _Soaked([*command, "--records", str(folder / "killed.sqlite")], folder / "killed.log")
    callers = [
        Callers(lambda one=one: one.serving.address, token, images, seed + place)  # type: ignore[misc]
        for place, one in enumerate((steady, killed))
    ]

    async def everything() -> None:
        over = asyncio.Event()
        rng = random.Random(seed)
        others = [
            asyncio.create_task(steady.watch(over)),
            asyncio.create_task(steady.rotate(over, max(1.0, min(60.0, seconds / 10)), rng)),
            asyncio.create_task(killed.rotate(over, max(1.0, min(10.0, seconds / 10)), rng)),
            asyncio.create_task(killed.kill(over, life, rng)),
        ]
        await asyncio.gather(*(one.call(rate, bad_rate, seconds) for one in callers))
        over.set()
        await asyncio.gather(*others)

    try:
        asyncio.run(everything())
    finally:
        codes = [one.serving.end() for one in (steady, killed)]
    tallies = [one.tally for one in callers]
    return _summary(folder, tallies, steady, killed, codes)


class _Soaked:
    """A service, what was done to it, and what was seen of it."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command, self._log = command, log
        self.serving = Serving(command, log)
        self.kills = self.rotations = 0
        self.samples: list[tuple[float, float, int]] = []  # seconds, MiB, file descriptors
        self.loads: list[float] = []  # of the machine

    async def watch(self, over: asyncio.Event) -> None:
        began = time.monotonic()
        while not over.is_set():
            self.samples.append((time.monotonic() - began, self.serving.memory, self.serving.files))
            self.loads.append(os.getloadavg()[0])
            await _pause(over, 1.0)

    async def rotate(self, over: asyncio.Event, every: float, rng: random.Random) -> None:
        while not over.is_set():
            await _pause(over, every * rng.uniform(0.5, 1.5))
            if self.serving.process.poll() is None:  # it is not being started again
                self.serving.process.send_signal(signal.SIGHUP)
                self.rotations += 1

    async def kill(self, over: asyncio.Event, life: float, rng: random.Random) -> None:
        while not over.is_set():
            await _pause(over, min(5 * life, rng.expovariate(1 / life)))
            if not over.is_set():
                self.serving.end(signal.SIGKILL)
                self.kills += 1
                self.serving = await asyncio.to_thread(Serving, self._command, self._log)


async def _pause(over: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(over.wait(), seconds)


def lines(result: dict[str, Any]) -> Iterator[str]:
    """The result for a terminal."""
    memory, files = result["memory"], result["file_descriptors"]
    yield (
        f"acknowledged {result['acknowledged']:,}   lost {result['lost']}   recorded twice {result['doubled']}   "
        f"kills {result['kills']}   rotations {result['rotations']}"
    )
    yield f"5xx {result['5xx']} (announced 503: {result['announced_503']})   surprises {len(result['surprises'])}"
    yield f"memory {memory['begin']:.1f} to {memory['end']:.1f} MiB, slope {memory['slope']:+.2f} MiB an hour"
    yield f"file descriptors {files['begin']} to {files['end']}, at most {files['most']}"
    load = result["load"]
    yield (
        f"p50 {result['p50']:.1f} ms   p99 {result['p99']:.1f} ms   "
        f"load of the machine {load['median']:.1f}, at most {load['most']:.1f}"
    )
    yield "targets: " + ", ".join(f"{name} {'met' if met else 'MISSED'}" for name, met in result["met"].items())


def _summary(
    folder: Path, tallies: Sequence[Tally], steady: _Soaked, killed: _Soaked, codes: Sequence[int]
) -> dict[str, Any]:
    recorded, unsound, files = _recorded(folder)
    acknowledged = {name: images for tally in tallies for name, images in tally.acknowledged.items()}
    lost = sum(recorded[name] < images for name, images in acknowledged.items())
    doubled = sum(recorded[name] > images for name, images in acknowledged.items())
    failures = sum(tally.failures for tally in tallies)
    surprises = [text for tally in tallies for text in tally.surprises]
    logs = "".join(path.read_text("utf-8", "replace") for path in folder.glob("*.log"))
    latencies = 1000 * np.sort(tallies[0].latencies)
    statuses = sum((tally.statuses for tally in tallies), Counter[int]())
    memory = _memory(steady.samples)
    return {
        "acknowledged": len(acknowledged),
        "lost": lost,
        "doubled": doubled,
        "5xx": failures,
        "announced_503": sum(tally.announced for tally in tallies),
        "statuses": {str(status): number for status, number in sorted(statuses.items())},
        "unreachable": {"steady": tallies[0].unreachable, "killed": tallies[1].unreachable},
        "surprises": surprises[:20],
        "kills": killed.kills,
        "rotations": steady.rotations + killed.rotations,
        "files_of_records": files,
        "unsound_files": unsound,
        "memory": memory,
        "file_descriptors": {
            "begin": steady.samples[0][2],
            "end": steady.samples[-1][2],
            "most": max(files for _, _, files in steady.samples),
        },
        "load": {"median": float(np.median(steady.loads)), "most": max(steady.loads)},
        "p50": float(np.quantile(latencies, 0.5)),
        "p99": float(np.quantile(latencies, 0.99)),
        "log_lines": logs.count("\n"),
        "tracebacks": logs.count("Traceback"),
        "exit_codes": list(codes),
        "met": {
            "lost": lost == 0 and not unsound,
            "5xx": failures == 0,
            "surprises": not surprises,
            "memory": memory["slope"] < SLOPE,
        },
    }


def _recorded(folder: Path) -> tuple[Counter[str], list[str], int]:
    """How many images are recorded under each id, the files that are not sound, and how many files there are."""
    found: Counter[str] = Counter()
    files, unsound = sorted(folder.glob("*.sqlite")), []
    for file in files:
        with closing(sqlite3.connect(file)) as base:
            if base.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                unsound.append(file.name)
            if base.execute("SELECT COUNT(*) FROM sqlite_master").fetchone() == (0,):
                continue  # killed after it was made and before it had tables
            found.update(dict(base.execute("SELECT request, COUNT(*) FROM secondguess_records GROUP BY request")))
    return found, unsound, len(files)


def _memory(samples: Sequence[tuple[float, float, int]]) -> dict[str, Any]:
    """MiB after the warm-up, in tenths of the time, and how many are added in an hour."""
    after = [sample for sample in samples if sample[0] >= WARM_UP * samples[-1][0]]
    parts = [np.array([one[:2] for one in part]) for part in np.array_split(np.array(after), 10) if len(part)]
    times, levels = ([float(np.median(part[:, column])) for part in parts] for column in (0, 1))
    slope = float(np.polyfit(times, levels, 1)[0]) * 3600 if len(parts) > 2 else 0.0
    head = {"warm_up_seconds": after[0][0], "begin": levels[0], "end": levels[-1], "slope": slope}
    return head | {"levels": [round(level, 2) for level in levels]}
