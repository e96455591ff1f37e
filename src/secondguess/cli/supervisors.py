"""`secondguess supervisors`: which there are, and what each of them needs."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from secondguess.cli.options import Debug, Json, print_json, say

__all__ = ["supervisors"]


def supervisors(
    name: Annotated[str | None, typer.Argument(help="Describe this one.")] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List the supervisors, ours and those of installed packages, or describe one.

    **Examples**

    `secondguess supervisors`

    `secondguess supervisors entropy`
    """
    from secondguess.supervisors import get, names

    cards = [_card(get(one)) for one in ([name] if name else names())]
    if json:
        print_json(cards[0] if name else {"supervisors": cards})
    elif name:
        for key, value in cards[0].items():
            say(f"{key:<13} {', '.join(value) if isinstance(value, list) else value}")
    else:
        for card in cards:
            say(f"{card['name']:<14} {card['summary']}")


def _card(kind: Any) -> dict[str, Any]:
    made = kind()
    return {
        "name": kind.name,
        "summary": (inspect.getdoc(kind) or "").partition("\n")[0],
        "needs": sorted(made.needs.abilities | ({"images"} if made.needs.images else set())),
        "requires_fit": kind.requires_fit,
        "parameters": {key: repr(value) for key, value in made.params().items()},
        "class": f"{kind.__module__}.{kind.__qualname__}",
    }
