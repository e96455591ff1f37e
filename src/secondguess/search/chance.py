"""Random search: what any other search must beat."""

from __future__ import annotations

import numpy as np

from secondguess.search.base import Ints, Search, best
from secondguess.search.pool import Pool
from secondguess.search.registry import register

__all__ = ["RandomSearch"]


@register
class RandomSearch(Search):
    """Every image is as likely as any other; one order is drawn at the beginning and kept."""

    name = "random"
    title = "Random"

    def _fit(self, pool: Pool) -> None:
        self._lot = np.random.default_rng(self.seed).random(len(pool))

    def _choose(self, candidates: Ints, n: int) -> Ints:
        return best(self._lot[candidates], candidates, n)
