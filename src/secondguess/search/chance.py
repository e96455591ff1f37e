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

    def __init__(self, pool: Pool, *, seed: int = 0) -> None:
        super().__init__(pool, seed=seed)
        self._lot = np.random.default_rng(seed).random(len(pool))

    def _choose(self, candidates: Ints, n: int) -> Ints:
        return best(self._lot[candidates], candidates, n)
