"""Surprise coverage: which share of the range of surprise a set of images reaches.

The range (lower, upper] is divided into n buckets of equal width, closed on the right; coverage is the share of buckets
hit by at least one score (Kim, Feldt and Yoo, ICSE 2019: lower = 0, n = 1000). The range must be fixed before any test
set is scored, or the coverages of two sets cannot be compared: `from_nominal` takes it from nominal scores. Scores
outside are counted apart and cover nothing.

A larger set covers more, whatever it holds. Sets of different size are compared by what as many of their images would
cover on average: of N scores of which c_i hit bucket i, m drawn without replacement hit it with probability
1 - C(N - c_i, m) / C(N, m) (`expected`, the rarefaction of Hurlbert, Ecology 1971).

Two implementations differ from the definition; `compat` reproduces them:

* `"sadl"`: n edges from lower to upper, hence n - 1 buckets within, closed on the left; everything from upper on is one
  more bucket, and everything below lower yet another, so that a share of n may exceed 1. (sadl sets lower to the least
  score of the set at hand.)
* `"dnn-tip"`: n buckets closed on the left; scores below lower and from upper on cover nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.sealed import read_json, write_json_sealed
from secondguess.errors import UserError
from secondguess.supervisors.surprise._classes import one_of

__all__ = ["Collected", "SurpriseCoverage"]

Scores = NDArray[np.floating[Any]]


class SurpriseCoverage:
    """Coverage of a range of scores, accumulated over any number of batches.

    Args:
        lower: where the range begins; 0 by definition, but `lsa` may be negative.
        upper: where it ends.
        buckets: into how many equal parts it is divided.
        compat: see this module.

    Attributes:
        counts: how many scores have hit each bucket within the range: (buckets,), or one less with `compat="sadl"`.
        underflow: how many scores lay below the range.
        overflow: how many lay above it, +inf among them.
    """

    def __init__(
        self,
        lower: float,
        upper: float,
        buckets: int = 1000,
        *,
        compat: Literal["sadl", "dnn-tip"] | None = None,
    ) -> None:
        if not (_finite(lower) and _finite(upper) and lower < upper):
            raise UserError(
                f"The range of surprise must go from a number to a larger one, not from {lower!r} to {upper!r}."
            )
        if not (_finite(buckets) and float(buckets).is_integer() and buckets >= (2 if compat == "sadl" else 1)):
            raise UserError(f"The number of buckets is {buckets!r}; it must be a whole number from 1 on (sadl: 2).")
        one_of("compat", compat, (None, "sadl", "dnn-tip"))
        self.lower, self.upper, self.buckets = float(lower), float(upper), int(buckets)
        self.compat = compat
        self.counts = np.zeros(len(self.edges) - 1, dtype=np.int64)
        self.underflow = 0
        self.overflow = 0

    @classmethod
    def from_nominal(
        cls,
        scores: Scores,
        buckets: int = 1000,
        *,
        lower: float | None = None,
        quantiles: tuple[float, float] = (0.0, 1.0),
        compat: Literal["sadl", "dnn-tip"] | None = None,
    ) -> Self:
        """A range taken from nominal scores (n,), infinite ones left out.

        Args:
            scores: of nominal images.
            buckets: into how many parts the range is divided.
            lower: where the range begins, such as 0 for distances; else the lower quantile. The range is open there, so
                the least nominal score itself lies below it.
            quantiles: of the scores at which the range begins and ends; by default the least and the largest.
            compat: see this module.
        """
        values = _checked(scores)
        finite = values[np.isfinite(values)]
        if not len(finite):
            raise UserError("No finite nominal score was given, so the range of surprise is unknown.")
        least, largest = np.quantile(finite, quantiles)
        return cls(float(least) if lower is None else lower, float(largest), buckets, compat=compat)

    def __repr__(self) -> str:
        limits = f"{self.lower:g}, {self.upper:g}"
        return (
            f"SurpriseCoverage({f'[{limits})' if self.compat else f'({limits}]'}, {self.buckets} buckets: "
            f"{self.coverage:.1%} covered, {self.underflow} scores below, {self.overflow} above)"
        )

    @property
    def edges(self) -> NDArray[np.float64]:
        """The borders of the buckets within the range, ascending."""
        return np.linspace(self.lower, self.upper, self.buckets + (self.compat != "sadl"))

    @property
    def covered(self) -> NDArray[np.bool_]:
        """Which buckets within the range have been hit, one for each of `counts`."""
        return self.counts > 0

    @property
    def coverage(self) -> float:
        """The share of buckets that have been hit, from 0 to 1 (sadl: 1 + 1 / buckets)."""
        hit = int(self.covered.sum())
        if self.compat == "sadl":
            hit += (self.underflow > 0) + (self.overflow > 0)
        return hit / self.buckets

    @property
    def total(self) -> int:
        """How many scores were counted, those outside the range included."""
        return int(self.counts.sum()) + self.underflow + self.overflow

    def expected(self, scores: int) -> float:
        """The coverage that so many of the scores counted here would have on average, drawn without replacement."""
        if not 0 <= scores <= self.total:
            raise UserError(f"{self.total} scores were counted, so {scores} of them cannot be drawn.")
        from scipy.special import gammaln

        counts = np.array([*self.counts, *([self.underflow, self.overflow] if self.compat == "sadl" else [])])
        others = np.maximum(self.total - counts, scores)  # with fewer than `scores` others a bucket is always hit
        ways = gammaln(others + 1) - gammaln(others - scores + 1)
        all_ways = gammaln(self.total + 1) - gammaln(self.total - scores + 1)
        missed = np.where(self.total - counts >= scores, np.exp(ways - all_ways), 0.0)
        return float((1 - missed).sum() / self.buckets)

    def bucket_of(self, scores: Scores) -> NDArray[np.int64]:
        """The bucket (n,) of each score, as an index of `counts`; -1 below the range, `len(counts)` above it."""
        values = _checked(scores)
        if self.compat is None:
            return np.searchsorted(self.edges, values, side="left") - 1
        found = np.searchsorted(self.edges, values, side="right") - 1
        return np.asarray(found)

    def add(self, scores: Scores) -> Self:
        """Count more scores (n,)."""
        found = self.bucket_of(scores)
        size = len(self.counts)
        self.counts += np.bincount(found[(found >= 0) & (found < size)], minlength=size)
        self.underflow += int((found < 0).sum())
        self.overflow += int((found >= size).sum())
        return self

    def __or__(self, other: SurpriseCoverage) -> SurpriseCoverage:
        """The coverage of both sets of scores together."""
        mine, theirs = self._grid(), other._grid()
        if mine != theirs:
            raise UserError(
                f"Two coverages can be united if their buckets are the same; these are {mine} and {theirs}."
            )
        union = SurpriseCoverage(self.lower, self.upper, self.buckets, compat=self.compat)
        union.counts = self.counts + other.counts
        union.underflow = self.underflow + other.underflow
        union.overflow = self.overflow + other.overflow
        return union

    def save(self, path: str | Path) -> None:
        """Write range and counts to a JSON file."""
        counted = {"counts": self.counts.tolist(), "underflow": self.underflow, "overflow": self.overflow}
        write_json_sealed(Path(path), self._grid() | counted, indent=None)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` has written."""
        try:
            card = read_json(Path(path), sealed=False)
            made = cls(card["lower"], card["upper"], card["buckets"], compat=card["compat"])
            made.counts = np.array(card["counts"], dtype=np.int64).reshape(made.counts.shape)
            made.underflow, made.overflow = int(card["underflow"]), int(card["overflow"])
        except FileNotFoundError as error:
            raise UserError(f"There is no surprise coverage at {path}.") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} is not a saved surprise coverage ({error}).") from error
        return made

    @classmethod
    def collect(
        cls, path: str | Path, scores: Scores, *, buckets: int | None = None, upper: float | None = None
    ) -> Collected:
        """Count scores (n,) of one more set, beside those that a file holds; the file then holds all of them.

        Args:
            path: of the file. Where there is none, a new one is begun, and its range taken from these scores: from 0,
                or from the least score where that is negative, to the largest.
            scores: of the images of the set.
            buckets: of a new file; 1000 if left out.
            upper: where the range of a new file ends, instead of at the largest score.
        """
        path, before = Path(path), None
        if path.exists():
            if buckets is not None or upper is not None:
                raise UserError(f"{path} has its range and its buckets already; leave buckets and upper out.")
            before = cls.load(path)
            own = cls(before.lower, before.upper, before.buckets, compat=before.compat)
        else:
            values = _checked(scores)
            lower = min(0.0, float(values.min(initial=0.0, where=np.isfinite(values))))
            parts = 1000 if buckets is None else buckets
            own = cls.from_nominal(values, parts, lower=lower) if upper is None else cls(lower, upper, parts)
        own.add(scores)
        found = Collected(own, own if before is None else before | own, before)
        found.together.save(path)
        return found

    def _grid(self) -> dict[str, Any]:
        return {"lower": self.lower, "upper": self.upper, "buckets": self.buckets, "compat": self.compat}


