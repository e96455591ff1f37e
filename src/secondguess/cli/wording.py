"""Messages of the package as the command line says them.

The package names its arguments in backticks, `max_train`; a person at a terminal knows them as options, --max-train.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

__all__ = ["in_options"]

ARGUMENT = re.compile(r"`([a-z][a-z_]*)`")


def in_options(text: str) -> str:
    """The text with arguments in backticks spelt as the options that they are."""

    def option(found: re.Match[str]) -> str:
        spelt = f"--{found[1].replace('_', '-')}"
        return spelt if spelt in _known() else found[0]

    return ARGUMENT.sub(option, text) if "`" in text else text


@cache
def _known() -> frozenset[str]:
    """The options of all commands."""
    import typer

    from secondguess.cli.app import app

    return frozenset(_options(typer.main.get_command(app)))


def _options(command: Any) -> list[str]:
    inner = [name for one in getattr(command, "commands", {}).values() for name in _options(one)]
    return [*inner, *(name for parameter in command.params for name in parameter.opts)]
