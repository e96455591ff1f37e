"""Low-confidence search: the least confident predictions first, just above the threshold."""

from __future__ import annotations

from secondguess.search.base import Ints, Search, best
from secondguess.search.registry import register

__all__ = ["LowConfidenceSearch"]


@register
class LowConfidenceSearch(Search):
    """Least confident predictions first: finds many errors, but only those that the confidence predicts."""

    name = "low_confidence"
    title = "Low confidence"

    def _choose(self, candidates: Ints, n: int) -> Ints:
        return best(-self.pool.confidence[candidates], candidates, n)
