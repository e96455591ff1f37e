"""The rows and comparisons of a hubris benchmark, and how they are written down."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.hubris.ranks import ranks
from secondguess.hubris.response import Response
from secondguess.hubris.scores import Scores
from secondguess.metrics import Interval

__all__ = ["HubrisTable", "Matched", "ModelRow"]

Floats = NDArray[np.float64]

HEADER = (
    "model", "images", "scaled", "accuracy", "acd", "absolute", "absolute_low", "absolute_high", "relative",
    "relative_low", "relative_high", "mean_kl", "over", "under", "rescaled", "temperature", "mass", "rank",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class ModelRow:
    """What the benchmark knows of one model.

    Attributes:
        model: its name.
        accuracy: on real images of the task.
        ambiguous: scores on the companion set.
        ambiguous_scaled: the same after temperature scaling.
        clean: scores on real images that the temperature was not fitted on.
        clean_scaled: the same after temperature scaling.
        temperature: what the logits are divided by.
        mass: mean probability of the two classes together on the companion set; 1 for a model that has no others.
        response: answers against the dial; None where the companion set has none.
        response_scaled: the same after temperature scaling.
        answers: (n,) the model's probability of the first class of each ambiguous image.
        scaled: (n,) the same after temperature scaling.
        right: (m,) which real images it classifies rightly.
        notes: what the reader should know, one sentence each.
    """

    model: str
    accuracy: Interval
    ambiguous: Scores
    ambiguous_scaled: Scores
    clean: Scores
    clean_scaled: Scores
    temperature: float
    mass: float
    response: Response | None
    response_scaled: Response | None
    answers: Floats = field(repr=False)
    scaled: Floats = field(repr=False)
    right: NDArray[np.bool_] = field(repr=False)
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Everything but the answers to single images."""
        return {
            "model": self.model,
            "accuracy": self.accuracy.to_dict(),
            "temperature": self.temperature,
            "mass": self.mass,
            "ambiguous": self.ambiguous.to_dict(),
            "ambiguous_scaled": self.ambiguous_scaled.to_dict(),
            "clean": self.clean.to_dict(),
            "clean_scaled": self.clean_scaled.to_dict(),
            "response": None if self.response is None else self.response.to_dict(),
            "response_scaled": None if self.response_scaled is None else self.response_scaled.to_dict(),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Matched:
    """Two models whose accuracy on the same real images does not differ: first minus second.

    Attributes:
        first: name of one model.
        second: name of the other.
        accuracy: difference in accuracy, paired; the interval holds 0.
        hubris: difference in hubris (relative, where there is a reference) on the same ambiguous images.
        hubris_scaled: the same after both were scaled by their temperatures.
    """

    first: str
    second: str
    accuracy: Interval
    hubris: Interval
    hubris_scaled: Interval

    def to_dict(self) -> dict[str, Any]:
        """All fields."""
        numbers = {name: getattr(self, name).to_dict() for name in ("accuracy", "hubris", "hubris_scaled")}
        return {"first": self.first, "second": self.second, **numbers}


@dataclass(frozen=True, eq=False)
class HubrisTable:
    """The benchmark of some models on one companion set.

    Attributes:
        rows: one for each model, in the order given.
        matched: pairs of models of equal accuracy.
        about: the task: companion set, classes, where the dial comes from, real images, seed.
    """

    rows: tuple[ModelRow, ...]
    matched: tuple[Matched, ...]
    about: Mapping[str, Any]

    def values(self, which: Literal["main", "absolute", "acd"] = "main", *, scaled: bool = False) -> dict[str, float]:
        """One number for each model: hubris (relative where there is a reference), absolute hubris, or ACD."""

        def one(scores: Scores) -> float:
            if which == "acd":
                return scores.acd.value
            return (scores.main if which == "main" else scores.absolute).value.value

        return {row.model: one(row.ambiguous_scaled if scaled else row.ambiguous) for row in self.rows}

    def to_dict(self) -> dict[str, Any]:
        """The table, its comparisons, and the ranks before and after temperature scaling (1 = least hubris)."""
        return {
            **self.about,
            "models": [row.to_dict() for row in self.rows],
            "ranks": ranks(self.values()),
            "ranks_scaled": ranks(self.values(scaled=True)),
            "matched": [pair.to_dict() for pair in self.matched],
        }

    def lines(self) -> list[str]:
        """The table as text: what it is about, a header, a line for each model, what the columns mean, comparisons."""
        width = max(5, *(len(row.model) for row in self.rows))
        relative = self.rows[0].ambiguous.relative is not None
        header = f"{'model':<{width}}  accuracy  temp.  {'ACD':>5}  {'absolute hubris':<22}  "
        ceiling = f"Absolute hubris cannot exceed {self.rows[0].ambiguous.absolute.ceiling:.3f}."
        return [
            f"{self.about['companion']['images']:,} ambiguous images, reference: {self.about['reference']}",
            header + (f"{'relative hubris':<22}  " if relative else "") + "scaled  clean  slope",
            *(_line(row, width) for row in self.rows),
            "scaled: absolute hubris after temperature scaling. clean: absolute hubris on real images.",
            f"slope: 1 follows the dial, above 1 overstates it. {ceiling}",
            *(
                f"Equally accurate: {pair.first} has {pair.hubris:+.3f} hubris compared with {pair.second}."
                for pair in self.matched
            ),
            *(f"{row.model}: {note}" for row in self.rows for note in row.notes),
        ]

    def to_csv(self) -> str:
        """Four lines for each model: on ambiguous and on clean images, as it is and scaled; ranks are of the former."""
        places = {False: ranks(self.values()), True: ranks(self.values(scaled=True))}
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        for row in self.rows:
            for images, scaled, scores in _sets(row):
                rank = places[scaled][row.model] if images == "ambiguous" else None
                temperature = row.temperature if scaled else 1.0
                numbers = (row.accuracy.value, *_numbers(scores), temperature, row.mass, rank)
                writer.writerow(
                    [row.model, images, str(scaled).lower(), *("" if x is None else f"{x:.6g}" for x in numbers)]
                )
        return file.getvalue()


def _line(row: ModelRow, width: int) -> str:
    ours = row.ambiguous
    slope = row.response.slope if row.response is not None else None
    after, clean = row.ambiguous_scaled.absolute.value.value, row.clean.absolute.value.value
    relative = "" if ours.relative is None else f"{ours.relative.value!s:<22}  "
    return (
        f"{row.model:<{width}}  {row.accuracy.value:>8.1%}  {row.temperature:>5.2f}  {ours.acd.value:>5.3f}  "
        f"{ours.absolute.value!s:<22}  {relative}{after:>6.3f}  {clean:>5.3f}  "
        f"{'-' if slope is None else f'{slope.value:.1f}':>5}"
    )


def _sets(row: ModelRow) -> Iterator[tuple[str, bool, Scores]]:
    yield "ambiguous", False, row.ambiguous
    yield "ambiguous", True, row.ambiguous_scaled
    yield "clean", False, row.clean
    yield "clean", True, row.clean_scaled


def _numbers(scores: Scores) -> list[float | None]:
    """The columns from `acd` to `rescaled`."""
    found = scores.to_dict()
    absolute, relative = found["absolute"], found["relative"] or dict.fromkeys(("value", "low", "high"))
    parts = [found[name] for name in ("mean_kl", "over", "under", "rescaled")]
    return [found["acd"], *absolute.values(), *relative.values(), *parts]
