"""How the time of each part grows with one size at a time, the others held where `HELD` says.

A sweep is the name of a part, what grows, its sizes, and a function that prepares the work for one size. Only the work
is timed. The sizes are timed in turns, so that a busy moment hits all of them alike, and the best turn of each counts:
noise only ever adds. Data are synthetic where the cost does not depend on them, and embedded digits elsewhere.
"""

from __future__ import annotations

import sys
import time
import warnings
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import torch

from secondguess import training, zoo
from secondguess.accuracy.oracles.icos.oracle import Icos
from secondguess.accuracy.rules_and_confidence import RulesAndConfidence
from secondguess.guard.panel import fit_panel
from secondguess.guard.thresholds import conformal_p_values
from secondguess.images import ImageSet, load
from secondguess.metrics import hubris
from secondguess.model.classifier import Classifier
from secondguess.model.needs import Needs, Trace
from secondguess.model.observation import Observation
from secondguess.search import Distances, Pool, measure_distances
from secondguess.search import make as make_search
from secondguess.stress import Corrupted
from secondguess.stress.ambiguous import AmbiGuess
from secondguess.supervisors import make

PAIR = (3, 8)  # the classes of `AmbiGuess`
LOGIT_DIMENSIONS = 128  # of the traces from which made-up probabilities come
FEWEST, MOST, ENOUGH = 2, 15, 1.5  # turns of a sweep, and the seconds after which there is no other

HELD = {
    "observe": {"model": "simple_cnn", "trace": "penultimate trace", "pixels": "1 x 28 x 28 pixels"},
    "knn": {"images": 250, "training images": 4000, "dimensions": 128, "classes": 10},
    "vim": {"images": 8000, "training images": 4000, "dimensions": 128, "classes": 10},
    "relative_mahalanobis": {"images": 8000, "training images": 4000, "dimensions": 128, "classes": 10},
    "fleet": {"model": "simple_cnn", "mode": "stacked", "epochs": 1, "images": 128, "members": 2, "batch": 32},
    "ambiguess": {"epochs": 1, "images": 800, "autoencoders": 1, "pairs": 1},
    "icos": {"training images": 2000, "validation images": 500},
    "estimate": {"validation images": 1000, "images": 1000, "classes": 10},
    "panel": {"images": 20_000, "supervisors": 8, "nominal images": 2000},
    "p-values": {"images": 10_000, "calibration images": 10_000},
    "attack": {"model": "one convolution, one dense layer", "images": 100, "queries an image": 200},
    "search": {"pool": 2000, "answers": 20},
    "hubris": {"images": 4000, "classes": 10, "resamples": 500},
}


@dataclass(frozen=True)
class Sweep:
    """One part of the system, and the size that is varied; `prepare(size)` gives the work to time."""

    part: str
    varied: str
    sizes: tuple
    prepare: object


def sweeps():
    """All of them, in the order of the table."""
    return [*_looking(), *_scoring(), *_learning(), *_stress(), *_training(), *_judging(), *_searching(), *_measuring()]


def _looking():
    return [Sweep("`Classifier.observe`", "images", (128, 512, 2048), _observe)]


