"""What everything that is made by name has: parameters of `__init__`, stored untouched under their own names."""

from __future__ import annotations

import copy
import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self, TypeVar

__all__ = ["Parametrised", "signature_of", "with_own_names"]

T = TypeVar("T")


class Parametrised:
    """Something whose parameters are those of its `__init__`, and of its base where that passes `**settings` on.

    Attributes:
        dial: the parameter to turn down when there is little time, such as `"epochs"`; "" where there is none.
        least: the smallest value of that parameter that is still useful.
    """

    dial: ClassVar[str] = ""
    least: ClassVar[int] = 1

    def params(self) -> dict[str, Any]:
        """The parameters of `__init__` with their values."""
        return {name: getattr(self, name) for name in signature_of(type(self)).parameters}

    def clone(self, **changes: Any) -> Self:
        """An unfitted copy, with some parameters changed; a name that was given with `named` stays."""
        made = type(self)(**(self.params() | changes))
        given = vars(self).get("_given_name")
        return made if given is None else made.named(given)

    def named(self, name: str) -> Self:
        """A copy that goes by another name, in reports and tables; it is still saved under its registered one."""
        made = copy.copy(self)
        vars(made).update(name=name, _given_name=name)
        return made

    def full_name(self) -> str:
        """The name, followed by the parameters that are not at their defaults: `dsa:subsampling=0.3`."""
        known = signature_of(type(self)).parameters
        chosen = {name: value for name, value in self.params().items() if _differs(value, known[name].default)}
        return "".join([str(getattr(self, "name", "")), *(self._written(key, value) for key, value in chosen.items())])

    def _written(self, parameter: str, value: Any) -> str:
        """A parameter as it follows the name."""
        return f":{parameter}={_text(value)}"

    def turned(self, size: int | None) -> Self:
        """A copy whose dial is at this size; itself where that changes nothing."""
        if not self.dial or size is None or getattr(self, self.dial) == size:
            return self
        return self.clone(**{self.dial: size})

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.params().items())
        return f"{type(self).__name__}({shown})"


def with_own_names(things: Iterable[T]) -> list[T]:
    """The same things; where several share a name, it tells the variants apart: `dsa`, `dsa:subsampling=0.3`."""
    things = list(things)
    shared = {name for name, count in Counter(getattr(one, "name", None) for one in things).items() if count > 1}
    return [
        one.named(one.full_name()) if isinstance(one, Parametrised) and getattr(one, "name", None) in shared else one
        for one in things
    ]


def _differs(value: Any, default: Any) -> bool:
    same = value is default or value == default
    return not (isinstance(same, bool) and same)  # arrays do not compare to a truth value


def _text(value: Any) -> str:
    """A value as it may follow a name: JSON, texts without quotes; what JSON cannot hold as it prints itself."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, separators=(",", ":"))
    except TypeError:
        return str(value)


def signature_of(make: Callable[..., Any]) -> inspect.Signature:
    """The parameters of a callable; `**settings` of a class stand for those of the next `__init__` among its bases."""
    signature = inspect.signature(make)
    if not isinstance(make, type) or not _passes_on(signature):
        return signature
    found: dict[str, inspect.Parameter] = {}
    for kind in make.__mro__:
        if "__init__" in vars(kind) and kind is not object:
            _, *own = inspect.signature(vars(kind)["__init__"]).parameters.values()
            named = [one for one in own if one.kind is not inspect.Parameter.VAR_KEYWORD]
            found |= {one.name: one for one in named if one.name not in found}
            if len(named) == len(own):
                break
    return signature.replace(parameters=sorted(found.values(), key=lambda one: one.kind))


def _passes_on(signature: inspect.Signature) -> bool:
    return any(one.kind is inspect.Parameter.VAR_KEYWORD for one in signature.parameters.values())
