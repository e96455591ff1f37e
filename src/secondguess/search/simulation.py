"""Searches on a pool whose labels are known: what would each have found?

The protocol of Bennette et al.: in each repetition the pool is a random part of the whole, every search asks for one
image after the other, is given its label, and is measured after every answer. The parts overlap, so the bands show how
sensitive a search is to the pool and not how certain the result is: for that, repeat with several models.

Departures: ratios are also pooled over the repetitions, as their mean is heavy-tailed after a few queries; the lift
over the pool, the confidence-matched lift and the excess errors stand beside the SDR; spread is measured on the images
asked about. The published code measured it on others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.errors import UserError
from secondguess.metrics import discovery
from secondguess.progress import Progress, Silent
from secondguess.search import registry
from secondguess.search._geometry import geometry
from secondguess.search._loess import error_rates
from secondguess.search.base import Floats, Ints
from secondguess.search.pool import Pool

__all__ = ["METRICS", "Curve", "Outcomes", "SearchStudy", "simulate"]

Methods = Sequence[str] | Mapping[str, tuple[str, Mapping[str, Any]]]

METRICS = {
    "sdr": "standardised discovery ratio",
    "lift": "discovery ratio over that of the whole pool",
    "matched_lift": "errors over those expected at equal confidence",
    "excess_errors": "errors beyond those expected at equal confidence",
    "errors": "errors found",
    "errors_per_100": "errors per 100 labels",
    "spread": "mean distance to the nearest image asked about",
    "utility": "coverage utility of Bansal and Weld",
    "apfd": "average percentage of faults detected",
    "confidence": "mean confidence of the images asked about",
}
BAND = (0.05, 0.95)
CHECKPOINTS = (10, 20, 50)


@dataclass(frozen=True, eq=False)
class Curve:
    """A measure after each of b queries, over r repetitions.

    Attributes:
        mean: (b,).
        median: (b,).
        low: (b,) the lower end of the band that holds 90 % of the repetitions.
        high: (b,) its upper end.
        pooled: (b,) for ratios, that of all repetitions together; else the mean.
    """

    mean: Floats
    median: Floats
    low: Floats
    high: Floats
    pooled: Floats

    def at(self, queries: int) -> dict[str, float]:
        """All five after a number of queries."""
        place = queries - 1
        return {name: float(getattr(self, name)[place]) for name in ("pooled", "mean", "median", "low", "high")}

    def to_dict(self) -> dict[str, list[float]]:
        """All five curves, rounded to four digits after the point."""
        names = ("mean", "median", "low", "high", "pooled")
        return {name: np.round(getattr(self, name), 4).tolist() for name in names}


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What one search did in r repetitions of b queries; all arrays are (r, b).

    Attributes:
        queries: positions in the pool.
        errors: which predictions were wrong.
        confidence: of these predictions.
        rates: the error rate in the pool at these confidences.
        spread: after each query.
        utility: after each query.
        apfd: after each query.
        seconds: mean time of a repetition; what searches share, such as clusters, counts for the first that needs it.
    """

    queries: Ints
    errors: NDArray[np.bool_]
    confidence: Floats
    rates: Floats
    spread: Floats
    utility: Floats
    apfd: Floats
    seconds: float


