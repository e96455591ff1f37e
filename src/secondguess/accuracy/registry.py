"""Estimators by name: built-in ones by decorator, others by an entry point in the group `secondguess.estimators`."""

from __future__ import annotations

from secondguess.accuracy.base import Estimator
from secondguess.contracts.registry import Registry

__all__ = ["REGISTRY", "get", "make", "make_all", "names", "register"]

REGISTRY: Registry[type[Estimator], Estimator] = Registry(
    Estimator.noun,
    base=Estimator,
    public="secondguess.accuracy.Estimator",
    package="secondguess.accuracy",
    group="secondguess.estimators",
    modules=(
        "confidence",
        "dispersion",
        "label_shift",
        "agreement",
        "passes",
        "rules_and_confidence",
        "synthetic_shifts",
    ),
)
register, names, get = REGISTRY.register, REGISTRY.names, REGISTRY.get
make, make_all = REGISTRY.make, REGISTRY.make_all
