"""A comparison as Markdown that GitHub and GitLab show as a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from secondguess._text import visible
from secondguess.comparison.measures import Measure
from secondguess.comparison.verdict import small

if TYPE_CHECKING:
    from secondguess.comparison.flips import Flip
    from secondguess.comparison.result import Comparison

__all__ = ["MARK", "markdown"]

MARK = "<!-- secondguess compare -->"  # by which a later run finds its comment again
SIGNS = {True: "✅", False: "❌", None: "⚠️"}
FLIPS, CHANGES = 10, 20
UNSAFE = str.maketrans({one: f"\\{one}" for one in "\\`*_[]|#~"} | {"@": "@\u200b", "\n": " ", "\t": " "})


def markdown(found: Comparison) -> str:
    """The verdict, the numbers, what has changed, and the images that were lost."""
    verdict = found.verdict
    lines = [MARK, f"### {SIGNS[verdict.ready]} Has {_plain(found.after.name)} become worse?", ""]
    lines += [f"**{_plain(verdict.headline)}**", ""]
    lines += [f"* **{_plain(one.title)}**: {_plain(one.text)}" for one in verdict.reasons]
    overall = [one for one in found.measures if one.family == "overall"]
    changed = [one for one in found.measures if one.family != "overall" and one.outcome != "same"]
    lines += ["", *_table(overall + changed[:CHANGES])]
    if len(changed) > CHANGES:
        lines += ["", f"{len(changed) - CHANGES} more changes are in `compare.html`."]
    if found.gates:
        lines += ["", "| gate | measured | outcome |", "|---|---:|---|"]
        for gate in found.gates:
            measured = "–" if gate.value is None else f"{gate.value:.4g}"
            lines.append(f"| {_plain(str(gate.gate))} | {measured} | {gate.outcome} |")
    if found.negative:
        lines += ["", *_flips(found.negative)]
    lines += ["", *(f"*{_plain(note)}*" for note in found.notes)]
    version = found.about["versions"].get("secondguess", "")
    lines.append(
        f"<sub>{_plain(found.before.name)} before, {_plain(found.after.name)} now. Intervals are 95%; all p-values "
        f"but that of the accuracy are corrected for many tests. secondguess {version}</sub>"
    )
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[Measure]) -> Iterator[str]:
    yield "| | before | now | change (95%) | |"
    yield "|---|---:|---:|---:|---|"
    for one in rows:
        before, after = one.spelt(one.change.before), one.spelt(one.change.after)
        outcome = "" if one.outcome == "same" else f"**{one.outcome}**, {small(one.p_value)}"
        yield f"| {_plain(one.title)} | {before} | {after} | {one.moved[0]} ({one.moved[1]}) | {outcome} |"


def _flips(flips: Sequence[Flip]) -> Iterator[str]:
    yield f"<details><summary>{len(flips)} right before, wrong now</summary>"
    yield ""
    yield "| image | is | before | now |"
    yield "|---|---|---|---|"
    for one in flips[:FLIPS]:
        sides = (f"{_plain(answer)} {sure:.0%}" for answer, sure in (one.before, one.after))
        yield f"| {_plain(one.image)} | {_plain(one.label)} | {' | '.join(sides)} |"
    yield ""
    yield "</details>"


def _plain(text: str) -> str:
    """Text from outside, which can neither format the comment nor address anybody."""
    return escape(visible(text), quote=False).translate(UNSAFE)
