"""Locally weighted regression (Cleveland 1979; Cleveland and Devlin 1988), and the error rate by confidence.

At x the k = floor(span n) nearest points are weighted by w_i = (1 - (|x_i - x| / h)^3)^3, h the distance of the k-th,
and a polynomial of degree 1 or 2 in u = (x_i - x) / h is fitted to them by least squares; its value at u = 0 is the
fit. The robust fit repeats this three times with weights multiplied by B(r_i / 6 median |r|), B(u) = (1 - u^2)^2 within
[-1, 1] and 0 outside. In the order of x a neighbourhood is a run of k points, so all fits are one pass over a table of
n by k numbers, some rows at a time.

It is written out here because confidences saturate: many are equal to 1 or differ in the last bits, and there the
authors' Fortran (scikit-misc) fails and the lowess of statsmodels is slow on a large pool. Guards: a ridge of
1e-10 on slopes, so that where all points of a neighbourhood coincide their mean is the fit; a value of x shared by k
points or more has the mean of all of them; at least `NEIGHBOURS` points take part in every fit, so that a small pool is
smoothed more; beyond `DIRECT` points the fit is computed at that number of them and interpolated linearly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError

__all__ = ["error_rates", "loess"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SPAN = 0.1  # of the paper's code
NEIGHBOURS = 10
DIRECT = 4000
ROBUST_PASSES = 3  # as lowess(it=3) of statsmodels, which the paper's code calls
RIDGE = 1e-10
TABLE = 2_000_000  # entries of a table at a time
LEAST_RATE = 1e-3


def loess(x: Floats, y: Floats, *, span: float = SPAN, degree: int = 1, robust: bool = False) -> Floats:
    """The expectation of y at each x.

    Args:
        x: (n,) finite numbers.
        y: (n,) finite numbers.
        span: share of the points in a neighbourhood.
        degree: of the local polynomial, 1 or 2.
        robust: whether three further passes give outliers less weight; never for y of 0 and 1, whose rarer value
            would count as outlying.

    Returns:
        (n,) the fitted values, in the order of x.
    """
    if not 0 < span <= 1:
        raise UserError(f"The span of the smoother is {span}; give a share of the points, above 0 and up to 1.")
    if degree not in (1, 2):
        raise UserError(f"The degree of the smoother is {degree}; give 1 (lines) or 2 (parabolas).")
    order = np.argsort(x, kind="stable")
    neighbours = min(max(int(span * len(x) + 1e-10), NEIGHBOURS), len(x))
    smoother = _Smoother(np.asarray(x, dtype=np.float64)[order], neighbours, degree)
    targets = np.asarray(y, dtype=np.float64)[order]
    trust = np.ones(len(targets))
    fitted = smoother.fit(targets, trust)
    for _ in range(ROBUST_PASSES if robust else 0):
        trust = _bisquare(targets - fitted)
        fitted = smoother.fit(targets, trust)
    unsorted = np.empty(len(fitted))
    unsorted[order] = fitted
    return unsorted


def error_rates(confidence: Floats, errors: NDArray[np.bool_], *, span: float = SPAN) -> Floats:
    """How often predictions of each confidence are wrong in a pool: what confidence alone explains.

    Args:
        confidence: (n,) of the predictions.
        errors: (n,) which of them are wrong.
        span: share of the points in a neighbourhood.

    Returns:
        (n,) rates, by a fit that is not robust, kept within [0.001, 1]: a line may leave the range of its points.
    """
    rates = loess(confidence, np.asarray(errors, dtype=np.float64), span=span)
    return np.clip(rates, LEAST_RATE, 1.0)


class _Smoother:
    """Fits to points at ascending x (n,), whatever their y and their weights."""

    def __init__(self, x: Floats, neighbours: int, degree: int) -> None:
        n = len(x)
        self.x, self.k, self.degree = x, neighbours, degree
        at = np.arange(n) if n <= DIRECT else np.linspace(0, n - 1, DIRECT).round().astype(np.int64)
        # A neighbourhood moves right while its next point is nearer than its first: x[start] + x[start + k] < 2 x.
        self.start = np.searchsorted(x[: n - neighbours] + x[neighbours:], 2 * x[at])
        self.at = at
        _, first, sizes = np.unique(x, return_index=True, return_counts=True)
        crowded = sizes > neighbours
        self.crowds = [slice(int(i), int(i + size)) for i, size in zip(first[crowded], sizes[crowded], strict=True)]

    def fit(self, y: Floats, trust: Floats) -> Floats:
        """(n,) the fit to y (n,) with every point's weight multiplied by trust (n,)."""
        rows = max(1, TABLE // self.k)
        parts = [self._local(slice(i, i + rows), y, trust) for i in range(0, len(self.at), rows)]
        values = np.concatenate(parts)
        fitted = values if len(self.at) == len(y) else np.interp(self.x, self.x[self.at], values)
        for crowd in self.crowds:
            fitted[crowd] = _mean(y[crowd], trust[crowd])
        return fitted

    def _local(self, part: slice, y: Floats, trust: Floats) -> Floats:
        """The value of the local polynomial at some of the points."""
        table = self.start[part, None] + np.arange(self.k)
        offset = self.x[table] - self.x[self.at[part], None]
        width = np.abs(offset).max(axis=1, keepdims=True)
        offset /= np.where(width > 0, width, 1.0)
        cube = 1 - np.abs(offset * offset * offset)
        weights = cube * cube * cube * trust[table]
        total = weights.sum(axis=1)
        weights /= np.where(total > 0, total, 1.0)[:, None]
        powers = [weights]
        for _ in range(2 * self.degree):
            powers.append(powers[-1] * offset)
        moments = np.stack([power.sum(axis=1) for power in powers], axis=1)
        targets = np.stack([(power * y[table]).sum(axis=1) for power in powers[: self.degree + 1]], axis=1)
        places = np.add.outer(np.arange(self.degree + 1), np.arange(self.degree + 1))
        normal = moments[:, places] + np.diag([0.0] + [RIDGE] * self.degree)
        empty = total <= 0  # every neighbour was found to be an outlier
        normal[empty] = np.eye(self.degree + 1)
        targets[empty, 0] = y[table][empty].mean(axis=1)
        return np.asarray(np.linalg.solve(normal, targets[:, :, None])[:, 0, 0])


def _bisquare(residuals: Floats) -> Floats:
    """(n,) the robustness weight of each point."""
    scale = 6 * float(np.median(np.abs(residuals)))
    if scale == 0:
        return np.ones(len(residuals))
    return np.asarray(np.maximum(1 - (residuals / scale) ** 2, 0) ** 2)


def _mean(values: Floats, weights: Floats) -> float:
    return float(np.average(values, weights=weights if weights.any() else None))
