"""Stress sets by name: built-in ones by decorator, others by an entry point in the group `secondguess.stress`.

Nothing is imported before it is needed, because some generators bring torch.
"""

from __future__ import annotations

from typing import Any

from secondguess.contracts.parameters import signature_of
from secondguess.contracts.registry import Registry, snake_case, unknown
from secondguess.stress.base import StressSet

__all__ = ["REGISTRY", "generators", "get", "make", "make_all", "make_generator", "register"]

REGISTRY: Registry[type[StressSet], StressSet] = Registry(
    "stress set",
    base=StressSet,
    public="secondguess.StressSet",
    package="secondguess.stress",
    group="secondguess.stress",
    modules={
        "ambiguous": "ambiguous.ambiguess",
        "ambiguous_blend": "ambiguous.blend",
        "ambiguous_ambigan": "ambiguous.ambigan",
        "ambiguous_flow": "ambiguous.flow.generator",
        "corrupted": "corrupted",
        "adversarial": "adversarial.stress_set",
        "invalid": "invalid",
    },
)
register, get, make, make_all = REGISTRY.register, REGISTRY.get, REGISTRY.make, REGISTRY.make_all

AMBIGUESS, AMBIGUOUS = "ambiguess", "ambiguous"


def generators() -> list[str]:
    """The generators of ambiguous images, as they follow the colon in `ambiguous:NAME`."""
    short = [name.removeprefix(f"{AMBIGUOUS}_") for name in REGISTRY.names() if name.startswith(f"{AMBIGUOUS}_")]
    return [AMBIGUESS, *short]


def make_generator(name: str, **options: Any) -> Any:
    """A generator of ambiguous images by its short name, with those of the options that are parameters of it."""
    kind = _generator(name)
    known = signature_of(kind).parameters
    return kind(**{key: value for key, value in options.items() if key in known})


def generator_parameters(name: str) -> set[str]:
    """The names of the parameters of a generator of ambiguous images."""
    return set(signature_of(_generator(name)).parameters)


def _generator(name: str) -> Any:
    short = snake_case(name)
    if short not in generators():
        raise unknown("generator", name, generators())
    return get(AMBIGUOUS if short == AMBIGUESS else f"{AMBIGUOUS}_{short}")
