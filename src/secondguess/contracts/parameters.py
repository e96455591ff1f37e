"""What everything that is made by name has: parameters of `__init__`, stored untouched under their own names."""

from __future__ import annotations

import inspect
from typing import Any, Self

__all__ = ["Parametrised"]


class Parametrised:
    """Something whose parameters are those of its `__init__`."""

    def params(self) -> dict[str, Any]:
        """The parameters of `__init__` with their values."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def clone(self, **changes: Any) -> Self:
        """A copy that has learnt nothing, with some parameters changed."""
        return type(self)(**(self.params() | changes))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.params().items())
        return f"{type(self).__name__}({shown})"