@dataclass(frozen=True)
class Collected:
    """What a set of images covers, and what it adds to those before it.

    Attributes:
        own: the coverage of the set.
        together: that of all sets so far.
        before: that of the sets before it; None where it is the first.
    """

    own: SurpriseCoverage
    together: SurpriseCoverage
    before: SurpriseCoverage | None

    def summary(self) -> str:
        """One line."""
        own, size = self.own, max(1, self.own.total)
        words = (
            f"{own.coverage:.1%} of {own.buckets:,} buckets from {own.lower:.4g} to {own.upper:.4g} covered; "
            f"{own.overflow / size:.1%} of the scores lie above"
        )
        if self.before is None:
            return f"{words}; the range is that of these scores"
        return f"{words}; with those before {self.before.coverage:.1%} became {self.together.coverage:.1%}"

    def to_dict(self) -> dict[str, Any]:
        """The range, the shares covered, and how many scores lie outside."""
        return self.own._grid() | {
            "scores": self.own.total,
            "coverage": self.own.coverage,
            "below": self.own.underflow,
            "above": self.own.overflow,
            "before": self.before and self.before.coverage,
            "together": self.together.coverage,
        }


def _finite(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and bool(np.isfinite(float(value)))


def _checked(scores: Scores) -> NDArray[np.float64]:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or np.isnan(values).any():
        raise UserError(f"Scores must be one number per image without NaN, not an array of shape {values.shape}.")
    return values
