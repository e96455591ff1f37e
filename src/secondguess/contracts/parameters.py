"""What everything that is made by name has: parameters of `__init__`, stored untouched under their own names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Self

__all__ = ["Parametrised", "signature_of"]


class Parametrised:
    """Something whose parameters are those of its `__init__`, and of its base where that passes `**settings` on."""

    def params(self) -> dict[str, Any]:
        """The parameters of `__init__` with their values."""
        return {name: getattr(self, name) for name in signature_of(type(self)).parameters}

    def clone(self, **changes: Any) -> Self:
        """An unfitted copy, with some parameters changed."""
        return type(self)(**(self.params() | changes))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.params().items())
        return f"{type(self).__name__}({shown})"


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
