"""What many images cost: observing them on one and on several workers, and a whole audit of them.

Passes without an engine, and each worker, have one thread on a core of their own (`_workers.py`): one worker against a
plain loop is what the engine itself costs, two against one what it gains. An audit has all cores of the machine.
Memory is what the process cannot give back: pages of mapped files are not counted, which the system drops as it likes.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from secondguess.progress import Advance, Progress, Silent
from secondguess_lab.bench._memory import peak_memory
from secondguess_lab.bench._workers import alone, core_seconds, dask_workers

__all__ = ["lines", "run", "targets"]

SIDE, CLASSES, TRAINING = 32, 10, 10_000
ARCHITECTURE = "simple_cnn"  # that the passes ask
SUPERVISORS, STRESS = ("max_softmax", "vim", "mdsa_global"), ("corrupted",)
LARGE, CROP = 256, 224  # sides of a photograph, and of what the model takes of it
BLOCK = 10_000  # images that are made at a time
PLAIN = "local"  # no engine
ENGINES = ("dask:1", "dask:2")
SPEED_UP = {"observing": ("small CNN", 1.8), "photographs": ("ONNX and JPEG files", 1.7)}  # of two workers against one
OVERHEAD = 0.1  # of an engine at one worker, at most
MANY, MILLISECONDS, MEBIBYTES = 1_000_000, 0.3, 2048  # images of an audit, and what it may take
LARGE_PASS = 1024  # images
LOSING = ("accuracy", "calibration", "supervisors")  # sections of the audit that loses a worker


def run(
    *,
    images: int = 100_000,
    observed: int = 20_000,
    photographs: int = 0,
    engines: Sequence[str] = ENGINES,
    repeats: int = 3,
    minutes: float | None = None,
    lost: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Time passes of a small CNN without an engine and with some, then an audit of a tiny one.

    The audit has three supervisors, one stress set and its report.

    Args:
        images: of 32 x 32 pixels that are audited; 0 for no audit.
        observed: of them that each pass observes.
        photographs: JPEG files of 224 pixels, in a folder, that an ONNX file observes in passes of their own.
        engines: on which; `dask:N` is a Dask scheduler with N workers that is started for this.
        repeats: passes of each, of which the fastest counts.
        minutes: that the audit may take; None for everything at full size.
        lost: images of an audit on two Dask workers of which one is killed in the middle; 0 for none.
        progress: where to report.

    Returns:
        `observing`: for each engine the seconds, the speed against none, and the seconds of a core that its workers
        had (this process, which hands out the shards, not counted); `photographs`: the same. `audit`: seconds,
        milliseconds an image, the memory by which the process grew, in MiB, and the seconds of each section. `lost`:
        whether the numbers stayed the same. `targets`: what was aimed at, and whether it was met.
    """
    report = progress or Silent()
    with tempfile.TemporaryDirectory(prefix="secondguess-scale-") as name:
        folder = Path(name)
        train, test = _images(TRAINING, 1, folder), _images(max(images, observed, lost), 2, folder)
        module = _network(train)
        seen = _passes("observing", folder, observed, engines, repeats, report)
        photos = None
        if photographs:
            _make_photographs(photographs, folder)
            photos = _passes("photographs", folder, photographs, engines, repeats, report)
        audited = _audit(module, train, test, minutes, folder / "audit", report) if images else None
        killed = _lose_a_worker(module, train, test.head(lost), folder) if lost else None
    found = {"observing": seen, "photographs": photos, "audit": audited, "lost": killed}
    made = {"cores": os.cpu_count(), "images": images, "observed": observed, **found}
    return made | {"targets": targets(made)}


def targets(result: dict[str, Any]) -> list[dict[str, Any]]:
    """What is aimed at beside what was found; `met` is None where it was not measured at the size that is meant."""
    rows: list[dict[str, Any]] = []

    def entered(what: str, found: float, aim: float, met: bool | None) -> None:
        rows.append({"what": what, "found": found, "aim": aim, "met": met})

    for passes, (what, aim) in SPEED_UP.items():
        seconds = {row["engine"]: row["seconds"] for row in result.get(passes) or ()}
        if {"dask:1", "dask:2"} <= seconds.keys():
            gained = seconds["dask:1"] / seconds["dask:2"]
            entered(f"two Dask workers against one, {what}", gained, aim, gained >= aim)
        if "dask:1" in seconds:
            overhead = seconds["dask:1"] / seconds[PLAIN] - 1
            entered(f"overhead of one Dask worker, {what}", overhead, OVERHEAD, overhead <= OVERHEAD)
    if audited := result.get("audit"):
        for what, aim in (("milliseconds", MILLISECONDS), ("mebibytes", MEBIBYTES)):
            met = audited[what] <= aim if result["images"] >= MANY else None
            entered(f"{what} of an audit of {MANY:,} images", audited[what], aim, met)
    if killed := result.get("lost"):
        entered("numbers that differ after a lost worker", killed["different"], 0, killed["same"])
    return rows


