"""Stress sets: images on which a classifier ought to hesitate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from secondguess.errors import UserError
from secondguess.stress.adversarial import ATTACKS, Adversarial
from secondguess.stress.base import Given, Kind, StressSet
from secondguess.stress.corrupted import Corrupted, Mix
from secondguess.stress.corruptions import CORRUPTIONS, corrupt
from secondguess.stress.invalid import GENERATED, MIXED, Invalid

__all__ = [
    "CORRUPTIONS",
    "Adversarial",
    "Corrupted",
    "Given",
    "Invalid",
    "Kind",
    "StressSet",
    "corrupt",
    "make",
    "names",
]

GENERATORS = ("ambiguess", "blend")
ATTACKED = 300  # images of a set that is asked for by name: an attack costs hundreds of forward passes an image


def names() -> list[str]:
    """What `make` understands: kinds, and `KIND:NAME` for a single corruption, attack or source of invalid images."""
    choices = {
        "ambiguous": list(GENERATORS),
        "corrupted": [*get_args(Mix), *CORRUPTIONS],
        "adversarial": list(ATTACKS),
        "invalid": [*GENERATED, "PATH"],
    }
    return [name for kind, parts in choices.items() for name in (kind, *(f"{kind}:{part}" for part in parts))]


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
    if kind == "ambiguous" and detail in ("", *GENERATORS):
        return _ambiguous(detail)
    if kind == "corrupted":
        return Corrupted(mix=detail) if detail in get_args(Mix) else Corrupted([detail] if detail else None)  # type: ignore[arg-type]
    if kind == "invalid":
        return Invalid(detail or MIXED)
    if kind == "adversarial":
        return Adversarial([detail] if detail else ATTACKS, limit=ATTACKED)
    raise UserError(f"There is no stress set {name!r}; there is {', '.join(names())}.")


def _ambiguous(generator: str) -> StressSet:
    """A generator of ambiguous images; imported late, because it brings torch."""
    from secondguess.stress import ambiguous

    if generator == "blend":
        return ambiguous.PixelBlend()
    return ambiguous.AmbiGuess(autoencoders=1)  # by name it must be quick; for a set to keep, train more of them
