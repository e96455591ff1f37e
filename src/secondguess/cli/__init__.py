"""The command `secondguess`: parse, call, print. One module per command; errors become one sentence and exit code 2."""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from secondguess._text import visible

__all__ = ["main"]

# Processes that share cores and spin for each other are much slower; must be set before torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

INTERRUPTED = 130
COMPLETING = "_SECONDGUESS_COMPLETE"  # set by the shell that asks what could follow


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit code: 0 fine, 1 a gate failed, 2 something given cannot be used, 130 interrupted.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # letters that a terminal lacks are written as escapes, as in errors
        sys.stdout.reconfigure(errors="backslashreplace")
    if not words and COMPLETING not in os.environ:
        return _greet()
    import typer

    from secondguess.cli.app import app
    from secondguess.cli.wording import in_options
    from secondguess.errors import UserError

    try:
        with _plain_warnings(words):
            code = app(args=words, prog_name="secondguess", standalone_mode=False)
    except UserError as error:
        if "--debug" in words:
            raise
        return _refuse(in_options(str(error)), words)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except _usage_error() as error:
        if "--json" not in words:
            error.show()
            return 2
        return _refuse(error.format_message(), words)
    if code == INTERRUPTED:
        command = shlex.join(["secondguess", *words])
        sys.stderr.write(f"Interrupted. To go on with what has been written until now, run it again: {command}\n")
    return code if isinstance(code, int) else 0


def _greet() -> int:
    """Before anything is imported that takes time."""
    from secondguess.welcome.greeting import greeting

    sys.stdout.write(greeting() + "\n")
    return 0


@contextmanager
def _plain_warnings(words: Sequence[str]) -> Iterator[None]:
    """Print a warning as one sentence on standard error, each once; none with --quiet, as Python does with --debug."""
    said: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        quiet = "--quiet" in words or "-q" in words
        if str(message) not in said and not quiet and issubclass(category, UserWarning):
            said.add(str(message))
            sys.stderr.write(visible(f"Warning: {message}\n"))

    with warnings.catch_warnings():
        if "--debug" not in words:
            warnings.showwarning = show
        yield


def _usage_error() -> type[Any]:
    """What a mistyped option raises: a class of click, which typer brings along under varying names."""
    import typer

    return typer.BadParameter.__base__ or typer.BadParameter


def _refuse(message: str, words: Sequence[str]) -> int:
    """One sentence on standard error and, where JSON was asked for, one object on standard output."""
    sys.stderr.write(visible(f"Error: {message}\n"))
    if "--json" in words:
        sys.stdout.write(json.dumps({"error": message}) + "\n")
    return 2
