"""Oracles by name: ours by decorator, anybody else's by an entry point in the group `secondguess.accuracy.oracles`."""

from __future__ import annotations

from typing import Any

from secondguess.accuracy.oracles.base import Oracle
from secondguess.contracts.registry import Registry

__all__ = ["get", "make", "names", "register"]

OURS = ("icos.oracle", "cross_reference", "selfchecker")  # the modules of this room that hold oracles

_known: dict[str, type[Oracle]] = {}
_registry = Registry(
    Oracle.noun,
    base=Oracle,
    public="secondguess.accuracy.oracles.Oracle",
    package="secondguess.accuracy.oracles",
    modules=OURS,
    table=lambda: _known,
)
register, names, get = _registry.register, _registry.names, _registry.get


def make(name: str, **params: Any) -> Oracle:
    """An oracle by name, with the parameters of its `__init__`."""
    return _registry.make(name, params)
