"""Registries of classes by name: built-in ones by decorator, those of other packages by an entry point.

A package adds a supervisor, for example, by declaring in its `pyproject.toml`

    [project.entry-points."secondguess.supervisors"]
    my_score = "my_package.scores:MyScore"

Hyphens and underscores in a name mean the same. Parameters may follow a name, also on the command line:
`dsa:subsampling=0.3:sampler=stratified`. A value is read as JSON where it is JSON (numbers, true, null), and taken as
text otherwise. What stands between the name and the parameters, as in `corrupted:fog:severity=3`, is a detail whose
meaning the class defines with a class method `by_name(detail)`; a registered name of two parts, `ambiguous_blend`, may
also be written with a colon, `ambiguous:blend`.
"""

from __future__ import annotations

import difflib
import importlib
import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, cast

from secondguess.contracts.parameters import signature_of, with_own_names
from secondguess.errors import UserError

__all__ = ["Registry", "snake_case", "unknown"]

ALL, STANDARD, NONE = "all", "standard", "none"
PARAMETER = re.compile(r":(?=\s*[A-Za-z_][\w-]*\s*=)")

E = TypeVar("E")  # what is registered: a class, or another callable with a name
T = TypeVar("T")  # what it makes
R = TypeVar("R")


@dataclass
class Registry(Generic[E, T]):
    """The entries of one room and those that other packages add to it.

    Attributes:
        noun: what is made, such as "supervisor".
        base: of which all entries are subclasses, or instances where they are no classes.
        public: the dotted name by which users know the base.
        package: the room.
        group: of the entry points.
        modules: of the room, those that hold entries, in the order in which they are listed; as a mapping of names to
            modules, nothing is imported before it is requested by name.
        classes: whether the entries are classes.
        bare: whether an entry point must be one that can be made without arguments.
        unlisted: "module:Class" of the room by name, for entries that are found by name but stand in no list: they need
            another library, and a detail that says what of it is meant.
        known: the entries that are loaded, by name, in the order in which they came.
        complete: whether the modules and the entry points have been loaded.
    """

    noun: str
    base: type[Any]
    public: str
    package: str
    group: str
    modules: tuple[str, ...] | Mapping[str, str]
    classes: bool = True
    bare: bool = False
    unlisted: Mapping[str, str] = field(default_factory=dict)
    known: dict[str, E] = field(default_factory=dict)
    complete: bool = False

    def register(self, entry: R) -> R:
        """Decorator: make an entry known by its `name`; a module that is loaded again replaces its own."""
        name = cast("Any", entry).name
        previous = self.known.get(name)
        if previous is not None and _origin(previous) != _origin(entry):
            raise ValueError(f"two {_plural(self.noun)} are called {name!r}: {previous} and {entry}")
        self.known[name] = cast("E", entry)
        return entry

    def all(self) -> dict[str, E]:
        """All entries by name: the built-in ones in the order of their modules, then the others as they were added."""
        if not self.complete:
            for module in self._modules():
                importlib.import_module(f"{self.package}.{module}")
            for entry in entry_points(group=self.group):
                self._try(entry)
            self.complete = True
        return dict(sorted(self.known.items(), key=lambda item: self._place(item[1])))

    def names(self) -> list[str]:
        """All names: the built-in ones in the order of their modules, then the others as they were added."""
        if isinstance(self.modules, Mapping) and not self.complete:
            theirs = [entry.name for entry in entry_points(group=self.group)]
            return list(dict.fromkeys([*self.modules, *self.known, *theirs]))
        return list(self.all())

    def get(self, name: str) -> E:
        """The entry of that name; what follows the name is ignored."""
        return self._find(PARAMETER.split(name)[0])[0]

    def make(self, name: str, **params: Any) -> T:
        """One object by name.

        Args:
            name: one of `names()`; parameters may follow it.
            params: parameters of its `__init__`.

        Raises:
            UserError: for an unknown name, or parameters that cannot be used.
        """
        if name in (ALL, STANDARD, NONE):
            raise UserError(f"{name!r} stands for several {_plural(self.noun)} or none; use make_all({name!r}).")
        head, *written = PARAMETER.split(name)
        entry, detail = self._find(head)
        given = self._by_name(entry, detail) | dict(map(_parameter, written)) | params
        return self._made(entry, given, written)

    def make_all(self, which: str | Iterable[str | T]) -> list[T]:
        """Several objects.

        Args:
            which: one name or several, as for `make`, or `"all"`: all that can be made without parameters, or
                `"standard"`: those of them that are not expensive, or `"none"`. Ready-made objects are passed through.

        Returns:
            The objects; several of one name are told apart by their parameters, as in `dsa:subsampling=0.3`.
        """
        wanted = [which] if isinstance(which, str) else which
        made = [made for one in wanted for made in (self._several(one) if isinstance(one, str) else [one])]
        return with_own_names(made)

    def _several(self, name: str) -> list[T]:
        if name == NONE:
            return []
        if name not in (ALL, STANDARD):
            return [self.make(name)]
        chosen = [entry for entry in self.all().values() if name == ALL or not getattr(entry, "expensive", False)]
        return [self._made(entry, self._by_name(entry, ""), []) for entry in chosen if _needs_nothing(entry)]

    def _find(self, text: str) -> tuple[E, str]:
        """The entry that is meant and the detail that follows its name, "" if none does."""
        head, _, detail = text.partition(":")
        known = self.names()
        if detail and (whole := snake_case(f"{head}_{detail}")) in known:
            return self._load(whole), ""
        if (name := snake_case(head)) not in known and name not in self.unlisted:
            raise unknown(self.noun, text, known)
        return self._load(name), detail.strip()

    def _load(self, name: str) -> E:
        """The entry of a name that is known, imported if it has not been yet."""
        if name in self.unlisted:
            module, _, kind = self.unlisted[name].partition(":")
            return cast("E", getattr(importlib.import_module(f"{self.package}.{module}"), kind))
        if name not in self.known and isinstance(self.modules, Mapping) and name in self.modules:
            importlib.import_module(f"{self.package}.{self.modules[name]}")
        elif name not in self.known:
            (entry, *_) = (one for one in entry_points(group=self.group) if one.name == name)
            try:
                self._add(entry)
            except Exception as error:
                raise UserError(f"The {self.noun} {name!r} ({entry.value}) cannot be loaded: {error}") from error
        return self.known[name]

    def _by_name(self, entry: E, detail: str) -> dict[str, Any]:
        """The parameters that a name and its detail stand for."""
        hook: Callable[[str], dict[str, Any]] | None = getattr(entry, "by_name", None)
        if hook is not None:
            return hook(detail)
        if detail:
            raise _not_a_parameter(detail, entry)
        return {}

    def _made(self, entry: E, given: Mapping[str, Any], written: list[str]) -> T:
        make, name = cast("Callable[..., T]", entry), cast("Any", entry).name
        signature = signature_of(make)
        try:
            signature.bind(**given)
        except TypeError as error:
            known = ", ".join(signature.parameters) or "none"
            raise UserError(
                f"The {self.noun} {name!r} cannot be made: {error}; its parameters are: {known}."
            ) from error
        try:
            return make(**given)
        except TypeError as error:
            if not written:
                raise
            raise UserError(f"The {self.noun} {name!r} cannot be made with {':'.join(written)}: {error}.") from error

    def _modules(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.modules.values())) if isinstance(self.modules, Mapping) else self.modules

    def _place(self, entry: E) -> int:
        """Where an entry stands, no matter which module was imported first."""
        own = self._modules()
        module = _origin(entry)[0].removeprefix(f"{self.package}.") + "."
        return next((place for place, one in enumerate(own) if module.startswith(one + ".")), len(own))

    def _try(self, entry: EntryPoint) -> None:
        """Load one entry point; a defect in another package must not disable other entries."""
        try:
            self._add(entry)
        except Exception as error:
            warnings.warn(f"The {self.noun} {entry.name!r} ({entry.value}) was left out: {error}", stacklevel=3)

    def _add(self, point: EntryPoint) -> None:
        entry = point.load()
        if self.classes and not (isinstance(entry, type) and issubclass(entry, self.base)):
            raise TypeError(f"{entry!r} is not a subclass of {self.public}")
        if not self.classes and not isinstance(entry, self.base):
            raise TypeError(f"{entry!r} is not a {self.public}")
        if self.bare:
            signature_of(cast("Callable[..., T]", entry)).bind()
        self.register(entry)


