"""The dial: the share of the first class that is asked for.

The network's own log-odds, which the sampling controls, are not what the calibrated judges conclude, not even counted
in the units of shares (`shares.py`); how they differ, and with which bias for each pair, is learnt from the judgements
of earlier rounds:

    logit(share) = slope * what was asked for + offset of the pair

Of what is composed anew a part of the earlier logit is kept, and added; how much is learnt, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Dial", "Lessons", "Pair", "logit"]

FAR = 4.0  # logits beyond which all are alike
ENOUGH = 60  # candidates, for a slope
FLATTEST, STEEPEST = 0.05, 3.0  # slopes that are believed
Floats = NDArray[np.float64]
Pair = tuple[int, int]


@dataclass(frozen=True)
class Lessons:
    """What the judges saw of candidates, and what was asked for.

    Attributes:
        pair: int64 (n, 2), their classes.
        asked: float64 (n,), the logits that were asked for.
        got: float64 (n,), those of the shares that the judges see.
        wanted: float64 (n,), the shares that were wanted.
        again: bool (n,), whether a candidate was composed anew.
        before: float64 (n,), the logit that it had then; 0 for others.
    """

    pair: NDArray[np.int64]
    asked: Floats
    got: Floats
    wanted: Floats
    again: NDArray[np.bool_]
    before: Floats

    def __len__(self) -> int:
        return len(self.pair)

    def take(self, chosen: NDArray[np.bool_]) -> Lessons:
        """Some of them."""
        return Lessons(**{name: values[chosen] for name, values in vars(self).items()})

    @classmethod
    def concatenate(cls, parts: Sequence[Lessons]) -> Lessons:
        """All of several rounds."""
        return cls(**{name: np.concatenate([vars(one)[name] for one in parts]) for name in vars(parts[0])})


@dataclass
class Dial:
    """How the judges' share of the first class follows what was asked for.

    Attributes:
        slope: of logit(share) on what was asked for.
        kept: of the logit before, where there is any.
        offsets: by pair, in logits.
    """

    slope: float = 1.0
    kept: float = 0.0
    offsets: dict[Pair, float] = field(default_factory=dict)
    _rounds: list[Lessons] = field(default_factory=list)

    def logits(self, pair: Pair, shares: Floats, before: Floats | float = 0.0, unknown: float = 0.0) -> Floats:
        """The logits (n,) to ask for, to get these shares (n,).

        Args:
            pair: the classes.
            shares: of the first.
            before: the logits of what is composed anew.
            unknown: the offset of a pair of which nothing is known yet.
        """
        earlier = self.kept * np.clip(before, -FAR, FAR)
        return np.asarray((logit(shares) - self.offsets.get(pair, unknown) - earlier) / self.slope)

    def learn(self, lessons: Lessons) -> None:
        """Take note of a round."""
        self._rounds.append(lessons)
        seen = Lessons.concatenate(self._rounds)
        got, before = np.clip(seen.got, -FAR, FAR), np.clip(seen.before, -FAR, FAR)
        pairs, member = np.unique(seen.pair, axis=0, return_inverse=True)
        x, y, z = (_centred(values, member.ravel()) for values in (seen.asked, got, before))
        if len(x) >= ENOUGH and x.std() > 0:
            slope, kept = np.linalg.lstsq(np.column_stack([x, z]), y, rcond=None)[0]
            self.slope, self.kept = float(np.clip(slope, FLATTEST, STEEPEST)), float(np.clip(kept, 0.0, 1.0))
        left = got - self.slope * seen.asked - self.kept * before
        for number, (first, second) in enumerate(pairs.tolist()):
            self.offsets[first, second] = float(np.median(left[member.ravel() == number]))

    def followed(self) -> float | None:
        """The slope of logit(share) on logit(dial) over all candidates but the first of each pair; 1 is perfect.

        The first ones of a pair were asked for before anything was known about it. None where there are no others.
        """
        later: list[Floats] = []
        known: set[Pair] = set()
        for seen in self._rounds:
            got, wanted = np.clip(seen.got, -FAR, FAR), logit(seen.wanted)
            for first, second in np.unique(seen.pair, axis=0).tolist():
                mine = (seen.pair == (first, second)).all(axis=1)
                if (first, second) in known:
                    later.append(np.stack([values[mine] - values[mine].mean() for values in (got, wanted)]))
                known.add((first, second))
        if not later:
            return None
        y, x = np.concatenate(later, axis=1)
        return float((x @ y) / (x @ x)) if x.std() > 0 else None


def _centred(values: Floats, member: NDArray[np.int64]) -> Floats:
    """Values (n,) less the mean of their group."""
    means = np.bincount(member, values) / np.maximum(np.bincount(member), 1)
    return np.asarray(values - means[member])


def logit(share: Floats) -> Floats:
    """Log-odds (n,) of shares (n,), which are kept away from 0 and 1."""
    inside = np.clip(share, 1e-4, 1 - 1e-4)
    return np.asarray(np.log(inside) - np.log1p(-inside))
