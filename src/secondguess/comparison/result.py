"""A comparison and its files: `compare.html`, `compare.json`, `compare.md` for a pull request, `junit.xml`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondguess.audits.findings import Number, of_numbers
from secondguess.audits.gates import GateOutcome
from secondguess.audits.predictions import NOMINAL
from secondguess.audits.verdict import Verdict
from secondguess.comparison.flips import Flip
from secondguess.comparison.markdown import markdown
from secondguess.comparison.measures import FAMILIES, Family, Measure
from secondguess.comparison.pairing import Pair, names_of
from secondguess.comparison.sides import Side
from secondguess.comparison.verdict import decide, small
from secondguess.errors import UserError
from secondguess.files import make_folder, write_json, write_text
from secondguess.report import Case, figures, junit_xml, plots, render
from secondguess.results import Result, aligned, flat, html_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Comparison"]

SCHEMA = 1
PAGE, DATA, MARKDOWN, JUNIT = "compare.html", "compare.json", "compare.md", "junit.xml"
DRAWN = 30  # changes in a chart
OPEN = 12  # changed measures of a family that are not folded


@dataclass(repr=False)
class Comparison(Result):
    """What has changed from one model to another.

    Attributes:
        about: when, how, seed, versions.
        before: the one model.
        after: the other.
        pairs: the sets of images, by name, with the answers of both.
        measures: every number before and after.
        negative: images that were right and are wrong now, the surest first; empty where images are not paired.
        positive: images that were wrong and are right now.
        gates: whether each gate holds.
        folder: where the files are; None until the result is saved.
    """

    about: dict[str, Any]
    before: Side
    after: Side
    pairs: dict[str, Pair]
    measures: list[Measure]
    negative: list[Flip] = field(default_factory=list)
    positive: list[Flip] = field(default_factory=list)
    gates: list[GateOutcome] = field(default_factory=list)
    folder: Path | None = None

    def __repr__(self) -> str:
        return f"Comparison({self.before.name} -> {self.after.name}: {self.verdict.headline})"

    @property
    def nominal(self) -> Pair:
        """The test images."""
        return self.pairs[NOMINAL]

    @property
    def page(self) -> Path:
        """The page for people."""
        if self.folder is None:
            raise UserError("The comparison has not been saved yet, so there is no page; call save(folder) first.")
        return self.folder / PAGE

    @property
    def passed(self) -> bool:
        """Whether every gate holds."""
        return all(gate.outcome == "passed" for gate in self.gates)

    @property
    def fitted_alike(self) -> bool:
        """Whether the supervisors of both were fitted on as many training images, as far as that is known."""
        sizes = {side.fitted_on for side in (self.before, self.after)} - {None}
        return len(sizes) < 2

    @property
    def verdict(self) -> Verdict:
        """Whether it has become worse, in plain words, with the reasons."""
        return decide(self)

    def measure(self, name: str) -> Measure | None:
        """A measure by name; None where it could not be measured."""
        return next((one for one in self.measures if one.name == name), None)

    @property
    def numbers(self) -> dict[str, Number]:
        """What gates can be about: `change.NAME` of every measure, flips, and how many measures are worse or better."""
        data, seed = self.after.about["data"]["test"]["fingerprint"], int(self.about["seed"])
        found = {f"change.{one.name}": Number.of(one.change.interval, data, seed) for one in self.measures}
        if self.nominal.paired:
            for name, flips in (("negative", self.negative), ("positive", self.positive)):
                found[f"flips.{name}"] = Number(float(len(flips)), data, seed)
        for side in ("worse", "better"):
            rows = [one.family for one in self.measures if one.outcome == side]
            found[side] = Number(float(len(rows)), data, seed)
            found |= {f"{side}.{family}": Number(float(rows.count(family)), data, seed) for family in FAMILIES}
        return found

    @property
    def notes(self) -> list[str]:
        """What a reader must know about how the two were compared."""
        return [*_of_images(self), *_of_audits(self)]

    def summary(self) -> str:
        """At most ten lines for a person: the verdict, its reasons, and what was compared."""
        verdict, pair = self.verdict, self.nominal
        how = f"the same {len(pair.after):,} images" if pair.paired else "different images, unpaired"
        lines = [("Worse?", verdict.headline), *((one.title, one.text) for one in verdict.reasons)]
        lines.append(("Compared", f"{self.before.name} (before) with {self.after.name} (after) on {how}"))
        return aligned(lines)

    def to_dict(self) -> dict[str, Any]:
        """What `compare.json` holds."""
        return {
            "schema": SCHEMA,
            **self.about,
            "before": self.before.describe(),
            "after": self.after.describe(),
            "verdict": self.verdict.to_dict(),
            "notes": self.notes,
            "sets": {
                name: {"paired": one.paired, "before": len(one.before), "after": len(one.after)}
                for name, one in self.pairs.items()
            },
            "measures": {one.name: one.to_dict() for one in self.measures},
            "flips": {
                "negative": [one.to_dict() for one in self.negative],
                "positive": [one.to_dict() for one in self.positive],
            },
            "gates": [gate.to_dict() for gate in self.gates],
            "numbers": {name: number.to_dict() for name, number in self.numbers.items()},
        }

    def rows(self) -> list[dict[str, Any]]:
        """Every measure before and after, with its change."""
        return [{"measure": one.name, **flat(one.to_dict())} for one in self.measures]

    def metrics(self) -> dict[str, float]:
        """Every number that a gate can be about, and the ends of its interval."""
        return of_numbers(self.numbers)

    def plot(self, family: Family = "class", ax: Axes | None = None) -> Axes:
        """Draw the change of every measure of a family with its interval; worse ones in red, better ones in blue.

        Args:
            family: `"class"`, `"kind"`, `"detection"` or `"overall"`; of the last, measures that are shares.
            ax: where to draw; a new figure if left out.
        """
        chosen = [one for one in self.measures if one.family == family and (one.is_share or family != "overall")]
        if not chosen:
            known = ", ".join(dict.fromkeys(one.family for one in self.measures))
            raise UserError(f"No measure of the family {family!r} was compared; there are: {known}.")
        axis = f"change, {'points' if chosen[0].is_share else 'AUROC'}"
        where = plots.new_axes(ax, 4.6, 0.75 + 0.21 * len(chosen))
        return plots.intervals([_drawn(one) for one in chosen], axis, where, reference=0)

    def save(self, folder: str | Path) -> Path:
        """Write `compare.html`, `compare.json`, `compare.md` and `junit.xml` into a folder, each atomically."""
        self.folder = make_folder(folder)
        write_json(self.folder / DATA, self.to_dict())
        write_text(self.folder / MARKDOWN, self.markdown())
        write_text(self.folder / JUNIT, junit_xml("secondguess compare", self._cases()))
        values = {"found": self, "sections": list(self._sections()), "small": small}
        write_text(self.folder / PAGE, render("compare.html", [Path(__file__).parent], **values))
        return self.folder

    def markdown(self) -> str:
        """The comparison as a comment on a pull request."""
        return markdown(self)

    def _repr_html_(self) -> str:
        """The verdict, and what has changed."""
        verdict = self.verdict
        head = html_table([("Worse?", verdict.headline), *((one.title, one.text) for one in verdict.reasons)])
        shown = [one for one in self.measures if one.family == "overall" or one.outcome != "same"]
        rows = [
            (one.title, one.spelt(one.change.before), one.spelt(one.change.after), *one.moved, one.outcome)
            for one in shown
        ]
        return head + html_table(rows, ("measure", "before", "after", "change", "interval", "outcome"))

    def _cases(self) -> list[Case]:
        measured = {one.family for one in self.measures}
        families = [Case("compare.measures", family) for family in FAMILIES if family in measured]
        return families + [Case("compare.gate", str(one.gate), one.outcome, one.reason) for one in self.gates]

    def _sections(self) -> Iterator[dict[str, Any]]:
        """What the page shows of each family: a chart, the rows that have changed, and all rows."""
        for family, title in FAMILIES.items():
            rows = [one for one in self.measures if one.family == family]
            if not rows:
                continue
            changed = [one for one in rows if one.outcome != "same"]
            drawn = [_drawn(one) for one in rows] if family != "overall" and len(rows) <= DRAWN else []
            unit = "points" if rows[0].is_share else "AUROC"
            yield {
                "name": family,
                "title": title,
                "rows": rows if family == "overall" else changed[:OPEN],
                "all": [] if family == "overall" else rows,
                "chart": figures.changes(drawn, f"change, {unit}", f"{title}: change") if drawn else "",
            }


def _drawn(one: Measure) -> tuple[str, tuple[float, float, float], str]:
    """Name, (value, low, high) and outcome, as the chart takes them."""
    scale, interval = 100 if one.is_share else 1, one.change.interval
    return one.title, (scale * interval.value, scale * interval.low, scale * interval.high), one.outcome


def _of_images(found: Comparison) -> Iterator[str]:
    pair, sizes = found.nominal, found.nominal.sizes
    if not pair.paired:
        yield (
            f"The test images are not the same ({sizes[0]:,} before, {sizes[1]:,} now), so the two are compared "
            "unpaired, which shows only large differences."
        )
    else:
        alone = sum(sizes) - 2 * (len(pair.after) + pair.relabelled)
        if alone:
            yield f"{alone:,} test images that only one of the two has seen are left out."
        if pair.relabelled:
            yield f"{pair.relabelled:,} test images that have another label now are left out."
    for name, one in found.pairs.items():
        if name != NOMINAL and pair.paired and not one.paired:
            yield f"The {name} images are not the same before and now, so what is said of them is unpaired."


def _of_audits(found: Comparison) -> Iterator[str]:
    first, second = found.before.predictions, found.after.predictions
    ours, theirs = names_of(first, second)
    for when, other, given, taken in (("before", "now", first, ours), ("now", "before", second, theirs)):
        if given.class_names != taken:
            yield f"The classes {when} have no names but numbers, so they are taken for those {other}, in their order."
    for kind, before, after in (
        ("class", set(ours), set(theirs)),
        ("set of stress images", set(first.sets), set(second.sets)),
        ("supervisor", set(first.sets[NOMINAL].scores), set(second.sets[NOMINAL].scores)),
    ):
        if before != after:
            names = ", ".join(sorted(before ^ after))
            yield f"Only one of the two has the {kind} {names}."
    if not found.fitted_alike:
        yield (
            f"Supervisors were fitted on {found.before.fitted_on:,} training images before and on "
            f"{found.after.fitted_on:,} now, so that a change in what they notice says little about the model; audit "
            "the second with the sizes of the first: --plan and its audit.json."
        )
    if any(side.about.get("status") == "interrupted" for side in (found.before, found.after)):
        yield "One of the two audits was interrupted; what it had measured until then is compared."
