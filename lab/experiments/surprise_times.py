"""Table 2 of the surprise paper in one run: ours and the published tools, one after the other, on traces of a network.

    python surprise_times.py mnist.npz --out results/surprise/times.json

The network of the paper is trained on the training images; 10,000 test images are scored against its training traces
of 10 numbers. Wall-clock and processor seconds are without fitting and without the network's own pass, which the paper
includes; the best of some rounds counts, in which everybody has a turn, so that a busy machine is busy for all. Of
programs that take an image at a time some of the images are scored, and their seconds extrapolated.

Of the tools, dnn-tip installs (`pip install --no-deps dnn-tip`); it always has five threads. The paper's "original" is
rendered here, because that code needs a Keras of 2019: for each image NumPy's differences from all traces of its class,
then those of the nearest from all others; SciPy's kernel density, image by image. dnn-tip collects garbage all the
time, which would count objects of this process against it: they are frozen.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import os
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import torch
from scipy.stats import gaussian_kde
from threadpoolctl import threadpool_limits

from secondguess import Classifier, Needs, Trace, load
from secondguess.supervisors.surprise.dsa import DSA
from secondguess.supervisors.surprise.lsa import LSA
from secondguess_lab.record import provenance, say, write
from secondguess_lab.studies.tasks.surprise import train_models


def main():
    """Train, take turns, write the record after every round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--epochs", type=int, default=15, help="of the network")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--some", type=int, default=500, help="images for programs that take one at a time")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data = load(arguments.data)
    classifier = Classifier(train_models(data.train, 1, epochs=arguments.epochs, seed=0)[0], batch_size=1000)
    known, asked = (classifier.observe(one, Needs(traces=frozenset({Trace()}))) for one in (data.train, data.test))
    threads, rows = torch.get_num_threads(), {}
    works = contenders(known, asked, arguments.some, threads)
    gc.freeze()
    for number in range(arguments.rounds):
        load_before = os.getloadavg()[0]
        for (name, count), (prepare, work, scored) in works.items():
            torch.set_num_threads(count or threads)
            ready = prepare()
            with threadpool_limits(count or threads):
                wall, processor = time.perf_counter(), time.process_time()
                work(ready)
                taken = {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}
            taken = {key: value * len(asked) / scored for key, value in taken.items()}
            best = rows.setdefault((name, count), taken | {"scored": scored})
            rows[name, count] = best | {key: min(best[key], value) for key, value in taken.items()}
            say(f"round {number + 1}, {name}, {count or 5} threads: {taken}")
        torch.set_num_threads(threads)
        settings = vars(arguments) | {"traces": len(known), "queries": len(asked)}
        settings |= {"dimension": known.trace(Trace()).shape[1], "load_average": [load_before, os.getloadavg()[0]]}
        listed = [{"name": name, "threads": count} | row for (name, count), row in rows.items()]
        write(arguments.out, provenance(settings, data) | {"accuracy": float(asked.correct.mean()), "rows": listed})


def contenders(known, asked, some, threads):
    """By name and number of threads: what prepares, what is timed, and how many images it scores."""
    traces, classes = known.trace(Trace()), known.predictions
    few = np.linspace(0, len(asked) - 1, min(some, len(asked))).astype(np.int64)
    queries, predicted = asked.trace(Trace())[few], asked.predictions[few]
    found = {}
    for kind in (DSA, LSA):
        for count in sorted({1, threads}):
            fit = partial(kind().fit, known)
            found[f"{kind.__name__}, ours", count] = (fit, lambda one: one.score(asked), len(asked))
    found["DSA, original", 1] = (lambda: None, lambda _: image_by_image(traces, classes, queries, predicted), len(few))
    found["LSA, original", 1] = (
        lambda: {label: gaussian_kde(traces[classes == label].T) for label in np.unique(classes)},
        lambda densities: [densities[k].logpdf(at) for at, k in zip(queries, predicted, strict=True)],
        len(few),
    )
    with contextlib.suppress(ImportError):
        from dnn_tip import surprise

        build = surprise.MultiModalSA.build_by_class
        found["DSA, dnn-tip", None] = (
            lambda: surprise.DSA(traces, classes),
            lambda one: quietly(one, queries, predicted),
            len(few),
        )
        found["LSA, dnn-tip", None] = (
            lambda: quietly(build, traces, classes, lambda part, _: surprise.LSA(part)),
            lambda one: quietly(one, asked.trace(Trace()), asked.predictions),
            len(asked),
        )
    return found


def image_by_image(traces, classes, queries, predicted):
    """DSA of each query, with plain differences; as the original does, rows are looked up anew for every image."""
    own = {label: np.flatnonzero(classes == label).tolist() for label in np.unique(classes)}
    everything, scores = range(len(traces)), []
    for at, label in zip(queries, predicted, strict=True):
        mine = traces[own[label]]
        first = np.linalg.norm(mine - at, axis=1)
        others = traces[list(set(everything) - set(own[label]))]
        second = np.linalg.norm(others - mine[first.argmin()], axis=1)
        scores.append(first.min() / second.min())
    return np.array(scores)


def quietly(function, *arguments):
    """Call a function that prints."""
    silent = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with silent[0], silent[1], warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments)


if __name__ == "__main__":
    main()
