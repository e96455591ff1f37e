"""How well a score separates a stress set from nominal data.

The positive class is the stress set, called `other`; the negative class is `nominal`. A larger score is more
suspicious, and an example raises an alarm when its score is above the threshold. Papers differ on which class
is positive, and so on what "FPR at 95 % TPR" means; here a detection is an alarm on `other`, a false alarm is
an alarm on `nominal`, and no function is named after positives.

    AUROC   P(other > nominal) + P(other = nominal) / 2, the Mann-Whitney statistic over all pairs
    AUPR    average precision Σ_t (recall_t - recall_{t+1}) precision_t over the distinct thresholds t, alarm
            at score >= t; it depends on the share of each set, so compare only values taken at one share

Ties are exact in every function: equal scores raise an alarm together or not at all. Plus and minus infinity
are legal scores, equal to themselves; NaN is refused.

Every statistic is written on counts: how many nominal and how many other scores take each distinct value, in
rising order. A bootstrap resample only changes the counts, so an interval sorts once and then evaluates whole
blocks of resamples. A block is as many resamples as fit in about 64 MiB, and at least one.

Of more than 32,768 scores the distinct values are first gathered in some five hundred cells, none of which holds more
than 1/256 of either set, nor, near the threshold of a rate, more than 1/16 of the threshold's standard error. The
counts of a resample are then multinomial, and cost the same for any number of scores. The estimate itself stays exact;
the replicates are moved by what the cells change in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from secondguess.errors import UserError
from secondguess.metrics import checks
from secondguess.metrics.checks import Floats, Ints
from secondguess.metrics.interval import Interval, check_level, child_generators, wilson

__all__ = [
    "aupr",
    "aupr_interval",
    "auroc",
    "auroc_interval",
    "detection_rate",
    "detection_rate_interval",
    "false_alarm_rate",
    "false_alarm_rate_interval",
    "threshold_at",
]

# Nominal and other counts (r, D) over D distinct values, rising -> (r,) values.
_Statistic: TypeAlias = Callable[[Ints, Ints], Floats]

# Cells of the (resamples, distinct values) arrays of one block, of which up to eight are alive at a time.
_BLOCK_CELLS = 2**20

_MANY = 2**15  # scores, above which resamples are drawn from cells
_QUANTILES = 256  # of each set, where cells end
_NEAR, _NEAR_QUANTILES = 8, 256  # standard errors on each side of a threshold in which cells are small, and how many


def auroc(nominal: ArrayLike, other: ArrayLike) -> float:
    """Return the probability that a stress example is more suspicious than a nominal one, ties counting half.

    Args:
        nominal: (n,) scores of the nominal set.
        other: (m,) scores of the stress set, the positive class.
    """
    return _evaluate(_auroc, nominal, other)


def auroc_interval(
    nominal: ArrayLike, other: ArrayLike, *, resamples: int = 500, level: float = 0.95, seed: int = 0
) -> Interval:
    """Return `auroc` with its bootstrap interval; both sets are resampled.

    Sets that do not overlap give the interval 1 to 1: no overlap was seen in n + m scores, which is not
    certainty.
    """
    return _interval(_auroc, nominal, other, resamples, level, seed)


def aupr(nominal: ArrayLike, other: ArrayLike) -> float:
    """Return the average precision with the stress set as the positive class.

    Precision is summed in steps, not interpolated, which would be too optimistic. An uninformative score
    gets about m / (n + m), the share of the stress set.

    Args:
        nominal: (n,) scores of the nominal set.
        other: (m,) scores of the stress set, the positive class.
    """
    return _evaluate(_aupr, nominal, other)


def aupr_interval(
    nominal: ArrayLike, other: ArrayLike, *, resamples: int = 500, level: float = 0.95, seed: int = 0
) -> Interval:
    """Return `aupr` with its bootstrap interval; both sets are resampled, each to its own size.

    Repeated draws raise the average precision a little, so the interval leans upwards in small samples.
    """
    return _interval(_aupr, nominal, other, resamples, level, seed)


def threshold_at(nominal: ArrayLike, false_alarm_rate: float) -> float:
    """Return the smallest threshold that at most `false_alarm_rate` of the nominal scores exceed.

    An alarm is a score above the threshold, so equal scores are never separated: with ties, the share of alarms can
    be well below the requested rate. The threshold is one of the nominal scores; with a rate of 0 it
    is the largest of them.

    Args:
        nominal: (n,) scores of the nominal set.
        false_alarm_rate: from 0, and below 1.
    """
    rate = _false_alarm_share(false_alarm_rate)
    values, counts = np.unique(checks.scores(nominal, "nominal"), return_counts=True)
    return float(values[_first_allowed(counts, rate)])


def detection_rate(nominal: ArrayLike, other: ArrayLike, false_alarm_rate: float = 0.05) -> float:
    """Return the share of the stress set above `threshold_at(nominal, false_alarm_rate)`.

    Args:
        nominal: (n,) scores of the nominal set, which alone set the threshold.
        other: (m,) scores of the stress set, the positive class.
        false_alarm_rate: share of the nominal set that may raise an alarm, from 0, and below 1.
    """
    return _evaluate(partial(_detection_rate, rate=_false_alarm_share(false_alarm_rate)), nominal, other)


def detection_rate_interval(
    nominal: ArrayLike,
    other: ArrayLike,
    false_alarm_rate: float = 0.05,
    *,
    resamples: int = 500,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Return `detection_rate` with its bootstrap interval; each resample sets its own threshold.

    Where none or all of the stress set are detected, its resamples are alike and say nothing about other images: the
    interval is then at least as wide as Wilson's.
    """
    statistic = partial(_detection_rate, rate=_false_alarm_share(false_alarm_rate))
    found = _interval(statistic, nominal, other, resamples, level, seed, 1 - false_alarm_rate)
    if 0 < found.value < 1:
        return found
    size = np.size(other)
    least = wilson(round(found.value * size), size, level)
    return replace(found, low=min(found.low, least.low), high=max(found.high, least.high))


