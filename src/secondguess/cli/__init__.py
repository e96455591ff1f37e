"""The command `secondguess`: parse, call, print. One module per command; errors become one sentence and exit code 2."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["main"]

# Processes that share cores and spin for each other are much slower; must be set before torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit code: 0 fine, 1 a gate failed, 2 something given cannot be used, 130 interrupted.
    """
    import typer

    from secondguess.cli.app import app
    from secondguess.errors import UserError

    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(args=words, prog_name="secondguess", standalone_mode=False)
    except UserError as error:
        if "--debug" in words:
            raise
        return _refuse(str(error), words)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except _usage_error() as error:
        if "--json" not in words:
            error.show()
            return 2
        return _refuse(error.format_message(), words)
    if code == INTERRUPTED:
        command = shlex.join(["secondguess", *words])
        sys.stderr.write(f"Interrupted; what is finished is kept. To go on, run it again: {command}\n")
    return code if isinstance(code, int) else 0


def _usage_error() -> type[Any]:
    """What a mistyped option raises: a class of click, which typer brings along under varying names."""
    import typer

    return typer.BadParameter.__base__ or typer.BadParameter


def _refuse(message: str, words: Sequence[str]) -> int:
    """One sentence on standard error and, where JSON was asked for, one object on standard output."""
    sys.stderr.write(f"Error: {message}\n")
    if "--json" in words:
        sys.stdout.write(json.dumps({"error": message}) + "\n")
    return 2
