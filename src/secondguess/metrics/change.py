"""How a measure changes from one model to another, and whether chance would explain the change.

Before and after are what two models do on the same images (paired) or on different ones. Paired tests see more: of two
models that agree on 990 of 1,000 images, only the other ten speak about which is better.

    shares     paired: the exact test of McNemar (1947). Of the images that only one model answers rightly, b were lost
               and c gained; if neither is better, b ~ Binomial(b + c, 1/2). The interval is Wald's after 1/2 was added
               to each of the four cells, which keeps its coverage in small samples (Agresti and Min, 2005).
               Unpaired: Fisher's exact test; Wald's interval after one right and one wrong answer were added to each
               sample (Agresti and Caffo, 2000).
    AUROC      the estimate's error is a sum over images, to which an image contributes (its placement - AUROC) divided
               by the number of images of its side; its placement is the share of the other side that it is on the right
               side of, ties counting half. The variance of a change is the sum over images of the squared
               differences of their contributions: the test of DeLong, DeLong and Clarke-Pearson (1988), but for
               factors n / (n - 1), and also where an image is on one side for one model and on the other for the other
               (its mistakes), or was seen by one model only.
    the rest   the bootstrap's standard error, the same images drawn for both models where they are paired; a normal
               interval and p-value (Efron and Tibshirani 1993, chapter 13). Unlike percentiles it can tell one in a
               million from one in a hundred with 500 resamples, which corrections for many tests need.

Of AUROC and the rest the error is estimated from the images as well, and where these are few or much alike it may come
out as nothing, as if the least change were certain. But where neither model is better, each image might as well have
got the answer of the one from the other, and an image that only one has seen might have been shown to the other: these
ways are equally likely, and what was seen is one of them, its opposite another. So no p-value is below their share,
that of a permutation test in which everything points one way (Pitman 1937): of n images that got different answers,
2^(1 - n), which McNemar's test gives where all of them were lost; of images that only one has seen, what Fisher's gives
where all were right and none is. A change within the rounding of the two values is none, and its p-value is 1.

`holm` corrects for many tests (Holm 1979): with k of them, the chance that any difference is shown where there is none
stays below the level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.errors import UserError
from secondguess.metrics import checks
from secondguess.metrics.checks import Floats, Ints
from secondguess.metrics.interval import _MOST_ROWS, Interval, _arrays, check_level

__all__ = ["Change", "auroc_change", "bootstrap_change", "holm", "mcnemar", "share_change"]

Bools = NDArray[np.bool_]

ROUNDING = 1e-12  # relative: sums of the same numbers in another order differ by less


@dataclass(frozen=True, slots=True)
class Change:
    """A measure before and after.

    Attributes:
        before: its value before.
        after: its value after.
        interval: of the difference, after - before; of width zero where no image contradicts another, which does not
            mean that it is certain.
        p_value: the chance of a difference as large where there is none; one test alone, see `holm`.
    """

    before: float
    after: float
    interval: Interval
    p_value: float


def mcnemar(lost: int, gained: int) -> float:
    """Return the p-value of McNemar's exact test, two-sided.

    Args:
        lost: images that were answered rightly before and wrongly after.
        gained: the other way round.
    """
    from scipy.stats import binomtest

    if min(lost, gained) < 0:
        raise UserError(f"{lost} images lost and {gained} gained were given; neither can be negative.")
    return float(binomtest(lost, lost + gained).pvalue) if lost + gained else 1.0


def share_change(before: ArrayLike, after: ArrayLike, *, paired: bool = True, level: float = 0.95) -> Change:
    """Return the change of a share, such as that of right answers.

    Args:
        before: (n,) booleans.
        after: (m,) booleans; of the same n images where they are paired.
        paired: whether row i is the same image in both.
        level: of the interval.
    """
    first, second = _booleans(before), _booleans(after)
    _check_pairs(first, second, paired)
    z, shares = _quantile(level), (float(first.mean()), float(second.mean()))
    if paired:
        lost, gained, n = int((first & ~second).sum()), int((~first & second).sum()), len(first)
        change, spread = (gained - lost) / (n + 2), lost + gained + 1 - (gained - lost) ** 2 / (n + 2)
        half, p_value = z * math.sqrt(spread) / (n + 2), mcnemar(lost, gained)
    else:
        counts = [(int(one.sum()), len(one)) for one in (first, second)]
        adjusted = [((right + 1) / (size + 2), size + 2) for right, size in counts]
        change = adjusted[1][0] - adjusted[0][0]
        half, p_value = z * math.sqrt(sum(p * (1 - p) / size for p, size in adjusted)), _fisher(counts)
    size = len(first) if paired else len(first) + len(second)
    low, high = max(-1.0, change - half), min(1.0, change + half)
    return Change(*shares, Interval(shares[1] - shares[0], low, high, size, level), p_value)


def auroc_change(
    before: tuple[ArrayLike, ArrayLike, ArrayLike],
    after: tuple[ArrayLike, ArrayLike, ArrayLike],
    *,
    level: float = 0.95,
) -> Change:
    """Return the change of the AUROC.

    Args:
        before: suspicion scores (n,), whether each ought to be large (n,), and which image it is of (n,): integers, of
            which equal ones are the same image, before and after.
        after: the same for the other model.
        level: of the interval.
    """
    (first, pull, rows), (second, push, others) = (_contributions(*side) for side in (before, after))
    images, place = np.unique(np.concatenate([rows, others]), return_inverse=True)
    moved = np.bincount(place, np.concatenate([-pull, push]), minlength=len(images))
    both, here, there = np.intersect1d(rows, others, return_indices=True)
    least = _least(
        _differing([np.asarray(one)[here] for one in before[:2]], [np.asarray(one)[there] for one in after[:2]]),
        len(np.setdiff1d(rows, both)),
        len(np.setdiff1d(others, both)),
    )
    return _normal(first, second, float(np.sqrt(moved @ moved)), len(images), level, least)


def bootstrap_change(
    statistic: Callable[..., float],
    before: Sequence[ArrayLike],
    after: Sequence[ArrayLike],
    *,
    paired: bool = True,
    resamples: int = 500,
    level: float = 0.95,
    seed: int = 0,
) -> Change:
    """Return the change of any statistic whose error falls with the square root of n.

    Args:
        statistic: called with arrays, returns a finite number.
        before: the arrays (n, ...) that it is called with.
        after: the same of the other model, (m, ...).
        paired: whether row i is the same image in both; the same rows are then drawn for both.
        resamples: how many resamples are drawn, 2 or more.
        level: of the interval.
        seed: of the draws.
    """
    first, second = _arrays(tuple(before)), _arrays(tuple(after))
    _check_pairs(first[0], second[0], paired)
    if checks.positive(resamples, "resamples") < 2:
        raise UserError("resamples is 1, but one resample alone has no spread; give a whole number of at least 2.")
    values = float(statistic(*first)), float(statistic(*second))
    draw, redraw = np.random.default_rng(seed).spawn(2)
    size = len(first[0]) if paired else len(first[0]) + len(second[0])
    share = min(1.0, _MOST_ROWS / size)  # as in `bootstrap`
    changes = np.empty(resamples)
    for i in range(resamples):
        rows = draw.integers(len(first[0]), size=math.ceil(share * len(first[0])))
        others = rows if paired else redraw.integers(len(second[0]), size=math.ceil(share * len(second[0])))
        changes[i] = statistic(*(one[others] for one in second)) - statistic(*(one[rows] for one in first))
    bad = resamples - int(np.isfinite(changes).sum())
    if bad or not all(map(math.isfinite, values)):
        raise UserError(
            f"The statistic is {values[0]:.4g} before and {values[1]:.4g} after, and its change not finite on {bad} of "
            f"{resamples} resamples; give a statistic that is finite on every resample."
        )
    least = _least(_differing(first, second), 0, 0) if paired else _least(0, len(first[0]), len(second[0]))
    return _normal(*values, math.sqrt(share) * float(changes.std(ddof=1)), size, level, least)


def holm(p_values: ArrayLike) -> Floats:
    """Return the p-values (k,) corrected for k tests: below the level, a difference is shown in spite of the others."""
    values = checks.floats(p_values, "p-values")
    order = np.argsort(values, kind="stable")
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected


def _contributions(scores: ArrayLike, other: ArrayLike, rows: ArrayLike) -> tuple[float, Floats, Ints]:
    """The AUROC, what each image contributes to its error (n,), and which images these are (n,)."""
    values, large, images = checks.scores(scores, "suspicion"), _booleans(other), checks.integers(rows, "images")
    if not len(values) == len(large) == len(images) or large.all() or not large.any():
        raise UserError("An AUROC needs scores of two kinds of images, and as many answers which kind each is of.")
    sides = np.sort(values[~large]), np.sort(values[large])
    quiet = 1 - _placements(values[~large], sides[1])
    loud = _placements(values[large], sides[0])
    area = float(loud.mean())
    pull = np.empty(len(values))
    pull[~large], pull[large] = (quiet - area) / len(quiet), (loud - area) / len(loud)
    return area, pull, images


def _placements(values: Floats, ordered: Floats) -> Floats:
    """The share of the `ordered` ones that each value exceeds, ties counting half."""
    below, up_to = np.searchsorted(ordered, values, "left"), np.searchsorted(ordered, values, "right")
    return (below + up_to) / (2 * len(ordered))


def _differing(before: Sequence[NDArray[Any]], after: Sequence[NDArray[Any]]) -> int:
    """Of how many images (n, ...) something is not the same in both."""
    differ = np.zeros(len(before[0]), dtype=bool)
    for one, other in zip(before, after, strict=True):
        if one.shape != other.shape:  # such as the probabilities of other classes
            return len(one)
        differ |= (one != other).any(axis=tuple(range(1, one.ndim)))
    return int(differ.sum())


def _least(both: int, first: int, second: int) -> float:
    """The least p-value that so many images can have.

    Args:
        both: images to which the models gave different answers.
        first: images that only the first has seen.
        second: images that only the second has seen.
    """
    ways = both * math.log(2) + math.lgamma(first + second + 1) - math.lgamma(first + 1) - math.lgamma(second + 1)
    opposite = first == second  # else it is none of the ways
    return min(1.0, (1 + opposite) * math.exp(-ways))


def _normal(before: float, after: float, error: float, n: int, level: float, least: float) -> Change:
    change, z = after - before, _quantile(level)
    if math.isclose(before, after, rel_tol=ROUNDING):
        p_value = 1.0
    else:
        p_value = max(least, math.erfc(abs(change) / error / math.sqrt(2)) if error > 0 else 0.0)
    return Change(before, after, Interval(change, change - z * error, change + z * error, n, level), p_value)


def _fisher(counts: Sequence[tuple[int, int]]) -> float:
    from scipy.stats import fisher_exact

    return float(fisher_exact([[right, size - right] for right, size in counts])[1])


def _quantile(level: float) -> float:
    check_level(level)
    return NormalDist().inv_cdf((1 + level) / 2)


def _booleans(values: ArrayLike) -> Bools:
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype != np.bool_ or not array.size:
        raise UserError(f"One true or false for each image is needed, not {array.dtype} of shape {array.shape}.")
    return array


def _check_pairs(before: NDArray[Any], after: NDArray[Any], paired: bool) -> None:
    if paired and len(before) != len(after):
        raise UserError(
            f"{len(before)} images before cannot be paired with {len(after)} after; give the same images in the same "
            "order, or say that they are not paired."
        )
