"""Oracles by name: built-in ones by decorator, others by an entry point in the group `secondguess.oracles`."""

from __future__ import annotations

from secondguess.accuracy.oracles.base import Oracle
from secondguess.contracts.registry import Registry

__all__ = ["REGISTRY", "get", "make", "make_all", "names", "register"]

REGISTRY: Registry[type[Oracle], Oracle] = Registry(
    Oracle.noun,
    base=Oracle,
    public="secondguess.accuracy.oracles.Oracle",
    package="secondguess.accuracy.oracles",
    group="secondguess.oracles",
    modules=("icos.oracle", "cross_reference", "selfchecker"),
)
register, names, get = REGISTRY.register, REGISTRY.names, REGISTRY.get
make, make_all = REGISTRY.make, REGISTRY.make_all
