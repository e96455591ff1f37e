"""What the distance engine costs over the bare forward passes it makes."""

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
    images: int = 2000,
    budget: int = 200,
    batch_size: int = 1024,
    repeats: int = 3,
    alone: int = 5,
    device: str = "auto",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Time the engine and as many bare forward passes in turns, so that a busy moment hits both alike.

    Args:
        images: attacked at once.
        budget: queries per image.
        batch_size: images per forward pass, of both.
        repeats: the best of each counts; noise only ever adds.
        alone: the number of images that are also attacked one at a time, as published implementations do.
        device: where the model runs.
        progress: where to report to.

    Returns:
        `{"rows": [{"work", "seconds", "queries", "microseconds", "ratio", "overhead"}, ...], ...}` with the bare
        passes first; microseconds are those of a query, ratio and overhead compare them with the bare passes'.
    """
    import torch

    from secondguess import zoo
    from secondguess.devices import pick_device
    from secondguess.model.classifier import Classifier
    from secondguess.search.distance import measure_distances

    target = pick_device(device)
    model = zoo.make(ARCHITECTURE, input_shape=SHAPE, seed=0).eval().to(target)
    pixels = np.random.default_rng(0).random((images, *SHAPE), dtype=np.float32)
    classifier = Classifier(model, device=device, batch_size=batch_size, output_kind="logits")
    _balance(model, classifier.predict(pixels))
    resident = torch.from_numpy(pixels[:1]).to(target).repeat(batch_size, 1, 1, 1)
    queries: dict[str, int] = {}

    def engine() -> None:
        queries["engine"] = int(measure_distances(classifier, pixels, budget=budget).queries.sum())

    def bare() -> None:
        with torch.inference_mode():
            for start in range(0, queries["engine"], batch_size):
                model(resident[: queries["engine"] - start]).argmax(dim=1)
            if target.type == "cuda":
                torch.cuda.synchronize()
        queries["bare forward passes"] = queries["engine"]

    def one_at_a_time() -> None:
        spent = [measure_distances(classifier, pixels[row : row + 1], budget=budget) for row in range(alone)]
        queries["one image at a time"] = int(sum(found.queries.sum() for found in spent))

    works: dict[str, Callable[[], None]] = {"engine": engine, "bare forward passes": bare}
    if alone:
        works["one image at a time"] = one_at_a_time
    times: dict[str, list[float]] = {name: [] for name in works}
    measure_distances(classifier, pixels[:64], budget=150)  # to warm caches and allocators
    with (progress or Silent()).task("Timing the distance engine", repeats) as advance:
        for repeat in range(repeats):
            for name, work in works.items():
                began = time.perf_counter()
                work()
                times[name].append(time.perf_counter() - began)
            advance(repeat + 1, repeats)
    floor = min(times["bare forward passes"]) / queries["bare forward passes"]
    rows = []
    for name in ("bare forward passes", *(work for work in works if work != "bare forward passes")):
        seconds = min(times[name])
        ratio = seconds / queries[name] / floor
        row = {
            "work": name,
            "seconds": seconds,
            "queries": queries[name],
            "microseconds": 1e6 * seconds / queries[name],
        }
        rows.append(row | {"ratio": ratio, "overhead": ratio - 1.0})
    return {
        "model": ARCHITECTURE,
        "images": images,
        "budget": budget,
        "batch_size": batch_size,
        "device": str(target),
        "rows": rows,
    }


def lines(result: dict[str, Any]) -> Iterator[str]:
    """The result for a terminal."""
    about = f"{result['images']:,} images, {result['budget']} queries each, batch {result['batch_size']}"
    yield f"{result['model']}, {about}, {result['device']}"
    for row in result["rows"]:
        cost = f"{row['ratio']:6.2f} x bare   overhead {row['overhead']:+.1%}"
        yield f"  {row['work']:<20} {row['queries']:>9,} queries   {row['microseconds']:8.1f} µs each   {cost}"


def _balance(model: Any, probabilities: Any) -> None:
    """Shift the last bias so that an untrained network gives noise more than one class: walks need a start."""
    import torch

    scores = np.log(probabilities)
    with torch.no_grad():
        last = [one for one in model.modules() if isinstance(one, torch.nn.Linear)][-1]
        last.bias.sub_(torch.from_numpy(scores.mean(axis=0)).to(last.bias))
