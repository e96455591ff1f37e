"""A bandit over clusters (UUB; Lakkaraju, Kamar, Caruana, Horvitz, AAAI 2017): ask where errors were found.

Every cluster is an arm. After each arm was pulled once, the next is the arm with the largest

    mean_i + sqrt(2 ln(t + 1) / N_i),

where pulls count the less, the more of the arm's images were still untouched when they were made: the pull that found m
of the n_i images taken has the weight (n_i - taken now) / (n_i - m), N_i is the sum of the weights of an arm and mean_i
the weighted mean of its rewards.

    lakkaraju   the reward is 1 for an error, and the image is drawn at random within the arm;
    published   the reward is 1 where the coverage utility of Bansal and Weld rose by more than 0.01, and the image is
                the one that would raise it most if it were an error: what later comparisons ran under this name.

Departure from Lakkaraju et al.: clusters by k-means of confidence and features (see `_geometry`) in place of their
patterns of features, which images do not have, as in all later comparisons.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from secondguess.errors import UserError
from secondguess.metrics.discovery import SIGMA
from secondguess.search._geometry import Elbow, clusters
from secondguess.search.base import Floats, Ints, Search, best
from secondguess.search.coverage import coverage_of
from secondguess.search.pool import Pool
from secondguess.search.registry import register

__all__ = ["BanditSearch"]

RISE = 0.01


@register
class BanditSearch(Search):
    """Upper confidence bounds over clusters.

    Args:
        seed: of the draws within an arm.
        variant: `"lakkaraju"` or `"published"`.
        sigma: of the similarity, for the published variant.
        elbow: how the number of clusters is chosen.
    """

    name = "bandit"
    title = "Bandit (Lakkaraju)"

    def __init__(
        self,
        *,
        seed: int = 0,
        variant: Literal["lakkaraju", "published"] = "lakkaraju",
        sigma: float = SIGMA,
        elbow: Elbow = "elbow",
    ) -> None:
        super().__init__(seed=seed)
        if variant not in ("lakkaraju", "published"):
            raise UserError(f"The variant of the bandit is {variant!r}; give 'lakkaraju' or 'published'.")
        self.variant, self.sigma, self.elbow = variant, sigma, elbow

    def _fit(self, pool: Pool) -> None:
        self._arms = clusters(pool, self.elbow)
        self._sizes = np.bincount(self._arms[self._arms >= 0])
        self._lot = np.random.default_rng(self.seed).random(len(pool))

    def rewards(self) -> Floats:
        """(t,) the reward of each answer so far."""
        errors = self.errors
        if self.variant == "lakkaraju":
            return errors.astype(np.float64)
        utility = coverage_of(self.pool, self.sigma).utility(self.labelled[errors])
        worth = np.zeros(len(errors))
        worth[errors] = np.diff(utility) > RISE
        return worth

    def bounds(self) -> Floats:
        """(arms,) the upper confidence bound of each; infinite for arms never pulled."""
        arms = self._arms[self.labelled]
        inside = arms >= 0
        arms, rewards = arms[inside], self.rewards()[inside]
        pulled = np.bincount(arms, minlength=len(self._sizes))
        before = np.array([np.count_nonzero(arms[:j] == arm) for j, arm in enumerate(arms)], dtype=np.int64)
        weights = (self._sizes - pulled)[arms] / (self._sizes[arms] - before)
        counts = np.bincount(arms, weights, minlength=len(self._sizes))
        with np.errstate(divide="ignore", invalid="ignore"):
            means = np.bincount(arms, weights * rewards, minlength=len(self._sizes)) / counts
            bounds = means + np.sqrt(2 * np.log(len(arms) + 1) / counts)
        return np.where(counts > 0, bounds, np.inf)

    def _choose(self, candidates: Ints, n: int) -> Ints:
        bounds, value = self.bounds(), self._lot
        if self.variant == "published":
            coverage = coverage_of(self.pool, self.sigma)
            totals = coverage.totals(self.labelled[self.errors])
            value = np.where(self.pool.eligible, totals[coverage.geometry.place], -np.inf)
        order: list[Ints] = []
        arms = self._arms[candidates]
        for arm in np.argsort(-bounds, kind="stable"):  # a batch takes the best of each arm in turn
            mine = candidates[arms == arm]
            order.append(best(value[mine], mine, len(mine)))
        turns = [arm[turn] for turn in range(n) for arm in order if len(arm) > turn]
        return np.array(turns[:n], dtype=np.int64)

    def _reasons(self, row: int) -> dict[str, float | str]:
        arm = self._arms[row]
        if arm < 0:
            return {}
        inside = self._arms[self.labelled] == arm
        return {
            "cluster": f"{arm}",
            "answers in the cluster": float(inside.sum()),
            "errors in the cluster": float(self.errors[inside].sum()),
        }
