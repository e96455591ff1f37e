"""Oracles by name: ours by decorator, anybody else's by an entry point in the group `secondguess.oracles`."""

from __future__ import annotations

from typing import Any

from secondguess._registry import Registry
from secondguess.oracles.base import Oracle

__all__ = ["get", "make", "names", "register"]

OURS = ("icos.oracle", "cross_reference", "selfchecker")  # the modules of this room that hold oracles

_known: dict[str, type[Oracle]] = {}
_registry = Registry(
    Oracle.noun,
    base=Oracle,
    public="secondguess.oracles.Oracle",
    package="secondguess.oracles",
    modules=OURS,
    table=lambda: _known,
)
register, names, get = _registry.register, _registry.names, _registry.get


def make(name: str, **params: Any) -> Oracle:
    """An oracle by name, with the parameters of its `__init__`."""
    return _registry.make(name, params)
