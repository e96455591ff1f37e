"""Which compositions are ambiguous images: five checks, and the label of those that pass them.

Each check is made as early and as cheaply as it can be, and again where more is known, so that most looks are spent on
the few candidates that are left; what is lost counts as lost to the check that it failed first:

* `between`: the generative judge gives its pair of classes most of the probability. The committee's look, which costs
  next to nothing, comes first: two thirds of that probability are asked of it, and it names the other classes that are
  worth a look. The judge's first look at these must leave the pair nearly all of it, the third all
* `ambiguous`: within the pair it leans to neither by more than `delta_max`. Where the committee leans so far that no
  answer of the judge could balance it and agree with it, the judge looks only where the dial is to learn from it
* `agreed`: the committee's share of the pair is not far from the judge's
* `real`: it is as near to real images as plain samples of the generator are
* `settled`: after many more draws of noise, which give its label, the judges still lean to neither. Who is chosen for a
  noisy share near one half has, on the average, a share farther away

What leans, or is not agreed on, is a near miss (`misses.py`).

Shares within the pair are calibrated on images whose share is known (`shares.py`): the judge's with all draws. Where it
has looked with few, its log-odds, which are shrunk for their scatter, are taken for those. The label is the logarithmic
opinion pool of both judges (`pool.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from secondguess.images import ImageSet
from secondguess.stress.ambiguous.flow.committee import Committee
from secondguess.stress.ambiguous.flow.dial import logit
from secondguess.stress.ambiguous.flow.judge import DenoisingJudge, Look, chosen_classes
from secondguess.stress.ambiguous.flow.pool import Pool
from secondguess.stress.ambiguous.flow.reality import Reality
from secondguess.stress.ambiguous.flow.shares import ShareCalibration, log_odds_of

__all__ = ["CHECKS", "Selected", "Selection"]

CHECKS = ("between", "ambiguous", "agreed", "real", "settled")
GLANCED = 1.25  # times the largest |logit| of a share that is wanted: beyond it no further look is taken
GLIMPSED = 5 / 6  # of the pair's least probability, at a first look: hardly any image with less has it in the end
POSSIBLE, RIVALS = 0.02, 2  # probability by the committee of other classes to look at, and how many at least
NEAR = ("ambiguous", "agreed", "settled")  # checks that leave a near miss
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Selected:
    """What became of candidates.

    Attributes:
        passed: by check, the candidates that came through it.
        share: float64 (m,), the label of those that came through all.
        share_generative: float64 (m,), the generative judge's.
        share_committee: float64 (m,), the committee's, or None.
        opinions: float64 (n, K), what the committee said of all candidates, or None.
        sounded: the candidates from which the dial may learn: chosen by nobody but for the mass of their pair.
        leans: float64, the logits of the label's share of their first class, as noisy as few draws are.
        near: the near misses.
        near_leans: float64, the same of these, as far as the judges have looked.
    """

    passed: dict[str, Rows]
    share: Floats
    share_generative: Floats
    share_committee: Floats | None
    opinions: Floats | None
    sounded: Rows
    leans: Floats
    near: Rows
    near_leans: Floats


@dataclass(frozen=True)
class Selection:
    """The checks.

    Attributes:
        judge: the generative one.
        committee: the second judge, or None.
        reality: the check of realism, or None.
        delta_max: the largest |p1 - p2|.
        mass: the least probability of the pair.
        disagreement: the largest difference between the judges' shares.
        pool: how both judges make a label.
    """

    judge: DenoisingJudge
    committee: Committee | None
    reality: Reality | None
    delta_max: float
    mass: float
    disagreement: float
    pool: Pool = field(default_factory=Pool)

    def select(self, images: Bytes, pair: Rows, sound: NDArray[np.bool_] | None = None) -> Selected:
        """Check candidates uint8 (n, C, H, W) between the classes (n, 2).

        Args:
            images: the candidates.
            pair: their classes.
            sound: bool (n,), those that the judge looks at whatever the committee says, for the dial; None for all.
        """
        judge, opinions = self.judge, self._opinion(images)
        theirs = None if self.committee is None else self.committee.shares
        left = _Left(images, pair, opinions, judge.shares, theirs, self.pool)
        sound = np.ones(len(images), dtype=bool) if sound is None else sound
        left.keep(left.mass_of_committee() >= self.mass * 2 / 3, "between")
        left.keep(self._possible(left) | sound[left.rows], "ambiguous")
        left.look = judge.glance(left.images, chosen_classes(left.pair, judge.field.classes))
        sounded = sound[left.rows]
        own = judge.shares.logits(judge.lean(left.pair, left.look), left.pair)
        rows, leans = left.rows[sounded], left.pooled(own)[sounded]
        left.keep(self._possible(left), "ambiguous")
        left.keep(np.abs(left.logits()) < GLANCED * self._widest, "ambiguous")
        left.compare(judge)
        left.keep(self._mild(left), "ambiguous")
        left.keep(self._agreed(left), "agreed")
        left.keep(left.glimpse(judge) >= self.mass * GLIMPSED, "between")
        left.examine(judge)
        left.keep(left.mass() >= self.mass, "between")
        if self.reality is not None and len(left.rows):
            left.keep(self.reality.accepts(left.images), "real")
        left.settle(judge)
        left.keep(self._mild(left) & self._agreed(left), "settled")
        second = None if left.committee is None else left.share_of_committee()
        label = expit(left.logits())
        return Selected(left.passed(), label, left.share(), second, opinions, rows, leans, *left.near_misses())

    def _opinion(self, images: Bytes) -> Floats | None:
        if self.committee is None:
            return None
        return self.committee.judge(ImageSet.from_arrays(images, layout="NCHW"))

    @property
    def _widest(self) -> float:
        """The largest logit of a label."""
        return float(logit(np.array([0.5 + self.delta_max / 2]))[0])

    def _possible(self, left: _Left) -> NDArray[np.bool_]:
        """Whether some share by the judge would be near enough to the committee's, and balance it."""
        if left.committee is None:
            return np.ones(len(left.rows), dtype=bool)
        theirs, apart = left.share_of_committee(), self.disagreement
        best = np.clip(expit(left.balancing()), theirs - apart, theirs + apart)
        return np.asarray(np.abs(left.pooled(logit(best))) <= self._widest)

    def _mild(self, left: _Left) -> NDArray[np.bool_]:
        return np.abs(np.tanh(left.logits() / 2)) <= self.delta_max  # |p1 - p2|

    def _agreed(self, left: _Left) -> NDArray[np.bool_]:
        return np.abs(left.share() - left.share_of_committee()) <= self.disagreement


