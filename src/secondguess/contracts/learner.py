"""What supervisors, oracles, estimators and searches have in common: parameters, learnt state and saving.

Parameters live in `__init__` and are stored untouched under their own names; what is learnt ends in an underscore. That
is all that cloning, showing, saving and loading need.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from secondguess.contracts.parameters import Parametrised
from secondguess.contracts.saving import DAMAGE, Writable, read, write
from secondguess.errors import UserError

__all__ = ["Learner"]


class Learner(Parametrised, ABC):
    """Something with a name and parameters that learns.

    Attributes:
        noun: what users call it, such as "supervisor"; also the key of its name in a saved file.
        name: by which it is known in the registry.
        requires_fit: whether it must learn before it can be used.
    """

    noun: ClassVar[str]
    name: str
    requires_fit: ClassVar[bool] = True

    @property
    @abstractmethod
    def is_fitted(self) -> bool:
        """Whether `fit` has been called."""

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.params().items())
        fitted = "" if not self.requires_fit else "[fitted]" if self.is_fitted else "[unfitted]"
        return f"{type(self).__name__}{fitted}({shown})"

    def state(self) -> dict[str, Any]:
        """What `fit` has learnt: arrays, dictionaries of arrays, and values that JSON can hold."""
        return {name: value for name, value in sorted(vars(self).items()) if _is_learnt(name)}

    def save(self, path: str | Path) -> None:
        """Write parameters and learnt state to one `.safetensors` file, atomically."""
        write(
            path,
            self.noun,
            self._registered_as(),
            self.params(),
            self.state(),
            writable=self._writable(),
            refuse=self._refusal,
        )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` has written; called on an abstract class, the one meant is found by its registered name."""
        saved = read(path, cls.noun)
        kind = cls._kind_of(saved.name, path) if inspect.isabstract(cls) else cls
        if saved.name != kind.name:
            raise UserError(f"{path} holds the {cls.noun} {saved.name!r}, not {kind.name!r}.")
        try:
            made = kind(**saved.params(kind._writable()))
            state = saved.state(kind._writable())
        except DAMAGE as error:
            raise UserError(
                f"{path} is damaged, or was saved by another version of {kind._maker()}: {error}."
            ) from error
        try:
            made._restore({name: value for name, value in state.items() if _is_learnt(name)})
        except DAMAGE as error:
            raise UserError(f"{path} is damaged: {error}.") from error
        return made

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Take over a learnt state."""
        for name, value in state.items():
            setattr(self, name, value)

    def _forget(self) -> None:
        """Drop everything that was learnt."""
        for name in self.state():
            delattr(self, name)

    @classmethod
    def _kind_of(cls, name: str, path: str | Path) -> type[Self]:
        try:
            return cast("type[Self]", cls._registered(name))
        except UserError as error:
            raise UserError(
                f"{path} holds the {cls.noun} {name!r}, which nobody has registered here; import the module that does, "
                f"or install its package. ({error})"
            ) from error

    def _registered_as(self) -> str:
        """The name under which the class is found again."""
        return type(self).name

    @classmethod
    @abstractmethod
    def _registered(cls, name: str) -> type[Learner]:
        """The class that is registered under a name."""

    @classmethod
    def _refusal(cls, value: Any) -> str:
        """The sentence for a value that a file cannot hold."""
        return (
            f"A value of type {type(value).__name__} cannot be saved; parameters are numbers, texts and lists, and "
            "what is learnt may be arrays and dictionaries of arrays too."
        )

    @classmethod
    def _writable(cls) -> Mapping[str, Writable]:
        """The classes whose objects a file can hold, by the key under which they are written."""
        return {}

    @classmethod
    def _maker(cls) -> str:
        """The package named in the error for a file that another version may have saved."""
        return "secondguess"


def _is_learnt(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_")
