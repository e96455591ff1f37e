"""What is wrong with an image: the kind of anomaly, or two kinds where the evidence does not separate them.

An image without an alarm is `nominal`. For one with an alarm the panel gives the probability of each kind of anomaly.
The likeliest kind is the verdict if it is at least as sure as `min_probability`; otherwise the two likeliest are.
Probabilities and sureness come from `naming`, which looks at scores and pixels and is calibrated on sorts of stress
images that were left out; where the pixels are not at hand, from the panel, whose probabilities count as they are. They
are computed as if all kinds were equally frequent, since their true frequencies are unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["ANOMALIES", "KINDS", "MISTAKEN", "OF_STRESS", "SUSPICIOUS", "Kind", "Verdict", "decide", "verdict_of"]

Kind = Literal["nominal", "ambiguous", "out-of-distribution", "adversarial", "invalid", "mistaken", "suspicious"]

SUSPICIOUS: Kind = "suspicious"
"""The verdict of a guard that was fitted without stress sets: an alarm, of whatever kind."""

MISTAKEN: Kind = "mistaken"
"""The verdict on an ordinary image whose answer is probably wrong."""

ANOMALIES: tuple[Kind, ...] = ("ambiguous", "out-of-distribution", "adversarial", "invalid")
KINDS: tuple[Kind, ...] = ("nominal", *ANOMALIES, MISTAKEN, SUSPICIOUS)

OF_STRESS: dict[str, Kind] = {
    "ambiguous": "ambiguous",
    "corrupted": "out-of-distribution",
    "adversarial": "adversarial",
    "invalid": "invalid",
}
"""The kind of anomaly that each kind of stress set stands for."""

NOBODY = -1


@dataclass(frozen=True, eq=False)
class Verdict:
    """What a guard thinks of an image; equal to its text, such as `"nominal"` or `"ambiguous or invalid"`.

    Attributes:
        kinds: one kind, or two of which the first is the likelier.
    """

    kinds: tuple[Kind, ...]

    def __str__(self) -> str:
        return " or ".join(self.kinds)

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Verdict | str) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def kind(self) -> Kind:
        """The likeliest kind."""
        return self.kinds[0]

    @property
    def is_nominal(self) -> bool:
        """Whether there was no alarm."""
        return self.kinds == ("nominal",)


def decide(
    alarms: NDArray[np.bool_],
    probabilities: NDArray[np.float64],
    anomalies: Sequence[Kind],
    min_probability: float,
    sureness: NDArray[np.float64] | None = None,
) -> NDArray[np.int8]:
    """The verdicts (n, 2) as positions in `KINDS`; the second is -1 where one kind is enough.

    Args:
        alarms: (n,) whose p-value is small.
        probabilities: (n, t) of each kind of anomaly, rows sum to one.
        anomalies: the t kinds, one or more.
        min_probability: from which one kind is enough.
        sureness: (n,) of the likeliest kind; by default its probability.
    """
    verdicts = np.empty((len(alarms), 2), dtype=np.int8)
    verdicts[:] = KINDS.index("nominal"), NOBODY
    if alarms.any():
        codes = np.array([KINDS.index(kind) for kind in anomalies], dtype=np.int8)
        rows = np.flatnonzero(alarms)
        order = np.argsort(-probabilities[rows], axis=1, kind="stable")
        verdicts[rows, 0] = codes[order[:, 0]]
        if len(codes) > 1:
            sure = probabilities[rows, order[:, 0]] if sureness is None else sureness[rows]
            unsure = sure < min_probability
            verdicts[rows[unsure], 1] = codes[order[unsure, 1]]
    return verdicts


def verdict_of(codes: NDArray[np.int8]) -> Verdict:
    """The verdict that a row (2,) of `decide` stands for."""
    return _VERDICTS[int(codes[0]), int(codes[1])]


_VERDICTS = {
    (first, second): Verdict((KINDS[first],) if second == NOBODY else (KINDS[first], KINDS[second]))
    for first in range(len(KINDS))
    for second in range(NOBODY, len(KINDS))
}
