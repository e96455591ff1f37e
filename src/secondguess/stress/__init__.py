"""Stress sets: images on which a classifier ought to hesitate."""

from __future__ import annotations

from typing import get_args

from secondguess.stress.adversarial import ATTACKS, Adversarial
from secondguess.stress.base import Given, Kind, StressSet
from secondguess.stress.checks import check_stress_set
from secondguess.stress.corrupted import Corrupted, Mix
from secondguess.stress.corruptions import CORRUPTIONS, corrupt
from secondguess.stress.invalid import GENERATED, Invalid
from secondguess.stress.registry import REGISTRY, get, make, make_all, register

__all__ = [
    "CORRUPTIONS",
    "Adversarial",
    "Corrupted",
    "Given",
    "Invalid",
    "Kind",
    "StressSet",
    "check_stress_set",
    "corrupt",
    "get",
    "make",
    "make_all",
    "names",
    "register",
]


def names() -> list[str]:
    """What `make` understands: registered names, and `NAME:DETAIL` for one corruption, attack or invalid source."""
    details = {
        "corrupted": [*get_args(Mix), *CORRUPTIONS],
        "adversarial": list(ATTACKS),
        "invalid": [*GENERATED, "PATH"],
    }
    return [
        spelling
        for name in REGISTRY.names()
        for spelling in (name, *(f"{name}:{detail}" for detail in details.get(name, ())))
    ]
