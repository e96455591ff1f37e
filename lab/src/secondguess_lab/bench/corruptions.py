"""How long each corruption takes, against `identity`: the same check, copy and truncation with nothing in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from secondguess.progress import Progress, Silent

__all__ = ["lines", "run"]

MIX_IMAGES = 10_000  # the size of the published mixes


def run(*, images: int = 1000, repeats: int = 3, progress: Progress | None = None) -> dict[str, Any]:
    """Time every corruption on handwritten digits, 28 x 28, at its default severity, and both mixes of 10,000.

    Returns:
        `{"rows": [{"work", "images", "seconds", "per_1000", "ratio"}, ...], ...}` with `identity` first; `seconds` is
        the median over the repetitions, `per_1000` the same for 1,000 images, `ratio` against `identity`.
    """
    from secondguess.images import ImageSet, load_images
    from secondguess.stress import CORRUPTIONS, Corrupted, corrupt

    digits = load_images("mnist5k").materialise()
    pixels = np.resize(digits, (images, *digits.shape[1:]))
    many = ImageSet.from_arrays(np.resize(digits, (MIX_IMAGES, *digits.shape[1:])))

    works: dict[str, tuple[int, Callable[[], object]]] = {
        name: (images, partial(corrupt, pixels, name))
        for name in ["identity", *sorted(set(CORRUPTIONS) - {"identity"})]
    }
    works["mix mnist_c"] = (MIX_IMAGES, lambda: Corrupted(mix="mnist_c").make(many))
    works["mix fashion_mnist_c"] = (MIX_IMAGES, lambda: Corrupted(mix="fashion_mnist_c").make(many))

    works["identity"][1]()  # a first pass, to warm caches and allocators
    times: dict[str, list[float]] = {name: [] for name in works}
    with (progress or Silent()).task("Timing corruptions", repeats) as advance:
        for repeat in range(repeats):
            for name, (_, work) in works.items():
                began = time.perf_counter()
                work()
                times[name].append(time.perf_counter() - began)
            advance(repeat + 1, repeats)
    rows = []
    floor = float(np.median(times["identity"])) / images
    for name, (count, _) in works.items():
        seconds = float(np.median(times[name]))
        each = seconds / count
        rows.append({"work": name, "images": count, "seconds": seconds, "per_1000": 1000 * each, "ratio": each / floor})
    return {"images": images, "repeats": repeats, "shape": [1, 28, 28], "rows": rows}


def lines(result: dict[str, Any]) -> Iterator[str]:
    """The result for a terminal."""
    for row in result["rows"]:
        yield f"  {row['work']:<22} {row['per_1000']:8.3f} s per 1,000 images   {row['ratio']:7.1f} x identity"
