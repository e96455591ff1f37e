"""Where the images of a pool lie: distances between them, how similar they are, and clusters.

Distances are Euclidean in feature space, divided by the largest between any two images that may be asked about; the
similarity is G(x, q) = exp(-D(x, q)^2 / sigma). What a search does to the pool is measured on at most `WITNESSES` of
its images, drawn by a fixed seed, so that a table has at most n x 2,000 entries; up to that size all images are
witnesses, as published. Tables of more than `KEPT` entries are not kept but made again, some rows at a time.

Clusters are those that Bansal and Weld's code calls `kmeans_both`: k-means on the confidence alone, then on the
features within each cluster of confidence, with 2 to 5 clusters each time. The number is where the curve of the mean
squared distance SSE(k) has its elbow: with the drops d(k) = SSE(k - 1) - SSE(k),

    elbow      k = argmax over 2..5 of d(k) / d(k + 1): the last cluster that pays off;
    published  k = argmax over 3..4 of d(k + 1) / d(k): the ratio is inverted, and 2 and 5 can never be chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.metrics.discovery import SIGMA, largest_distance
from secondguess.search.base import Floats, Ints
from secondguess.search.pool import Pool

__all__ = ["Clusters", "Elbow", "Geometry", "clusters", "elbow"]

Elbow = Literal["elbow", "published"]
Table = NDArray[np.float32]

WITNESSES = 2000
KEPT = 2000 * 2000
TILE = 2000
MOST = 5  # clusters of one k-means
STARTS = 3  # of every k-means; the best is kept


class Geometry:
    """Distances and similarities between the m images of a pool that may be asked about and its w witnesses.

    Args:
        pool: its features, at the rows that may be asked about.
        sigma: of the similarity.
    """

    def __init__(self, pool: Pool, sigma: float = SIGMA) -> None:
        if not sigma > 0:
            raise UserError(f"The similarity falls off with sigma = {sigma}; it must be above 0.")
        self.rows = pool.rows
        self.place = np.full(len(pool), -1)
        self.place[self.rows] = np.arange(len(self.rows))
        points = pool.features[self.rows]
        chosen = np.arange(len(points))
        if len(points) > WITNESSES:
            chosen = np.sort(np.random.default_rng(0).choice(len(points), WITNESSES, replace=False))
        self.witnesses = self.rows[chosen]
        self.sigma = sigma
        self.scale = largest_distance(points[chosen])
        self._features, self._chosen = pool.features / self.scale, points[chosen] / self.scale
        self._kept: dict[str, Table] = {}

    def distances(self, rows: Ints) -> Table:
        """(k, w) from the images at some rows of the pool to the witnesses."""
        from scipy.spatial.distance import cdist

        table: Table = cdist(self._features[rows], self._chosen).astype(np.float32)
        return table

    def similarity(self, rows: Ints) -> Table:
        """(k, w) of the images at some rows of the pool to the witnesses."""
        return np.asarray(np.exp(-(self.distances(rows) ** 2) / np.float32(self.sigma)))

    def total(self, kind: Literal["distances", "similarity"], summary: Callable[[Table], Table]) -> Floats:
        """(m,) `summary` applied to the rows (k, w) of a table, for all images that may be asked about."""
        return np.concatenate([summary(tile) for tile in self._tiles(kind)]).astype(np.float64)

    def _tiles(self, kind: Literal["distances", "similarity"]) -> Iterator[Table]:
        make = self.distances if kind == "distances" else self.similarity
        if len(self.rows) * len(self.witnesses) <= KEPT:
            if kind not in self._kept:
                self._kept[kind] = make(self.rows)
            yield self._kept[kind]
        else:
            for start in range(0, len(self.rows), TILE):
                yield make(self.rows[start : start + TILE])


def geometry(pool: Pool, sigma: float = SIGMA) -> Geometry:
    """The geometry of a pool, made once."""
    return pool.remember(("geometry", sigma), lambda: Geometry(pool, sigma))


Clusters = Ints


def clusters(pool: Pool, rule: Elbow = "elbow") -> Clusters:
    """The cluster of each image of a pool, (n,), numbered from 0; -1 for those that may not be asked about."""
    if rule not in ("elbow", "published"):
        raise UserError(f"The number of clusters is chosen by 'elbow' or 'published', not by {rule!r}.")
    return pool.remember(("clusters", rule), lambda: _clusters(pool, rule))


def elbow(points: Floats, rule: Elbow = "elbow") -> Ints:
    """The clusters (m,) of points (m, d), as many as the elbow of k-means says; fewer where points coincide."""
    from sklearn.cluster import KMeans

    most = min(MOST + 1, len(np.unique(points, axis=0)))
    fits = [KMeans(k, n_init=STARTS, random_state=1).fit(points) for k in range(1, most + 1)]
    if most < MOST + 1:
        return np.asarray(fits[min(most, 2) - 1].labels_, dtype=np.int64)
    drops = -np.diff([max(fit.inertia_, 0.0) / len(points) for fit in fits])  # d(2) ... d(6)
    drops = np.maximum(drops, 1e-300)
    if rule == "published":
        k = 3 + int(np.argmax(drops[2:4] / drops[1:3]))
    else:
        k = 2 + int(np.argmax(drops[:-1] / drops[1:]))
    return np.asarray(fits[k - 1].labels_, dtype=np.int64)


def _clusters(pool: Pool, rule: Elbow) -> Clusters:
    rows = pool.rows
    found = np.full(len(pool), -1, dtype=np.int64)
    by_confidence = elbow(pool.confidence[rows, None], rule)
    count = 0
    for level in np.unique(by_confidence):
        mine = rows[by_confidence == level]
        found[mine] = count + elbow(pool.features[mine], rule)
        count = int(found.max()) + 1
    return found