def _scoring():
    for name, most in (("knn", 4000), ("vim", 64_000), ("relative_mahalanobis", 64_000)):
        part = f"`{name}`, scoring"
        yield Sweep(part, "images", (most // 16, most // 4, most), partial(_score, name, "images"))
        yield Sweep(part, "training images", (4000, 16_000, 64_000), partial(_score, name, "training images"))
        yield Sweep(part, "dimensions", (64, 256, 1024), partial(_score, name, "dimensions"))
    yield Sweep(part, "classes", (10, 40, 160), partial(_score, name, "classes"))


def _learning():
    for name in ("vim", "relative_mahalanobis"):
        part = f"`{name}`, fitting"
        yield Sweep(part, "training images", (2000, 8000, 32_000), partial(_fit, name, "training images"))
        yield Sweep(part, "dimensions", (64, 256, 1024), partial(_fit, name, "dimensions"))


def _stress():
    yield Sweep("`Corrupted.make`", "images", (300, 1200, 4800), lambda n: partial(Corrupted().make, _digits(n)))
    part = "`AmbiGuess.train`, one pair"
    yield Sweep(part, "images", (500, 2000, 8000), partial(_ambiguess, "images"))
    yield Sweep(part, "autoencoders", (1, 2, 4, 8), partial(_ambiguess, "autoencoders"))


def _training():
    yield Sweep("`train_fleet`, stacked", "members", (1, 2, 4, 8), partial(_fleet, "members"))
    yield Sweep("`train_fleet`, stacked", "images", (64, 128, 256, 512), partial(_fleet, "images"))


def _judging():
    yield Sweep("ICOS, fitting", "training images", (1000, 2000, 4000), _icos_fit)
    yield Sweep("ICOS, judging", "images", (500, 2000, 8000), _icos_judge)
    part = "accuracy estimate, `rules_and_confidence`"
    yield Sweep(part, "images", (1000, 4000, 16_000), partial(_estimate, "images"))
    yield Sweep(part, "classes", (10, 40, 160), partial(_estimate, "classes"))
    yield Sweep("guard: panel, from scores", "images", (5000, 20_000, 80_000), partial(_panel, "images"))
    yield Sweep("guard: panel, from scores", "supervisors", (4, 8, 16), partial(_panel, "supervisors"))
    part = "guard: conformal p-values"
    yield Sweep(part, "images", (10_000, 40_000, 160_000), partial(_p_values, "images"))
    yield Sweep(part, "calibration images", (10_000, 100_000, 1_000_000), partial(_p_values, "calibration images"))


def _searching():
    part = "`hop_skip_jump` distances"
    yield Sweep(part, "images", (50, 100, 200, 400), partial(_attack, "images"))
    yield Sweep(part, "queries an image", (150, 300, 600), partial(_attack, "queries an image"))
    yield Sweep("adaptive search: start", "pool", (1000, 2000, 4000), _search_start)
    yield Sweep("adaptive search: ask and tell", "pool", (1000, 4000, 16_000), partial(_search, "pool"))
    yield Sweep("adaptive search: ask and tell", "answers", (10, 20, 40, 80), partial(_search, "answers"))


def _measuring():
    yield Sweep("hubris, with interval", "images", (1000, 4000, 16_000), partial(_hubris, "images"))
    yield Sweep("hubris, with interval", "classes", (2, 20, 200), partial(_hubris, "classes"))


def growth():
    """Measure every sweep; rows with sizes, seconds and exponents."""
    return [_measured(sweep) for sweep in sweeps()]


def _measured(sweep):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        works = {size: sweep.prepare(size) for size in sweep.sizes}
        for work in works.values():  # a first pass of each, to warm caches and allocators
            work()
        times, began = {size: [] for size in works}, time.perf_counter()
        for turn in range(MOST):
            if turn >= FEWEST and time.perf_counter() - began > ENOUGH:
                break
            for size, work in works.items():
                started = time.perf_counter()
                work()
                times[size].append(time.perf_counter() - started)
    seconds = [min(times[size]) for size in sweep.sizes]
    row = {
        "part": sweep.part,
        "varied": sweep.varied,
        "sizes": list(sweep.sizes),
        "seconds": seconds,
        "turns": len(times[sweep.sizes[0]]),
        "exponent": slope(sweep.sizes, seconds),
        "last_exponent": slope(sweep.sizes[-2:], seconds[-2:]),
    }
    sys.stderr.write(f"{sweep.part}, {sweep.varied}: {[round(one, 4) for one in seconds]}, {row['exponent']:.2f}\n")
    return row


def slope(sizes, seconds):
    """Least-squares slope of log seconds over log sizes."""
    x, y = (np.log(values) - np.log(values).mean() for values in (sizes, seconds))
    return float((x * y).sum() / (x * x).sum())


@cache
def _dataset():
    return load("mnist5k")


def _digits(count, labels=None):
    """So many training digits, over again where there are not enough; all classes, or only some."""
    images = _dataset().train
    rows = np.arange(len(images)) if labels is None else np.flatnonzero(np.isin(images.labels, labels))
    return images.take(np.resize(rows, count))


def _observe(count):
    pixels = np.random.default_rng(0).random((count, 1, 28, 28), dtype=np.float32)
    classifier = Classifier(zoo.make("simple_cnn", seed=0), device="cpu")
    images, needs = ImageSet.from_arrays(pixels), Needs(traces=frozenset({Trace()}))
    return lambda: classifier.observe(images, needs)


@cache
def _seen(rows, dimension, classes, seed):
    """Traces around the mean of their class, logits that are linear in them, probabilities of these."""
    shared = np.random.default_rng(2021)
    means = shared.standard_normal((classes, dimension), dtype=np.float32)
    weights = shared.standard_normal((dimension, classes), dtype=np.float32) / np.float32(dimension**0.5)
    rng = np.random.default_rng(seed)
    traces = means[rng.integers(classes, size=rows)] + rng.standard_normal((rows, dimension), dtype=np.float32)
    return Observation(*_softmax(traces @ weights), traces={Trace(): traces})


def _softmax(logits):
    odds = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True), logits


def _supervised(name, varied, size):
    """An unfitted supervisor, what it learns from with the labels, and what it scores."""
    held = HELD[name] | {varied: size}
    learnt = _seen(held["training images"], held["dimensions"], held["classes"], 0)
    return make(name), learnt, _seen(held["images"], held["dimensions"], held["classes"], 1)


def _score(name, varied, size):
    supervisor, learnt, seen = _supervised(name, varied, size)
    return partial(supervisor.fit(learnt, learnt.predictions).score, seen)


def _fit(name, varied, size):
    supervisor, learnt, _ = _supervised(name, varied, size)
    return lambda: supervisor.fit(learnt, learnt.predictions)


def _ambiguess(varied, size):
    held = HELD["ambiguess"] | {varied: size}
    generator = AmbiGuess(pairs=[PAIR], autoencoders=held["autoencoders"], epochs=held["epochs"], device="cpu")
    return partial(generator.train, _digits(held["images"], PAIR), [PAIR])


def _fleet(varied, size):
    held = HELD["fleet"] | {varied: size}
    images = _digits(held["images"])
    options = {"epochs": held["epochs"], "batch_size": held["batch"], "mode": held["mode"], "device": "cpu"}
    member = partial(zoo.make, held["model"])
    pixels = images.materialise()
    return lambda: training.train_fleet(
        lambda seed: member(seed=seed), held["members"], pixels, images.labels, **options
    )


def _digits_seen(images, seed):
    """Digits with made-up answers: right nine times in ten, and mostly sure."""
    rng = np.random.default_rng(seed)
    said = np.where(rng.random(len(images)) < 0.9, images.labels, rng.integers(10, size=len(images)))
    logits = rng.standard_normal((len(images), 10)) + 4 * np.eye(10)[said]
    return Observation(_softmax(logits)[0], images=images)


def _icos_fit(count):
    validation = _digits_seen(_dataset().test.take(np.arange(HELD["icos"]["validation images"])), 1)
    return partial(Icos().fit, _digits_seen(_digits(count), 0), validation)


@cache
def _icos():
    return _icos_fit(HELD["icos"]["training images"])()


def _icos_judge(count):
    return partial(_icos().judge, _digits_seen(_digits(count), 2))


def _estimate(varied, size):
    held = HELD["estimate"] | {varied: size}

    def known(count, seed):
        seen = _seen(count, LOGIT_DIMENSIONS, held["classes"], seed)
        return seen.replace(labels=seen.predictions)

    estimator = RulesAndConfidence().fit(known(held["validation images"], 3))
    return partial(estimator.estimate, known(held["images"], 4))


def _panel(varied, size):
    held = HELD["panel"] | {varied: size}
    rng, width = np.random.default_rng(0), held["supervisors"]
    nominal = rng.standard_normal((held["nominal images"], width))
    anomalies = {"invalid": nominal[:200] + 2, "ambiguous": nominal[200:400] - 2}
    return partial(fit_panel(nominal, anomalies).combine, rng.standard_normal((held["images"], width)))


def _p_values(varied, size):
    held, rng = HELD["p-values"] | {varied: size}, np.random.default_rng(0)
    nominal, scores = (rng.standard_normal(held[name]) for name in ("calibration images", "images"))
    return partial(conformal_p_values, nominal, scores)


@cache
def _small():
    """A classifier that decides in microseconds, trained on digits so that there is a boundary to be found."""
    torch.manual_seed(0)
    layers = (torch.nn.Conv2d(1, 4, 5, stride=3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(256, 10))
    model, digits = torch.nn.Sequential(*layers), _digits(2000)
    training.train(model, digits.materialise(), digits.labels, epochs=3, device="cpu")
    return Classifier(model, device="cpu", output_kind="logits")


def _attack(varied, size):
    held = HELD["attack"] | {varied: size}
    pixels = _digits(held["images"]).materialise()
    return lambda: measure_distances(_small(), pixels, budget=held["queries an image"])


@cache
def _pool(size):
    """A pool of two classes in which confidence and distance are related, as they are."""
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.65, 1, size)
    first = rng.random(size) < 0.5
    probabilities = np.column_stack([np.where(first, confidence, 1 - confidence)] * 2)
    probabilities[:, 1] = 1 - probabilities[:, 0]
    mae = np.exp(4 * confidence + rng.standard_normal(size) - 9)
    blank, zeros = np.zeros((size, 1, 1, 1), dtype=np.float32), np.zeros(size, dtype=np.int64)
    distances = Distances(mae, mae, mae, zeros, zeros.astype(bool), blank, zeros)
    return Pool(
        Observation(probabilities),
        ImageSet.from_arrays(blank, layout="NCHW"),
        rng.standard_normal((size, 5)),
        np.ones(size, dtype=bool),
        distances,
    )


def _search_start(size):
    pool = _pool(size)
    return lambda: make_search("adaptive").fit(replace(pool)).ask()  # a copy of the pool remembers nothing


def _search(varied, size):
    held = HELD["search"] | {varied: size}
    pool = _pool(held["pool"])
    truth = np.where(np.random.default_rng(1).random(len(pool)) < 0.2, 1 - pool.predictions, pool.predictions)

    def answer():
        search = make_search("adaptive").fit(pool)
        for _ in range(held["answers"]):
            asked = search.ask()
            search.tell(asked, truth[asked])

    return answer


def _hubris(varied, size):
    held = HELD["hubris"] | {varied: size}
    rows = np.random.default_rng(0).dirichlet(np.ones(held["classes"]), held["images"])
    return partial(hubris, rows, resamples=held["resamples"])
