"""Coverage (Bansal and Weld, AAAI 2018): errors that explain as much of the pool as possible.

An error q covers the images around it: Cover(x) = max over errors found of G(x, q), and the utility is U = sum over x
of c_x Cover(x), c the confidence. How likely a prediction is wrong starts at phi_0 = 1 - c and is learnt by cluster
from the s labels and e errors in it, phi = (2 phi_0 + e) / (2 + s). The search takes the image with the largest

    expected_gain   phi(q) (U(with q an error) - U)
    bw_published    phi(q)  U(with q an error)

The second is what the published code computes. It is no expectation: the coverage reached so far counts for every
candidate, so as it accumulates the rule turns into "largest phi", a search for low confidence. The first is the
expected gain of which the paper speaks, and the default.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from secondguess.errors import UserError
from secondguess.metrics.discovery import SIGMA
from secondguess.search._geometry import Elbow, Geometry, clusters, geometry
from secondguess.search.base import Floats, Ints, Search, best
from secondguess.search.pool import Pool
from secondguess.search.registry import register

__all__ = ["Coverage", "CoverageSearch", "coverage_of"]

PRIOR = 2.0  # weight of the prior, in labels


class Coverage:
    """How much of a pool the errors found so far explain.

    Args:
        pool: what may be asked about.
        sigma: of the similarity G.
    """

    def __init__(self, pool: Pool, sigma: float = SIGMA) -> None:
        self.geometry: Geometry = geometry(pool, sigma)
        self.weights = pool.confidence[self.geometry.witnesses].astype(np.float32)
        self._last: tuple[tuple[int, ...], Floats] | None = None

    def cover(self, errors: Ints) -> Floats:
        """(e + 1, w) the coverage of each witness before the first, after each of the errors (e,), in order."""
        table = np.zeros((len(errors) + 1, len(self.weights)), dtype=np.float32)
        if len(errors):
            table[1:] = np.maximum.accumulate(self.geometry.similarity(errors), axis=0)
        return table.astype(np.float64)

    def utility(self, errors: Ints) -> Floats:
        """(e + 1,) U before the first and after each of the errors."""
        return np.asarray(self.cover(errors) @ self.weights.astype(np.float64))

    def totals(self, errors: Ints) -> Floats:
        """(m,) U if the image were an error too, for every image that may be asked about.

        It changes only when an error is found, so the last answer is kept.
        """
        key = tuple(errors.tolist())
        if self._last is None or self._last[0] != key:
            cover = self.cover(errors)[-1].astype(np.float32)
            found = self.geometry.total("similarity", lambda tile: np.maximum(tile, cover) @ self.weights)
            self._last = (key, found)
        return self._last[1]


def coverage_of(pool: Pool, sigma: float) -> Coverage:
    """The coverage of a pool, made once."""
    return pool.remember(("coverage", sigma), lambda: Coverage(pool, sigma))


@register
class CoverageSearch(Search):
    """Greedy search for the coverage utility.

    Args:
        seed: draws nothing.
        variant: `"expected_gain"` or `"bw_published"`.
        sigma: of the similarity.
        elbow: how the number of clusters is chosen.
    """

    name = "coverage"
    title = "Coverage (Bansal & Weld)"

    def __init__(
        self,
        *,
        seed: int = 0,
        variant: Literal["expected_gain", "bw_published"] = "expected_gain",
        sigma: float = SIGMA,
        elbow: Elbow = "elbow",
    ) -> None:
        super().__init__(seed=seed)
        if variant not in ("expected_gain", "bw_published"):
            raise UserError(f"The variant of coverage search is {variant!r}; give 'expected_gain' or 'bw_published'.")
        self.variant, self.sigma, self.elbow = variant, sigma, elbow

    def _fit(self, pool: Pool) -> None:
        self._clusters = clusters(pool, self.elbow)
        self._coverage = coverage_of(pool, self.sigma)

    def chances(self, rows: Ints) -> Floats:
        """(k,) phi: how likely the predictions at some rows are wrong, after the answers so far."""
        inside = self._clusters[self.labelled]
        count = int(self._clusters.max(initial=-1)) + 1
        labels = np.bincount(inside[inside >= 0], minlength=count)
        errors = np.bincount(inside[(inside >= 0) & self.errors], minlength=count)
        mine = self._clusters[rows]
        return np.asarray((PRIOR * (1 - self.pool.confidence[rows]) + errors[mine]) / (PRIOR + labels[mine]))

    def _choose(self, candidates: Ints, n: int) -> Ints:
        found = self.labelled[self.errors]
        value = self._coverage.totals(found)[self._coverage.geometry.place[candidates]]
        if self.variant == "expected_gain":
            value = value - self._coverage.utility(found)[-1]
        return best(self.chances(candidates) * value, candidates, n)

    def _reasons(self, row: int) -> dict[str, float | str]:
        if self._clusters[row] < 0:
            return {}
        found = self.labelled[self.errors]
        total = float(self._coverage.totals(found)[self._coverage.geometry.place[row]])
        return {
            "cluster": f"{self._clusters[row]}",
            "predicted error probability": float(self.chances(np.array([row]))[0]),
            "coverage gained by an error": max(0.0, total - float(self._coverage.utility(found)[-1])),
        }
