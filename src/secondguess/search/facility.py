"""Facility locations (Maurer and Bennette, ICMLA 2019): surprising errors that lie well apart.

Errors found are facilities that the rest of the pool should have near by. With D in [0, 1], and D = 1 while there is no
error, the utility of the errors found is

    W = a sum over errors of ln(1 / (1 - c_q)) - (1 - a) / n sum over x of min over errors of D(x, q),      a = 1/2,

and the search takes the image with the largest expectation of it, phi(q) W(with q an error) + (1 - phi(q)) W. How
likely a prediction is wrong, phi, is 1 - c until there are more answers than features, the confidence among them, and
both right and wrong ones; from then on it is a logistic regression of error on features and confidence.

Departures: a weak ridge penalty keeps the regression finite where the answers can be separated; confidence and features
are standardised for it. The published code computes the prior on the rows of another array; this one does not.
"""

from __future__ import annotations

import numpy as np

from secondguess.errors import UserError
from secondguess.search._geometry import Geometry, geometry
from secondguess.search.base import Floats, Ints, Search, best
from secondguess.search.pool import Pool
from secondguess.search.registry import register

__all__ = ["FacilitySearch"]

MOST_CONFIDENT = 0.9999999  # of the authors' code
RIDGE = 1e-2


@register
class FacilitySearch(Search):
    """Greedy search for the utility of facility locations.

    Args:
        seed: draws nothing.
        alpha: a, the weight of surprise against closeness.
    """

    name = "facility"
    title = "Facility locations"

    def __init__(self, *, seed: int = 0, alpha: float = 0.5) -> None:
        super().__init__(seed=seed)
        if not 0 <= alpha <= 1:
            raise UserError(f"The weight of surprise is {alpha}; give a number between 0 and 1.")
        self.alpha = alpha

    def _fit(self, pool: Pool) -> None:
        self._geometry: Geometry = geometry(pool)
        self._confidence = np.minimum(pool.confidence, MOST_CONFIDENT)
        columns = np.column_stack([pool.features, pool.confidence])
        known = columns[pool.eligible]
        self._columns = (columns - known.mean(axis=0)) / np.maximum(known.std(axis=0), 1e-12)

    def chances(self, rows: Ints) -> Floats:
        """(k,) phi: how likely the predictions at some rows are wrong, after the answers so far."""
        labelled, errors = self.labelled, self.errors
        if len(labelled) <= self._columns.shape[1] or errors.all() or not errors.any():
            return np.asarray(1 - self._confidence[rows])
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(C=1 / RIDGE, max_iter=1000).fit(self._columns[labelled], errors)
        return np.asarray(model.predict_proba(self._columns[rows])[:, 1])

    def gains(self) -> Floats:
        """(m,) how much W rises if the image is an error, for every image that may be asked about."""
        found = self.labelled[self.errors]
        nearest = np.ones(len(self._geometry.witnesses), dtype=np.float32)
        if len(found):
            nearest = np.minimum(nearest, self._geometry.distances(found).min(axis=0))
        nearer = self._geometry.total("distances", lambda tile: np.maximum(nearest - tile, 0).mean(axis=1))
        surprise = -np.log1p(-self._confidence[self._geometry.rows])
        return np.asarray(self.alpha * surprise + (1 - self.alpha) * nearer)

    def _choose(self, candidates: Ints, n: int) -> Ints:
        gains = self.gains()[self._geometry.place[candidates]]
        return best(self.chances(candidates) * gains, candidates, n)

    def _reasons(self, row: int) -> dict[str, float | str]:
        if not self.pool.eligible[row]:
            return {}
        return {
            "predicted error probability": float(self.chances(np.array([row]))[0]),
            "utility gained by an error": float(self.gains()[self._geometry.place[row]]),
        }