def false_alarm_rate(nominal: ArrayLike, other: ArrayLike, detection_rate: float = 0.95) -> float:
    """Return the share of the nominal set that raises an alarm when `detection_rate` of the stress set must.

    The threshold is the highest that detects at least that share of `other`. This is the "FPR95" of papers in
    which the out-of-distribution set is positive. Papers in which nominal data is positive report the
    opposite under the same name, the share of the stress set that slips through when 95 % of the nominal set
    is accepted; here that is `1 - detection_rate(nominal, other, 0.05)`.

    Args:
        nominal: (n,) scores of the nominal set.
        other: (m,) scores of the stress set, the positive class, which alone set the threshold.
        detection_rate: share of the stress set that must raise an alarm, above 0, and up to 1.
    """
    return _evaluate(partial(_false_alarm_rate, rate=_detection_share(detection_rate)), nominal, other)


def false_alarm_rate_interval(
    nominal: ArrayLike,
    other: ArrayLike,
    detection_rate: float = 0.95,
    *,
    resamples: int = 500,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Return `false_alarm_rate` with its bootstrap interval; each resample sets its own threshold."""
    statistic = partial(_false_alarm_rate, rate=_detection_share(detection_rate))
    return _interval(statistic, nominal, other, resamples, level, seed, 1 - detection_rate)


def _auroc(nominal: Ints, other: Ints) -> Floats:
    """AUROC from counts (r, D), in whole numbers until the division."""
    below_twice = 2 * np.cumsum(nominal, axis=1) - nominal
    won_twice = np.einsum("rd,rd->r", other, below_twice)
    return np.asarray(won_twice / (2 * nominal.sum(axis=1) * other.sum(axis=1)), dtype=np.float64)


def _aupr(nominal: Ints, other: Ints) -> Floats:
    """Average precision from counts (r, D)."""
    detected, alarms = _from_above(other), _from_above(nominal + other)
    # A resample may leave the highest values without any score: no alarm there, and no step in recall either.
    precision = detected / np.maximum(alarms, 1)
    return np.asarray(np.einsum("rd,rd->r", other, precision) / other.sum(axis=1), dtype=np.float64)


def _detection_rate(nominal: Ints, other: Ints, rate: float) -> Floats:
    """Share of `other` above the threshold that `nominal` sets, from counts (r, D)."""
    undetected = np.take_along_axis(np.cumsum(other, axis=1), _first_allowed(nominal, rate)[:, None], axis=1)
    total = other.sum(axis=1)
    return np.asarray((total - undetected[:, 0]) / total, dtype=np.float64)


def _false_alarm_rate(nominal: Ints, other: Ints, rate: float) -> Floats:
    """Share of `nominal` at or above the highest value that detects `rate` of `other`, from counts (r, D)."""
    enough = _from_above(other) / other.sum(axis=1, keepdims=True) >= rate
    highest = enough.sum(axis=1, keepdims=True) - 1
    alarms = np.take_along_axis(_from_above(nominal), highest, axis=1)[:, 0]
    return np.asarray(alarms / nominal.sum(axis=1), dtype=np.float64)


def _first_allowed(counts: Ints, rate: float) -> Ints:
    """Return the index of the lowest value above which lies at most `rate` of the counts (..., D).

    Shares are compared, not counts with rate * n: 29 of 100 is within a rate of 0.29, but 0.29 * 100 < 29.
    """
    up_to = np.cumsum(counts, axis=-1)
    too_many = (up_to[..., -1:] - up_to) / up_to[..., -1:] > rate
    return np.asarray(too_many.sum(axis=-1), dtype=np.int64)


def _from_above(counts: Ints) -> Ints:
    """Return how many scores lie at each value or above it, (r, D)."""
    return np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]


def _codes(nominal: ArrayLike, other: ArrayLike) -> tuple[Ints, Ints, int]:
    """Replace each score by its place among the D distinct scores of both sets; return (n,), (m,) and D."""
    first, second = checks.scores(nominal, "nominal"), checks.scores(other, "other")
    distinct, codes = np.unique(np.concatenate([first, second]), return_inverse=True)
    return codes[: len(first)], codes[len(first) :], len(distinct)


def _evaluate(statistic: _Statistic, nominal: ArrayLike, other: ArrayLike) -> float:
    """Return the statistic of two sets of scores."""
    first, second, size = _codes(nominal, other)
    return float(statistic(_counts(first[None], size), _counts(second[None], size))[0])


def _interval(
    statistic: _Statistic,
    nominal: ArrayLike,
    other: ArrayLike,
    resamples: int,
    level: float,
    seed: int,
    threshold: float | None = None,
) -> Interval:
    """Return what `bootstrap` of the plain function would, block by block, or from cells where there are many scores.

    Args:
        statistic: of counts.
        nominal: (n,) scores.
        other: (m,) scores.
        resamples: how many resamples are drawn.
        level: nominal coverage of the interval.
        seed: the seed of the draws.
        threshold: the share of a set below the threshold that it sets, if the statistic has one.
    """
    check_level(level)
    resamples = checks.positive(resamples, "resamples")
    rngs = child_generators(seed, 2)
    if np.size(nominal) + np.size(other) > _MANY:
        value, replicates = _from_cells(statistic, nominal, other, resamples, rngs, threshold)
        return Interval.from_replicates(value, replicates, np.size(nominal) + np.size(other), level)
    first, second, size = _codes(nominal, other)
    value = statistic(_counts(first[None], size), _counts(second[None], size))[0]
    step = max(1, _BLOCK_CELLS // (len(first) + len(second)))
    blocks = [
        statistic(_draw(first, size, rows, rngs[0]), _draw(second, size, rows, rngs[1]))
        for rows in (min(step, resamples - start) for start in range(0, resamples, step))
    ]
    return Interval.from_replicates(value, np.concatenate(blocks), len(first) + len(second), level)


def _from_cells(
    statistic: _Statistic,
    nominal: ArrayLike,
    other: ArrayLike,
    resamples: int,
    rngs: list[np.random.Generator],
    threshold: float | None,
) -> tuple[float, Floats]:
    """Return the statistic, and its values on resamples whose scores are known to the cell."""
    sets = [np.sort(checks.scores(nominal, "nominal")), np.sort(checks.scores(other, "other"))]
    merged = np.sort(np.concatenate(sets), kind="stable")  # which finds that they are two rising runs
    value = statistic(*_counts_up_to(sets, merged[np.append(merged[1:] != merged[:-1], True)]))[0]
    ends = np.unique(np.concatenate([values[_places(len(values), threshold)] for values in sets]))
    cells = _counts_up_to(sets, ends)
    drawn = [rng.multinomial(n.sum(), n[0] / n.sum(), resamples) for n, rng in zip(cells, rngs, strict=True)]
    moved = statistic(*drawn) + (value - statistic(*cells)[0])
    return float(value), np.clip(moved, 0.0, 1.0)


def _places(n: int, threshold: float | None) -> Ints:
    """Return the places among n rising scores at which cells end, the last included."""
    shares = [np.linspace(0, 1, _QUANTILES + 1)]
    if threshold is not None:
        near = _NEAR * np.sqrt(threshold * (1 - threshold) / n)
        shares.append(np.clip(np.linspace(threshold - near, threshold + near, _NEAR_QUANTILES + 1), 0, 1))
    return np.unique(np.rint(np.concatenate(shares) * (n - 1))).astype(np.int64)


def _counts_up_to(sets: list[Floats], ends: Floats) -> list[Ints]:
    """Count, for each set of rising scores, those up to each of the rising ends and above the one before; (1, D)."""
    return [np.diff(np.searchsorted(values, ends, side="right"), prepend=0)[None] for values in sets]


def _draw(codes: Ints, size: int, resamples: int, rng: np.random.Generator) -> Ints:
    """Return the counts (resamples, size) of as many resamples of the (n,) codes."""
    return _counts(codes[rng.integers(len(codes), size=(resamples, len(codes)))], size)


def _counts(codes: Ints, size: int) -> Ints:
    """Count each code below `size` in each row of (r, n) codes; return (r, size)."""
    rows = len(codes)
    shifted = codes + size * np.arange(rows)[:, None]
    return np.bincount(shifted.ravel(), minlength=rows * size).reshape(rows, size)


def _false_alarm_share(rate: float) -> float:
    if not 0 <= rate < 1:
        raise UserError(f"The false-alarm rate is {rate!r}; give a number from 0 and below 1, such as 0.05.")
    return float(rate)


def _detection_share(rate: float) -> float:
    if not 0 < rate <= 1:
        raise UserError(f"The detection rate is {rate!r}; give a number above 0 and up to 1, such as 0.95.")
    return float(rate)
