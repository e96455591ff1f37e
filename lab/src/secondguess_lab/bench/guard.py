"""What a guard costs over the bare model, and what the service holds.

The guard is the softmax and MDSA over the last layer but one, on digits of 28 x 28. Overhead: `guard.judge` against the
forward pass of the same torch module, in turns, for images that come alone and in batches; the same for a ResNet-20 on
colour images of 32 x 32, whose weights and images are random, since the time does not depend on them; and the same for
the guard that was exported together with its model and runs in ONNX Runtime, where that is installed: the difference
for users who replace the torch module by it. Service: the command `secondguess guard serve` in a process of its own,
called by a third one at a steady rate.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.environment import versions
from secondguess.errors import MissingExtra, require
from secondguess.progress import Progress, Silent
from secondguess_lab.bench.serving import SERVE, Serving

if TYPE_CHECKING:
    from torch import nn

    from secondguess.guard.guard import Guard

__all__ = ["lines", "prepared", "run"]

Images = NDArray[np.float32]
Judge = Callable[[Images], Any]

ARCHITECTURE, DATA = "simple_cnn", "mnist5k"
SUPERVISORS = ("max_softmax", "mdsa")
OVERHEADS = {1: 0.20, 256: 0.15}  # targets by batch size
LATENCY = 100.0  # milliseconds, the target of the 99th percentile
EPOCHS, STRESSED, SENT, ALONE = 2, 300, 256, 500
PHOTOGRAPHS = "resnet20"


def run(
    *,
    requests: float = 200.0,
    seconds: float = 60.0,
    repeats: int = 30,
    service: bool = True,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure both.

    Args:
        requests: per second.
        seconds: of calling.
        repeats: of each timing; the median of the ratios counts.
        service: whether to start the service at all.
        progress: where to report.

    Returns:
        `{"overhead": [{"batch", "bare_ms", "guard_ms", "overhead", "median_overhead", "target", "met"}, ...],
        "parts_ms": {"session", each supervisor, "decision"}, "photographs": as "overhead", for the ResNet-20,
        "exported": as "overhead", or None without ONNX,
        "service": {...} or None, ...}`.
    """
    progress = progress or Silent()
    with tempfile.TemporaryDirectory(prefix="secondguess-bench-") as name:
        folder = Path(name)
        guard, model, images = prepared(folder, progress)
        rows = [_overhead(guard.judge, model, images, batch, repeats, progress) for batch in OVERHEADS]
        parts = _parts(guard, images[:ALONE])
        watched, photo_model, photos = _photographs()
        large = [_overhead(watched.judge, photo_model, photos, batch, repeats, progress) for batch in OVERHEADS]
        exported = _exported(guard, folder / "exported")
        others = exported and [_overhead(exported, model, images, batch, repeats, progress) for batch in OVERHEADS]
        held = _service(folder, requests, seconds, progress) if service else None
    return {
        "model": ARCHITECTURE,
        "data": DATA,
        "supervisors": list(SUPERVISORS),
        "cores": os.cpu_count(),
        "versions": versions(),
        "overhead": rows,
        "parts_ms": parts,
        "photographs": large,
        "exported": others,
        "service": held,
    }


def lines(result: dict[str, Any]) -> Iterator[str]:
    """The result for a terminal."""
    yield f"{' + '.join(result['supervisors'])} over {result['model']}, {result['cores']} cores"
    measured = {
        "guarded": result["overhead"],
        "exported": result["exported"] or [],
        f"guarded {PHOTOGRAPHS}": result["photographs"],
    }
    for how, rows in measured.items():
        for row in rows:
            yield (
                f"  batch {row['batch']:<4} bare {row['bare_ms']:8.3f} ms   {how:<16} {row['guard_ms']:8.3f} ms   "
                f"overhead {row['overhead']:+.1%} (median {row['median_overhead']:+.1%}; target {row['target']:.0%})"
            )
    parts = ", ".join(f"{name} {took:.3f}" for name, took in result["parts_ms"].items())
    yield f"  of a single image, in ms: {parts}"
    if (held := result["service"]) is not None:
        yield (
            f"  service    {held['requests']:,} requests at {held['rate']:g} a second   {held['errors']} errors   "
            f"p50 {held['p50']:.1f} ms   p99 {held['p99']:.1f} ms (target {held['target_p99']:g})"
        )


def prepared(folder: Path, progress: Progress) -> tuple[Guard, nn.Module, Images]:
    """A guard, its model once more without the guard's hooks, and images; guard, weights and images are also files."""
    from safetensors.torch import save_file

    from secondguess import training, zoo
    from secondguess.guard import Guard, StressSplit
    from secondguess.images import load
    from secondguess.model.classifier import Classifier
    from secondguess.stress import Corrupted, Invalid

    digits = load(DATA)
    assert digits.train is not None
    model = zoo.make(ARCHITECTURE, input_shape=digits.train.shape, seed=0)
    with progress.task("Training a model", 1):
        training.train(model, digits.train.materialise(), digits.train.labels, epochs=EPOCHS, device="cpu")
    save_file(model.state_dict(), folder / "weights.safetensors")
    classifier = Classifier(f"zoo:{ARCHITECTURE}", weights=folder / "weights.safetensors", device="cpu")
    some = digits.train.head(STRESSED, seed=0)
    stress = StressSplit({"corrupted": Corrupted().make(some, seed=0), "invalid": Invalid().make(some, seed=0)})
    guard = Guard(SUPERVISORS, false_alarms=0.01).fit(classifier, digits.train, digits.test, stress)
    guard.save(folder / "guard")
    images = digits.test.materialise()
    _write_pictures(images[:SENT], folder / "images")
    return guard, model.eval(), images


