"""Write docs/supervisors.md: which supervisor to take, and what each of them is, in its own words."""

from __future__ import annotations

import inspect
import sys
from itertools import groupby
from pathlib import Path

from secondguess.supervisors import get, names
from secondguess.supervisors.registry import family

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "supervisors.md"
HEADINGS = {
    "softmax": "The softmax vector",
    "dropout": "Dropout at run time",
    "ensemble": "Deep ensembles",
    "dissector": "Dissector",
    "surprise": "Surprise adequacy",
    "autoencoder": "Autoencoder",
    "baseline": "Baselines from out-of-distribution detection",
}


def page() -> str:
    """The whole page: the guide with its table, then every supervisor in its own words."""
    text = PAGE.with_suffix(".intro.txt").read_text(encoding="utf-8")
    return text.replace("<!-- all -->\n", "".join(overview())) + "".join(descriptions())


def overview() -> list[str]:
    """One line for each: what it needs, whether it learns, what it finds suspicious."""
    lines = ["| name | needs | fit | suspicious = |\n", "|---|---|---|---|\n"]
    for name in names():
        kind, needs = get(name), get(name)().needs
        wanted = ", ".join(sorted((needs.abilities | ({"images"} if needs.images else set())) - {"probabilities"}))
        summary = (inspect.getdoc(kind) or "").partition("\n")[0].removeprefix("Suspicious = ").replace("|", "\\|")
        learns = "yes" if kind.requires_fit else "no"
        lines.append(f"| [`{name}`](#{name}) | {wanted or '-'} | {learns} | {summary} |\n")
    return [*lines, "\n"]


def descriptions() -> list[str]:
    """A section for each family, with what every class says of itself."""
    lines = []
    for heading, members in groupby(names(), key=lambda name: family(get(name))):
        known = list(members)
        lines.append(f"\n## {HEADINGS.get(heading, heading)}\n")
        seen = set()
        for name in known:
            module = inspect.getmodule(get(name))
            if module and module.__name__ not in seen:
                seen.add(module.__name__)
                lines.append(f"\n{_plain(inspect.getdoc(module) or '')}\n")
            lines.append(f"\n### `{name}`\n\n{_without_arguments(inspect.getdoc(get(name)) or '')}\n")
    return lines


def _plain(text: str) -> str:
    """A module's description; indented formulas are Markdown already."""
    return text.strip()


def _without_arguments(text: str) -> str:
    """A class's description up to its parameters, and these as a list."""
    description, _, rest = text.partition("\nArgs:\n")
    arguments = rest.partition("\nAttributes:\n")[0].rstrip()
    if not arguments:
        return description.strip()
    parameters = []
    for line in arguments.splitlines():
        if line.startswith("    ") and not line.startswith("     "):
            parameter, _, meaning = line.strip().partition(": ")
            parameters.append(f"* `{parameter}`: {meaning}")
        elif line.strip():
            parameters.append(f"  {line.strip()}")
    return description.strip() + "\n\nParameters:\n\n" + "\n".join(parameters)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.relative_to(ROOT)} written\n")
