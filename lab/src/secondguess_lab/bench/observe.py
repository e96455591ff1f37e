"""What `Classifier.observe` costs over the bare forward pass of the same model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from secondguess.progress import Progress, Silent

__all__ = ["lines", "run"]

ARCHITECTURE, SHAPE = "simple_cnn", (1, 28, 28)


def run(
    *,
    images: int = 5120,
    batch_size: int = 256,
    repeats: int = 15,
    device: str = "auto",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Time the bare pass and `observe()` in turns, so that a busy moment hits all of them alike.

    Returns:
        `{"rows": [{"work", "seconds", "ratio", "overhead"}, ...], ...}` with the bare pass first. The best
        repetition of each counts: noise of a shared machine only ever adds.
        `median_overhead` is the median against the bare pass of the same repetition, so that the noise can be seen.
    """
    import torch

    from secondguess import zoo
    from secondguess.devices import pick_device
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier
    from secondguess.model.needs import Needs, Trace

    target = pick_device(device)
    model = zoo.make(ARCHITECTURE, input_shape=SHAPE, seed=0).eval().to(target)
    pixels = np.random.default_rng(0).random((images, *SHAPE), dtype=np.float32)
    nominal = ImageSet.from_arrays(pixels)
    classifier = Classifier(model, device=device, batch_size=batch_size)

    def bare() -> None:
        with torch.inference_mode():
            for start in range(0, images, batch_size):
                model(torch.from_numpy(pixels[start : start + batch_size]).to(target)).cpu()

    works: dict[str, Callable[[], object]] = {
        "bare forward pass": bare,
        "observe: probabilities": lambda: classifier.observe(nominal),
        "observe: and penultimate trace": lambda: classifier.observe(nominal, Needs(traces=frozenset({Trace()}))),
    }
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():  # a first pass of each, to warm caches and allocators
        work()
    with (progress or Silent()).task("Timing observe()", repeats) as advance:
        for repeat in range(repeats):
            for name, work in works.items():
                began = time.perf_counter()
                work()
                times[name].append(time.perf_counter() - began)
            advance(repeat + 1, repeats)
    floor = min(times["bare forward pass"])
    rows = []
    for name, seconds in times.items():
        ratio = min(seconds) / floor
        median = float(np.median(np.array(seconds) / np.array(times["bare forward pass"]))) - 1.0
        row = {"work": name, "seconds": min(seconds), "ratio": ratio, "overhead": ratio - 1.0}
        rows.append(row | {"median_overhead": median})
    return {
        "model": ARCHITECTURE,
        "images": images,
        "batch_size": batch_size,
        "device": str(target),
        "rows": rows,
    }


def lines(result: dict[str, Any]) -> Iterator[str]:
    """The result for a terminal."""
    yield f"{result['model']}, {result['images']:,} images, batch {result['batch_size']}, {result['device']}"
    for row in result["rows"]:
        cost = f"{row['ratio']:5.2f} x bare   overhead {row['overhead']:+.1%} (median {row['median_overhead']:+.1%})"
        yield f"  {row['work']:<34} {row['seconds']:7.3f} s   {cost}"
