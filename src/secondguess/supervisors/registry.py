"""Supervisors by name: ours by decorator, anybody else's by an entry point.

A package adds its own supervisors by declaring, in its `pyproject.toml`,

    [project.entry-points."secondguess.supervisors"]
    my_score = "my_package.scores:MyScore"

and they appear in the audit, in `secondguess supervisors` and in gates, under their `name`. A class may say to which
`family` it belongs, under whose heading it is then listed, and that it is `expensive`, such as one that trains twenty
models: it is then left out of `"standard"`, which is what an audit takes unless told otherwise.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import warnings
from collections.abc import Iterable
from importlib.metadata import entry_points
from typing import Any, TypeVar

from secondguess.errors import UserError
from secondguess.supervisors.base import Supervisor

__all__ = ["family", "get", "is_expensive", "make", "names", "register"]

GROUP = "secondguess.supervisors"
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

Kind = TypeVar("Kind", bound=type[Supervisor])
_known: dict[str, type[Supervisor]] = {}
_complete = False


def register(kind: Kind) -> Kind:
    """Class decorator: make a supervisor known by its `name`; a module that is loaded again replaces its own."""
    previous = _known.get(kind.name)
    if previous is not None and _origin(previous) != _origin(kind):
        raise ValueError(f"two supervisors are called {kind.name!r}: {previous} and {kind}")
    _known[kind.name] = kind
    return kind


def names() -> list[str]:
    """The names of all supervisors, ours first, in the order of their modules."""
    return list(_all())


def get(name: str) -> type[Supervisor]:
    """The class of that name."""
    known = _all()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=2)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"known are: {', '.join(known)}."
        raise UserError(f"There is no supervisor {name!r}; {hint}")
    return known[name]


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
            Ready-made supervisors in the list are passed through.
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
        return [kind() for kind in _all().values() if name == ALL or not is_expensive(kind)]
    return [_made(get(name), params)]


def _made(kind: type[Supervisor], params: dict[str, Any]) -> Supervisor:
    signature = inspect.signature(kind)
    try:
        signature.bind(**params)
    except TypeError as error:
        known = ", ".join(signature.parameters) or "none"
        raise UserError(
            f"The supervisor {kind.name!r} cannot be made: {error}; its parameters are: {known}."
        ) from error
    return kind(**params)


def _origin(kind: type[Supervisor]) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__


def _all() -> dict[str, type[Supervisor]]:
    global _complete
    if not _complete:
        for module in OURS:
            importlib.import_module(f"secondguess.supervisors.{module}")
        for entry in entry_points(group=GROUP):
            _add(entry)
        _complete = True
    return dict(sorted(_known.items(), key=lambda item: _place(item[1])))


def _place(kind: type[Supervisor]) -> int:
    """Where a class stands, whoever imported its module first: ours by `OURS`, then the others as they came."""
    module = kind.__module__.removeprefix("secondguess.supervisors.") + "."
    return next((place for place, own in enumerate(OURS) if module.startswith(own + ".")), len(OURS))


def _add(entry: Any) -> None:
    """Load one entry point; a third party's defect must not take everybody else's supervisors down."""
    try:
        kind = entry.load()
        if not (isinstance(kind, type) and issubclass(kind, Supervisor)):
            raise TypeError(f"{kind!r} is not a subclass of secondguess.Supervisor")
        inspect.signature(kind).bind()  # "all" makes every supervisor without arguments
        register(kind)
    except Exception as error:
        warnings.warn(f"The supervisor {entry.name!r} ({entry.value}) was left out: {error}", stacklevel=3)
