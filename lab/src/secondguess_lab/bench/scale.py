"""What many images cost: observing them on one and on several workers, and a whole audit of them.

Memory is what the process cannot give back: pages of mapped files are not counted, which the system drops as it likes.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from secondguess.progress import Progress, Silent
from secondguess_lab.bench._memory import peak_memory

__all__ = ["lines", "run"]

SIDE, CLASSES, TRAINING = 32, 10, 10_000
ARCHITECTURE = "simple_cnn"  # that the passes ask
SUPERVISORS, STRESS = ("max_softmax", "vim", "mdsa_global"), ("corrupted",)
LARGE, CROP = 256, 224  # sides of a photograph, and of what the model takes of it
BLOCK = 10_000  # images that are made at a time


def run(
    *,
    images: int = 100_000,
    observed: int = 20_000,
    photographs: int = 0,
    engines: Sequence[str] = ("local:1", "local:2"),
    repeats: int = 3,
    minutes: float | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Time passes of a small CNN without an engine and with some, then an audit of a tiny one.

    The audit has three supervisors and one stress set.

    Args:
        images: of 32 x 32 pixels that are audited; 0 for no audit.
        observed: of them that each pass observes.
        photographs: JPEG files of 224 pixels, in a folder, that an ONNX file observes in passes of their own.
        engines: on which.
        repeats: passes of each, of which the fastest counts.
        minutes: that the audit may take; None for everything at full size.
        progress: where to report.

    Returns:
        `observing`: for each engine the seconds, and the speed against none; `photographs`: the same. `audit`: seconds,
        milliseconds an image, the memory by which the process grew, in MiB, and the seconds of each section.
    """
    report = progress or Silent()
    with tempfile.TemporaryDirectory(prefix="secondguess-scale-") as folder:
        train, test = _images(TRAINING, 1, Path(folder)), _images(max(images, observed), 2, Path(folder))
        module = _network(train)
        seen = _observing(test.head(observed), engines, repeats, report)
        photos = _photographs(photographs, Path(folder), engines, repeats, report) if photographs else None
        audited = _audit(module, train, test, minutes, report) if images else None
    found = {"observing": seen, "photographs": photos, "audit": audited}
    return {"cores": os.cpu_count(), "images": images, "observed": observed, **found}


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


def _observing(images: Any, engines: Sequence[str], repeats: int, progress: Progress) -> list[dict[str, Any]]:
    from secondguess import Classifier, Needs, Trace, zoo

    module = zoo.make(ARCHITECTURE, num_classes=CLASSES, input_shape=images.shape, seed=0)
    needs = Needs(traces=frozenset({Trace()}))
    opened = {engine: Classifier(module, device="cpu", engine=engine) for engine in ("local", *engines)}
    return _passes(opened, images, needs, repeats, progress)


def _photographs(
    count: int, folder: Path, engines: Sequence[str], repeats: int, progress: Progress
) -> list[dict[str, Any]]:
    """Passes of an ONNX file over smooth noise in JPEG files."""
    import torch
    from PIL import Image
    from torch import nn

    from secondguess import Classifier, Needs
    from secondguess.images import load_images

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    for number in range(count):
        path = folder / "photographs" / f"{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (28, 28, 3), dtype=np.uint8))
        coarse.resize((LARGE, LARGE)).save(path, quality=90)
    layers = [nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()]
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 2)).eval()
    file, axes = folder / "network.onnx", {"images": {0: "n"}, "logits": {0: "n"}}
    names: Any = {"input_names": ["images"], "output_names": ["logits"], "dynamic_axes": axes, "dynamo": False}
    torch.onnx.export(network, (torch.zeros(1, 3, CROP, CROP),), str(file), **names)
    images = load_images(str(folder / "photographs"), size=CROP)
    opened = {
        engine: Classifier.open(str(file), output_kind="logits", device="cpu", batch_size=32, engine=engine)
        for engine in ("local", *engines)
    }
    return _passes(opened, images, Needs(), repeats, progress)


def _passes(
    opened: Mapping[str, Any], images: Any, needs: Any, repeats: int, progress: Progress
) -> list[dict[str, Any]]:
    """The fastest pass of each engine."""
    for classifier in opened.values():  # workers start, and open the model
        classifier.observe(images, needs)
    times: dict[str, list[float]] = {engine: [] for engine in opened}
    with progress.task("Timing passes", repeats) as advance:
        for repeat in range(repeats):
            for engine, classifier in opened.items():
                began = time.perf_counter()
                classifier.observe(images, needs)
                times[engine].append(time.perf_counter() - began)
            advance(repeat + 1, repeats)
    bare = min(times["local"])
    return [
        {"engine": engine, "seconds": min(taken), "speed": bare / min(taken), "images": len(images)}
        for engine, taken in times.items()
    ]


def _audit(module: Any, train: Any, test: Any, minutes: float | None, progress: Progress) -> dict[str, Any]:
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
            progress=progress,
        )
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "milliseconds": 1e3 * seconds / len(test),
        "mebibytes": grown[0],
        "sections": {one.name: round(one.seconds, 1) for one in result.sections},
        "failed": [f"{one.name}: {one.reason}" for one in result.sections if one.status == "failed"],
    }


def lines(result: dict[str, Any]) -> Iterator[str]:
    """The result for a terminal."""
    yield f"{result['observed']:,} images of {SIDE} x {SIDE} pixels observed, {result['cores']} cores"
    for row in result["observing"]:
        yield f"  {row['engine']:<10} {row['seconds']:7.2f} s   {row['speed']:5.2f} x the speed without an engine"
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