@dataclass(frozen=True, eq=False)
class SearchStudy:
    """What searches found in a pool whose labels are known.

    Attributes:
        outcomes: of each method, by its label, in the order in which they were given.
        titles: what to call each method in a table.
        size: how many images of the pool may be asked about.
        subset: how many of them a repetition saw.
        pool_errors: how many predictions among them are wrong.
        pool_sdr: the discovery ratio of the whole pool: what random search is expected to reach.
        seed: of the repetitions.
    """

    outcomes: Mapping[str, Outcomes]
    titles: Mapping[str, str]
    size: int
    subset: int
    pool_errors: int
    pool_sdr: float
    seed: int

    @property
    def budget(self) -> int:
        """Queries of a search, b."""
        return next(iter(self.outcomes.values())).errors.shape[1]

    @property
    def replications(self) -> int:
        """Repetitions, r."""
        return next(iter(self.outcomes.values())).errors.shape[0]

    def values(self, method: str, metric: str) -> Floats:
        """(r, b) a measure of `METRICS` after each query of each repetition."""
        if method not in self.outcomes or metric not in METRICS:
            raise UserError(
                f"There is no {metric!r} of {method!r}; methods are {', '.join(self.outcomes)}, measures are "
                f"{', '.join(METRICS)}."
            )
        seen = self.outcomes[method]
        if metric in ("spread", "utility", "apfd"):
            return np.asarray(getattr(seen, metric))
        if metric == "confidence":
            return np.asarray(seen.confidence.cumsum(axis=1) / np.arange(1, self.budget + 1))
        if metric == "errors":
            return seen.errors.cumsum(axis=1).astype(np.float64)
        if metric == "excess_errors":
            return discovery.excess_curve(seen.errors, seen.rates)
        if metric == "errors_per_100":
            return discovery.errors_per_hundred_curve(seen.errors)
        return discovery.discovery_curve(seen.errors, self._chances(seen, metric)) / self._unit(metric)

    def curve(self, method: str, metric: str) -> Curve:
        """A measure of `METRICS` over the queries."""
        values = self.values(method, metric)
        low, high = np.quantile(values, BAND, axis=0)
        pooled = values.mean(axis=0)
        if metric in ("sdr", "lift", "matched_lift"):
            seen = self.outcomes[method]
            pooled = discovery.pooled_curve(seen.errors, self._chances(seen, metric)) / self._unit(metric)
        return Curve(values.mean(axis=0), np.median(values, axis=0), low, high, pooled)

    def table(self, at: Sequence[int] = CHECKPOINTS) -> list[dict[str, Any]]:
        """One row for every method and number of queries: each measure pooled, with its median and band."""
        rows = []
        for method in self.outcomes:
            curves = {metric: self.curve(method, metric) for metric in METRICS}
            for queries in sorted({min(number, self.budget) for number in at}):
                row: dict[str, Any] = {"method": method, "queries": queries}
                rows.append(row | {metric: curve.at(queries) for metric, curve in curves.items()})
        return rows

    def to_dict(self, *, curves: bool = True) -> dict[str, Any]:
        """The study as JSON can hold it, with or without all the curves."""
        record: dict[str, Any] = {
            "size": self.size,
            "subset": self.subset,
            "replications": self.replications,
            "budget": self.budget,
            "seed": self.seed,
            "pool_errors": self.pool_errors,
            "pool_error_rate": self.pool_errors / self.size,
            "pool_sdr": self.pool_sdr,
            "titles": dict(self.titles),
            "seconds": {method: seen.seconds for method, seen in self.outcomes.items()},
            "table": self.table(),
        }
        if curves:
            record["curves"] = {
                method: {metric: self.curve(method, metric).to_dict() for metric in METRICS} for method in self.outcomes
            }
        return record

    def _chances(self, seen: Outcomes, metric: str) -> Floats:
        return seen.rates if metric == "matched_lift" else 1 - seen.confidence

    def _unit(self, metric: str) -> float:
        return self.pool_sdr if metric == "lift" else 1.0


def simulate(
    pool: Pool,
    labels: ArrayLike,
    names: Methods | None = None,
    *,
    budget: int = 50,
    replications: int = 200,
    subset: int = 2000,
    seed: int = 0,
    jobs: int = 1,
    progress: Progress | None = None,
) -> SearchStudy:
    """Let searches find errors whose labels are known.

    Args:
        pool: what may be asked about.
        labels: (n,) or soft (n, K), of all images of the pool; those that may not be asked about may be unknown.
        names: searches by name, or a mapping from labels to pairs of name and parameters; None for all, without
            those that need distances where the pool has none.
        budget: queries of a search.
        replications: how often the pool is drawn from.
        subset: how many images a repetition sees; all where the pool has fewer.
        seed: of the draws, and of the searches.
        jobs: processes; -1 for as many as there are cores.
        progress: where to report to.

    Raises:
        UserError: if the pool holds no error, or nothing to ask about.
    """
    if budget < 1 or replications < 1 or subset < 1:
        raise UserError(
            f"budget={budget}, replications={replications} and subset={subset} were given; all must be at least 1."
        )
    if pool.size == 0:
        raise UserError(f"None of the {len(pool)} images may be asked about; lower min_confidence or change critical.")
    rows, truth = pool.rows, np.asarray(labels)
    errors = pool.errors(truth)
    if not errors.any():
        raise UserError(f"None of the {len(rows)} predictions that may be asked about is wrong: nothing can be found.")
    methods = _methods(names, pool)
    rates = np.zeros(len(pool))
    rates[rows] = error_rates(pool.confidence[rows], errors[rows])
    world = _World(pool.without_pixels(), truth, errors, rates, methods, min(subset, len(rows)), budget, seed)
    runs = _all_runs(world, replications, jobs, progress or Silent())
    return SearchStudy(
        outcomes={method: _together([run[method] for run in runs]) for method in methods},
        titles={method: _title(method, name) for method, (name, _) in methods.items()},
        size=len(rows),
        subset=world.subset,
        pool_errors=int(errors.sum()),
        pool_sdr=discovery.sdr(errors[rows], pool.confidence[rows]),
        seed=seed,
    )


