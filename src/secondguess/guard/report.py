"""The report of a guard: false alarms per thousand, what it detects of each kind of anomaly, what it will miss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.guard.protect import Answers, Protect
from secondguess.guard.risk import RiskPromise
from secondguess.guard.verdicts import KINDS, MISTAKEN, OF_STRESS
from secondguess.metrics import MISTAKES, Interval, auroc, wilson

__all__ = ["ByAnswer", "GuardReport", "Seen", "summarise"]

Floats = NDArray[np.float64]
MISSED = 0.5  # a sort of anomaly of which less is detected is listed as missed
FEWEST = 5  # images of a sort, below which it is not reported
WEAK = (
    "This guard is of little use so far: it sees less than half of everything that it was tried on. More images, more "
    "time (--minutes) or a higher rate of false alarms may help."
)


@dataclass(frozen=True)
class ByAnswer:
    """What becomes of right and wrong answers within one set of images.

    Attributes:
        wrong: the share of the wrong answers that raise an alarm.
        right: the share of the right answers that do.
        auroc: of the statistic, wrong answers against right ones.
        risk: the share of the accepted answers that are wrong; None where none is accepted.
    """

    wrong: Interval
    right: Interval
    auroc: float
    risk: Interval | None

    @classmethod
    def of(cls, statistics: Floats, alarms: NDArray[np.bool_], answers: Answers) -> ByAnswer | None:
        """From the statistics (k,), which of them are alarms (k,), and the answers; None unless there are both."""
        wrong, right = answers.wrong, answers.right
        if not (wrong.any() and right.any()):
            return None
        passed = ~alarms & answers.known
        return cls(
            wrong=wilson(int(alarms[wrong].sum()), int(wrong.sum())),
            right=wilson(int(alarms[right].sum()), int(right.sum())),
            auroc=auroc(statistics[right], statistics[wrong]),
            risk=wilson(int(wrong[passed].sum()), int(passed.sum())) if passed.any() else None,
        )

    @classmethod
    def from_dict(cls, card: Mapping[str, Any]) -> ByAnswer:
        """The opposite of `dataclasses.asdict`."""
        risk = card["risk"] and Interval(**card["risk"])
        return cls(Interval(**card["wrong"]), Interval(**card["right"]), card["auroc"], risk)


@dataclass(frozen=True)
class Seen:
    """What a guard detects of one kind of anomaly, for sorts that it was not fitted on.

    Attributes:
        images: how many were tried.
        detected: the share with an alarm.
        auroc: of the statistic, against nominal images.
        right: the share of the alarms whose verdict names the kind, alone or first.
        within: the share of the alarms whose verdict names the kind, alone or as one of two.
        verdicts: the share of the alarms that each kind is named first in.
        sorts: the share with an alarm for each sort, such as a corruption, the smallest first.
        without_cascade: the share with an alarm if all supervisors always scored; None without a cascade.
        by_answer: what becomes of wrong and of right answers; None where there are not both.
    """

    images: int
    detected: Interval
    auroc: float
    right: float
    within: float
    verdicts: Mapping[str, float]
    sorts: Mapping[str, float] = field(default_factory=dict)
    without_cascade: float | None = None
    by_answer: ByAnswer | None = None

    @classmethod
    def from_dict(cls, card: Mapping[str, Any]) -> Seen:
        """The opposite of `dataclasses.asdict`."""
        by_answer = card["by_answer"] and ByAnswer.from_dict(card["by_answer"])
        return cls(**{**card, "detected": Interval(**card["detected"]), "by_answer": by_answer})


@dataclass(frozen=True)
class GuardReport:
    """The expected behaviour of a guard.

    Attributes:
        rate: the requested false-alarm rate.
        false_alarms: the rate to expect, with the interval in which it lies; which nominal images it counts depends on
            `protect`.
        calibrated_on: the number of nominal images behind the threshold.
        seen: what is detected of each kind of stress set.
        fully_scored: the share of nominal images that all supervisors of a cascade score; None without one.
        notes: further remarks.
        protect: what an alarm is for.
        alarms: the share of all nominal images that raise an alarm, well placed or false; that of `false_alarms` where
            nothing is known of the answers.
        mistakes: what is detected of nominal images that are answered wrongly; None where there are none.
        promise: about errors; None unless a risk was asked for.
        softmax: what is wrong with the model's probabilities as a whole, if anything; it is said first.
    """

    rate: float
    false_alarms: Interval
    calibrated_on: int
    seen: Mapping[str, Seen] = field(default_factory=dict)
    fully_scored: float | None = None
    notes: tuple[str, ...] = ()
    protect: Protect = "novelty"
    alarms: Interval | None = None
    mistakes: Seen | None = None
    promise: RiskPromise | None = None
    softmax: str = ""

    @property
    def expected_alarms(self) -> Interval:
        """The share of nominal images that raise an alarm, well placed or false."""
        return self.alarms or self.false_alarms

    @property
    def missed(self) -> list[str]:
        """The sorts of anomaly of which less than half is detected, as "corrupted: motion blur (12%)", least first."""
        found = [
            (share, f"{kind}: {sort} ({share:.0%})".replace("_", " "))
            for kind, one in self.seen.items()
            for sort, share in (one.sorts or {"all": one.detected.value}).items()
            if share < MISSED
        ]
        return [text for _, text in sorted(found)]

    @property
    def weak(self) -> bool:
        """Whether less than half is detected of every kind of images that the guard was tried on."""
        tried = [one for one in (self.mistakes, *self.seen.values()) if one is not None]
        return bool(tried) and all(one.detected.value < MISSED for one in tried)

    @property
    def verdict_accuracy(self) -> float | None:
        """The mean over the kinds of the share of alarms whose verdict names the right kind; None without tests."""
        shares = [one.right for one in self.seen.values()]
        return float(np.mean(shares)) if shares else None

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        return asdict(self) | {"missed": self.missed, "verdict_accuracy": self.verdict_accuracy}

    @classmethod
    def from_dict(cls, card: Mapping[str, Any]) -> GuardReport:
        """The opposite of `to_dict`."""
        return cls(
            **{name: card[name] for name in ("rate", "calibrated_on", "protect")},
            fully_scored=card["fully_scored"] if "fully_scored" in card else card["grey"],  # its name in 0.1
            softmax=card.get("softmax", ""),
            false_alarms=Interval(**card["false_alarms"]),
            seen={kind: Seen.from_dict(one) for kind, one in card["seen"].items()},
            notes=tuple(card["notes"]),
            alarms=card["alarms"] and Interval(**card["alarms"]),
            mistakes=card["mistakes"] and Seen.from_dict(card["mistakes"]),
            promise=card["promise"] and RiskPromise.from_dict(card["promise"]),
        )

    def __str__(self) -> str:
        rate = self.false_alarms
        which = "nominal images" if self.protect == "novelty" else "nominal images that are answered rightly"
        lines = [self.softmax] if self.softmax else []
        if self.weak:
            lines.append(WEAK)
        lines += [
            f"Of a thousand {which}, {1000 * rate.value:.3g} raise a false alarm "
            f"({1000 * rate.low:.3g} to {1000 * rate.high:.3g}; calibrated on {self.calibrated_on})."
        ]
        if self.promise is not None:
            lines.append(str(self.promise))
        if self.mistakes is not None:
            lines.append(f"Of the model's mistakes on nominal images, {self.mistakes.detected:.0%} raise an alarm.")
        for kind, one in self.seen.items():
            loss = ""
            if one.without_cascade is not None:
                loss = f"; {one.without_cascade:.0%} if all supervisors were always asked"
            lines.append(
                f"Of images that are {kind}, {one.detected:.0%} raise an alarm{_of_wrong(one)}{loss}; of these "
                f"verdicts {one.right:.0%} are right and {one.within:.0%} have the truth among two."
            )
        if self.missed:
            lines.append(f"It will miss most of these: {', '.join(self.missed)}.")
        return "\n".join([*lines, *self.notes])


def _of_wrong(seen: Seen) -> str:
    known = seen.by_answer
    return "" if known is None else f", {known.wrong.value:.0%} of those that are answered wrongly"


def summarise(
    kind: str,
    nominal: Floats,
    statistics: Floats,
    codes: NDArray[np.int8],
    sorts: NDArray[Any] | None,
    without_cascade: NDArray[np.bool_] | None = None,
    answers: Answers | None = None,
) -> Seen:
    """Summarise the judgements of images of one kind of anomaly.

    Args:
        kind: of the stress set, or `mistakes`.
        nominal: (n,) statistics of nominal images; for mistakes, of those that are answered rightly.
        statistics: (k,) of the stress images.
        codes: (k, 2) the verdicts.
        sorts: (k,) of which sort each image is, if there are several.
        without_cascade: (k,) which would raise an alarm if all supervisors always scored.
        answers: what is known of the answers to the stress images.
    """
    truth = KINDS.index(MISTAKEN if kind == MISTAKES else OF_STRESS[kind])
    alarms = codes[:, 0] != 0
    count = max(1, int(alarms.sum()))
    shares = np.bincount(codes[alarms, 0], minlength=len(KINDS)) / count
    groups = {}
    if sorts is not None:
        names, sizes = np.unique(sorts, return_counts=True)
        groups = {str(n): float(alarms[sorts == n].mean()) for n, k in zip(names, sizes, strict=True) if k >= FEWEST}
    return Seen(
        images=len(codes),
        detected=wilson(int(alarms.sum()), len(codes)),
        auroc=auroc(nominal, statistics),
        right=float(shares[truth]),
        within=float((codes[alarms] == truth).any(axis=1).sum() / count),
        verdicts={kind: float(share) for kind, share in zip(KINDS, shares, strict=True) if share > 0},
        sorts=dict(sorted(groups.items(), key=lambda one: one[1])),
        without_cascade=None if without_cascade is None else float(without_cascade.mean()),
        by_answer=None if answers is None else ByAnswer.of(statistics, alarms, answers),
    )
