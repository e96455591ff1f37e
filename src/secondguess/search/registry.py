"""Searches by name: ours by decorator, anybody else's by an entry point in the group `secondguess.search`."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from secondguess.contracts.registry import Registry
from secondguess.search.base import Search
from secondguess.search.pool import Pool

__all__ = ["get_search", "make_search", "register", "search_names"]

S = TypeVar("S", bound=type[Search])

OURS = (  # the modules of this room that hold searches
    "chance",
    "low_confidence",
    "adversarial_distance",
    "bandit",
    "coverage",
    "facility",
    "adaptive",
)

_known: dict[str, Any] = {}
_registry: Registry[Any] = Registry(
    "search",
    base=Search,
    public="secondguess.search.Search",
    package="secondguess.search",
    modules=OURS,
    table=lambda: _known,
)


def register(kind: S) -> S:
    """Class decorator: make a search known by its `name`."""
    _registry.register(cast("Any", kind))
    return kind


def search_names() -> list[str]:
    """All names: ours, then those of other packages."""
    return _registry.names()


def get_search(name: str) -> type[Search]:
    """The class of that name."""
    return cast("type[Search]", _registry.get(name))


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
    return cast("Search", _registry.make(name.replace("-", "_"), {"pool": pool, "seed": seed, **params}))
