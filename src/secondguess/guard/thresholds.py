"""From a score to an alarm, with a false-alarm rate that is promised for every sample size.

With nominal calibration scores s_1 ... s_n that nothing was fitted on, the conformal p-value of a new score s is

    p(s) = (1 + #{i : s_i >= s}) / (n + 1)

If s and the s_i are exchangeable (drawn alike and independently, say), P(p <= a) <= a for every a: the share of nominal
images with p <= a is at most a on average over calibration sets, whatever the distribution of the scores and however
good they are (Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005; for detection: Bates, Candes,
Lei, Romano and Sesia, Annals of Statistics 2023). Ties only make p larger. With `smooth`, ties are broken by a draw U,
p = (#{s_i > s} + U (1 + #{s_i = s})) / (n + 1), which is exactly uniform.

The alarm p <= a is the alarm "s is above the k-th largest calibration score", k = floor(a (n + 1)). The rate that this
threshold has from then on is random, because the calibration set was: without ties it is Beta(k, n + 1 - k)
distributed (Vovk 2012), which gives the interval of `realised_rate`; with ties it is smaller. A rate below 1 / (n + 1)
cannot be promised with n scores: it is refused rather than answered with the largest of them.

What the promise rests on: images of operation come from where the calibration images came from. The classifier must not
have been trained on these; after a shift, `Calibration` is made anew from fresh nominal scores, and nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.errors import UserError
from secondguess.metrics.interval import Interval, check_level

__all__ = ["ROUNDING", "Calibration", "Threshold", "conformal_p_values", "realised_rate", "smallest_sample"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ROUNDING = 1e-9  # of a rate: 1 - .9 is slightly below .1
POOLED = -1  # the group of classes that have too few calibration images of their own


def conformal_p_values(calibration: ArrayLike, scores: ArrayLike, *, smooth: int | None = None) -> Floats:
    """The p-values (m,) of scores (m,) among nominal calibration scores (n,).

    >>> conformal_p_values([1.0, 2.0, 3.0], [0.0, 2.0, 9.0]).tolist()
    [1.0, 0.75, 0.25]

    Args:
        calibration: (n,) nominal scores, in any order; infinities are allowed, NaN is not.
        scores: (m,).
        smooth: the seed with which ties are broken at random; ties count as larger, which is safe, if left out.
    """
    return _p_values(np.sort(_scores(calibration)), _scores(scores), smooth)


def smallest_sample(rate: float) -> int:
    """The least number of calibration scores with which a false-alarm rate can be promised.

    >>> smallest_sample(0.01), smallest_sample(0.05)
    (99, 19)
    """
    _check_rate(rate)
    return max(1, math.ceil(1 / rate - 1 - ROUNDING))  # 1 / .05 is slightly above 20 for some rates


def realised_rate(n: int, rate: float, level: float = 0.95) -> Interval:
    """The false-alarm rate that a threshold from n scores will really have: its mean, and where it lies.

    Args:
        n: calibration scores.
        rate: the requested rate.
        level: the probability, over calibration sets, with which the rate lies in the interval.

    Returns:
        Mean and central interval of Beta(k, n + 1 - k), k = floor(rate (n + 1)); without ties it is exact.
    """
    from scipy.stats import beta

    check_level(level)
    k = _rank(n, rate)
    low, high = beta.ppf([(1 - level) / 2, (1 + level) / 2], k, n + 1 - k)
    return Interval(k / (n + 1), float(low), float(high), int(n), float(level))


@dataclass(frozen=True)
class Threshold:
    """A limit above which a score is an alarm, and how it was obtained.

    Attributes:
        value: an alarm is a score above it.
        rate: the requested false-alarm rate.
        n: the number of calibration scores.
        realised: the rate that it will have, with its interval.
    """

    value: float
    rate: float
    n: int
    realised: Interval

    @classmethod
    def at(cls, calibration: ArrayLike, rate: float, *, level: float = 0.95) -> Threshold:
        """The threshold of a false-alarm rate, from nominal scores (n,)."""
        ordered = np.sort(_scores(calibration))
        k = _rank(len(ordered), rate)
        return cls(
            float(ordered[len(ordered) - k]), float(rate), len(ordered), realised_rate(len(ordered), rate, level)
        )

    def alarms(self, scores: ArrayLike) -> NDArray[np.bool_]:
        """Which of the scores (m,) are alarms; the same as `conformal_p_values(...) <= rate`."""
        return np.asarray(_scores(scores) > self.value)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Sorted nominal scores, among which others are ranked.

    With `groups`, every class has calibration scores of its own, so that the promise holds within each class (Mondrian
    conformal prediction). A class is what the model predicts, since that is known at run time. Classes with fewer
    scores than the `minimum` share one pool; where the pool is too small itself, the smallest other class joins it. The
    promise then holds for the pool as a whole. Who is in the pool depends on how many calibration images each class
    happened to get, so for a class at the very edge of the minimum the promise is approximate.

    Attributes:
        scores: (n,) sorted within each group.
        groups: (n,) the group of each, ascending; all 0 where classes are not distinguished.
        known: the classes that are groups of their own, ascending; None where classes are not distinguished.
    """

    scores: Floats
    groups: Ints
    known: tuple[int, ...] | None = None

    def merge(self, other: Calibration) -> Calibration:
        """The calibration of the scores of both, exactly: what `of` makes of them together.

        Raises:
            UserError: where classes are distinguished, since the pool no longer says which class a score had.
        """
        if self.known is not None or other.known is not None:
            raise UserError(
                "Calibrations by class cannot be merged, because classes with few scores share a pool; put the scores "
                "and classes of all parts together and calibrate once."
            )
        return Calibration.of(np.concatenate([self.scores, other.scores]))

    @classmethod
    def of(cls, scores: ArrayLike, classes: ArrayLike | None = None, *, minimum: int = 1) -> Calibration:
        """Make a calibration.

        Args:
            scores: (n,) nominal scores.
            classes: (n,) the predicted classes, for p-values within each class.
            minimum: of scores in a group, such as `smallest_sample(rate)`.
        """
        values = _scores(scores)
        if len(values) < minimum:
            raise UserError(
                f"{len(values)} calibration images were given, but at least {minimum} are needed; give more nominal "
                "images, or allow more false alarms."
            )
        if classes is None:
            return cls(np.sort(values), np.zeros(len(values), dtype=np.int64))
        own = _groups(np.asarray(classes, dtype=np.int64), len(values), minimum)
        order = np.lexsort((values, own))
        known = tuple(int(group) for group in np.unique(own) if group != POOLED)
        return cls(values[order], own[order], known)

    @property
    def sizes(self) -> dict[int, int]:
        """How many scores each group has; -1 is the pool of the classes with too few."""
        found, counts = np.unique(self.groups, return_counts=True)
        return dict(zip(found.tolist(), counts.tolist(), strict=True))

    def p_values(self, scores: ArrayLike, classes: ArrayLike | None = None) -> Floats:
        """The p-values (m,) of scores (m,) of images with these predicted classes (m,)."""
        values = np.asarray(scores, dtype=np.float64)
        if self.known is None:
            return _p_values(self.scores, values)
        if classes is None:
            raise UserError("This calibration is by class; give the predicted classes with the scores.")
        own = np.asarray(classes, dtype=np.int64)
        own = np.where(np.isin(own, self.known), own, POOLED)
        # A class that no calibration image had, where there is no pool either, has no evidence for being nominal
        # beyond its own score: n = 0 gives p = 1, and never an alarm. The whole sample is the better judge.
        p = np.empty(len(values))
        for group in np.unique(own):
            mine = self.scores[self.groups == group]
            p[own == group] = _p_values(mine if len(mine) else np.sort(self.scores), values[own == group])
        return p

    def threshold(self, rate: float, group: int = 0, *, level: float = 0.95) -> Threshold:
        """The threshold of a false-alarm rate (of one group, where classes are distinguished)."""
        return Threshold.at(self.scores[self.groups == group], rate, level=level)

    def realised(self, rate: float, level: float = 0.95) -> Interval:
        """The false-alarm rate to expect over all images, with its interval.

        With groups, the mean of the rates of all groups, weighted by their sizes, and the root of their mean square
        spread: the groups' rates are independent.
        """
        sizes = list(self.sizes.values())
        parts = [realised_rate(n, rate, level) for n in sizes]
        if len(parts) == 1:
            return parts[0]
        weights = np.array(sizes) / sum(sizes)
        mean = float(weights @ [part.value for part in parts])
        below = math.sqrt(float(np.square(weights) @ [(part.value - part.low) ** 2 for part in parts]))
        above = math.sqrt(float(np.square(weights) @ [(part.high - part.value) ** 2 for part in parts]))
        return Interval(mean, max(0.0, mean - below), min(1.0, mean + above), sum(sizes), level)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a file must hold; the opposite of `from_arrays`."""
        known = np.array(self.known or (), dtype=np.int64)
        return {
            "scores": self.scores,
            "groups": self.groups,
            "known": known,
            "by_class": np.array(self.known is not None),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Calibration:
        """Read what `arrays` has written."""
        known = tuple(arrays["known"].tolist()) if bool(arrays["by_class"]) else None
        return cls(arrays["scores"], arrays["groups"], known)


def _p_values(ordered: Floats, scores: Floats, smooth: int | None = None) -> Floats:
    n = len(ordered)
    at_least = n - np.searchsorted(ordered, scores, side="left")
    if smooth is None:
        return np.asarray((1 + at_least) / (n + 1))
    above = n - np.searchsorted(ordered, scores, side="right")
    u = np.random.default_rng(smooth).random(len(scores))
    return np.asarray((above + u * (1 + at_least - above)) / (n + 1))


def _rounded_up(rate: float) -> str:
    """A rate with two digits, never less than it is."""
    step = 10.0 ** (math.floor(math.log10(rate)) - 1)
    return f"{math.ceil(rate / step - ROUNDING) * step:.2g}"


def _rank(n: int, rate: float) -> int:
    """k, so that p <= rate means above the k-th largest of n scores."""
    least = smallest_sample(rate)
    if n < least:
        raise UserError(
            f"A false-alarm rate of {rate:g} cannot be promised from {n} nominal images; give at least {least}, or ask "
            f"for a rate of {_rounded_up(1 / (n + 1))} or more."
        )
    return min(n, math.floor(rate * (n + 1) + ROUNDING))


def _groups(classes: Ints, n: int, minimum: int) -> Ints:
    """The group (n,) of each score: its class, or the pool."""
    if classes.shape != (n,):
        raise UserError(f"There are {n} calibration scores but classes of shape {classes.shape}; give one class each.")
    found, counts = np.unique(classes, return_counts=True)
    pooled, in_pool = set(), 0
    for group, count in sorted(zip(found.tolist(), counts.tolist(), strict=True), key=lambda one: (one[1], one[0])):
        if count >= minimum and (not in_pool or in_pool >= minimum):
            break
        pooled.add(group)
        in_pool += count
    return np.where(np.isin(classes, sorted(pooled)), POOLED, classes)


def _scores(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise UserError(f"Scores of shape {array.shape} were given; give one number per image, and at least one.")
    if np.isnan(array).any():
        raise UserError(
            f"{int(np.isnan(array).sum())} of {array.size} scores are NaN; a score is a number or infinity."
        )
    return array


def _check_rate(rate: float) -> None:
    if not 0 < rate < 1:
        raise UserError(f"The false-alarm rate is {rate!r}; give a number above 0 and below 1, such as 0.01.")
