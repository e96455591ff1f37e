"""`secondguess demo` and `secondguess doctor`: the first minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secondguess.cli.groups import grouped
from secondguess.cli.options import Common, print_json, say

__all__ = ["demo", "doctor"]


@grouped
def demo(
    *,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the page. [default: a temporary folder]")
    ] = None,
    common: Common,
) -> None:
    """Open the report of a finished audit, which comes with the package.

    **Examples**

    `secondguess demo`

    `secondguess demo --no-browser --out out/demo`
    """
    from secondguess.welcome.demo import open_demo

    common.show(open_demo(out, browser=browser and not common.json))


@grouped
def doctor(*, common: Common) -> int:
    """Check this machine: Python, torch, GPU, extras, browser, folder; and say what to do about what is missing.

    Exit code 0: everything that is needed is here, 1: something is missing that nothing works without.

    **Examples**

    `secondguess doctor`

    `secondguess doctor --json`
    """
    from secondguess.welcome.doctor import diagnose

    found = diagnose()
    print_json(found.to_dict()) if common.json else say(found.details())
    return 0 if found.ready else 1
