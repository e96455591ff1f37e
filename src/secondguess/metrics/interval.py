"""Confidence intervals.

`bootstrap` is the percentile bootstrap of Efron (1979): evaluate the statistic on samples drawn with
replacement from the data, and report the quantiles (1 - level) / 2 and (1 + level) / 2 of the results. It
assumes independent rows, it inherits the bias of the statistic, and it knows nothing of what the sample does not
hold: a statistic that is the same on every resample (an AUROC of 1) gets an interval of width zero, which
means "no exception seen", not "certain".

Of more than 32,768 rows only as many are drawn for a resample (the m out of n bootstrap of Bickel, Götze and van Zwet
1997): the replicates then spread sqrt(n / m) times as far around the estimate, and are drawn nearer by that factor.
This holds for statistics whose error falls with the square root of n, as those here do, and costs the same for any n.

`wilson` is the score interval of Wilson (1927) for a proportion, whose coverage stays close to nominal near 0
and 1 and in small samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.errors import UserError
from secondguess.metrics import checks

__all__ = ["Interval", "bootstrap", "wilson"]

Sample: TypeAlias = ArrayLike | tuple[ArrayLike, ...]

_MOST_ROWS = 2**15  # of all samples together, that are drawn for a resample


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its confidence interval; always finite, so that it can be written as JSON.

    The estimate need not lie between the bounds: the bootstrap of a biased statistic can miss it.

    Attributes:
        value: the estimate on the data as given.
        low: lower bound.
        high: upper bound.
        n: number of rows that the estimate is based on.
        level: nominal coverage, between 0 and 1.
    """

    value: float
    low: float
    high: float
    n: int
    level: float = 0.95

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.value, self.low, self.high))):
            raise ValueError(f"an interval is finite, not {self.value} ({self.low} to {self.high})")
        if self.low > self.high:
            raise ValueError(f"an interval runs upwards, not from {self.low} to {self.high}")
        if self.n < 1:
            raise ValueError(f"an interval rests on at least one row, not on {self.n}")
        check_level(self.level)

    @classmethod
    def from_replicates(cls, value: float, replicates: ArrayLike, n: int, level: float = 0.95) -> Interval:
        """Make the percentile interval from the values (r,) that a statistic took on r resamples.

        Args:
            value: the statistic on the data as given.
            replicates: (r,) the statistic on each resample.
            n: how many rows the data has.
            level: share of the replicates between the two bounds, which are interpolated linearly.
        """
        check_level(level)
        values = checks.floats(replicates, "replicates")
        checks.positive(values.size, "The number of replicates")
        bad = values.size - int(np.isfinite(values).sum())
        if bad or not math.isfinite(value):
            raise UserError(
                f"The statistic is {value:.4g} on the data and not finite on {bad} of {values.size} "
                f"resamples; give a statistic that is finite on every resample."
            )
        low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
        return cls(float(value), float(low), float(high), int(n), float(level))

    def to_dict(self) -> dict[str, float | int]:
        """Return the five fields as plain Python numbers."""
        return {
            "value": float(self.value),
            "low": float(self.low),
            "high": float(self.high),
            "n": int(self.n),
            "level": float(self.level),
        }

    def __format__(self, spec: str) -> str:
        spec = spec or ".3f"
        return f"{self.value:{spec}} ({self.low:{spec}} to {self.high:{spec}})"

    def __str__(self) -> str:
        return format(self)


def bootstrap(
    statistic: Callable[..., float],
    *samples: Sample,
    resamples: int = 500,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Return the percentile bootstrap interval of any statistic whose error falls with the square root of n.

    Each sample is resampled by rows (its first axis), independently of the other samples and to its own size, or to the
    same share of it where the samples have more than 32,768 rows together.
    Arrays that belong together row by row, such as predictions and their labels, form ONE sample: pass them
    as a tuple, and the same rows are drawn from each. The statistic receives the arrays in the order given,
    tuples unpacked:

        bootstrap(auroc, nominal_scores, other_scores)     # two samples:  auroc(nominal, other)
        bootstrap(brier, (probabilities, labels))          # one sample:   brier(probabilities, labels)

    Sample number i draws from child i of the seed, so the rows drawn from one do not depend on the others.

    Args:
        statistic: called with the arrays, returns a finite number.
        *samples: arrays of at least one row, or tuples of arrays of equal length.
        resamples: how many resamples are drawn.
        level: nominal coverage of the interval.
        seed: the seed of the draws.

    Returns:
        The interval; its `n` is the number of rows of all samples together.
    """
    groups = [_arrays(sample) for sample in samples]
    if not groups:
        raise UserError("No sample was given to the bootstrap; give at least one array.")
    resamples = checks.positive(resamples, "resamples")
    check_level(level)
    value = float(statistic(*(array for group in groups for array in group)))
    generators = child_generators(seed, len(groups))
    rows_in_all = sum(len(group[0]) for group in groups)
    share = min(1.0, _MOST_ROWS / rows_in_all)
    replicates = np.empty(resamples)
    for i in range(resamples):
        drawn: list[NDArray[Any]] = []
        for group, rng in zip(groups, generators, strict=True):
            rows = rng.integers(len(group[0]), size=math.ceil(share * len(group[0])))
            drawn.extend(array[rows] for array in group)
        replicates[i] = statistic(*drawn)
    if share < 1:
        replicates = value + math.sqrt(share) * (replicates - value)
    return Interval.from_replicates(value, replicates, rows_in_all, level)


def wilson(successes: int, n: int, level: float = 0.95) -> Interval:
    """Return the Wilson score interval of the proportion `successes / n`.

    With p = successes / n and z the normal quantile at (1 + level) / 2, the bounds are

        (p + z²/2n ± z √(p (1 - p) / n + z²/4n²)) / (1 + z²/n).

    Args:
        successes: how many of the n trials succeeded.
        n: number of trials, at least 1.
        level: nominal coverage of the interval.
    """
    n = checks.positive(n, "n")
    if not 0 <= successes <= n or successes != int(successes):
        raise UserError(f"successes is {successes!r} of {n}; give a whole number from 0 to {n}.")
    check_level(level)
    z = NormalDist().inv_cdf((1 + level) / 2)
    p = successes / n
    centre = p + z * z / (2 * n)
    spread = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # The bounds are exactly 0 and 1 at the ends, which the rounding of the two terms above would miss.
    low = 0.0 if successes == 0 else (centre - spread) / scale
    high = 1.0 if successes == n else (centre + spread) / scale
    return Interval(p, low, high, n, float(level))


def check_level(level: float) -> None:
    """Refuse a confidence level outside the open interval from 0 to 1."""
    if not 0 < level < 1:
        raise UserError(f"The confidence level is {level!r}; give a number between 0 and 1, such as 0.95.")


def child_generators(seed: int, count: int) -> list[np.random.Generator]:
    """Return `count` independent generators: what one sample draws never shifts what another draws."""
    return np.random.default_rng(seed).spawn(count)


def _arrays(sample: Sample) -> list[NDArray[Any]]:
    """Return the arrays of one sample, which all have the same, positive number of rows."""
    arrays = [np.asarray(item) for item in (sample if isinstance(sample, tuple) else (sample,))]
    if any(array.ndim == 0 for array in arrays) or len({len(array) for array in arrays}) != 1:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise UserError(f"The arrays of one sample have shapes {shapes}; give arrays with equally many rows.")
    if len(arrays[0]) == 0:
        raise UserError("A sample for the bootstrap is empty; give at least one row.")
    return arrays
