"""Options that several commands share, so that they mean the same everywhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from secondguess._progress import Progress, for_terminal

__all__ = ["Debug", "Device", "Json", "Out", "Quiet", "Seed", "print_json", "progress_for", "say"]

Json = Annotated[
    bool, typer.Option("--json", help="Print exactly one JSON object on standard output and nothing else there.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, results only.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Same seed, same result.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:N or mps.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for the results; nothing is written anywhere else.")]


def print_json(value: Any) -> None:
    """The one object of `--json`."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def say(text: str = "") -> None:
    """A line of the result."""
    sys.stdout.write(text + "\n")


def progress_for(*, quiet: bool) -> Progress:
    """Progress on standard error, unless the user wants quiet."""
    return for_terminal(quiet=quiet)
