"""An interval that is valid after every label: a confidence sequence by betting.

Observations z_1, z_2, ... arrive, each with the same conditional mean m given the past and a range [low_t, high_t] that
the past determines. A bettor against "the mean is m" with stakes s that depend on the past only has the capital

    prod_t (1 + s_t (z_t - m)),        -1 / (high_t - m) <= s_t <= 1 / (m - low_t),

a non-negative martingale if m is true, which exceeds 1 / (1 - level) at any time at all with a probability of at most
1 - level (Ville 1939). The m that have not been refuted so far form the interval (Waudby-Smith and Ramdas, Estimating
means of bounded random variables by betting, JRSS B 2024). The interval may be read, and labelling stopped, at any
time.

Stakes: an equal mixture of fixed ones, log-spaced and of both signs, each cut to `BOLDNESS` of what is legal, instead
of stakes that follow the estimated variance: some of them is close to the best one at any time. The m live on a grid of
2,501 points; those refuted are dropped, and the interval reaches one grid step beyond the ones that are left.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from secondguess.metrics.interval import check_level

__all__ = ["ConfidenceSequence"]

POINTS = 2501
STAKES = np.geomspace(0.02, 40.0, 10)
BOLDNESS = 0.9


class ConfidenceSequence:
    """The interval for a mean in [0, 1] that holds at all times together.

    Args:
        level: the probability with which it does.
    """

    def __init__(self, level: float = 0.95) -> None:
        check_level(level)
        self.level = level
        self._means = np.linspace(0, 1, POINTS)
        self._step = 1 / (POINTS - 1)
        self._capital = np.zeros((2, len(STAKES), POINTS))  # logarithms: bets that the mean is larger, and smaller

    @property
    def low(self) -> float:
        """The lower bound."""
        return max(0.0, float(self._means[0]) - self._step)

    @property
    def high(self) -> float:
        """The upper bound."""
        return min(1.0, float(self._means[-1]) + self._step)

    def update(self, value: float, low: float, high: float) -> None:
        """Take in an observation and the range in which it had to lie."""
        distance = value - self._means
        for sign, room, capital in zip((1, -1), (self._means - low, high - self._means), self._capital, strict=True):
            legal = BOLDNESS / np.maximum(room, 1e-12)
            capital += np.log1p(sign * np.minimum(STAKES[:, None], np.where(room > 0, legal, np.inf)) * distance)
        flat = self._capital.reshape(-1, len(self._means))
        peak = flat.max(axis=0)
        total = peak + np.log(np.exp(flat - peak).mean(axis=0))
        self._keep(total < -math.log(1 - self.level), total)

    def confine(self, low: float, high: float) -> None:
        """Exclude values that are impossible."""
        inside = (self._means >= low - self._step) & (self._means <= high + self._step)
        self._keep(inside, np.abs(self._means - (low + high) / 2))

    def _keep(self, alive: NDArray[np.bool_], surprise: NDArray[np.float64]) -> None:
        """Between two means that are left all are kept, so that they form an interval; the least refuted always is."""
        if not alive.any():
            alive = surprise == surprise.min()
        left = np.flatnonzero(alive)
        part = slice(int(left[0]), int(left[-1]) + 1)
        self._means, self._capital = self._means[part], self._capital[:, :, part]
