"""The dial: the share of the first class that is asked for.

The network's own log-odds, which the sampling controls, are not what the calibrated judges conclude; how they differ,
and with which bias for each pair, is learnt from the judgements of earlier rounds:

    logit(share) = slope * log-odds + offset of the pair

Of what is composed anew a part of the earlier log-odds is kept, and added; how much is learnt, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Dial", "Pair", "logit"]

FAR = 7.0  # log-odds beyond which all are alike
ENOUGH = 60  # candidates, for a slope
Floats = NDArray[np.float64]
Pair = tuple[int, int]


@dataclass
class Dial:
    """How the judges' share of the first class follows the log-odds that were asked for.

    Attributes:
        slope: of logit(share) on the log-odds.
        kept: of the log-odds before, where there are any.
        offsets: by pair, in logits.
    """

    slope: float = 0.5
    kept: float = 0.0
    offsets: dict[Pair, float] = field(default_factory=dict)
    _rounds: list[Floats] = field(default_factory=list)

    def log_odds(self, pair: Pair, shares: Floats, before: Floats | float = 0.0, unknown: float = 0.0) -> Floats:
        """The log-odds (n,) to ask for, to get these shares (n,).

        Args:
            pair: the classes.
            shares: of the first.
            before: the log-odds of what is composed anew.
            unknown: the offset of a pair of which nothing is known yet.
        """
        earlier = self.kept * np.clip(before, -FAR, FAR)
        return np.asarray((logit(shares) - self.offsets.get(pair, unknown) - earlier) / self.slope)

    def learn(
        self, pair: NDArray[np.int64], asked: Floats, got: Floats, wanted: Floats, before: Floats | float = 0.0
    ) -> None:
        """Take note of a round.

        Args:
            pair: (n, 2), the classes.
            asked: (n,), the log-odds that were asked for.
            got: (n,), the judges'.
            wanted: (n,), the shares that were wanted.
            before: (n,), the log-odds of what was composed anew.
        """
        earlier = np.clip(np.broadcast_to(before, asked.shape), -FAR, FAR)
        self._rounds.append(np.column_stack([pair, asked, np.clip(got, -FAR, FAR), logit(wanted), earlier]))
        seen = np.concatenate(self._rounds)
        pairs, member = np.unique(seen[:, :2].astype(np.int64), axis=0, return_inverse=True)
        x, y, z = (_centred(seen[:, column], member.ravel()) for column in (2, 3, 5))
        if len(x) >= ENOUGH and x.std() > 0:
            slope, kept = np.linalg.lstsq(np.column_stack([x, z]), y, rcond=None)[0]
            self.slope, self.kept = float(np.clip(slope, 0.05, 2.0)), float(np.clip(kept, 0.0, 1.0))
        left = seen[:, 3] - self.slope * seen[:, 2] - self.kept * seen[:, 5]
        for number, (first, second) in enumerate(pairs.tolist()):
            self.offsets[first, second] = float(np.median(left[member.ravel() == number]))

    def followed(self) -> float | None:
        """The slope of logit(share) on logit(dial) over all candidates but the first of each pair; 1 is perfect.

        The first ones of a pair were asked for before anything was known about it. None where there are no others.
        """
        later, known = [], set()
        for seen in self._rounds:
            for one in np.unique(seen[:, :2], axis=0):
                mine = seen[(seen[:, :2] == one).all(axis=1)]
                if tuple(one) in known:
                    later.append(mine[:, 3:5] - mine[:, 3:5].mean(axis=0))
                known.add(tuple(one))
        if not later:
            return None
        y, x = np.concatenate(later).T
        return float((x @ y) / (x @ x)) if x.std() > 0 else None


def _centred(values: Floats, member: NDArray[np.int64]) -> Floats:
    """Values (n,) less the mean of their group."""
    means = np.bincount(member, values) / np.maximum(np.bincount(member), 1)
    return np.asarray(values - means[member])


def logit(share: Floats) -> Floats:
    """Log-odds (n,) of shares (n,), which are kept away from 0 and 1."""
    inside = np.clip(share, 1e-4, 1 - 1e-4)
    return np.asarray(np.log(inside) - np.log1p(-inside))
