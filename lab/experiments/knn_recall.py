"""What an approximate search for neighbours misses, and what it saves: `knn` through FAISS against the exact one.

    python knn_recall.py --out ../../results/scaling/knn_recall.json

Traces are those of a rectified layer with ten classes: max(0, mean of the class + noise), the noise within a random
subspace of 24 dimensions and a little in all. It needs `pip install "secondguess[faiss]"`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from secondguess import Observation
from secondguess.supervisors.knn import KNN
from secondguess_lab.record import provenance, say, write

CLASSES, SUBSPACE = 10, 24


def main() -> None:
    """Measure recall and time by the number of cells searched."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=50_000)
    parser.add_argument("--images", type=int, default=2_000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--probes", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    training, asked = (_seen(count, given.width, seed) for seed, count in ((1, given.traces), (2, given.images)))
    exact = KNN().fit(training)
    truth, seconds = _timed(exact, asked)
    rows = []
    for probes in given.probes:
        near = KNN(index="faiss", probes=probes).fit(training)
        near.score(asked.take(slice(0, 1)))  # sorts the traces into cells
        scores, took = _timed(near, asked)
        found = {"probes": probes, "recall": near.recall(asked), "seconds": took}
        rows.append(found | {"largest_error": float((scores / truth - 1).max())})
        say(f"{probes:4} cells: recall {found['recall']:.3f}, {took:.2f} s against {seconds:.2f} s")
    settings = {name: value for name, value in vars(given).items() if name != "out"} | {"k": exact.k}
    write(given.out, provenance(settings) | {"exact_seconds": seconds, "rows": rows})


def _seen(count: int, width: int, seed: int) -> Observation:
    shared, rng = np.random.default_rng(0), np.random.default_rng(seed)
    means, axes = shared.normal(size=(CLASSES, width)), shared.normal(size=(SUBSPACE, width)) / np.sqrt(SUBSPACE)
    classes = np.arange(count) % CLASSES
    noise = rng.normal(size=(count, SUBSPACE)) @ axes + 0.1 * rng.normal(size=(count, width))
    traces = np.maximum(0, means[classes] + noise).astype(np.float32)
    return Observation(predictions=classes, traces={"penultimate": traces})


def _timed(supervisor: KNN, asked: Observation) -> tuple[Any, float]:
    began = time.perf_counter()
    scores = supervisor.score(asked)
    return scores, time.perf_counter() - began


if __name__ == "__main__":
    main()
