"""Commands that are killed at random moments and run again: the same files as those of a run that was left alone?

Each command works into a folder of its own. It is killed (`kill -9`, with all its processes) at a moment drawn
uniformly from the time that it takes, in every second case once more while it goes on, and then run to its end. The
folder must then hold the same files with the same content as that of a run that was never interrupted: other content is
a number that differs, another file is debris. Times of day, durations and the command itself are left out of the
comparison; of pages, pictures and databases only the presence counts.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from secondguess.environment import versions
from secondguess.errors import UserError
from secondguess.progress import Progress, Silent

__all__ = ["JOBS", "Job", "lines", "run"]

VOLATILE = {
    "seconds",
    "created",
    "command",
    "wall_seconds",
    "task_seconds",
    "time",
    "began",
    "finished",
    "port",
    "token",
}
VOLATILE |= {"digest", "arrays"}  # of files that hold one of these, or of archives, whose content is compared
PRESENT = {".html", ".xml", ".sqlite", ".lock", ".png"}  # pages, databases, pictures
ONCE_MORE = 0.5  # how often a command is killed twice
COMMAND = [sys.executable, "-m", "secondguess"]
LATEST = 600.0  # seconds for a command


@dataclass(frozen=True)
class Job:
    """A command that works into a folder.

    Attributes:
        words: of the command; `{house}` and `{out}` are replaced.
        serves: whether it ends only when it is told to, after it has announced something.
    """

    words: tuple[str, ...]
    serves: bool = False


MODEL = ("--model", "killed_model:make", "--weights", "{house}/weights.safetensors", "--device", "cpu")
JOBS = {
    "audit": Job(
        (
            *("audit", "--data", "{house}/digits.npz", "--epochs", "2", "--supervisors", "entropy,mdsa,autoencoder"),
            *("--stress", "corrupted,invalid", "--sections", "accuracy,calibration,supervisors", "--device", "cpu"),
            *("--full", "--out", "{out}", "--quiet"),  # a plan depends on the machine, full sizes do not
        )
    ),
    "guard fit": Job(
        (
            *("guard", "fit", *MODEL, "--train", "{house}/train.npz", "--validation", "{house}/validation.npz"),
            *("--supervisors", "entropy,mdsa,autoencoder", "--rule", "bonferroni", "--ambiguous", "blend"),
            *("--full", "--out", "{out}", "--quiet"),
        )
    ),
    "generate": Job(
        (
            *("generate", "ambiguous", "--data", "{house}/digits.npz", "--pairs", "3-8", "--autoencoders", "2"),
            *("--epochs", "30", "--count", "10", "--device", "cpu", "--out", "{out}", "--quiet"),
        )
    ),
    "study run": Job(
        (
            *("study", "run", "surprise-table1", "--quick", "--data", "mnist={house}/tiny.npz", "--set", "models=3"),
            *("--set", "together=1", "--set", "epochs=1", "--out", "{out}", "--quiet"),
        )
    ),
    "label": Job(
        (
            *("label", *MODEL, "--images", "{house}/pool.npz", "--min-confidence", "0", "--budget", "400"),
            *("--search", "adversarial-distance"),  # which measures before the page opens
            *("--out", "{out}", "--no-browser", "--json", "--quiet"),
        ),
        serves=True,
    ),
}
FACTORY = """
from torch import nn


