"""The report of a guard: false alarms per thousand, what it detects of each kind of anomaly, what it will miss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.guard.verdicts import KINDS, OF_STRESS
from secondguess.metrics import Interval, auroc, wilson

__all__ = ["GuardReport", "Seen", "summarise"]

Floats = NDArray[np.float64]
MISSED = 0.5  # a sort of anomaly of which less is detected is listed as missed
FEWEST = 5  # images of a sort, below which it is not reported


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
    """

    images: int
    detected: Interval
    auroc: float
    right: float
    within: float
    verdicts: Mapping[str, float]
    sorts: Mapping[str, float] = field(default_factory=dict)
    without_cascade: float | None = None


@dataclass(frozen=True)
class GuardReport:
    """The expected behaviour of a guard.

    Attributes:
        rate: the requested false-alarm rate.
        false_alarms: the rate to expect, with the interval in which it lies.
        calibrated_on: the number of nominal images behind the threshold.
        seen: what is detected of each kind of stress set.
        grey: the share of nominal images that all supervisors of a cascade score; None without one.
        notes: further remarks.
    """

    rate: float
    false_alarms: Interval
    calibrated_on: int
    seen: Mapping[str, Seen] = field(default_factory=dict)
    grey: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def missed(self) -> list[str]:
        """The sorts of anomaly of which less than half is detected, as "corrupted: brightness (12%)", least first."""
        found = [
            (share, f"{kind}: {sort} ({share:.0%})")
            for kind, one in self.seen.items()
            for sort, share in (one.sorts or {"all": one.detected.value}).items()
            if share < MISSED
        ]
        return [text for _, text in sorted(found)]

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
        seen = {kind: Seen(**{**one, "detected": Interval(**one["detected"])}) for kind, one in card["seen"].items()}
        rest = {name: card[name] for name in ("rate", "calibrated_on", "grey")}
        alarms = Interval(**card["false_alarms"])
        return cls(**rest, false_alarms=alarms, seen=seen, notes=tuple(card["notes"]))

    def __str__(self) -> str:
        rate = self.false_alarms
        lines = [
            f"Of a thousand nominal images, {1000 * rate.value:.3g} raise a false alarm "
            f"({1000 * rate.low:.3g} to {1000 * rate.high:.3g}; calibrated on {self.calibrated_on})."
        ]
        for kind, one in self.seen.items():
            loss = ""
            if one.without_cascade is not None:
                loss = f"; {one.without_cascade:.0%} if all supervisors were always asked"
            lines.append(
                f"Of images that are {kind}, {one.detected:.0%} raise an alarm{loss}; of these verdicts "
                f"{one.right:.0%} are right and {one.within:.0%} have the truth among two."
            )
        if self.missed:
            lines.append(f"It will miss most of these: {', '.join(self.missed)}.")
        return "\n".join([*lines, *self.notes])


def summarise(
    kind: str,
    nominal: Floats,
    statistics: Floats,
    codes: NDArray[np.int8],
    sorts: NDArray[Any] | None,
    without_cascade: NDArray[np.bool_] | None = None,
) -> Seen:
    """Summarise the judgements of images of one kind of anomaly.

    Args:
        kind: of the stress set.
        nominal: (n,) statistics of nominal images.
        statistics: (k,) of the stress images.
        codes: (k, 2) the verdicts.
        sorts: (k,) of which sort each image is, if there are several.
        without_cascade: (k,) which would raise an alarm if all supervisors always scored.
    """
    truth = KINDS.index(OF_STRESS[kind])
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
    )
