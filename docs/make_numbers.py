"""Write the records' numbers into the text of the pages, or say where the two differ.

    python docs/make_numbers.py            # write
    python docs/make_numbers.py --check    # write nothing; exit with 1 where a page and its records differ
    python docs/make_numbers.py --rest     # the numbers with a point that no claim covers

What pages say of which records is in docs/claims/, a module for each page. Pages that a script makes of a text are
written here into that text: run the script afterwards, or `make docs`, which runs all.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from claims import ROOT, Claim  # noqa: E402


def modules() -> Iterator[ModuleType]:
    """The modules of docs/claims, each about one page."""
    for path in sorted((HERE / "claims").glob("[!_]*.py")):
        yield import_module(f"claims.{path.stem}")


def differences(text: str, claims: Iterable[Claim]) -> tuple[str, list[str]]:
    """The text with the numbers of the claims in it, and what had to be changed or cannot be."""
    found = []
    for claim in claims:
        places, start = list(claim.pattern().finditer(text)), " ".join(claim.text.split())[:70]
        if len(places) != 1:
            found.append(f"stands there {len(places)} times instead of once: {start}")
            continue
        if not claim.provided:
            found.append(f"is not so: {start}")
        wanted, place = claim.numbers(), places[0]
        for group in range(len(wanted), 0, -1):
            if place[group] != wanted[group - 1]:
                found.append(f"{place[group]} should be {wanted[group - 1]}: {start}")
                text = text[: place.start(group)] + wanted[group - 1] + text[place.end(group) :]
    return text, found


def uncovered(text: str, claims: Iterable[Claim]) -> list[str]:
    """Lines with a number that has a point and belongs to no claim; code, and what scripts write, are left out."""
    for claim in claims:
        text = claim.pattern().sub(_computed_hidden, text)
    left_out = r"```.*?```|`[^`\n]*`|<!-- (\S+) -->.*?<!-- /\1 -->"
    text = re.sub(left_out, lambda place: re.sub(r"\d", "#", place[0]), text, flags=re.DOTALL)
    lines = enumerate(text.splitlines(), 1)
    return [f"{number}: {line}" for number, line in lines if re.search(r"(?<![\w.])\d*\.\d", line)]


def _computed_hidden(place: re.Match[str]) -> str:
    """What a claim matches, without the numbers that it computes: one that it only repeats is nobody's."""
    start, found = place.start(), place[0]
    for group in range(1, (place.re.groups or 0) + 1):
        low, high = (edge - start for edge in place.span(group))
        found = found[:low] + "#" * (high - low) + found[high:]
    return found


def main(words: list[str]) -> int:
    """Write or check all pages."""
    wrong = 0
    for module in modules():
        path, claims = ROOT / module.PAGE, list(module.claims())
        text = path.read_text(encoding="utf-8")
        if "--rest" in words:
            sys.stdout.writelines(f"{module.PAGE}:{line}\n" for line in uncovered(text, claims))
            continue
        mended, found = differences(text, claims)
        sys.stdout.writelines(f"{module.PAGE}: {line}\n" for line in found)
        if "--check" in words:
            wrong += len(found)
        else:
            if mended != text:
                path.write_text(mended, encoding="utf-8")
            wrong += len(differences(mended, claims)[1])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
