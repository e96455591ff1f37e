"""A promise about errors: accepted predictions are wrong at most so often.

A guard accepts a prediction whose statistic T is at most a limit. The risk of a limit is the probability that a
prediction which it accepts is wrong, R = P(wrong | T <= limit). Of n calibration images, k are accepted and e of these
are wrong; given k, e is Binomial(k, R) distributed, so that

    p = P(Binomial(k, r) <= e)

is a p-value of "R is larger than r". Limits are tested one after the other in an order that was fixed beforehand, each
at the level 1 - confidence, until the first that does not pass; the last that passed is taken. Then

    P(R <= r) >= confidence

over calibration sets, for every n: learn-then-test with fixed-sequence testing (Angelopoulos, Bates, Candes, Jordan and
Lei, 2021; the setting is that of Geifman and El-Yaniv, NeurIPS 2017). The limits and their order come from other images
(those that the panel learnt from): the order begins with the limit that looks safest there and goes upwards.

What the promise rests on: images of operation come from where the calibration images came from, and these were drawn
independently. It holds for the accepted predictions together, not for each class, and it says nothing about images that
were shifted, attacked or taken from elsewhere: what becomes of it on each stress set is measured, not promised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.metrics.interval import Interval, check_level, wilson

__all__ = ["RiskControl", "RiskPromise", "check_risk", "smallest_accepted"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LIMITS = 50  # that are tried; finer ones would promise hardly more coverage


def smallest_accepted(risk: float, confidence: float = 0.95) -> int:
    """The least number of accepted images, all of them right, with which a risk can be promised.

    >>> smallest_accepted(0.02), smallest_accepted(0.01)
    (149, 299)
    """
    check_risk(risk, confidence)
    return math.ceil(math.log(1 - confidence) / math.log(1 - risk) - 1e-9)


@dataclass(frozen=True)
class RiskPromise:
    """What is promised of the errors among accepted predictions.

    Attributes:
        risk: accepted predictions are wrong at most this often.
        confidence: with which, over calibration sets.
        accepted: the share of the calibration images that are accepted.
        wrong: the share of the accepted calibration images that are wrong.
    """

    risk: float
    confidence: float
    accepted: Interval
    wrong: Interval

    def __str__(self) -> str:
        return (
            f"With {self.confidence:.0%} confidence at most {self.risk:.2%} of the accepted predictions are wrong, on "
            f"images like those of the calibration; {self.accepted:.0%} of these are accepted."
        )

    @classmethod
    def from_dict(cls, card: dict[str, Any]) -> RiskPromise:
        """The opposite of `dataclasses.asdict`."""
        return cls(**{**card, "accepted": Interval(**card["accepted"]), "wrong": Interval(**card["wrong"])})


@dataclass(frozen=True, eq=False)
class RiskControl:
    """The limits to test, in the order in which they are tested.

    Attributes:
        risk: that is to be promised.
        confidence: with which.
        limits: (l,) rising; the last may be infinite, which accepts everything.
    """

    risk: float
    confidence: float
    limits: Floats

    @classmethod
    def plan(cls, statistics: Floats, wrong: Bools, risk: float, confidence: float = 0.95) -> RiskControl:
        """Choose the limits by images that are not used for anything else afterwards.

        Args:
            statistics: (n,) of these images.
            wrong: (n,) whether their predictions are wrong.
            risk: that is to be promised, such as 0.02.
            confidence: with which.
        """
        check_risk(risk, confidence)
        shares = np.arange(1, LIMITS) / LIMITS
        limits = np.append(np.unique(np.quantile(statistics, shares, method="higher")), np.inf)
        doubts = _p_values(statistics, wrong, limits, risk)
        return cls(float(risk), float(confidence), limits[int(np.argmin(doubts)) :])

    def promise(self, statistics: Floats, wrong: Bools) -> tuple[float, RiskPromise]:
        """The largest limit that keeps the risk, and what is promised of it.

        Args:
            statistics: (n,) of calibration images.
            wrong: (n,) whether their predictions are wrong.

        Raises:
            UserError: if the risk cannot be promised.
        """
        kept = _p_values(statistics, wrong, self.limits, self.risk) <= 1 - self.confidence
        passed = len(kept) if kept.all() else int(np.argmin(kept))  # limits before the first that fails
        if passed == 0:
            raise self._unattainable(statistics, wrong)
        found = float(self.limits[passed - 1])
        taken = statistics <= found
        count = int(taken.sum())
        accepted, errors = wilson(count, len(taken)), wilson(int(wrong[taken].sum()), count)
        return found, RiskPromise(self.risk, self.confidence, accepted, errors)

    def _unattainable(self, statistics: Floats, wrong: Bools) -> UserError:
        taken = statistics <= self.limits[0]
        return UserError(
            f"A risk of {self.risk:g} cannot be promised with {self.confidence:.0%} confidence: of the "
            f"{int(taken.sum())} calibration images that look safest {int(wrong[taken].sum())} are answered wrongly, "
            f"and a promise takes {smallest_accepted(self.risk, self.confidence)} without an error; give more images, "
            "allow a larger risk, or less confidence."
        )


def check_risk(risk: float, confidence: float) -> None:
    """Raise a `UserError` unless both are shares between 0 and 1."""
    if not 0 < risk < 1:
        raise UserError(f"The risk is {risk!r}; give the share of wrong accepted predictions, such as 0.02.")
    check_level(confidence)


def _p_values(statistics: Floats, wrong: Bools, limits: Floats, risk: float) -> Floats:
    """(l,) P(Binomial(k, risk) <= e) of the k images accepted by each limit with e errors; 1 where none is accepted."""
    from scipy.stats import binom

    taken = [statistics <= limit for limit in limits]
    errors, accepted = [int(wrong[one].sum()) for one in taken], [int(one.sum()) for one in taken]
    return np.asarray(binom.cdf(errors, accepted, risk))
