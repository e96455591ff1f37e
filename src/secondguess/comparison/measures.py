"""Everything that is measured of both models, and how it has changed.

| family      | name                            | paired test                        | better |
|-------------|---------------------------------|------------------------------------|--------|
| `overall`   | `accuracy.test`                 | McNemar, exact                     | larger |
|             | `calibration.ece`, `brier`, `nll` | bootstrap                        | smaller |
|             | `risk.confidence.at_90`         | bootstrap                          | smaller |
|             | `entropy.test`                  | bootstrap                          | neither |
| `class`     | `accuracy.class.NAME.recall`    | McNemar, exact                     | larger |
| `kind`      | `accuracy.stress.SET[.KIND]`    | McNemar, exact                     | larger |
| `detection` | `supervisor.NAME.SET.auroc`     | DeLong                             | larger |

Names are those of `audit.json` where an audit has the number, too. `risk.confidence.at_90` is the share of wrong
answers among the 90% that the model is surest of.

The accuracy is what the comparison is about: its test stands alone. All others share one level: each family is
corrected for its number of tests by Holm's method, so that a thousand classes do not hide a worse calibration, and for
the number of families by Bonferroni's. Of two models that are equally good in everything, the accuracy is called
different once in twenty comparisons at most, and anything else once in twenty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.audits.predictions import NOMINAL, SetPredictions
from secondguess.comparison.pairing import Pair
from secondguess.metrics import (
    MISTAKES,
    Change,
    auroc_change,
    bootstrap_change,
    holm,
    reliability_of_hits,
    risk_at_coverage,
    share_change,
)

__all__ = ["ACCURACY", "FAMILIES", "LEVEL", "Family", "Measure", "Outcome", "measure"]

ACCURACY = "accuracy.test"
LEVEL = 0.05
FEWEST = 5  # images of a class or kind, and on each side of an AUROC
COVERAGE = 0.9
RESAMPLES = 500

Family = Literal["overall", "class", "kind", "detection"]
FAMILIES: dict[Family, str] = {
    "overall": "Overall",
    "class": "Classes",
    "kind": "Kinds of stressed images",
    "detection": "Noticing what is wrong",
}
Outcome = Literal["better", "worse", "changed", "same"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Measure:
    """One number before and after.

    Attributes:
        name: by which gates and `compare.json` know it.
        title: for people.
        family: with which it is corrected for many tests.
        better: 1 if larger is better, -1 if smaller is, 0 if neither is.
        change: what it was and is.
        paired: whether it was measured on the same images.
        is_share: whether it is a share of images, to be written in percent.
        p_value: corrected for many tests.
    """

    name: str
    title: str
    family: Family
    better: int
    change: Change
    paired: bool
    is_share: bool = False
    p_value: float = 1.0

    @property
    def outcome(self) -> Outcome:
        """Better or worse, if chance does not explain it; `changed` where neither is better; else `same`."""
        if self.p_value >= LEVEL:
            return "same"
        gain = self.better * self.change.interval.value
        return "better" if gain > 0 else "worse" if gain < 0 else "changed"

    def spelt(self, value: float) -> str:
        """A value for people: 97.3%, or .973."""
        return f"{value:.1%}" if self.is_share else f"{value:.3f}"

    @property
    def moved(self) -> tuple[str, str]:
        """The change and its interval, for people: -0.4 points, -0.9 to +0.1."""
        scale, digits = (100, 1) if self.is_share else (1, 3)
        value, low, high = (
            f"{round(scale * one, digits) + 0.0:+.{digits}f}".replace("-", "−")
            for one in (self.change.interval.value, self.change.interval.low, self.change.interval.high)
        )
        return f"{value}{' points' if self.is_share else ''}", f"{low} to {high}"

    def to_dict(self) -> dict[str, object]:
        """Everything, as JSON can hold it."""
        return {
            "title": self.title,
            "family": self.family,
            "better": self.better,
            "before": self.change.before,
            "after": self.change.after,
            "change": self.change.interval.to_dict(),
            "paired": self.paired,
            "p_value": self.change.p_value,
            "p_corrected": self.p_value,
            "outcome": self.outcome,
        }


def measure(names: Sequence[str], pairs: Mapping[str, Pair], seed: int = 0) -> list[Measure]:
    """Everything that can be measured of these sets of images.

    Args:
        names: of the classes.
        pairs: the sets, `nominal` among them.
        seed: of the bootstrap.
    """
    nominal, stress = pairs[NOMINAL], [pair for name, pair in pairs.items() if name != NOMINAL]
    found = [*_overall(nominal, seed), *_classes(nominal, names), *_kinds(stress), *_detection(nominal, stress)]
    corrected = _corrected([one for one in found if one.name != ACCURACY])
    return [replace(one, p_value=corrected.get(one.name, one.change.p_value)) for one in found]


def _corrected(found: Sequence[Measure]) -> dict[str, float]:
    """The p-values by name, corrected for the number of tests in each family and for the number of families."""
    families = [[one for one in found if one.family == family] for family in FAMILIES]
    tested = [rows for rows in families if rows]
    return {
        one.name: min(1.0, len(tested) * float(p_value))
        for rows in tested
        for one, p_value in zip(rows, holm([row.change.p_value for row in rows]), strict=True)
    }


def _overall(pair: Pair, seed: int) -> Iterator[Measure]:
    accuracy = _right(pair)
    if accuracy is not None:
        yield Measure(ACCURACY, "Accuracy", "overall", 1, accuracy, pair.paired, True)

    def of(name: str, title: str, better: int, statistic: object, *columns: str, share: bool = False) -> Measure:
        sides = [_columns(one, columns) for one in (pair.before, pair.after)]
        change = bootstrap_change(statistic, *sides, paired=pair.paired, resamples=RESAMPLES, seed=seed)  # type: ignore[arg-type]
        return Measure(name, title, "overall", better, change, pair.paired, share)

    if accuracy is not None:
        yield of("calibration.ece", "Calibration error", -1, _ece, "confidence", "right", share=True)
        yield of("calibration.brier", "Brier score", -1, np.mean, "brier")
        yield of("calibration.nll", "Log loss", -1, np.mean, "nll")
        title = f"Wrong among the {COVERAGE:.0%} it is surest of"
        yield of("risk.confidence.at_90", title, -1, _selective, "confidence", "wrong", share=True)
    if min(len(pair.before), len(pair.after)) >= FEWEST:
        yield of("entropy.test", "Entropy of its answers, bits", 0, np.mean, "entropy")


def _classes(pair: Pair, names: Sequence[str]) -> Iterator[Measure]:
    for label, name in enumerate(names):
        rows = [np.flatnonzero(one.labels == label) for one in (pair.before, pair.after)]
        change = _right(_some(pair, *rows))
        if change is not None:
            yield Measure(f"accuracy.class.{name}.recall", name, "class", 1, change, pair.paired, True)


def _kinds(stress: Sequence[Pair]) -> Iterator[Measure]:
    """Accuracy on stress images that still have one right answer, and were not made to be answered wrongly."""
    for pair in stress:
        sides = (pair.before, pair.after)
        if not any(one.right.any() for one in sides) or pair.name.startswith("adversarial"):
            continue
        for kind in ("", *sorted(set(pair.before.kinds.tolist()) & set(pair.after.kinds.tolist()) - {""})):
            inside = [(one.kinds == kind) | (kind == "") for one in sides]
            if pair.paired:  # the same pixels may count as another kind now
                inside = [inside[0] & inside[1]] * 2
            change = _right(_some(pair, *map(np.flatnonzero, inside)))
            if change is not None:
                end, title = (f".{kind}", f"{pair.name}: {kind}") if kind else ("", f"all {pair.name}")
                yield Measure(f"accuracy.stress.{pair.name}{end}", title, "kind", 1, change, pair.paired, True)


def _detection(nominal: Pair, stress: Sequence[Pair]) -> Iterator[Measure]:
    for name in nominal.before.scores:
        if name not in nominal.after.scores:
            continue
        if (mistakes := _of_mistakes(nominal, name)) is not None:
            yield Measure(f"supervisor.{name}.{MISTAKES}.auroc", f"{name} for mistakes", "detection", 1, *mistakes)
        for pair in stress:
            sides = (nominal.before, nominal.after, pair.before, pair.after)
            if all(name in one.scores and len(one) >= FEWEST for one in sides):
                change = auroc_change(*_against(nominal, pair, name))
                title = f"{name} for {pair.name}"
                yield Measure(f"supervisor.{name}.{pair.name}.auroc", title, "detection", 1, change, pair.paired)


def _of_mistakes(pair: Pair, name: str) -> tuple[Change, bool] | None:
    sides = []
    for one, images in zip((pair.before, pair.after), pair.identities(), strict=True):
        if min(one.right.sum(), one.wrong.sum()) < FEWEST:
            return None
        known = one.right | one.wrong
        sides.append((one.scores[name][known], one.wrong[known], images[known]))
    return auroc_change(*sides), pair.paired


def _against(nominal: Pair, stress: Pair, name: str) -> list[tuple[Floats, Bools, NDArray[np.int64]]]:
    """Scores of nominal and of stress images, before and after; which are which; and of which image they are."""
    sides = []
    start = len(nominal.before) + len(nominal.after)
    images = zip(nominal.identities(), stress.identities(start), strict=True)
    for quiet, loud, rows in zip((nominal.before, nominal.after), (stress.before, stress.after), images, strict=True):
        scores = np.concatenate([quiet.scores[name], loud.scores[name]])
        sides.append((scores, np.arange(len(scores)) >= len(quiet), np.concatenate(rows)))
    return sides


def _right(pair: Pair) -> Change | None:
    """How the share of right answers changes; None where too few are known to be right or wrong."""
    sides = [one.right[one.right | one.wrong] for one in (pair.before, pair.after)]
    if min(map(len, sides)) < FEWEST:
        return None
    return share_change(*sides, paired=pair.paired)


def _some(pair: Pair, rows: NDArray[np.int64], others: NDArray[np.int64]) -> Pair:
    return replace(pair, before=pair.before.take(rows), after=pair.after.take(others))


def _columns(one: SetPredictions, names: Sequence[str]) -> list[NDArray[np.float64]]:
    """Arrays of the images of which everything in them is known."""
    known = one.right | one.wrong if set(names) != {"entropy"} else np.ones(len(one), dtype=bool)
    return [getattr(one, name)[known] for name in names]


def _ece(confidence: Floats, right: Bools) -> float:
    return reliability_of_hits(confidence, right).ece


def _selective(confidence: Floats, wrong: Bools) -> float:
    return risk_at_coverage(-confidence, wrong, COVERAGE)
