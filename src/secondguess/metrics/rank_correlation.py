"""Whether two numbers order the same examples alike.

Spearman's coefficient is Pearson's of the ranks, equal values sharing the mean of their ranks (Spearman 1904): 1 the
same order, -1 the opposite one, 0 none. It is not defined where all values of one side are equal, and 0 there: such a
number orders nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from secondguess.errors import UserError
from secondguess.metrics import checks
from secondguess.metrics.checks import Floats
from secondguess.metrics.interval import Interval, bootstrap

__all__ = ["spearman", "spearman_interval"]


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Return Spearman's rank correlation of two arrays (n,); infinities are legal, NaN is not.

    >>> spearman([1, 2, 3, 4], [10, 20, 40, 30])
    0.8
    """
    one, two = (checks.scores(values, name) for values, name in ((first, "first"), (second, "second")))
    if one.shape != two.shape:
        raise UserError(f"{one.size} numbers cannot be compared with {two.size}; give one of each for every example.")
    ranks, others = _centred_ranks(one), _centred_ranks(two)
    scale = float(np.sqrt((ranks @ ranks) * (others @ others)))
    return float(ranks @ others) / scale if scale > 0 else 0.0


def spearman_interval(
    first: ArrayLike, second: ArrayLike, *, resamples: int = 500, level: float = 0.95, seed: int = 0
) -> Interval:
    """Return `spearman` with its bootstrap interval; the two are resampled together."""
    return bootstrap(spearman, (first, second), resamples=resamples, level=level, seed=seed)


def _centred_ranks(values: Floats) -> Floats:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum()
    ranks = (last - (counts - 1) / 2)[place]
    return np.asarray(ranks - ranks.mean())
