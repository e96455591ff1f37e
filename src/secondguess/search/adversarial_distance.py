"""Adversarial distance (Bennette, Maurer, Sisti, IJCNN 2020): predictions that a small change overturns.

d(x) is the mean absolute difference between an image and the nearest image found that the classifier decides
otherwise, F the expectation of ln d at the confidence p of the prediction (LOESS, span 0.1, over the images that may be
asked about). The search asks in ascending order of

    AdvDist(x) = ln d(x) - F(p(x)),

which needs no label and never changes. The paper writes the formula without the logarithm, its figure and its code have
it, and it matters: the spread of d grows with confidence, so raw residuals point to the most confident end only.

Departures: where a pool holds several predicted classes, F is fitted for each class with enough images (`by_class`),
as a class may lie farther from the others than another; an image whose attack failed takes no part in the fit and is
asked about last, in the order of its confidence; a distance of 0 counts as the smallest that is not 0.
"""

from __future__ import annotations

import numpy as np

from secondguess.errors import UserError
from secondguess.search._loess import SPAN, loess
from secondguess.search.base import Floats, Ints, Search
from secondguess.search.pool import Pool
from secondguess.search.registry import register

__all__ = ["AdversarialDistanceSearch", "residuals"]

ENOUGH = 50  # images of a class for a curve of its own


@register
class AdversarialDistanceSearch(Search):
    """Smallest residual of the distance first; the pool must have distances.

    Args:
        seed: draws nothing.
        log: whether the distance is taken by its logarithm.
        degree: of the local polynomials of the LOESS: 1 as in the authors' Python, 2 as in their R.
        span: of the LOESS.
        robust: whether outliers get less weight in it.
        by_class: whether every predicted class with 50 images has a curve of its own; the others share one.
    """

    name = "adversarial_distance"
    title = "Adversarial distance"
    needs_distances = True

    def __init__(
        self,
        *,
        seed: int = 0,
        log: bool = True,
        degree: int = 1,
        span: float = SPAN,
        robust: bool = True,
        by_class: bool = True,
    ) -> None:
        super().__init__(seed=seed)
        self.log, self.degree, self.span, self.robust, self.by_class = log, degree, span, robust, by_class

    def _fit(self, pool: Pool) -> None:
        self._residuals = residuals(
            pool, log=self.log, degree=self.degree, span=self.span, robust=self.robust, by_class=self.by_class
        )

    def _choose(self, candidates: Ints, n: int) -> Ints:
        # A failed attack has an infinite residual; among those the least confident comes first.
        order = np.lexsort((self.pool.confidence[candidates], self._residuals[candidates]))
        return candidates[order[:n]]

    def _reasons(self, row: int) -> dict[str, float | str]:
        residual = float(self._residuals[row])
        return {"residual": residual} if np.isfinite(residual) else {"residual": "unknown: no attack succeeded"}


def residuals(
    pool: Pool,
    *,
    log: bool = True,
    degree: int = 1,
    span: float = SPAN,
    robust: bool = True,
    by_class: bool = True,
) -> Floats:
    """AdvDist of every image of a pool that may be asked about.

    Args:
        pool: must have distances.
        log: whether the distance is taken by its logarithm.
        degree: of the local polynomials, 1 or 2.
        span: share of the images in a neighbourhood.
        robust: whether outliers get less weight.
        by_class: whether every predicted class with 50 images has a curve of its own.

    Returns:
        (n,) residuals; infinity where the attack failed or the image may not be asked about.
    """
    key = ("residuals", log, degree, span, robust, by_class)
    return pool.remember(key, lambda: _residuals(pool, log, degree, span, robust, by_class))


def _residuals(pool: Pool, log: bool, degree: int, span: float, robust: bool, by_class: bool) -> Floats:
    if pool.distances is None:
        raise UserError(
            "This pool knows no distances, which the adversarial distance needs; measure them with "
            "measure_distances(classifier, images) and give them to the pool."
        )
    distance = np.asarray(pool.distances.mae, dtype=np.float64)
    known = pool.eligible & np.isfinite(distance) & ~pool.distances.failed
    found = np.full(len(pool), np.inf)
    if not known.any():
        return found
    if log:
        positive = distance[known & (distance > 0)]
        distance = np.log(np.maximum(distance, positive.min() if positive.size else 1.0))
    for group in _groups(pool.predictions, known, by_class):
        expected = loess(pool.confidence[group], distance[group], span=span, degree=degree, robust=robust)
        found[group] = distance[group] - expected
    return found


def _groups(predictions: Ints, known: np.ndarray[tuple[int], np.dtype[np.bool_]], by_class: bool) -> list[Ints]:
    """The images that share a curve: a predicted class with enough images, and all others together."""
    rows = np.flatnonzero(known)
    if not by_class:
        return [rows]
    classes, counts = np.unique(predictions[rows], return_counts=True)
    large = classes[counts >= ENOUGH]
    groups = [rows[predictions[rows] == one] for one in large] + [rows[~np.isin(predictions[rows], large)]]
    return [group for group in groups if len(group)]
