"""Commands that are killed at random moments and run again: the same files as those of a run that was left alone?

Each command works into a folder of its own. It is killed (`kill -9`, with all its processes) at a moment drawn
uniformly from the time that it takes, in every second case once more while it goes on, and then run to its end. The
folder must then hold the same files with the same content as that of a run that was never interrupted: other content is
a number that differs, another file is debris. Times of day, durations and the command itself are left out of the
comparison; of pages, pictures and databases only the presence counts.

Commands that are killed are forked from a process that has imported what they need, so that they are killed at work and
not while they import. The run that is left alone has a fresh interpreter, with another seed of hashes.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np

from secondguess.environment import versions
from secondguess.errors import UserError
from secondguess.files import write_json
from secondguess.progress import Progress, Silent

__all__ = ["JOBS", "Job", "lines", "run"]

VOLATILE = {
    "seconds",
    "created",
    "command",
    "wall_seconds",
    "task_seconds",
    "planned_seconds",
    "microseconds",
    "time",
    "began",
    "finished",
    "port",
    "token",
}
VOLATILE |= {"digest", "arrays"}  # of files that hold one of these, or of archives, whose content is compared
PRESENT = {".html", ".xml", ".sqlite", ".lock", ".png"}  # pages, databases, pictures
ONCE_MORE = 0.5  # how often a command is killed twice
LATEST = 1800.0  # seconds for a command
IMPORTED = ["torch", "torch.func", "scipy.stats", "sklearn", "PIL.Image", "uvicorn", "fastapi", "secondguess.cli.app"]
IMPORTED += [f"secondguess.{room}" for room in ("audits", "guard", "labelling", "stress", "supervisors", "training")]
FRESH, FORKED = multiprocessing.get_context("spawn"), multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Job:
    """A command that works into a folder.

    Attributes:
        words: of the command; `{house}` and `{out}` are replaced.
        serves: whether it ends only when it is told to, after it has announced something.
        called: the function that takes the words, as `module:name`.
    """

    words: tuple[str, ...]
    serves: bool = False
    called: str = "secondguess.cli:main"


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
    *,
    kills: int = 50,
    jobs: Sequence[str] = tuple(JOBS),
    at_once: int = 1,
    seed: int = 0,
    kept: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Kill every command that many times.

    Args:
        kills: of each command; a second one before it has ended is not counted.
        jobs: which of the `JOBS`.
        at_once: how many of the jobs run at the same time.
        seed: of the moments.
        kept: a file that says after every kill what was found so far, and that a run begins with.
        progress: where to report.

    Returns:
        `{"jobs": {name: {"seconds", "kills", "moments", "different", "debris"}}, "met": ...}`; after an interrupt with
        the kills until then.
    """
    unknown = [name for name in jobs if name not in JOBS]
    if unknown:
        raise UserError(f"There is no job {unknown[0]!r}; there is {', '.join(JOBS)}.")
    FORKED.set_forkserver_preload(IMPORTED)
    with (
        tempfile.TemporaryDirectory(prefix="secondguess-kill-") as name,
        (progress or Silent()).task("Killing commands", kills * len(jobs)) as advance,
        ThreadPoolExecutor(at_once) as pool,
    ):
        house = Path(name) / "house"
        _prepare(house)
        killers = {job: _Killer(JOBS[job], house, Path(name) / job.replace(" ", "-")) for job in jobs}
        for job, known in (json.loads(kept.read_text("utf-8")) if kept and kept.exists() else {}).items():
            killers[job].go_on(known)
        over, reporting = threading.Event(), threading.Lock()

        def report() -> None:
            with reporting:
                advance(sum(len(one.moments) for one in killers.values()), kills * len(jobs))
                if kept:
                    write_json(kept, {job: one.found for job, one in killers.items()})

        work = [pool.submit(one.run, kills, f"{seed} {job}", report, over) for job, one in killers.items()]
        try:
            for one in work:
                one.result()
        except KeyboardInterrupt:  # what was found until then counts
            over.set()
        except BaseException:
            over.set()
            raise
    found = {job: one.found for job, one in killers.items()}
    met = all(one["kills"] == kills and not one["different"] and not one["debris"] for one in found.values())
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
    """Runs one command again and again.

    Attributes:
        moments: of the kills so far, in seconds after the start.
    """

    def __init__(self, job: Job, house: Path, folder: Path) -> None:
        self._job, self._house, self._folder = job, house, folder
        self.moments: list[float] = []
        self._seconds, self._files = 0.0, 0
        self._different: set[str] = set()
        self._debris: set[str] = set()

    @property
    def found(self) -> dict[str, Any]:
        """What a record holds."""
        return {
            "seconds": self._seconds,
            "kills": len(self.moments),
            "moments": self.moments,
            "files": self._files,
            "different": sorted(self._different),
            "debris": sorted(self._debris),
        }

    def go_on(self, found: dict[str, Any]) -> None:
        """Begin with what was found before."""
        self.moments = list(found["moments"])
        self._different, self._debris = set(found["different"]), set(found["debris"])

    def run(self, kills: int, seed: str, report: Callable[[], None], over: threading.Event) -> None:
        """Kill the command that many times in all, or until it is over."""
        self._folder.mkdir()
        out = self._folder / "out"
        self._finish(out, FRESH)
        expected = content(out)
        self._files = len(expected)
        shutil.rmtree(out)
        self._seconds = self._finish(out)
        self._compare(expected, out)
        rng = random.Random(f"{seed} {len(self.moments)}")
        while len(self.moments) < kills and not over.is_set():
            moment = rng.uniform(0, self._seconds)
            if not self._kill(out, moment):
                shutil.rmtree(out, ignore_errors=True)
                continue  # it had ended before
            if rng.random() < ONCE_MORE:
                self._kill(out, rng.uniform(0, self._seconds))
            self._finish(out)
            self._compare(expected, out)
            self.moments.append(round(moment, 3))
            report()

    def _compare(self, expected: dict[str, str], out: Path) -> None:
        """Look for what differs in a folder, and remove it."""
        after = content(out)
        self._different |= {name for name in expected if expected[name] != after.get(name)}
        self._debris |= after.keys() - expected.keys()
        shutil.rmtree(out)

    def _start(self, out: Path, context: SpawnContext | ForkServerContext) -> BaseProcess:
        words = [word.format(house=self._house, out=out) for word in self._job.words]
        self._said.unlink(missing_ok=True)
        process = context.Process(target=_work, args=(self._job.called, words, self._house, self._said))
        process.start()
        return process

    @property
    def _said(self) -> Path:
        """What the command writes to standard output and error."""
        return self._folder / "said.txt"

    def _kill(self, out: Path, after: float) -> bool:
        """Start the command and kill it after some seconds; whether it was still at work."""
        process = self._start(out, FORKED)
        process.join(after)
        at_work = process.is_alive()
        process.kill()
        with suppress(ProcessLookupError):  # the others of its session, if it has come so far as to have one
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()
        return at_work

    def _finish(self, out: Path, context: SpawnContext | ForkServerContext = FORKED) -> float:
        """Run the command to its end; the seconds that it took."""
        began = time.perf_counter()
        process = self._start(out, context)
        if self._job.serves:
            while process.is_alive() and "\n}" not in self._text():
                process.join(0.02)
        else:
            process.join(LATEST)
        took = time.perf_counter() - began
        if process.is_alive():
            os.kill(process.pid or 0, signal.SIGINT)
            process.join(LATEST)
        if process.exitcode not in (0, 130):
            process.kill()
            raise UserError(f"The command {' '.join(self._job.words[:2])} failed: {self._text().strip()[-2000:]}")
        return took

    def _text(self) -> str:
        return self._said.read_text("utf-8", "replace") if self._said.exists() else ""


def _work(called: str, words: Sequence[str], house: Path, said: Path) -> None:
    """What a process does: the command, as in a shell of its own."""
    os.setsid()
    with said.open("wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored, where this runs in the background
    np.random.seed()  # noqa: NPY002 (else every fork would draw the same)
    os.environ["OMP_NUM_THREADS"] = "1"
    if torch := sys.modules.get("torch"):  # for which the variable comes too late
        torch.set_num_threads(1)
    sys.path.insert(0, str(house))
    module, _, name = called.partition(":")
    sys.exit(getattr(import_module(module), name)(words))


def content(folder: Path) -> dict[str, str]:
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
        return {key: _lasting(one) for key, one in value.items() if key.rpartition(".")[2] not in VOLATILE}
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
