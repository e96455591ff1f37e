"""Classes by name: a room's own by decorator, anybody else's by an entry point."""

from __future__ import annotations

import difflib
import importlib
import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from secondguess.contracts.learner import Learner
from secondguess.errors import UserError

__all__ = ["Registry"]

L = TypeVar("L", bound=Learner)
Kind = TypeVar("Kind", bound=type[Learner])


@dataclass
class Registry(Generic[L]):
    """The classes of one room and those that other packages add to it.

    Attributes:
        noun: what they are, such as "supervisor".
        base: of which all are subclasses.
        public: the dotted name by which users know the base.
        package: the room, and the group of entry points.
        modules: of the room, those that hold such classes, in the order in which they are listed.
        table: gives the classes that are known so far, by name, in the order in which they came.
        bare: whether an entry point must be one that can be made without arguments.
        complete: whether the modules and the entry points have been loaded.
    """

    noun: str
    base: type[Any]
    public: str
    package: str
    modules: tuple[str, ...]
    table: Callable[[], dict[str, type[L]]]
    bare: bool = False
    complete: bool = False

    def register(self, kind: Kind) -> Kind:
        """Class decorator: make a class known by its `name`; a module that is loaded again replaces its own."""
        known: dict[str, Any] = self.table()
        previous = known.get(kind.name)
        if previous is not None and _origin(previous) != _origin(kind):
            raise ValueError(f"two {self.noun}s are called {kind.name!r}: {previous} and {kind}")
        known[kind.name] = kind
        return kind

    def all(self) -> dict[str, type[L]]:
        """All classes by name: the room's own in the order of their modules, then the others as they came."""
        if not self.complete:
            for module in self.modules:
                importlib.import_module(f"{self.package}.{module}")
            for entry in entry_points(group=self.package):
                self._add(entry)
            self.complete = True
        return dict(sorted(self.table().items(), key=lambda item: self._place(item[1])))

    def names(self) -> list[str]:
        """All names: the room's own in the order of their modules, then the others as they came."""
        return list(self.all())

    def get(self, name: str) -> type[L]:
        """The class of that name."""
        known = self.all()
        if name not in known:
            close = difflib.get_close_matches(name, known, n=2)
            hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"known are: {', '.join(known)}."
            raise UserError(f"There is no {self.noun} {name!r}; {hint}")
        return known[name]

    def make(self, name: str, params: Mapping[str, Any]) -> L:
        """One by name, with the parameters of its `__init__`."""
        kind = self.get(name)
        signature = inspect.signature(kind)
        try:
            signature.bind(**params)
        except TypeError as error:
            known = ", ".join(signature.parameters) or "none"
            raise UserError(
                f"The {self.noun} {name!r} cannot be made: {error}; its parameters are: {known}."
            ) from error
        return kind(**params)

    def _place(self, kind: type[L]) -> int:
        """Where a class stands, whoever imported its module first."""
        module = kind.__module__.removeprefix(f"{self.package}.") + "."
        return next(
            (place for place, own in enumerate(self.modules) if module.startswith(own + ".")), len(self.modules)
        )

    def _add(self, entry: EntryPoint) -> None:
        """Load one entry point; a third party's defect must not take everybody else's classes down."""
        try:
            kind = entry.load()
            if not (isinstance(kind, type) and issubclass(kind, self.base)):
                raise TypeError(f"{kind!r} is not a subclass of {self.public}")
            if self.bare:
                inspect.signature(kind).bind()
            self.register(kind)
        except Exception as error:
            warnings.warn(f"The {self.noun} {entry.name!r} ({entry.value}) was left out: {error}", stacklevel=3)


def _origin(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__
