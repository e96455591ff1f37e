"""DSA at the size of ImageNet on one GPU: 50,000 queries against 1,281,167 traces of 2,048 numbers in 1,000 classes.

    python surprise_scale.py --out results/surprise/scale.json

Traces are synthetic (a centre and unit noise for every class). The time counts everything from arrays in memory to
scores, with the other-class distances of every training trace that is hit.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from secondguess import Observation, Trace
from secondguess.supervisors.surprise.dsa import DSA
from secondguess_lab.record import provenance, say, write


def observation(count, dimension, classes, seed, spread):
    """Predictions and traces of `count` images."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    centres = torch.randn(classes, dimension, generator=torch.Generator(device).manual_seed(0), device=device)
    generator = torch.Generator(device).manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=generator, device=device)
    traces = np.empty((count, dimension), np.float32)
    for start in range(0, count, 100_000):
        chosen = labels[start : start + 100_000]
        noise = torch.randn(len(chosen), dimension, generator=generator, device=device)
        traces[start : start + len(chosen)] = (centres[chosen] + spread * noise).cpu().numpy()
    names = [str(k) for k in range(classes)]
    return Observation(predictions=labels.cpu(), traces={Trace(): traces}, class_names=names)


def main():
    """Measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=1_281_167)
    parser.add_argument("--queries", type=int, default=50_000)
    parser.add_argument("--dimension", type=int, default=2048)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    train = observation(arguments.traces, arguments.dimension, arguments.classes, 1, 1.0)
    test = observation(arguments.queries, arguments.dimension, arguments.classes, 2, 1.2)
    began = time.perf_counter()
    supervisor = DSA().fit(train)
    fitted = time.perf_counter()
    scores = supervisor.score(test)
    ended = time.perf_counter()
    hit = int(np.isfinite(supervisor.other_).sum())
    record = {
        **provenance(vars(arguments)),
        "fit_seconds": fitted - began,
        "score_seconds": ended - fitted,
        "traces_hit": hit,
        "median_score": float(np.median(scores)),
    }
    if torch.cuda.is_available():
        record["gpu_peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        _check(train, test, scores)
        record["checked"] = "20 scores against a float64 brute force"
    say(record)
    write(arguments.out, record)


def _check(train, test, scores):
    """Compare the first scores with a brute force in double precision."""
    traces = torch.from_numpy(train.traces[Trace()]).cuda()
    classes = torch.from_numpy(train.given).cuda()
    for row in range(20):
        query = torch.from_numpy(test.traces[Trace()][row]).cuda().double()
        same = torch.nonzero(classes == int(test.given[row]))[:, 0]
        distances = (traces[same].double() - query).norm(dim=1)
        nearest = same[distances.argmin()]
        others = torch.full((len(traces),), np.inf, dtype=torch.float64, device="cuda")
        for start in range(0, len(traces), 100_000):
            block = slice(start, start + 100_000)
            others[block] = (traces[block].double() - traces[nearest].double()).norm(dim=1)
        others[classes == int(test.given[row])] = np.inf
        np.testing.assert_allclose(scores[row], float(distances.min() / others.min()), rtol=1e-9)


if __name__ == "__main__":
    main()
