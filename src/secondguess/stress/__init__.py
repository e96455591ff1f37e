"""Stress sets: images on which a classifier ought to hesitate."""

from __future__ import annotations

from collections.abc import Iterable

from secondguess.errors import UserError
from secondguess.stress.base import Kind, StressSet
from secondguess.stress.corrupted import Corrupted
from secondguess.stress.corruptions import CORRUPTIONS, corrupt
from secondguess.stress.invalid import Invalid

__all__ = ["CORRUPTIONS", "Corrupted", "Invalid", "Kind", "StressSet", "corrupt", "make", "names"]


def names() -> list[str]:
    """What `make` understands: kinds, and `corrupted:NAME` for a single corruption."""
    return ["corrupted", *(f"corrupted:{name}" for name in CORRUPTIONS), "invalid", "invalid:PATH"]


def make(which: str | Iterable[str | StressSet]) -> list[StressSet]:
    """Stress sets by name.

    Args:
        which: one name or several of `names()`, e.g. `["corrupted", "invalid:photos/landscapes"]`; ready-made stress
            sets are passed through.
    """
    return (
        [_one(which)] if isinstance(which, str) else [one if isinstance(one, StressSet) else _one(one) for one in which]
    )


def _one(name: str) -> StressSet:
    kind, _, detail = name.partition(":")
    if kind == "corrupted":
        return Corrupted([detail] if detail else None)
    if kind == "invalid":
        return Invalid(detail or "photos")
    raise UserError(f"There is no stress set {name!r}; there is {', '.join(names())}.")