def make():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
"""


def run(
    *, kills: int = 50, jobs: Sequence[str] = tuple(JOBS), seed: int = 0, progress: Progress | None = None
) -> dict[str, Any]:
    """Kill every command that many times.

    Args:
        kills: of each command; a second one before it has ended is not counted.
        jobs: which of the `JOBS`.
        seed: of the moments.
        progress: where to report.

    Returns:
        `{"jobs": {name: {"seconds", "kills", "moments", "different", "debris"}}, "met": ...}`.
    """
    unknown = [name for name in jobs if name not in JOBS]
    if unknown:
        raise UserError(f"There is no job {unknown[0]!r}; there is {', '.join(JOBS)}.")
    progress = progress or Silent()
    found = {}
    with tempfile.TemporaryDirectory(prefix="secondguess-kill-") as name:
        house = Path(name) / "house"
        _prepare(house)
        try:
            for job in jobs:
                with progress.task(f"Killing {job}", kills) as advance:
                    rng = random.Random(f"{seed} {job}")
                    found[job] = _Killer(JOBS[job], house, Path(name)).run(kills, rng, lambda n: advance(n, kills))
        except KeyboardInterrupt:  # what was found until then counts
            pass
    met = len(found) == len(jobs) and not any(one["different"] or one["debris"] for one in found.values())
    return {"cores": os.cpu_count(), "versions": versions(), "jobs": found, "met": met}


def lines(result: dict[str, Any]) -> Iterator[str]:
    """The result for a terminal."""
    for name, one in result["jobs"].items():
        verdict = "same files" if not (one["different"] or one["debris"]) else "DIFFERENT"
        yield f"{name:<10} {one['seconds']:6.1f} s   killed {one['kills']} times   {verdict}"
        for what in ("different", "debris"):
            if one[what]:
                yield f"  {what}: {', '.join(one[what][:10])}"


class _Killer:
    """Runs one command again and again."""

    def __init__(self, job: Job, house: Path, folder: Path) -> None:
        self._job, self._house, self._folder = job, house, folder

    def run(self, kills: int, rng: random.Random, advance: Any) -> dict[str, Any]:
        left_alone = self._folder / "left-alone"
        self._finish(left_alone)  # the first one pays for what is compiled and cached
        shutil.rmtree(left_alone)
        seconds = self._finish(left_alone)
        expected = content(left_alone)
        different: set[str] = set()
        debris: set[str] = set()
        moments: list[float] = []
        for turn in range(10 * kills):
            if len(moments) == kills:
                break
            out = self._folder / f"killed-{turn}"
            moment = rng.uniform(0, seconds)
            if not self._kill(out, moment):
                shutil.rmtree(out, ignore_errors=True)
                continue  # it had ended before
            if rng.random() < ONCE_MORE:
                self._kill(out, rng.uniform(0, seconds))
            self._finish(out)
            after = content(out)
            different |= {name for name in expected.keys() & after.keys() if expected[name] != after[name]}
            different |= expected.keys() - after.keys()
            debris |= after.keys() - expected.keys()
            moments.append(round(moment, 3))
            shutil.rmtree(out)
            advance(len(moments))
        shutil.rmtree(left_alone)
        return {
            "seconds": seconds,
            "kills": len(moments),
            "moments": moments,
            "files": len(expected),
            "different": sorted(different),
            "debris": sorted(debris),
        }

    def _start(self, out: Path) -> subprocess.Popen[str]:
        words = [word.format(house=self._house, out=out) for word in self._job.words]
        paths = os.pathsep.join([str(self._house), *filter(None, [os.environ.get("PYTHONPATH")])])
        return subprocess.Popen(
            [*COMMAND, *words],
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def _kill(self, out: Path, after: float) -> bool:
        """Start the command and kill it after some seconds; whether it was still at work."""
        process = self._start(out)
        time.sleep(after)
        at_work = process.poll() is None
        if at_work:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return at_work

    def _finish(self, out: Path) -> float:
        """Run the command to its end; the seconds that it took."""
        began = time.perf_counter()
        process = self._start(out)
        if self._job.serves:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("}"):
                    break
            took = time.perf_counter() - began
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=LATEST)
        else:
            _, said = process.communicate(timeout=LATEST)
            took = time.perf_counter() - began
        if process.returncode not in (0, 130, -signal.SIGINT):
            raise UserError(f"The command {' '.join(self._job.words[:2])} failed: {said.strip()[-2000:]}")
        return took


def content(folder: Path) -> dict[str, Any]:
    """What lies in a folder: the digest of every file, without what differs from run to run."""
    return {
        path.relative_to(folder).as_posix(): _digest(path) for path in sorted(folder.rglob("*")) if not path.is_dir()
    }


def _digest(path: Path) -> str:
    if path.suffix in PRESENT:
        return "present"
    if path.suffix == ".json":
        text = json.dumps(_lasting(json.loads(path.read_text("utf-8"))), sort_keys=True)
        return hashlib.blake2b(text.encode()).hexdigest()
    if path.suffix == ".npz":  # the archive holds the time
        with np.load(path, allow_pickle=False) as arrays:
            parts = [(name, arrays[name].dtype.str, arrays[name].tobytes()) for name in sorted(arrays.files)]
        return hashlib.blake2b(repr(parts).encode()).hexdigest()
    return hashlib.blake2b(path.read_bytes()).hexdigest()


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lasting(one) for key, one in value.items() if key not in VOLATILE}
    return [_lasting(one) for one in value] if isinstance(value, list) else value


def _prepare(house: Path) -> None:
    """A small trained model, and images, as files."""
    import torch
    from safetensors.torch import save_file
    from torch import nn

    from secondguess import training
    from secondguess.images import load, save_npz

    house.mkdir()
    (house / "killed_model.py").write_text(FACTORY)
    digits = load("digits")
    assert digits.train is not None
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
    training.train(net, digits.train.materialise(), digits.train.labels, epochs=5, device="cpu")
    save_file(net.state_dict(), house / "weights.safetensors")
    save_npz(digits.train.head(600, seed=0), house / "train.npz")
    save_npz(digits.test.head(300, seed=0), house / "validation.npz")
    save_npz(digits.test.head(60, seed=1), house / "pool.npz")
    _save_split(house / "digits.npz", digits.train.head(600, seed=0), digits.test.head(150, seed=0))
    small = load("mnist5k")
    assert small.train is not None
    _save_split(house / "tiny.npz", small.train.head(300, seed=0), small.test.head(150, seed=0))


def _save_split(path: Path, train: Any, test: Any) -> None:
    arrays = {"x_train": train.materialise(), "y_train": train.labels, "x_test": test.materialise()}
    whole = {name: np.rint(255 * array).astype(np.uint8) if name[0] == "x" else array for name, array in arrays.items()}
    np.savez(path, **whole, y_test=test.labels)
