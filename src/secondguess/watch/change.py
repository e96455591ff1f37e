"""A test of whether the alarm rate has risen, valid after every image and for any length of time.

Let x_t be 1 where image t raised an alarm, and r the rate that nominal images may have at most. A bettor who believes
that the odds of an alarm are k times those of r, and bets accordingly, multiplies the capital at every image by

    L_t = 1 + s (x_t - r),   s = (k - 1) / (1 - r + k r),

the likelihood ratio of the two rates. As long as the chance of an alarm, given all that came before, is at most r, no
bet of this kind gains on average. A change may come at any time, and a bet made from the first image on has lost nearly
everything by then; so of a capital of 1 the part w_t = 1 / (t (t + 1)) is bet from image t on, and 1 / (t + 1) is not
yet bet after image t:

    K_t = 1 / (t + 1) + A_t,   A_t = (A_{t-1} + w_t) L_t,   A_0 = 0,

the mean of which is taken over several k. K is a supermartingale that begins at 1, so if nothing has changed it ever
reaches 1 / alpha with a probability of at most alpha (Ville 1939), however long the service runs and however often the
test is read. This is betting as in Waudby-Smith and Ramdas (JRSS B 2024), with a mixture over when the change came as
in Shin, Ramdas and Rinaldo (E-detectors, 2023), weighted so that a false alarm is bounded for all times together.

When it came is estimated by the image after which the most convinced of the bets gained most, sum log L.

As r the upper end of the interval of the calibrated rate is taken: calibration images are finitely many, and a
threshold that came out a little low is no change. `secondguess.accuracy.ConfidenceSequence`, which bets on a grid of
means, is made for hundreds of labels; this is for millions of images, at a few microseconds each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError

__all__ = ["Change", "RateTest"]

ODDS = np.array([1.3, 1.6, 2.0, 3.0, 6.0, 20.0, 100.0])


@dataclass(frozen=True)
class Change:
    """What the test found.

    Attributes:
        since: the first image after the change, estimated; counted from 0.
        noticed: the image at which it became certain.
    """

    since: int
    noticed: int


class RateTest:
    """Sequential test of a stream of alarms.

    Args:
        rate: r, the alarm rate that is not a change yet.
        alpha: the probability of ever seeing a change where there is none.
    """

    def __init__(self, rate: float, alpha: float = 0.01) -> None:
        if not (0 < rate < 1 and 0 < alpha < 1):
            raise UserError(f"The rate is {rate!r} and alpha {alpha!r}; both must be above 0 and below 1.")
        self.rate, self.alpha = rate, alpha
        self.images = 0
        self.change: Change | None = None
        stakes = (ODDS - 1) / (1 - rate + ODDS * rate)
        self._gain, self._loss = np.log1p(stakes * (1 - rate)), np.log1p(-stakes * rate)
        self._bet = np.full(len(ODDS), -np.inf)  # log A_t
        self._sum = np.zeros(len(ODDS))  # of log L
        self._low = np.zeros(len(ODDS))  # its smallest value so far
        self._low_at = np.zeros(len(ODDS), dtype=np.int64)  # after how many images
        self._peak = 0.0

    @property
    def p_value(self) -> float:
        """1 / the largest capital so far: a p-value at any time."""
        return math.exp(-self._peak)

    def update(self, alarms: NDArray[np.int64]) -> None:
        """Take in the alarms (n,) of the next images: 1 or 0."""
        if len(alarms) == 0:
            return
        factors = np.where(np.asarray(alarms)[:, None] > 0, self._gain, self._loss)
        sums = np.cumsum(factors, axis=0)
        before = np.vstack([np.zeros(len(ODDS)), sums[:-1]])
        at = self.images + 1 + np.arange(len(factors), dtype=np.float64)
        entries = -np.log(at * (at + 1))[:, None] - before
        joined = np.logaddexp.accumulate(np.vstack([self._bet, entries]), axis=0)[1:]
        bets = sums + joined
        capital = np.logaddexp(-np.log(at + 1), np.logaddexp.reduce(bets, axis=1) - math.log(len(ODDS)))
        self._note(bets, self._sum + sums, capital)
        self._bet, self._sum = bets[-1], self._sum + sums[-1]
        self.images += len(factors)

    def _note(self, bets: NDArray[np.float64], sums: NDArray[np.float64], capital: NDArray[np.float64]) -> None:
        """Remember the largest capital, the lowest sums, and the change where it becomes certain."""
        self._peak = max(self._peak, float(capital.max()))
        above = np.flatnonzero(capital >= -math.log(self.alpha))
        if self.change is None and len(above):
            row = int(above[0])
            best = int(bets[row].argmax())
            self._lower(sums[:row])
            self.change = Change(int(self._low_at[best]), self.images + row)
        elif self.change is None:
            self._lower(sums)

    def _lower(self, sums: NDArray[np.float64]) -> None:
        if len(sums):
            rows = sums.argmin(axis=0)
            lowest = sums[rows, np.arange(len(ODDS))]
            lower = lowest <= self._low
            self._low_at = np.where(lower, self.images + rows + 1, self._low_at)
            self._low = np.minimum(lowest, self._low)
