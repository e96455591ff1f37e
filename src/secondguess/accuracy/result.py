"""The result of `estimate`, for a person, a notebook and a program."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondguess.accuracy.base import TOLERANCE, Estimate, Trial
from secondguess.accuracy.shift_tests import ShiftReport
from secondguess.files import make_folder, write_json
from secondguess.metrics import Interval
from secondguess.results import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["BASELINES", "EstimateResult", "JudgedWrong"]

BASELINES = ("validation_accuracy", "average_confidence")
SHOWN, LONGEST = 20, 160  # images judged wrong in the table, and letters of a reason
UNCHANGED = "unchanged"  # what a reader is told where nothing has shifted
NOTES = 4  # in the summary


@dataclass(frozen=True)
class JudgedWrong:
    """A prediction that the oracle judges wrong.

    Attributes:
        image: its id, or its position.
        predicted: the class that the model gives.
        confidence: of the model.
        advice: the class to take instead, or None.
        reason: the rule that the prediction violates.
    """

    image: str
    predicted: str
    confidence: float
    advice: str | None
    reason: str


@dataclass(frozen=True, eq=False)
class EstimateResult(Result):
    """The estimated accuracy of a model on images without labels. Made by `secondguess.estimate`.

    Attributes:
        estimates: one by the name of each method, with the record of its trials on shifted validation images.
        answer: the one to report; its `withheld` is the reason where no number can be given.
        shift: whether the images differ from the validation images, and in which way.
        judged_wrong: the predictions that the oracle judges wrong, in the order of the images.
        truth: the accuracy, where the images happen to have labels; no method uses them.
        notes: what the user should know, one sentence each.
        about: model, data, oracle, seed, versions and the plan, as JSON can hold them.
        softmax: what is wrong with the model's probabilities as a whole, if anything; it is said first.
    """

    estimates: Mapping[str, Estimate]
    answer: Estimate
    shift: ShiftReport
    judged_wrong: tuple[JudgedWrong, ...]
    truth: Interval | None
    notes: tuple[str, ...]
    about: Mapping[str, Any]
    softmax: str = ""

    @property
    def value(self) -> float | None:
        """The accuracy, or None where it cannot be said."""
        return None if self.answer.withheld else self.answer.value

    @property
    def low(self) -> float | None:
        """Lower bound of its interval, or None."""
        return None if self.answer.withheld else self.answer.low

    @property
    def high(self) -> float | None:
        """Upper bound of its interval, or None."""
        return None if self.answer.withheld else self.answer.high

    def summary(self) -> str:
        """The accuracy or why it cannot be said, whether the images look shifted, what is judged wrong."""
        skipped = self.about["operation"]["skipped"]
        most = NOTES - bool(self.softmax)
        lines = [self.softmax] if self.softmax else []
        lines += [self._headline(), self.shift.sentence(), *self._tried(), self._count() + ".", *self.notes[:most]]
        lines += [f"There are {len(self.notes) - most} more notes."] if len(self.notes) > most else []
        return "\n".join([*lines, *([f"Left out: {len(skipped):,} images that cannot be read."] if skipped else [])])

    def table(self, known: Collection[JudgedWrong] = ()) -> str:
        """All estimates with their trials and the images judged wrong, as text: what the summary sums up.

        Args:
            known: predictions judged wrong that need not be shown again.
        """
        return "\n".join([*self._rows(), *self._wrong(known)])

    def to_dict(self) -> dict[str, Any]:
        """Everything that was found, as JSON can hold it."""
        about, truth = dict(self.about), self.truth
        return {
            **{key: about[key] for key in ("model", "seed", "versions", "training", "validation", "operation")},
            "plan": about.get("plan"),
            "softmax": self.softmax or None,
            "notes": list(self.notes),
            "answer": {
                "method": self.answer.method,
                **{key: getattr(self, key) for key in ("value", "low", "high")},
                "level": self.answer.level,
                "withheld": self.answer.withheld or None,
            },
            "shift": self.shift.to_dict(),
            "estimates": [
                one.to_dict() | {"baseline": name in BASELINES, "recommended": name == self.answer.method}
                for name, one in self.estimates.items()
            ],
            "truth": None if truth is None else {"value": truth.value, "low": truth.low, "high": truth.high},
            "oracle": about["oracle"],
            "judged_wrong": [asdict(one) for one in self.judged_wrong],
        }

    def rows(self) -> list[dict[str, Any]]:
        """Every method with its estimate, and its mean error in trials under each shift."""
        return [
            {"method": name, "recommended": name == self.answer.method, "baseline": name in BASELINES}
            | {"value": one.value, "low": one.low, "high": one.high}
            | {f"error under {trial.shift}": trial.error for trial in one.trust}
            for name, one in self.estimates.items()
        ]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw every estimate with its interval, the recommended one in blue; a dashed line is the truth if known.

        Args:
            ax: where to draw; a new figure if left out.
        """
        from secondguess.report import plots

        rows = [
            (name, (one.value, one.low, one.high), "better" if name == self.answer.method else "")
            for name, one in self.estimates.items()
        ]
        truth = None if self.truth is None else self.truth.value
        where = plots.new_axes(ax, 4.6, 0.75 + 0.21 * len(rows))
        return plots.intervals(rows, "estimated accuracy", where, reference=truth)

    def save(self, folder: str | Path) -> Path:
        """Write `estimate.json` into a folder."""
        place = make_folder(folder)
        write_json(place / "estimate.json", self.to_dict())
        return place

    def _repr_html_(self) -> str:
        """The summary above the table of estimates."""
        shifts = self._shifts()
        cells = ["method", "estimate", self._interval_title(), *shifts]
        rows = ["".join(f"<th>{escape(cell)}</th>" for cell in cells)]
        for name, one in self.estimates.items():
            trials = {trial.shift: _flag(trial) for trial in one.trust}
            flags = [trials.get(shift, "-") for shift in shifts]
            cells = [name, f"{one.value:.1%}", self._interval(one), *flags]
            rows.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"{super()._repr_html_()}<table>{body}</table>"

    def _headline(self) -> str:
        about, best = self.about["operation"], self.answer
        title = f"Accuracy of {self.about['model']['name']} on {about['images']:,} images of {about['name']}"
        if best.withheld:
            return f"{title}: cannot be said for these images, because {best.withheld}."
        return (
            f"{title}: {best.value:.1%} ({_level(best)} interval {best.low:.1%} to {best.high:.1%}), by {best.method}"
        )

    def _tried(self) -> Iterator[str]:
        """How far off the method was under such a change."""
        such = [trial for trial in self.answer.trust if trial.shift == self.shift.way]
        if such and not self.answer.withheld:
            where = "unchanged validation images" if self.shift.way == "none" else "validation images shifted like this"
            yield f"Tried on {where}, {self.answer.method} was off by {100 * such[0].error:.1f} points on average."

    def _shifts(self) -> list[str]:
        return list(dict.fromkeys(trial.shift for one in self.estimates.values() for trial in one.trust))

    def _interval_title(self) -> str:
        return f"{_level(self.answer)} interval"

    def _interval(self, one: Estimate) -> str:
        """The bounds, and their level where it is not that of the column."""
        other = "" if one.level == self.answer.level else f" ({_level(one)})"
        return f"{one.low:.1%} to {one.high:.1%}{other}"

    def _rows(self) -> Iterator[str]:
        """The table of estimates, what the flags mean, and what the summary has no room for."""
        tried = self._shifts()
        names = [name + " (baseline)" * (name in BASELINES) for name in self.estimates]
        wide = max(map(len, names))
        titles = [UNCHANGED if shift == "none" else shift for shift in tried]
        widths = [max(7, len(title)) for title in titles]
        heads = "  ".join(f"{title:<{width}}" for title, width in zip(titles, widths, strict=True))
        intervals = [self._interval(one) for one in self.estimates.values()]
        room = max(16, *map(len, intervals))
        yield f"{'':<{wide}}  {'estimate':>8}  {self._interval_title():<{room}}  {heads}".rstrip()
        for name, one, interval in zip(names, self.estimates.values(), intervals, strict=True):
            trials = {trial.shift: _flag(trial) for trial in one.trust}  # not every method can be tried on each
            flags = "  ".join(f"{trials.get(shift, '-'):<{width}}" for shift, width in zip(tried, widths, strict=True))
            yield f"{name:<{wide}}  {one.value:>8.1%}  {interval:<{room}}  {flags}".rstrip()
        if self.truth is not None:
            yield f"{'truth, not used':<{wide}}  {self.truth.value:>8.1%}"
        yield ""
        yield (
            "May I trust it? Tried on your validation images, as they are and shifted on purpose: mean error in "
            "points, ok up to 2. The column for these images: "
            f"{UNCHANGED if self.shift.way == 'none' else self.shift.way}."
        )
        yield from self.notes[NOTES:]
        yield from (f"Left out: {name} cannot be read." for name in self.about["operation"]["skipped"])

    def _count(self) -> str:
        kinds = ", ".join(f"{one['credited']} by {one['kind']}" for one in self.about["oracle"]["contributions"])
        return f"{len(self.judged_wrong):,} predictions are judged wrong by rules ({kinds})"

    def _precision(self) -> str:
        """How often such verdicts are right, where that was measured on images that the rules were not learnt from."""
        corrected = self.estimates.get(f"{self.about['oracle']['name']}_corrected")
        found = None if corrected is None else corrected.details.get("precision")
        return "" if found is None else f" ({found:.0%} of validation images that are judged so really are wrong)"

    def _wrong(self, known: Collection[JudgedWrong]) -> Iterator[str]:
        reported = {(one.image, one.reason) for one in known}
        new = [one for one in self.judged_wrong if (one.image, one.reason) not in reported]
        if new:
            yield ""
            yield f"Judged wrong{self._precision()}:"
        for one in new[:SHOWN]:
            rather = f", rather {one.advice}" if one.advice is not None else ""
            yield f"  {one.image}: {one.predicted} ({one.confidence:.0%}){rather}; {_cut(one.reason)}"
        if len(new) > SHOWN:
            yield f"  and {len(new) - SHOWN:,} more; estimate.json (--out) has all of them, with the whole rules."


def _level(one: Estimate) -> str:
    """The level of an interval, not rounded: .999 is not 100 percent."""
    return f"{100 * one.level:g}%"


def _flag(trial: Trial) -> str:
    """The mean error in points; one above the tolerance is rounded up, or 2.04 would read as if it were within."""
    points = 100 * trial.error
    return f"{points:.1f} ok" if trial.error <= TOLERANCE else f"{math.ceil(10 * points) / 10:.1f} no"


def _cut(reason: str) -> str:
    """A long rule without its middle: what it is about and what it says stand at the ends."""
    return reason if len(reason) <= LONGEST else f"{reason[: LONGEST - 60]} ... {reason[-55:]}"
