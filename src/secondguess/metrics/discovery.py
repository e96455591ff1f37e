"""How well a search finds errors: errors found against errors expected, and how widely the queries are spread.

For queries q = 1 ... b with confidence p_q, of which the predictions e_q in {0, 1} are wrong, and a chance c_q that
each was wrong in the first place,

    ratio = sum e_q / sum c_q.

With c = 1 - p it is the standardised discovery ratio (SDR; Maurer and Bennette, ICMLA 2019), named after the
standardised mortality ratio. Its value under random search is the SDR of the whole pool, which is 1 for a calibrated
model only; `lift` divides by it. With c the pool's own error rate at the confidence p it is the confidence-matched
lift: what was found that the confidence does not explain. The same comparison as a difference,

    excess = sum (e_q - c_q),

is in errors: how many more were found than by a random choice among predictions of the same confidences. Both are
indirect standardisation, so that searches can be compared that ask at different confidences: each is held against the
pool at its own. (Standardising directly, to confidences that both ask at, fails where they have none in common.) The
ratio favours a search that asks where next to no errors are expected, the excess one that asks where errors
are frequent; a search that leads in both finds more at equal confidence.

    spread  = mean over x of min over queries q of D(x, q)                               (lower = more spread out)
    utility = sum over x of p_x max over errors q found of exp(-D(x, q)^2 / sigma)       (Bansal and Weld, AAAI 2018)
    APFD    = f - sum of the ranks of errors found / (k b) + f / (2 b),   f = found / k  (Qu, Cohen, Rothermel, 2007)

D is the Euclidean distance of features divided by the largest between any two images, k the errors there are to find.
Of each there is a curve over the queries; its last entry is the value. Departures: a chance of less than 1e-7 counts as
1e-7, so that a ratio is finite where the confidence is 1; spread before the first query is 1, as published, and is that
of the images asked about.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.errors import UserError
from secondguess.metrics import checks
from secondguess.metrics.checks import Floats, Ints
from secondguess.metrics.interval import Interval, check_level

__all__ = [
    "apfd_curve",
    "coverage_curve",
    "discovery_curve",
    "discovery_p_value",
    "discovery_ratio",
    "discovery_ratio_interval",
    "errors_distribution",
    "errors_per_hundred_curve",
    "excess_curve",
    "expected_errors",
    "largest_distance",
    "lift",
    "pooled_curve",
    "sdr",
    "sdr_curve",
    "spread_curve",
]

LEAST_CHANCE = 1e-7
SIGMA = 0.001  # of the code behind the published comparisons
ROWS = 1000  # of a tile of distances


def sdr(errors: ArrayLike, confidence: ArrayLike) -> float:
    """The standardised discovery ratio; of a whole pool, what random search is expected to reach.

    Args:
        errors: (b,) booleans, which of the predictions asked about are wrong.
        confidence: (b,) of these predictions.
    """
    return float(sdr_curve(errors, confidence)[-1])


def sdr_curve(errors: ArrayLike, confidence: ArrayLike) -> Floats:
    """The standardised discovery ratio after each query, (b,); leading axes, of repetitions, are kept."""
    return discovery_curve(errors, 1 - _confidence(confidence))


def lift(errors: ArrayLike, confidence: ArrayLike, pool_errors: ArrayLike, pool_confidence: ArrayLike) -> float:
    """The standardised discovery ratio of a search over that of the whole pool it searched.

    Args:
        errors: (b,) which of the predictions asked about are wrong.
        confidence: (b,) of these predictions.
        pool_errors: (n,) which of all predictions are wrong.
        pool_confidence: (n,) of all predictions.
    """
    whole = sdr(pool_errors, pool_confidence)
    if whole == 0:
        raise UserError("There is no error in the whole pool, so a search has no lift over it.")
    return sdr(errors, confidence) / whole


def discovery_ratio(errors: ArrayLike, chances: ArrayLike) -> float:
    """Errors found over errors expected, given the chance (b,) of each; see `discovery_curve`."""
    return float(discovery_curve(errors, chances)[-1])


def discovery_curve(errors: ArrayLike, chances: ArrayLike) -> Floats:
    """Errors found over errors expected after each query.

    Args:
        errors: (..., b) booleans, which of the predictions asked about are wrong.
        chances: (..., b) how likely each was wrong to begin with: 1 - confidence for the standardised discovery ratio,
            the pool's error rate at that confidence for the confidence-matched lift.

    Returns:
        (..., b).
    """
    found, expected = _outcomes(errors, chances)
    return np.asarray(found.cumsum(axis=-1) / expected.cumsum(axis=-1))


def pooled_curve(errors: ArrayLike, chances: ArrayLike) -> Floats:
    """The ratio of all repetitions together: the sum of errors over the sum of those expected, after each query.

    The mean of ratios is heavy-tailed after a few queries; this is not.

    Args:
        errors: (r, b) of r repetitions.
        chances: (r, b).

    Returns:
        (b,).
    """
    found, expected = _outcomes(errors, chances)
    if found.ndim != 2:
        raise UserError(f"The errors have shape {found.shape}; give one row for each repetition, shape (r, b).")
    return np.asarray(found.sum(axis=0).cumsum() / expected.sum(axis=0).cumsum())


def excess_curve(errors: ArrayLike, chances: ArrayLike) -> Floats:
    """Errors found beyond those expected, after each query.

    Args:
        errors: (..., b) booleans, which of the predictions asked about are wrong.
        chances: (..., b) how likely each was wrong to begin with; with the pool's error rate at the confidence of each,
            0 is what random search among predictions of the same confidences is expected to have.

    Returns:
        (..., b), negative where fewer were found than expected.
    """
    found, expected = _outcomes(errors, chances)
    return np.asarray((found - expected).cumsum(axis=-1))


def errors_distribution(chances: ArrayLike) -> Floats:
    """The probability (b + 1,) of 0, 1, ... b errors among independent predictions: exact Poisson-binomial."""
    known = _chances(chances)
    distribution = np.zeros(len(known) + 1)
    distribution[0] = 1.0
    for chance in known:
        one_more = distribution[:-1] * chance
        distribution *= 1 - chance
        distribution[1:] += one_more
    return distribution


def expected_errors(chances: ArrayLike) -> float:
    """The expected number of errors, the sum of the chances (b,)."""
    return float(_chances(chances).sum())


def expected_errors_interval(chances: ArrayLike, level: float = 0.95) -> Interval:
    """The expected number of errors, with the least and the largest number that the chances (b,) leave likely."""
    check_level(level)
    below = errors_distribution(chances).cumsum()
    tail = (1 - level) / 2
    low, high = (float(np.searchsorted(below, share)) for share in (tail, 1 - tail))
    return Interval(expected_errors(chances), low, high, len(below) - 1, float(level))


def discovery_p_value(errors: ArrayLike, chances: ArrayLike) -> float:
    """The probability of at least as many errors, were the chances (b,) right and the queries independent of them.

    It is exact where what is asked about does not depend on earlier answers, as in random search and in adversarial
    distance. A search that learns also chooses its chances by what it has found, and may, say, turn to predictions
    without a chance of error while it is ahead: then small values are more frequent than they claim to be.
    """
    found, expected = _outcomes(errors, chances)
    return float(min(1.0, errors_distribution(expected)[int(found.sum()) :].sum()))


def discovery_ratio_interval(errors: ArrayLike, chances: ArrayLike, level: float = 0.95) -> Interval:
    """The ratio of errors found to errors expected, with an exact interval.

    Suppose that the chances are off by a common factor t: that the predictions are wrong with probability
    min(1, t c_q). The ratio is then expected to be

        rho(t) = sum min(1, t c_q) / sum c_q,

    which is t itself unless t makes an error certain. The bounds are rho at the factors for which at least, or at most,
    the number found has probability (1 - level) / 2: the construction of Clopper and Pearson. They always enclose the
    ratio, as the median of a Poisson-binomial count is its mean, rounded up or down (Jogdeo and Samuels, 1968).

    Args:
        errors: (b,) which of the predictions asked about are wrong.
        chances: (b,) how likely each was wrong to begin with.
        level: nominal coverage.
    """
    check_level(level)
    found, expected = _outcomes(errors, chances)
    count, tail = int(found.sum()), (1 - level) / 2

    def at_least(factor: float, number: int) -> float:
        return float(errors_distribution(np.minimum(1.0, factor * expected))[number:].sum())

    def ratio(factor: float) -> float:
        return float(np.minimum(1.0, factor * expected).sum() / expected.sum())

    value = count / float(expected.sum())
    ceiling = 1 / float(expected.min())  # beyond it every prediction is surely wrong
    low, high = 0.0, value
    if count > 0:
        low = min(value, ratio(_root(lambda factor: at_least(factor, count) - tail, ceiling)))
    if count < len(found):
        high = ratio(_root(lambda factor: at_least(factor, count + 1) - (1 - tail), ceiling))
    return Interval(value, low, high, len(found), float(level))


def errors_per_hundred_curve(errors: ArrayLike) -> Floats:
    """Errors found for every hundred labels, after each query; (..., b)."""
    found = _booleans(errors).astype(np.float64)
    return np.asarray(100 * found.cumsum(axis=-1) / np.arange(1, found.shape[-1] + 1))


def apfd_curve(errors: ArrayLike, faults: int) -> Floats:
    """The average percentage of faults detected (APFD) after each query.

    Args:
        errors: (b,) in the order of the queries.
        faults: how many errors the pool holds.

    Returns:
        (b,) in [0, 1]; for b = n it is APFD, below that its form for a part of the tests.
    """
    found = _booleans(errors)
    if faults < found.sum():
        raise UserError(f"{int(found.sum())} errors were found, but the pool is said to hold {faults}.")
    queries = np.arange(1, len(found) + 1)
    findable = np.maximum(np.minimum(faults, queries), 1)
    share = found.cumsum() / findable
    return np.asarray(share - (found * queries).cumsum() / (findable * queries) + share / (2 * queries))


def largest_distance(features: ArrayLike) -> float:
    """The largest Euclidean distance between any two rows of the features (n, d); 1 where all are the same."""
    from scipy.spatial.distance import cdist

    rows = _features(features)
    tiles = range(0, len(rows), ROWS)
    largest = max(float(cdist(rows[start : start + ROWS], rows[start:]).max()) for start in tiles)
    return largest or 1.0


def spread_curve(features: ArrayLike, queries: ArrayLike, scale: float | None = None) -> Floats:
    """The mean distance from an image to the nearest one asked about, after each query.

    Args:
        features: (n, d) of all images of the pool.
        queries: (b,) positions of those asked about, in order.
        scale: by which distances are divided; the largest between any two images if left out.

    Returns:
        (b,), never increasing.
    """
    nearest = np.minimum.accumulate(_distances(features, queries, scale), axis=1)
    return np.asarray(nearest.mean(axis=0))


def coverage_curve(
    features: ArrayLike,
    confidence: ArrayLike,
    queries: ArrayLike,
    errors: ArrayLike,
    *,
    sigma: float = SIGMA,
    scale: float | None = None,
) -> Floats:
    """The utility of Bansal and Weld after each query.

    Args:
        features: (n, d) of all images of the pool.
        confidence: (n,) of their predictions.
        queries: (b,) positions of the images asked about, in order.
        errors: (b,) which of these are errors.
        sigma: how fast an error ceases to explain what lies around it.
        scale: by which distances are divided; the largest between any two images if left out.

    Returns:
        (b,), never decreasing.
    """
    found = _booleans(errors)
    similarity = np.exp(-(_distances(features, queries, scale) ** 2) / sigma)
    cover = np.maximum.accumulate(np.where(found, similarity, 0.0), axis=1)
    return np.asarray(_confidence(confidence) @ cover)


def _distances(features: ArrayLike, queries: ArrayLike, scale: float | None) -> Floats:
    """(n, b) from every image to every query, divided by the scale."""
    from scipy.spatial.distance import cdist

    rows = _features(features)
    asked = checks.integers(queries, "queries")
    if asked.size == 0 or asked.min() < 0 or asked.max() >= len(rows):
        raise UserError(
            f"{asked.size} queries were given for {len(rows)} images; give positions in 0..{len(rows) - 1}."
        )
    distances: Floats = cdist(rows, rows[asked])
    distances /= largest_distance(rows) if scale is None else scale
    return distances


def _root(function: Callable[[float], float], ceiling: float) -> float:
    """Where an increasing function crosses 0 in [0, ceiling], by bisection in the logarithm: no step can overshoot."""
    low, high = 0.0, ceiling
    for _ in range(200):
        middle = (low + high) / 2 if low == 0 else math.sqrt(low * high)
        if high - low <= 1e-9 * high:
            break
        if function(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _outcomes(errors: ArrayLike, chances: ArrayLike) -> tuple[Ints, Floats]:
    """Errors as numbers and chances of one shape (..., b), b at least 1, no chance below the least."""
    found, expected = _booleans(errors).astype(np.int64), _chances(chances)
    if found.shape != expected.shape:
        raise UserError(
            f"{found.shape} errors and {expected.shape} chances were given; give one chance for each query."
        )
    return found, np.maximum(expected, LEAST_CHANCE)


def _booleans(errors: ArrayLike) -> NDArray[np.bool_]:
    found = np.asarray(errors)
    if found.dtype != bool or found.ndim == 0 or found.shape[-1] == 0:
        raise UserError(
            f"The errors have dtype {found.dtype} and shape {found.shape}; say with one boolean for each query, and at "
            "least one, whether its prediction is wrong."
        )
    return found


def _chances(chances: ArrayLike) -> Floats:
    values = checks.floats(chances, "chances")
    if not ((values >= 0) & (values <= 1)).all():
        raise UserError("The chances leave [0, 1]; give the probability that each prediction is wrong.")
    return values


def _confidence(confidence: ArrayLike) -> Floats:
    values = checks.floats(confidence, "confidences")
    if not ((values >= 0) & (values <= 1)).all():
        raise UserError("The confidences leave [0, 1]; give the probability of each predicted class.")
    return values


def _features(features: ArrayLike) -> Floats:
    rows = checks.floats(features, "features")
    if rows.ndim != 2 or rows.size == 0 or not np.isfinite(rows).all():
        raise UserError(f"The features have shape {rows.shape} or are not all finite; give finite numbers (n, d).")
    return rows
