"""Error search: which images should a person inspect to find the confident mistakes with the fewest labels?"""

from __future__ import annotations

from secondguess.search._loess import error_rates
from secondguess.search.base import Search
from secondguess.search.checks import check_search
from secondguess.search.distance import Distances, measure_distances
from secondguess.search.pool import Pool
from secondguess.search.registry import get, make, make_all, names, register
from secondguess.search.simulation import Curve, SearchStudy, simulate

__all__ = [
    "Curve",
    "Distances",
    "Pool",
    "Search",
    "SearchStudy",
    "check_search",
    "error_rates",
    "get",
    "make",
    "make_all",
    "measure_distances",
    "names",
    "register",
    "simulate",
]