class _Left:
    """The candidates that are left, with what the judges have said of them."""

    def __init__(
        self,
        images: Bytes,
        pair: Rows,
        committee: Floats | None,
        own: ShareCalibration,
        theirs: ShareCalibration | None,
        pool: Pool,
    ) -> None:
        self.rows = np.arange(len(images))
        self.images, self.pair, self.committee = images, pair, committee
        self._own, self._theirs, self._pool = own, theirs, pool
        self._look: Look | None = None
        self._first: Look | None = None  # the look before the two classes alone were compared
        self._lost: dict[str, list[Rows]] = {check: [] for check in CHECKS}
        self._near: list[tuple[Rows, Floats]] = [(self.rows[:0], np.zeros(0))]
        self._all = self.rows

    @property
    def look(self) -> Look:
        """What the generative judge has said."""
        assert self._look is not None
        return self._look

    @look.setter
    def look(self, look: Look) -> None:
        self._look = look

    def keep(self, chosen: NDArray[np.bool_], check: str) -> None:
        """Go on with some of them; the others are lost to this check."""
        self._lost[check].append(self.rows[~chosen])
        if check in NEAR:
            leans = self.logits() if self._look else self.pooled(self._logits_of_committee())
            self._near.append((self.rows[~chosen], leans[~chosen]))
        self.rows, self.images, self.pair = self.rows[chosen], self.images[chosen], self.pair[chosen]
        if self.committee is not None:
            self.committee = self.committee[chosen]
        self._look, self._first = (None if look is None else look.take(chosen) for look in (self._look, self._first))

    def passed(self) -> dict[str, Rows]:
        """The candidates that were lost neither to a check nor to one before it."""
        found, still = {}, self._all
        for check in CHECKS:
            still = np.setdiff1d(still, np.concatenate([*self._lost[check], still[:0]]))
            found[check] = still
        return found

    def near_misses(self) -> tuple[Rows, Floats]:
        """Those that were lost to a check which leaves a near miss, and their log-odds."""
        rows, leans = map(np.concatenate, zip(*self._near, strict=True))
        return rows, leans

    def compare(self, judge: DenoisingJudge) -> None:
        """Let the judge look at the pair with more draws."""
        self._first, self.look = self.look, judge.compare(self.images, self.pair, self.look)

    def glimpse(self, judge: DenoisingJudge) -> Floats:
        """Let the judge look at other classes for the first time; the probability (n,) that is left to the pair."""
        self._first = judge.glance(self.images, self.rivals(), seen=self._first)
        return _mass(self._first.probabilities, self.pair)

    def examine(self, judge: DenoisingJudge) -> None:
        """Let the judge look at the other classes with as many."""
        self.look = judge.examine(self.images, self._first, compared=self.look)

    def settle(self, judge: DenoisingJudge) -> None:
        """Let the judge look at the pair once more, and forget all other classes."""
        settled = np.zeros_like(self.look.probabilities)
        np.put_along_axis(settled, self.pair, judge.settle(self.images, self.pair, self.look), axis=1)
        self.look = Look(self.look.losses, settled)

    def mass(self) -> Floats:
        """The probability (n,) of the pair by the generative judge."""
        return _mass(self.look.probabilities, self.pair)

    def mass_of_committee(self) -> Floats:
        """The same by the committee; all of it where there is none."""
        return np.ones(len(self.rows)) if self.committee is None else _mass(self.committee, self.pair)

    def share(self) -> Floats:
        """Of the first class among the two (n,), by the generative judge."""
        return np.asarray(expit(self._logits()))

    def share_of_committee(self) -> Floats:
        """The same by the committee, or the judge's again; one half before anybody has looked."""
        return np.asarray(expit(self._logits_of_committee()))

    def logits(self) -> Floats:
        """The logits (n,) of the label's shares, as far as the judges have looked."""
        return self.pooled(self._logits())

    def pooled(self, judged: Floats) -> Floats:
        """The same with these logits (n,) by the generative judge."""
        return judged if self.committee is None else self._pool.logits(judged, self._logits_of_committee())

    def balancing(self) -> Floats:
        """The logits (n,) by the generative judge that would make an even label with the committee's."""
        return self._pool.opposite(self._logits_of_committee())

    def _logits(self) -> Floats:
        return self._own.logits(log_odds_of(self.look.probabilities, self.pair), self.pair)

    def _logits_of_committee(self) -> Floats:
        if self.committee is None or self._theirs is None:
            return self._logits() if self._look else np.zeros(len(self.rows))
        return self._theirs.logits(log_odds_of(self.committee, self.pair), self.pair)

    def rivals(self) -> NDArray[np.bool_] | None:
        """The other classes (n, K) that the committee has not ruled out, and the likeliest anyway; None for all."""
        if self.committee is None:
            return None
        classes = self.committee.shape[1]
        others = np.where(chosen_classes(self.pair, classes), -1.0, self.committee)
        kth = max(0, classes - RIVALS)
        least = np.partition(others, kth, axis=1)[:, [kth]]
        return np.asarray((others >= np.minimum(least, POSSIBLE)) & (others >= 0))


def _mass(probabilities: Floats, pair: Rows) -> Floats:
    return np.asarray(np.take_along_axis(probabilities, pair, axis=1).sum(axis=1))