def _photographs() -> tuple[Guard, nn.Module, Images]:
    """A guard for a ResNet-20, the same network once more, and images."""
    import torch

    from secondguess.guard import Guard, StressSplit
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier
    from secondguess_lab.reference import build

    def images(count: int, seed: int) -> ImageSet:
        drawn = np.random.default_rng(seed)
        pixels = drawn.random((count, 3, 32, 32), dtype=np.float32)
        return ImageSet.from_arrays(pixels, drawn.integers(0, 10, count))

    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(build(PHOTOGRAPHS, 10).eval())
    classifier = Classifier(models[0], device="cpu")
    stress = StressSplit({"corrupted": images(STRESSED, 2), "invalid": images(STRESSED, 3)})
    watching = Guard(SUPERVISORS, false_alarms=0.01, protect="novelty")  # of a model that is right by chance only
    guard = watching.fit(classifier, images(1000, 0), images(1000, 1), stress)
    return guard, models[1], images(3 * max(OVERHEADS), 4).materialise()


def _write_pictures(images: Images, folder: Path) -> None:
    from PIL import Image

    folder.mkdir()
    for number, image in enumerate(images):
        Image.fromarray(np.rint(image[0] * 255).astype(np.uint8)).save(folder / f"{number:04}.png")


def _exported(guard: Guard, folder: Path) -> Judge | None:
    """How the exported guard judges, with as many threads as torch has; None where ONNX is not installed."""
    import torch

    from secondguess.guard.onnx_export import export_onnx

    try:
        from secondguess.guard.runtime import Runtime

        return Runtime(export_onnx(guard, folder), threads=torch.get_num_threads()).judge
    except MissingExtra:
        return None


def _overhead(
    judge: Judge, model: nn.Module, images: Images, batch: int, repeats: int, progress: Progress
) -> dict[str, Any]:
    import torch

    parts = [images[start : start + batch] for start in range(0, min(len(images) - batch, 100 * batch), batch)][:100]

    def bare() -> None:
        with torch.inference_mode():
            for part in parts:
                model(torch.from_numpy(part)).numpy()

    def guarded() -> None:
        for part in parts:
            judge(part)

    times: dict[str, list[float]] = {"bare": [], "guard": []}
    works: dict[str, Callable[[], None]] = {"bare": bare, "guard": guarded}
    with progress.task(f"Timing batches of {batch}", repeats) as advance:
        for repeat in range(-2, repeats):  # the first two rounds warm caches and allocators
            for name, work in works.items():
                began = time.perf_counter()
                work()
                if repeat >= 0:
                    times[name].append((time.perf_counter() - began) / len(parts))
            advance(max(0, repeat + 1), repeats)
    best = min(times["guard"]) / min(times["bare"]) - 1
    median = float(np.median(np.array(times["guard"]) / np.array(times["bare"]))) - 1
    return {
        "batch": batch,
        "bare_ms": 1000 * min(times["bare"]),
        "guard_ms": 1000 * min(times["guard"]),
        "overhead": best,
        "median_overhead": median,
        "target": OVERHEADS[batch],
        "met": best <= OVERHEADS[batch],
    }


def _parts(guard: Guard, images: Images) -> dict[str, float]:
    """Milliseconds that each part of `guard.judge` takes for an image that comes alone; the medians.

    They are measured one after the other for each image, as in `judge`: a part then finds in the caches what the other
    parts have left there.
    """
    pipeline, took = guard.pipeline, []
    for image in images:
        marks, scores = [time.perf_counter()], []
        seen = guard.session.observe(image[None])
        marks.append(time.perf_counter())
        for index in range(len(pipeline.labels)):
            scores.append(pipeline.supervisors.score(seen, [index]))
            marks.append(time.perf_counter())
        pipeline.judge_scores(seen.probabilities, np.hstack(scores))
        marks.append(time.perf_counter())
        took.append(np.diff(marks))
    medians = 1000 * np.median(took, axis=0)
    return dict(zip(("session", *pipeline.labels, "decision"), medians.tolist(), strict=True))


def _service(folder: Path, requests: float, seconds: float, progress: Progress) -> dict[str, Any]:
    """Start the service, call it, stop it."""
    require("fastapi", "app")
    token, log = folder / "token", folder / "log"
    model = ["--model", f"zoo:{ARCHITECTURE}", "--weights", str(folder / "weights.safetensors"), "--device", "cpu"]
    service = Serving([*SERVE, str(folder / "guard"), *model, "--port", "0", "--token-file", str(token), "--json"], log)
    try:
        with progress.task("Calling the service", 1) as advance:
            _load(service.address, token, folder, requests, min(2.0, seconds))  # the first requests find all cold
            found = _load(service.address, token, folder, requests, seconds)
            advance(1, 1)
    finally:
        service.end()
    return found | {
        "rate": requests,
        "target_p99": LATENCY,
        "met": found["errors"] == 0 and found["p99"] < LATENCY,
    }


def _load(address: str, token: Path, folder: Path, requests: float, seconds: float) -> dict[str, Any]:
    words: Sequence[str] = (address, str(token), str(folder / "images"), str(requests), str(seconds))
    command = [sys.executable, "-m", "secondguess_lab.bench.http_load", *words]
    return dict(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
