"""Groups of options: a dataclass stands for the options that several commands share.

    @app.command("fit")
    @grouped
    def fit(model: ModelOptions, out: Out, common: Common) -> None: ...

`grouped` gives the function the signature that typer reads: each parameter whose annotation is a dataclass is replaced
by the fields of that dataclass, and what was typed comes back as one object.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, get_type_hints

__all__ = ["grouped"]

Outcome = TypeVar("Outcome")


def grouped(function: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Let a command take dataclasses of options.

    Args:
        function: whose parameters are options or groups of them; the annotation of a group is a dataclass with
            `Annotated` fields.

    Returns:
        A function of the single options, which calls the original one.
    """
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {}
    options: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints[name]
        if isinstance(kind, type) and is_dataclass(kind):
            groups[name] = kind
            options += _options(kind)
        else:
            options.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=parameter.default))
            options[-1] = options[-1].replace(annotation=kind)
    names = [option.name for option in options]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise TypeError(f"{function.__name__} has the option {', '.join(twice)} twice, in a group and beside it")

    @functools.wraps(function)
    def expanded(**given: Any) -> Outcome:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)}) for name, kind in groups.items()
        }
        return function(**given, **made)

    expanded.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    expanded.__annotations__ = {option.name: option.annotation for option in options} | {"return": hints.get("return")}
    return expanded


def _options(kind: Any) -> list[inspect.Parameter]:
    """The fields of a group: its own first, then those of the group that it extends, as `--help` lists them."""
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in sorted(fields(kind), key=lambda one: one.name not in kind.__annotations__)
    ]
