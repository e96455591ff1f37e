"""Searches by name: ours by decorator, anybody else's by an entry point in the group `secondguess.searches`."""

from __future__ import annotations

from typing import Any

from secondguess.contracts.registry import Registry
from secondguess.search.base import Search
from secondguess.search.pool import Pool

__all__ = ["REGISTRY", "get_search", "make_search", "register", "search_names"]

OURS = (  # the modules of this room that hold searches
    "chance",
    "low_confidence",
    "adversarial_distance",
    "bandit",
    "coverage",
    "facility",
    "adaptive",
)

REGISTRY: Registry[type[Search], Search] = Registry(
    "search",
    base=Search,
    public="secondguess.search.Search",
    package="secondguess.search",
    group="secondguess.searches",
    modules=OURS,
)
register, search_names, get_search = REGISTRY.register, REGISTRY.names, REGISTRY.get


def make_search(name: str, pool: Pool, seed: int = 0, **params: Any) -> Search:
    """A search by name.

    Args:
        name: one of `search_names()`; a hyphen counts as an underscore.
        pool: what may be asked about.
        seed: of whatever the search draws.
        params: further parameters of its `__init__`.

    Raises:
        UserError: for an unknown name, or parameters that cannot be used.
    """
    return REGISTRY.make(name, pool=pool, seed=seed, **params)
