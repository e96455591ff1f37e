"""`secondguess supervisors`: the supervisors, and what each of them needs."""

from __future__ import annotations

import inspect
from itertools import groupby
from typing import Annotated, Any

import typer

from secondguess.cli.groups import grouped
from secondguess.cli.options import Common, plain, print_json, say

__all__ = ["supervisors"]


@grouped
def supervisors(
    *, name: Annotated[str | None, typer.Argument(help="Describe this one.")] = None, common: Common
) -> None:
    """List the built-in supervisors and those of installed packages, or describe one.

    **Examples**

    `secondguess supervisors`

    `secondguess supervisors entropy`
    """
    from secondguess.supervisors import get, names

    name = name and plain(name)
    cards = [_card(get(one)) for one in ([name] if name else names())]
    if common.json:
        print_json(cards[0] if name else {"supervisors": cards})
    elif name:
        _describe(cards[0], inspect.getdoc(get(name)) or "")
    else:
        _list(cards)


def _describe(card: dict[str, Any], description: str) -> None:
    for key, value in card.items():
        shown = ", ".join(value) if isinstance(value, list) else value
        if isinstance(value, dict):
            shown = ", ".join(f"{param}={default}" for param, default in value.items()) or "none"
        say(f"{key:<13} {shown}")
    say()
    say(description)


def _list(cards: list[dict[str, Any]]) -> None:
    """A table, family by family in the order in which they first appear."""
    needs = {card["name"]: ", ".join(sorted({*card["needs"]} - {"probabilities"})) or "-" for card in cards}
    wide, wider = (max(map(len, texts)) for texts in (needs, needs.values()))
    order = {card["family"]: index for index, card in reversed(list(enumerate(cards)))}
    say(f"{'':<{wide + 2}}  {'needs':<{max(wider, 5)}}  fit  suspicious is")
    for family, members in groupby(sorted(cards, key=lambda card: order[card["family"]]), lambda card: card["family"]):
        say(family)
        for card in members:
            marked = card["name"] + ("*" if card["expensive"] else "")
            learns, summary = "yes" if card["requires_fit"] else "no", card["summary"].removeprefix("Suspicious = ")
            say(f"  {marked:<{wide + 1}} {needs[card['name']]:<{max(wider, 5)}}  {learns:<3}  {summary}")
    if any(card["expensive"] for card in cards):
        say("* expensive: not in an audit unless named, or asked for with --supervisors all")


def _card(kind: Any) -> dict[str, Any]:
    from secondguess.supervisors.registry import family

    made = kind()
    return {
        "name": kind.name,
        "summary": (inspect.getdoc(kind) or "").partition("\n")[0],
        "family": family(kind),
        "needs": sorted(made.needs.abilities | ({"images"} if made.needs.images else set())),
        "requires_fit": kind.requires_fit,
        "expensive": kind.expensive,
        "parameters": {key: repr(value) for key, value in made.params().items()},
        "class": f"{kind.__module__}.{kind.__qualname__}",
    }
