"""Searches by name: built-in ones by decorator, others by an entry point in the group `secondguess.searches`."""

from __future__ import annotations

from secondguess.contracts.registry import Registry
from secondguess.search.base import Search

__all__ = ["REGISTRY", "get", "make", "make_all", "names", "register"]

REGISTRY: Registry[type[Search], Search] = Registry(
    Search.noun,
    base=Search,
    public="secondguess.search.Search",
    package="secondguess.search",
    group="secondguess.searches",
    modules=("chance", "low_confidence", "adversarial_distance", "bandit", "coverage", "facility", "adaptive"),
)
register, names, get = REGISTRY.register, REGISTRY.names, REGISTRY.get
make, make_all = REGISTRY.make, REGISTRY.make_all