def _images(count: int, seed: int, folder: Path) -> Any:
    """Noisy copies of ten pictures, mapped from a file."""
    from numpy.lib.format import open_memmap

    from secondguess.images import ImageSet

    pictures = np.random.default_rng(0).integers(0, 128, (CLASSES, SIDE, SIDE, 3), dtype=np.uint8)
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    path = folder / f"{seed}.npy"
    pixels = open_memmap(path, "w+", np.uint8, (count, SIDE, SIDE, 3))
    for start in range(0, count, BLOCK):
        some = labels[start : start + BLOCK]
        pixels[start : start + BLOCK] = pictures[some] + rng.integers(
            0, 128, (len(some), SIDE, SIDE, 3), dtype=np.uint8
        )
    pixels.flush()
    return ImageSet.from_arrays(np.load(path, mmap_mode="r"), labels, name=path.stem)


def _network(train: Any) -> Any:
    """A tiny network that has learnt a little."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, CLASSES),
    )
    optimiser = torch.optim.Adam(module.parameters(), 1e-2)
    for pixels, labels in train.head(4000).batches(100):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(module(torch.from_numpy(pixels)), torch.from_numpy(labels))
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return module.eval()


def _make_photographs(count: int, folder: Path) -> None:
    """Smooth noise in JPEG files, and a network for it in an ONNX file."""
    import torch
    from PIL import Image
    from torch import nn

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    for number in range(count):
        path = folder / "photographs" / f"{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (28, 28, 3), dtype=np.uint8))
        coarse.resize((LARGE, LARGE)).save(path, quality=90)
    layers = [nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()]
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 2)).eval()
    axes = {"images": {0: "n"}, "logits": {0: "n"}}
    names: Any = {"input_names": ["images"], "output_names": ["logits"], "dynamic_axes": axes, "dynamo": False}
    torch.onnx.export(network, (torch.zeros(1, 3, CROP, CROP),), str(folder / "network.onnx"), **names)


@lru_cache
def _opened(what: str, folder: Path, count: int, engine: str) -> tuple[Any, Any, Any]:
    """A classifier, its images and what is to be recorded of them; the same in every process."""
    from secondguess import Classifier, Needs, Trace, zoo
    from secondguess.images import ImageSet, load_images

    if what == "photographs":
        images = load_images(str(folder / "photographs"), size=CROP)
        how: Any = {"output_kind": "logits", "device": "cpu", "batch_size": 32, "engine": engine}
        return Classifier.open(str(folder / "network.onnx"), **how), images, Needs()
    images = ImageSet.from_arrays(np.load(folder / "2.npy", mmap_mode="r")[:count])
    module = zoo.make(ARCHITECTURE, num_classes=CLASSES, input_shape=images.shape, seed=0)
    return Classifier(module, device="cpu", engine=engine), images, Needs(traces=frozenset({Trace()}))


def _one_pass(what: str, folder: Path, count: int, engine: str) -> float:
    """The seconds of a pass; the model is opened before the clock runs."""
    classifier, images, needs = _opened(what, folder, count, engine)
    began = time.perf_counter()
    classifier.observe(images, needs)
    return time.perf_counter() - began


def _passes(
    what: str, folder: Path, count: int, engines: Sequence[str], repeats: int, progress: Progress
) -> list[dict[str, Any]]:
    """The fastest pass of each engine, all of them in turns, so that other work on the machine hits all alike."""
    with ExitStack() as started:
        ways: dict[str, Callable[[], float]] = {}
        workers: dict[str, list[int]] = {}
        for name in (PLAIN, *engines):
            called, address, workers[name] = _started(name, started)
            ways[name] = partial(called, _one_pass, what, folder, count, address)
        for way in ways.values():  # workers import what they need, and open the model
            way()
        times: dict[str, list[float]] = {name: [] for name in ways}
        worked: dict[str, list[float]] = {name: [] for name in ways}
        with progress.task("Timing passes", repeats) as advance:
            for repeat in range(repeats):
                for name, way in ways.items():
                    before = core_seconds(workers[name])
                    times[name].append(way())
                    worked[name].append(core_seconds(workers[name]) - before)
                advance(repeat + 1, repeats)
    bare = min(times[PLAIN])
    return [
        {
            "engine": name,
            "seconds": min(taken),
            "speed": bare / min(taken),
            "images": count,
            "core_seconds": min(worked[name]) if workers[name] else None,
            "all": taken,
        }
        for name, taken in times.items()
    ]


def _started(name: str, started: ExitStack) -> tuple[Callable[..., Any], str, list[int]]:
    """Who calls a pass on an engine, how the engine is called there, and its processes where they are known."""
    if name == PLAIN:
        called, processes = started.enter_context(alone())
        return called, PLAIN, processes
    processes = []
    if name.startswith("dask:") and name[5:].isdigit():
        name, processes = started.enter_context(dask_workers(int(name[5:])))
    return (lambda function, *given: function(*given)), name, processes


def _audit(
    module: Any, train: Any, test: Any, minutes: float | None, folder: Path, progress: Progress
) -> dict[str, Any]:
    import secondguess as sg

    classifier = sg.Classifier(module, device="cpu", name="tiny")
    began = time.perf_counter()
    with peak_memory(mapped=False) as grown:
        result = sg.audit(
            classifier,
            test=test,
            train=train,
            supervisors=SUPERVISORS,
            stress=STRESS,
            minutes=minutes,
            folder=folder,
            progress=progress,
        )
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "milliseconds": 1e3 * seconds / len(test),
        "mebibytes": grown[0],
        "sections": {one.name: round(one.seconds, 1) for one in result.sections},
        "failed": [f"{one.name}: {one.reason}" for one in result.sections if one.status == "failed"],
        "bytes": {name: (folder / name).stat().st_size for name in ("report.html", "audit.json", "predictions.npz")},
    }


def _lose_a_worker(module: Any, train: Any, test: Any, folder: Path) -> dict[str, Any]:
    """Audit without an engine, and on two workers of which one is killed in the middle of a pass."""
    import secondguess as sg

    def numbers(engine: str, progress: Progress) -> dict[str, Any]:
        classifier = sg.Classifier(module, device="cpu", name="tiny", engine=engine)
        given: Any = {"test": test, "train": train, "supervisors": SUPERVISORS, "stress": STRESS, "minutes": None}
        given |= {"sections": LOSING, "folder": folder / f"lost-{engine[:4]}", "progress": progress}
        found = sg.audit(classifier, **given).numbers
        return {name: one.to_dict() for name, one in found.items() if not name.endswith("seconds")}

    expected = numbers(PLAIN, Silent())
    with dask_workers(2) as (engine, workers):
        killer = _Killer(workers[0])
        found = numbers(engine, killer)
    different = sum(found.get(name) != expected.get(name) for name in found.keys() | expected.keys())
    return {
        "images": len(test),
        "killed": killer.when,
        "numbers": len(expected),
        "different": different,
        "same": killer.when is not None and different == 0,
    }


class _Killer:
    """Kills a process in the middle of the first large pass that is reported; small ones need no worker."""

    def __init__(self, process: int) -> None:
        self._process = process
        self.when: str | None = None

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Advance]:
        """Report nothing, but kill in time."""

        def advance(done: int, total: int) -> None:
            large = label.startswith("Observing") and total >= LARGE_PASS
            if self.when is None and large and total / 4 <= done < total:
                self.when = f"{label}, {done:,} of {total:,}"
                os.kill(self._process, signal.SIGKILL)

        yield advance


def lines(result: dict[str, Any]) -> Iterator[str]:
    """The result for a terminal."""
    yield f"{result['observed']:,} images of {SIDE} x {SIDE} pixels observed, {result['cores']} cores"
    for row in result["observing"]:
        worked = f", {row['core_seconds']:.2f} s of a core" if row.get("core_seconds") else ""
        speed = f"{row['speed']:5.2f} x the speed without an engine"
        yield f"  {row['engine']:<10} {row['seconds']:7.2f} s   {speed}{worked}"
    for row in result.get("photographs") or ():
        yield (
            f"  {row['engine']:<10} {row['seconds']:7.2f} s   {row['speed']:5.2f} x, {row['images']:,} JPEG files of "
            f"{CROP} pixels, ONNX"
        )
    if audited := result["audit"]:
        yield (
            f"{result['images']:,} audited: {audited['seconds']:.0f} s, {audited['milliseconds']:.2f} ms an image, "
            f"{audited['mebibytes']:,.0f} MiB"
        )
        for name, seconds in audited["sections"].items():
            yield f"  {name:<18} {seconds:7.1f} s"
        yield from (f"  failed: {one}" for one in audited["failed"])
    if killed := result.get("lost"):
        yield f"One of two workers killed ({killed['killed'] or 'never'}): {killed['different']} numbers differ"
    for row in result.get("targets", ()):
        said = {True: "met", False: "missed", None: "not measured at that size"}[row["met"]]
        yield f"  {row['what']}: {row['found']:.4g}, aim {row['aim']:g}: {said}"
