"""Surprise adequacy against a bare matrix product (the floor) and against dnn-tip (the peer), in one run.

Traces are synthetic, float32, in ten classes: a mean from N(0, 1), sixteen directions in which the class varies, noise
of .5; one prediction in a hundred is of a wrong class, and the last fifth of the queries is shifted.

| work                | timed                                 | floor: a float32 product of                          |
|---------------------|---------------------------------------|------------------------------------------------------|
| dsa                 | scoring after a fresh fit             | queries x own class, and each t1 hit x other classes |
| dsa precomputed fit | fit, with all other-class distances   | each pair of different classes, once                 |
| dsa precomputed     | scoring after that                    | queries x own class                                  |
| lsa                 | scoring, on dnn-tip's 300 neurons     | queries x own class, and one exponential per pair    |
| mdsa                | scoring, per class                    | queries x d neurons                                  |
| epsilon-free        | sampling; epsilon keeps about 2/3     | each trace x half of what is kept of its class       |

The floor is multiplied in tiles that stay in cache, the quickest way there is. dnn-tip scores a few of the queries (in
many dimensions very few, and of two classes only where it works class by class), and its time is extrapolated to all of
them. `peak_mib` is what the process grew by while it learnt and did the work for the first time, the traces left out;
`dsa precomputed` goes on from what the row before has learnt.
"""

from __future__ import annotations

import contextlib
import gc
import io
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import MissingExtra, UserError, require
from secondguess.model.needs import Trace
from secondguess.model.observation import Observation
from secondguess.progress import Advance, Progress, Silent
from secondguess_lab.bench._memory import peak_memory

__all__ = ["lines", "run", "synthetic"]

CLASSES = 10
TILE = (1024, 2048)
LSA_NEURONS = 300
PEER_BYTES = 2 << 30  # dnn-tip subtracts whole matrices; its badges are cut down until that fits
PEER_NUMBERS = 2e9  # and its differences are taken of at most this many numbers
PEER_WIDEST = 512  # neurons up to which dnn-tip learns all classes; each takes a pseudo-inverse
FLOOR_FLOPS = 2e11  # the part of a long product that is measured
ENOUGH = 15.0  # seconds of a work after which it is not repeated

WORKS = ("dsa", "dsa precomputed fit", "dsa precomputed", "lsa", "mdsa", "epsilon-free")


def synthetic(rows: int, dimension: int, *, seed: int = 0, shifted: float = 0.0) -> Observation:
    """Traces (rows, dimension) with predictions; the classes are the same whatever the seed.

    Args:
        rows: how many.
        dimension: neurons.
        seed: of the rows.
        shifted: the share of the rows, at the end, that are moved away from their class.
    """
    fixed = np.random.default_rng(2021)
    means = fixed.standard_normal((CLASSES, dimension), dtype=np.float32)
    spread = fixed.standard_normal((CLASSES, 16, dimension), dtype=np.float32)
    away = fixed.standard_normal(dimension, dtype=np.float32)
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, CLASSES, rows)
    traces = np.empty((rows, dimension), dtype=np.float32)
    for label in range(CLASSES):
        for part in np.array_split(np.flatnonzero(truth == label), 8):
            mixed = rng.standard_normal((len(part), 16), dtype=np.float32) @ spread[label]
            traces[part] = means[label] + mixed + 0.5 * rng.standard_normal((len(part), dimension), dtype=np.float32)
    traces[rows - int(shifted * rows) :] += away
    wrong = rng.random(rows) < 0.01
    predictions = np.where(wrong, rng.integers(0, CLASSES, rows), truth)
    return Observation(np.eye(CLASSES)[predictions], traces={Trace(): traces})


