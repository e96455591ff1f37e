"""Supervisors by name: ours by decorator, anybody else's by an entry point.

A package adds its own supervisors by declaring, in its `pyproject.toml`,

    [project.entry-points."secondguess.supervisors"]
    my_score = "my_package.scores:MyScore"

and they appear in the audit, in `secondguess supervisors` and in gates, under their `name`. A class may say to which
`family` it belongs, under whose heading it is then listed, and that it is `expensive`, such as one that trains twenty
models: it is then left out of `"standard"`, which is what an audit takes unless told otherwise.

Parameters may follow a name, also on the command line: `dsa:subsampling=0.3:sampler=stratified`. A value is read as
JSON where it is JSON (numbers, true, null), and taken as text otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from secondguess.contracts.registry import Registry
from secondguess.errors import UserError
from secondguess.supervisors.base import Supervisor

__all__ = ["family", "get", "is_expensive", "make", "names", "register"]

STANDARD, ALL = "standard", "all"
OURS = (  # the modules of this room that hold supervisors
    "softmax",
    "dropout",
    "ensemble",
    "dissector",
    "surprise.dsa",
    "surprise.lsa",
    "surprise.mdsa",
    "surprise.mixtures",
    "autoencoder",
    "logits",
    "knn",
    "vim",
    "relative_mahalanobis",
)

_known: dict[str, type[Supervisor]] = {}
_registry = Registry(
    Supervisor.noun,
    base=Supervisor,
    public="secondguess.Supervisor",
    package="secondguess.supervisors",
    modules=OURS,
    table=lambda: _known,
    bare=True,  # "all" makes every supervisor without arguments
)
register, names, get = _registry.register, _registry.names, _registry.get


def family(kind: type[Supervisor]) -> str:
    """The heading under which a supervisor is listed: its own `family`, or the module of this room that it is from."""
    if kind.family:
        return kind.family
    ours, _, rest = kind.__module__.partition("secondguess.supervisors.")
    return rest.partition(".")[0] if rest and not ours else "other"


def is_expensive(kind: type[Supervisor]) -> bool:
    """Whether a supervisor says of itself that it takes too long to be used unasked."""
    return kind.expensive


def make(which: str | Iterable[str | Supervisor] = ALL, **params: Any) -> list[Supervisor]:
    """Supervisors by name.

    Args:
        which: one name, or several; `"all"` stands for all of them and `"standard"` for those that are not expensive.
            A name may be followed by parameters, `"autoencoder:error=per_pixel"`. Ready-made supervisors in the list
            are passed through.
        params: for a single name only, the parameters of its `__init__`.

    Raises:
        UserError: for an unknown name, or parameters that cannot be used.
    """
    if params and (which in (ALL, STANDARD) or not isinstance(which, str)):
        raise UserError(
            f"Parameters ({', '.join(params)}) were given for several supervisors, but they are handed to a single "
            "name only; make each supervisor on its own."
        )
    if isinstance(which, str):
        return _named(which, params)
    return [made for one in which for made in ([one] if isinstance(one, Supervisor) else _named(one, {}))]


def _named(name: str, params: dict[str, Any]) -> list[Supervisor]:
    if name in (ALL, STANDARD):
        return [kind() for kind in _registry.all().values() if name == ALL or not is_expensive(kind)]
    name, *written = name.split(":")
    given = dict(_written(name, text) for text in written) | params
    try:
        return [_registry.make(name, given)]
    except TypeError as error:
        if not written:
            raise
        raise UserError(f"The supervisor {name!r} cannot be made with {':'.join(written)}: {error}.") from error


def _written(name: str, text: str) -> tuple[str, Any]:
    """A parameter that follows the name of a supervisor, as in `samples=20`."""
    key, equals, value = (part.strip() for part in text.partition("="))
    if not (key and equals and value):
        raise UserError(
            f"{text!r} was given as a parameter of {name!r}, but parameters are written as in "
            "'dsa:subsampling=0.3:sampler=stratified'."
        )
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