def snake_case(name: str) -> str:
    """The registered spelling of a name that may be written with hyphens."""
    return name.strip().replace("-", "_")


def unknown(noun: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that nothing is registered under."""
    known = list(known)
    close = difflib.get_close_matches(snake_case(name), known, n=2)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"known are: {', '.join(known)}."
    return UserError(f"There is no {noun} {name!r}; {hint}")


def _parameter(text: str) -> tuple[str, Any]:
    """A parameter that follows a name, as in `samples=20`."""
    key, _, value = (part.strip() for part in text.partition("="))
    try:
        return snake_case(key), json.loads(value)
    except ValueError:
        return snake_case(key), value


def _not_a_parameter(text: str, entry: Any) -> UserError:
    first = next(iter(signature_of(entry).parameters), "PARAMETER")
    return UserError(
        f"{text!r} was given as a parameter of {entry.name!r}, but parameters are written as in "
        f"'{entry.name}:{first}=VALUE'."
    )


def _needs_nothing(entry: Any) -> bool:
    """Whether an entry can be made without parameters."""
    parameters = signature_of(entry).parameters.values()
    return all(one.default is not one.empty or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in parameters)


def _origin(entry: Any) -> tuple[str, str]:
    """Module and name of what was written down for an entry."""
    return getattr(entry, "origin", None) or (entry.__module__, entry.__qualname__)


def _plural(noun: str) -> str:
    return f"{noun}es" if noun.endswith("h") else f"{noun}s"