@dataclass(frozen=True, eq=False)
class _World:
    """What every repetition needs."""

    pool: Pool
    labels: NDArray[Any]
    errors: NDArray[np.bool_]
    rates: Floats
    methods: Mapping[str, tuple[str, Mapping[str, Any]]]
    subset: int
    budget: int
    seed: int

    def run(self, repetition: int, heard: Callable[[int], None] | None = None) -> dict[str, Outcomes]:
        """One repetition of all methods, on one part of the pool; `heard` is called with the methods done."""
        rng = np.random.default_rng([self.seed, repetition])
        chosen = np.sort(rng.choice(self.pool.rows, self.subset, replace=False))
        part = self.pool.only(chosen)
        seed = int(rng.integers(2**31))
        found: dict[str, Outcomes] = {}
        for method, (name, params) in self.methods.items():
            found[method] = self._search(part, name, params, seed)
            if heard is not None:
                heard(len(found))
        return found

    def _search(self, part: Pool, name: str, params: Mapping[str, Any], seed: int) -> Outcomes:
        began = time.perf_counter()
        search = registry.make(name, seed=seed, **params).fit(part)
        asked: list[int] = []
        for _ in range(min(self.budget, part.size)):
            index = search.ask(1)
            search.tell(index, self.labels[index])
            asked.append(int(index[0]))
        seconds = time.perf_counter() - began
        queries, rows = np.array(asked), part.rows
        errors, places = self.errors[queries], np.searchsorted(rows, queries)
        features, confidence, scale = part.features[rows], part.confidence[rows], geometry(part).scale
        return Outcomes(
            queries=queries,
            errors=errors,
            confidence=part.confidence[queries],
            rates=self.rates[queries],
            spread=discovery.spread_curve(features, places, scale),
            utility=discovery.coverage_curve(features, confidence, places, errors, scale=scale),
            apfd=discovery.apfd_curve(errors, int(self.errors[rows].sum())),
            seconds=seconds,
        )


def _all_runs(world: _World, replications: int, jobs: int, progress: Progress) -> list[dict[str, Outcomes]]:
    from joblib import Parallel, delayed

    runs: list[dict[str, Outcomes]] = []
    each = len(world.methods)
    with progress.task("Trying searches", replications * each) as advance:

        def heard(repetition: int, done: int) -> None:
            advance(repetition * each + done, replications * each)

        if jobs == 1:  # in this process every method can be heard
            return [world.run(repetition, partial(heard, repetition)) for repetition in range(replications)]
        parallel = Parallel(n_jobs=jobs, return_as="generator")
        for run in parallel(delayed(world.run)(repetition) for repetition in range(replications)):
            runs.append(run)
            advance(len(runs) * each, replications * each)
    return runs


def _methods(names: Methods | None, pool: Pool) -> dict[str, tuple[str, Mapping[str, Any]]]:
    if names is None:
        known = registry.REGISTRY.all()
        names = [name for name, kind in known.items() if pool.distances is not None or not kind.needs_distances]
    if not isinstance(names, Mapping):
        names = {name: (name, {}) for name in names}
    if not names:
        raise UserError("No search was named; name at least one, such as 'adaptive'.")
    return dict(names)


def _title(method: str, name: str) -> str:
    title = registry.get(name).title or name
    return title if method == name else f"{title}: {method}"


def _together(runs: Sequence[Outcomes]) -> Outcomes:
    columns = ("queries", "errors", "confidence", "rates", "spread", "utility", "apfd")
    stacked = {name: np.stack([getattr(run, name) for run in runs]) for name in columns}
    return Outcomes(**stacked, seconds=float(np.mean([run.seconds for run in runs])))
