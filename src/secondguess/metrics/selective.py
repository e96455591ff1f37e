"""Predictions that are accepted or not: how often the accepted ones are wrong, and how many there are.

With suspicion scores s, a threshold t accepts the predictions with s <= t. Its coverage is the share that it accepts,
its risk the share of these that are wrong (El-Yaniv and Wiener, JMLR 2010). Over all thresholds

    AURC         = mean over k = 1 ... n of the risk of the k least suspicious predictions
    excess AURC  = AURC less that of the best order of the same predictions: all right ones before all wrong ones

(Geifman, Uziel and El-Yaniv, ICLR 2019). Smaller is better; an order by chance has an AURC of about the error rate.

Ties: predictions with the same score are accepted together by a threshold; in the two areas, whose k may end among
them, they count as in random order, and the expectation over these orders is taken, which is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.errors import UserError
from secondguess.metrics import checks
from secondguess.metrics.checks import Floats
from secondguess.metrics.interval import Interval, bootstrap

__all__ = [
    "RiskCoverage",
    "aurc",
    "aurc_interval",
    "excess_aurc",
    "excess_aurc_interval",
    "risk_at_coverage",
    "risk_coverage",
]


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """A risk-coverage curve with t points, one for each distinct score, rising.

    Attributes:
        thresholds: (t,) predictions with a score up to this one are accepted.
        coverage: (t,) the share that is accepted; the last is 1.
        risk: (t,) the share of the accepted ones that are wrong.
    """

    thresholds: Floats
    coverage: Floats
    risk: Floats


def risk_coverage(scores: ArrayLike, wrong: ArrayLike) -> RiskCoverage:
    """Return the risk and the coverage of every threshold.

    Args:
        scores: (n,) suspicion of each prediction.
        wrong: (n,) whether it is wrong.
    """
    values, totals, errors = _counts(scores, wrong)
    accepted = totals.cumsum()
    return RiskCoverage(values, accepted / accepted[-1], errors.cumsum() / accepted)


def risk_at_coverage(scores: ArrayLike, wrong: ArrayLike, coverage: float) -> float:
    """Return the risk of the smallest threshold that accepts at least this share of the predictions.

    Args:
        scores: (n,) suspicion of each prediction.
        wrong: (n,) whether it is wrong.
        coverage: above 0, up to 1.
    """
    if not 0 < coverage <= 1:
        raise UserError(f"The coverage is {coverage!r}; give a share above 0 and up to 1.")
    curve = risk_coverage(scores, wrong)
    return float(curve.risk[np.searchsorted(curve.coverage, coverage - 1e-12)])


def aurc(scores: ArrayLike, wrong: ArrayLike) -> float:
    """Return the area under the risk-coverage curve.

    >>> round(aurc([0.1, 0.2, 0.3, 0.4], [False, False, True, False]), 4)
    0.1458

    Args:
        scores: (n,) suspicion of each prediction.
        wrong: (n,) whether it is wrong.
    """
    _, totals, errors = _counts(scores, wrong)
    before, errors_before = totals.cumsum() - totals, errors.cumsum() - errors
    rank = np.arange(1, totals.sum() + 1)
    group = np.repeat(np.arange(len(totals)), totals)
    found = errors_before[group] + (rank - before[group]) * (errors / totals)[group]
    return float((found / rank).mean())


def excess_aurc(scores: ArrayLike, wrong: ArrayLike) -> float:
    """Return `aurc` less the smallest that any scores could have for as many errors; 0 is perfect."""
    errors = _wrong(wrong)
    return aurc(scores, errors) - aurc(errors.astype(np.float64), errors)


def aurc_interval(
    scores: ArrayLike, wrong: ArrayLike, *, resamples: int = 500, level: float = 0.95, seed: int = 0
) -> Interval:
    """Return `aurc` with its bootstrap interval; scores are resampled together with their errors."""
    return bootstrap(aurc, (scores, _wrong(wrong)), resamples=resamples, level=level, seed=seed)


def excess_aurc_interval(
    scores: ArrayLike, wrong: ArrayLike, *, resamples: int = 500, level: float = 0.95, seed: int = 0
) -> Interval:
    """Return `excess_aurc` with its bootstrap interval; scores are resampled together with their errors."""
    return bootstrap(excess_aurc, (scores, _wrong(wrong)), resamples=resamples, level=level, seed=seed)


def _counts(scores: ArrayLike, wrong: ArrayLike) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """The distinct scores (t,), rising, and how many predictions and how many errors have each."""
    values, errors = checks.scores(scores, "suspicion"), _wrong(wrong)
    if errors.shape != values.shape:
        raise UserError(f"There are {values.size} scores but {errors.size} answers to whether a prediction is wrong.")
    distinct, place = np.unique(values, return_inverse=True)
    return distinct, np.bincount(place), np.bincount(place[errors], minlength=len(distinct))


def _wrong(wrong: ArrayLike) -> NDArray[np.bool_]:
    array = np.asarray(wrong)
    if array.ndim != 1 or array.dtype != np.bool_:
        raise UserError(
            f"Whether predictions are wrong was given as {array.dtype} of shape {array.shape}; give one true or false "
            "each, shape (n,)."
        )
    return array
