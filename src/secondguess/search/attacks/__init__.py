"""Attacks that search for the nearest image to which a classifier gives another class."""

from __future__ import annotations

from secondguess.contracts.registry import snake_case, unknown
from secondguess.search.attacks.base import Attack
from secondguess.search.attacks.boundary import Boundary
from secondguess.search.attacks.gradient import Gradient
from secondguess.search.attacks.hop_skip_jump import HopSkipJump

__all__ = ["ATTACKS", "Attack", "Boundary", "Gradient", "HopSkipJump", "open_attack"]

ATTACKS: dict[str, type[Attack]] = {kind.name: kind for kind in (HopSkipJump, Boundary, Gradient)}


def open_attack(attack: str | Attack) -> Attack:
    """An attack by its name, with its usual parameters; an attack is returned as it is."""
    if isinstance(attack, Attack):
        return attack
    name = snake_case(attack)
    if name not in ATTACKS:
        raise unknown("attack", attack, ATTACKS)
    return ATTACKS[name]()