def run(
    *,
    traces: int = 60_000,
    queries: int = 10_000,
    dimensions: tuple[int, ...] = (10, 128, 1600),
    repeats: int = 3,
    peer_queries: int = 100,
    growth: bool = True,
    device: str = "auto",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Time every work at every dimension.

    Returns:
        `{"rows": [{"work", "dimension", "traces", "queries", "seconds", "floor_ratio", "peer_ratio", "peak_mib"},
        ...], "growth": [{"varied", "traces", "dimension", "queries", "seconds"}, ...], ...}`. floor_ratio = ours /
        floor and peer_ratio = dnn-tip / ours, None where there is no such peer or it is not installed (`"peer"` then
        says how to). The best of the repeats counts, of ours and of the floor, which are timed in turns; what takes
        long is repeated less. Every row is a task of its own to `progress`.
    """
    if min(traces, queries, *dimensions) < 1 or traces < 20 * CLASSES:
        raise UserError(
            f"{traces} traces and {queries} queries were asked for; at least {20 * CLASSES} and 1 are needed."
        )
    try:
        peer, peer_state = require("dnn_tip.surprise", "bench"), "dnn-tip"
    except MissingExtra as error:
        peer, peer_state = None, str(error)
    rows, told = [], progress or Silent()
    for dimension in dimensions:
        with told.task(f"traces, d {dimension}", 1):
            case = _Case(traces, queries, dimension, device)
        for work in WORKS:
            with told.task(f"{work}, d {dimension}", repeats) as advance:
                rows.append(_measured(case, work, peer, repeats, peer_queries, advance))
        del case
    return {
        "rows": rows,
        "growth": _growth(traces, queries, dimensions, device, repeats, told) if growth else [],
        "peer": peer_state,
        "peer_installed": peer is not None,
    }


def lines(result: dict[str, Any]) -> Iterator[str]:
    """The result for a terminal."""
    for row in result["rows"]:
        peer = "      -" if row["peer_ratio"] is None else f"{row['peer_ratio']:7,.0f}"
        yield (
            f"  {row['work']:<20} d {row['dimension']:>5}   {row['seconds']:8.3f} s   {row['floor_ratio']:6.2f} x floor"
            f"   dnn-tip {peer} x ours   {row['peak_mib']:5.0f} MiB"
        )
    for row in result["growth"]:
        sizes = f"{row['traces']:>7,} traces   {row['queries']:>7,} queries   d {row['dimension']:>5}"
        yield f"  dsa, {row['varied']:<10} {sizes}   {row['seconds']:8.3f} s"


@dataclass
class _Case:
    """One size of the problem, and what the works hand on to each other."""

    traces: int
    queries: int
    dimension: int
    device: str
    train: Observation = field(init=False)
    test: Observation = field(init=False)
    fitted: Any = None
    peer_dsa: float | None = None

    def __post_init__(self) -> None:
        self.train = synthetic(self.traces, self.dimension, seed=1)
        self.test = synthetic(self.queries, self.dimension, seed=2, shifted=0.2)
        self.own = np.bincount(self.train.predictions, minlength=CLASSES)
        self.asked = np.bincount(self.test.predictions, minlength=CLASSES)
        self.epsilon = _epsilon(self.train)

    @property
    def same_pairs(self) -> float:
        return float(self.own @ self.asked)


@dataclass
class _Work:
    """`learn` is not timed, `do` is; `pairs` of `width` products each make the floor.

    Attributes:
        forgets: whether it must learn again before it is repeated.
    """

    do: Callable[[], Any]
    learn: Callable[[], Any] = lambda: None
    pairs: Callable[[], float] = lambda: 0.0
    width: int = 0
    exponentials: bool = False
    forgets: bool = False
    peer: Callable[[Any, int], float] | None = None


def _work(case: _Case, name: str) -> _Work:
    from secondguess.supervisors.surprise.dsa import DSA
    from secondguess.supervisors.surprise.lsa import LSA
    from secondguess.supervisors.surprise.mdsa import MDSA
    from secondguess.supervisors.surprise.sampling import epsilon_free

    train, test, d = case.train, case.test, case.dimension

    def fit(supervisor: Any) -> Callable[[], None]:
        def learn() -> None:
            case.fitted = supervisor.clone().fit(train)

        return learn

    def score() -> Any:
        return case.fitted.score(test)

    def lazy_pairs() -> float:
        hit = np.bincount(train.predictions[np.isfinite(case.fitted.other_)], minlength=CLASSES)
        return case.same_pairs + float(hit @ (case.traces - case.own))

    def sampled_pairs() -> float:
        kept = np.bincount(train.predictions[epsilon_free(train.trace(Trace()), train.predictions, case.epsilon)])
        return float(case.own @ kept) / 2

    precomputed = DSA(other_distances="fit", device=case.device)
    lsa = LSA(features="top", max_features=LSA_NEURONS, device=case.device)
    works = {
        "dsa": _Work(score, fit(DSA(device=case.device)), lazy_pairs, d, forgets=True, peer=_peer_dsa(case)),
        "dsa precomputed fit": _Work(
            fit(precomputed), pairs=lambda: float(case.traces**2 - case.own @ case.own) / 2, width=d
        ),
        "dsa precomputed": _Work(score, pairs=lambda: case.same_pairs, width=d, peer=_peer_dsa(case)),
        "lsa": _Work(
            score,
            fit(lsa),
            lambda: case.same_pairs,
            min(d, LSA_NEURONS),
            exponentials=True,
            peer=_peer_by_class(case, "LSA"),
        ),
        "mdsa": _Work(score, fit(MDSA()), lambda: float(case.queries) * d, d, peer=_peer_by_class(case, "MDSA")),
        "epsilon-free": _Work(
            lambda: epsilon_free(train.trace(Trace()), train.predictions, case.epsilon), pairs=sampled_pairs, width=d
        ),
    }
    return works[name]


def _measured(case: _Case, name: str, peer: Any, repeats: int, peer_queries: int, advance: Advance) -> dict[str, Any]:
    work = _work(case, name)
    if name != "dsa precomputed":
        case.fitted = None
    with peak_memory() as grown:
        work.learn()
        taken = [_seconds(work.do)]
    pairs = work.pairs()
    floors = [_floor(pairs, work.width, exponentials=work.exponentials, device=case.device)]
    while len(taken) < repeats and sum(taken) < ENOUGH:
        advance(len(taken), repeats)
        if work.forgets:
            work.learn()
        taken.append(_seconds(work.do))
        floors.append(_floor(pairs, work.width, exponentials=work.exponentials, device=case.device))
    theirs = work.peer(peer, min(peer_queries, case.queries)) if peer is not None and work.peer is not None else None
    seconds, floor = min(taken), min(floors)
    return {
        "work": name,
        "dimension": case.dimension,
        "traces": case.traces,
        "queries": case.queries,
        "seconds": seconds,
        "floor_ratio": seconds / floor,
        "peer_ratio": None if theirs is None else theirs / seconds,
        "peak_mib": grown[0],
    }


def _seconds(do: Callable[[], Any]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def _floor(pairs: float, width: int, *, exponentials: bool, device: str) -> float:
    """Seconds of a bare float32 product of `pairs` x `width`, in tiles; of a long one a part, extrapolated."""
    import torch

    from secondguess.devices import pick_device

    target = pick_device(device)
    first, second = (torch.rand(size, width, device=target) for size in TILE)
    tile = torch.empty(TILE, device=target)
    most = max(8, int(FLOOR_FLOPS / (2.0 * tile.numel() * width)))
    tiles = max(1, min(most, round(pairs / tile.numel())))
    torch.mm(first, second.T, out=tile)
    began = time.perf_counter()
    for _ in range(tiles):
        torch.mm(first, second.T, out=tile)
        if exponentials:
            tile.exp_()
    if target.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - began) * pairs / (tiles * tile.numel())


def _peer_dsa(case: _Case) -> Callable[[Any, int], float]:
    def seconds(peer: Any, count: int) -> float:
        if case.peer_dsa is None:
            numbers = case.traces * case.dimension
            badge = max(1, min(10, PEER_BYTES // (2 * 5 * 4 * numbers)))  # a difference and its square, five threads
            made = peer.DSA(case.train.trace(Trace()), case.train.predictions, badge_size=badge)
            some = _spread(np.arange(case.queries), min(count, max(5, int(PEER_NUMBERS / numbers))))
            case.peer_dsa = _peer_seconds(case, made, some)
        return case.peer_dsa

    return seconds


def _peer_by_class(case: _Case, kind: str) -> Callable[[Any, int], float]:
    def seconds(peer: Any, count: int) -> float:
        build, one = peer.MultiModalSA.build_by_class, getattr(peer, kind)
        classes = np.argsort(-case.asked, kind="stable")[: CLASSES if case.dimension <= PEER_WIDEST else 2]
        known = np.isin(case.train.predictions, classes)
        asked = np.flatnonzero(np.isin(case.test.predictions, classes))
        some = _spread(asked, max(count, len(asked) // 10 if kind == "LSA" else len(asked)))
        with _quiet():
            made = build(case.train.trace(Trace())[known], case.train.predictions[known], lambda traces, _: one(traces))
        return _peer_seconds(case, made, some)

    return seconds


def _spread(rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """`count` of the rows, evenly spread, or all of them."""
    return rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64)]


def _peer_seconds(case: _Case, scorer: Any, some: NDArray[np.int64]) -> float:
    """What dnn-tip takes for all queries, from some of them.

    It collects garbage for every badge; the objects of this process, which are not its own, are kept out of that.
    """
    traces, predictions = case.test.trace(Trace())[some], case.test.predictions[some]
    gc.freeze()
    try:
        with _quiet():
            return _seconds(lambda: scorer(traces, predictions, num_threads=2)) * case.queries / len(some)
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def _epsilon(train: Observation) -> float:
    """The distance that leaves about two thirds of a sample of one class."""
    from secondguess.supervisors.surprise.sampling import find_epsilon

    members = np.flatnonzero(train.predictions == train.predictions[0])
    some: NDArray[np.int64] = members[:1000]
    return find_epsilon(train.trace(Trace())[some], np.zeros(len(some), dtype=np.int64), 2 / 3, tolerance=0.05)[0]


def _growth(
    traces: int, queries: int, dimensions: tuple[int, ...], device: str, repeats: int, told: Progress
) -> list[dict[str, Any]]:
    """Seconds of lazy DSA when one of the three sizes changes."""
    from secondguess.supervisors.surprise.dsa import DSA

    middle = sorted(dimensions)[len(dimensions) // 2]
    sizes = [("traces", traces // part, middle, queries) for part in (4, 2, 1)]
    sizes += [("queries", traces, middle, queries // part) for part in (4, 2, 1)]
    sizes += [("dimension", traces // 4, dimension, queries // 4) for dimension in sorted(dimensions)]
    rows = []
    with told.task("growth of dsa", len(sizes)) as advance:
        for varied, n, d, m in sizes:
            train, test = synthetic(max(n, 2 * CLASSES), d, seed=1), synthetic(max(m, 1), d, seed=2, shifted=0.2)
            taken: list[float] = []
            while not taken or (len(taken) < repeats and sum(taken) < ENOUGH):
                fitted = DSA(device=device).fit(train)
                taken.append(_seconds(partial(fitted.score, test)))
            rows.append({"varied": varied, "traces": n, "dimension": d, "queries": m, "seconds": min(taken)})
            advance(len(rows), len(sizes))
    return rows
