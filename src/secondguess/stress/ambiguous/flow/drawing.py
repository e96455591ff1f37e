"""Draw compositions until every pair has its share of ambiguous images, or has had its chances.

A candidate is accepted if it passes five checks, each after the one before, so that later ones cost less:

* `between`: the generative judge gives its pair of classes most of the probability (all other classes are looked at),
  and so does the committee, of which half of that is asked: its look costs next to nothing and comes first
* `ambiguous`: within the pair it leans to neither by more than `delta_max`
* `agreed`: the committee's share of the pair is not far from the judge's
* `real`: it is as near to real images as plain samples of the generator are
* `settled`: after many more draws of noise, which give its label, the judge still leans to neither. Who is chosen for a
  noisy share near one half has, on the average, a share farther away

The dial is the share of the first class that is asked for. The network's own log-odds, which the sampling controls,
overstate what the calibrated judge concludes; how much, and with which bias for each pair, is learnt from the
judgements of earlier rounds:

    logit(share) = slope * log-odds + offset of the pair
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.images import ImageSet
from secondguess.progress import Progress
from secondguess.stress.ambiguous.base import Candidates, water_fill
from secondguess.stress.ambiguous.flow.committee import Committee
from secondguess.stress.ambiguous.flow.model import Flow
from secondguess.stress.ambiguous.flow.reality import Reality
from secondguess.training._examples import derive_seed

__all__ = ["CHECKS", "Dial", "FlowDrawer"]

CHECKS = ("between", "ambiguous", "agreed", "real", "settled")
ROUNDS = 40
LEAST_YIELD = 0.005  # of the candidates, after some rounds; below, a pair counts as barren
PATIENCE = 6
FAR = 7.0  # log-odds beyond which all are alike
GLANCED = 2.9  # of |logit share|, at the first look: beyond .05 and .95 no further look is taken
Floats = NDArray[np.float64]
Pair = tuple[int, int]


@dataclass
class Dial:
    """How the judge's share of the first class follows the log-odds that were asked for.

    Attributes:
        slope: of logit(share) on the log-odds.
        offsets: by pair, in logits.
    """

    slope: float = 0.5
    offsets: dict[Pair, float] = field(default_factory=dict)
    _seen: list[tuple[Pair, Floats, Floats, Floats]] = field(default_factory=list)

    def log_odds(self, pair: Pair, shares: Floats) -> Floats:
        """The log-odds (n,) to ask for, to get these shares (n,)."""
        return np.asarray((_logit(shares) - self.offsets.get(pair, 0.0)) / self.slope)

    def learn(self, pair: Pair, asked: Floats, got: Floats, wanted: Floats) -> None:
        """Take note of the judge's log-odds (n,) for those (n,) that were asked for to get the shares `wanted` (n,)."""
        self._seen.append((pair, asked, np.clip(got, -FAR, FAR), _logit(wanted)))
        asked_all, got_all = [], []
        for one in {entry[0] for entry in self._seen}:
            x, y = (np.concatenate([entry[part] for entry in self._seen if entry[0] == one]) for part in (1, 2))
            self.offsets[one] = float(np.median(y - self.slope * x))
            asked_all.append(x - x.mean())
            got_all.append(y - y.mean())
        x, y = np.concatenate(asked_all), np.concatenate(got_all)
        if len(x) >= 200 and x.std() > 0:
            self.slope = float(np.clip((x @ y) / (x @ x), 0.05, 2.0))

    def followed(self) -> float | None:
        """The slope of logit(share) on logit(dial) over all candidates but the first of each pair; 1 is perfect.

        The first ones of a pair were asked for before anything was known about it. None where there are no others.
        """
        later, known = [], set()
        for pair, _, got, wanted in self._seen:
            if pair in known:
                later.append((wanted - wanted.mean(), got - got.mean()))
            known.add(pair)
        if not later:
            return None
        x, y = (np.concatenate(part) for part in zip(*later, strict=True))
        return float((x @ y) / (x @ x)) if x.std() > 0 else None


@dataclass
class FlowDrawer:
    """One drawing of ambiguous images.

    Attributes:
        flow: the generator and first judge.
        committee: the second judge, or None.
        reality: the check of realism, or None.
        delta_max: the largest |p1 - p2|.
        mass: the least probability of the pair.
        disagreement: the largest difference between the judges' shares.
        guidance, steps: of the sampling.
        each: candidates for each pair in a round.
        seed: of everything random.
        drawn: candidates by pair.
        passed: by check, how many candidates of each pair came through it.
        dial: what was learnt about it.
    """

    flow: Flow
    committee: Committee | None
    reality: Reality | None
    delta_max: float
    mass: float
    disagreement: float
    guidance: float
    steps: int
    each: int
    seed: int
    drawn: Counter[Pair] = field(default_factory=Counter)
    passed: dict[str, Counter[Pair]] = field(default_factory=lambda: {name: Counter() for name in CHECKS})
    dial: Dial = field(default_factory=Dial)

    def run(
        self, pairs: list[Pair], count: int, *, stratify: bool, progress: Progress, minutes: float | None = None
    ) -> Candidates | None:
        """`count` images, or as many as there are, also after so many minutes; None if there is not one."""
        began = time.monotonic()
        pools: dict[Pair, list[Candidates]] = defaultdict(list)
        wanted = -(-count // len(pairs))
        with progress.task("Composing ambiguous images", count) as advance:
            for turn in range(ROUNDS):
                hungry = [
                    pair
                    for pair in pairs
                    if sum(map(len, pools[pair])) < wanted
                    and not (turn >= PATIENCE and self.passed[CHECKS[-1]][pair] < LEAST_YIELD * self.drawn[pair])
                ]
                late = minutes is not None and time.monotonic() - began > 60 * minutes
                if not hungry or (turn and late):
                    break
                for pair, found in self._round(hungry, turn).items():
                    pools[pair].append(found)
                advance(min(count, sum(min(wanted, sum(map(len, pool))) for pool in pools.values())), count)
        full = {pair: Candidates.concatenate(pool) for pair, pool in sorted(pools.items()) if pool}
        if not full:
            return None
        sizes = {pair: len(pool) for pair, pool in full.items()}
        shares = water_fill(sizes, count) if stratify else sizes
        rng = np.random.default_rng([self.seed, 1])
        taken = [pool.take(rng.permutation(len(pool))[: shares[pair]]) for pair, pool in full.items()]
        everything = Candidates.concatenate([part for part in taken if len(part)])
        return everything.take(np.arange(len(everything))[:count])

    def spelt(self) -> str:
        """How many candidates came through each check."""
        words = {
            "between": "lay between their classes",
            "ambiguous": "leant to neither",
            "agreed": "were agreed on",
            "real": "looked real",
            "settled": "stayed undecided at a longer look",
        }
        return ", ".join(f"{sum(self.passed[check].values()):,} {words[check]}" for check in CHECKS)

    def _round(self, pairs: list[Pair], turn: int) -> dict[Pair, Candidates]:
        rng = np.random.default_rng([self.seed, 2, turn])
        pair = np.repeat(np.array(pairs, dtype=np.int64), self.each, axis=0)
        dial = 0.5 + self.delta_max * rng.uniform(-0.5, 0.5, len(pair))
        asked = np.concatenate([self.dial.log_odds(one, dial[(pair == one).all(axis=1)]) for one in pairs])
        images = self.flow.compose(
            pair,
            np.stack([asked, np.zeros_like(asked)], axis=1),
            guidance=self.guidance,
            steps=self.steps,
            seed=derive_seed(self.seed, turn),
        )
        self.drawn.update(map(tuple, pair.tolist()))
        found = self._judged(images, pair, asked, dial)
        return {one: found.take(rows) for one in pairs if len(rows := np.flatnonzero((found.pair == one).all(axis=1)))}

    def _judged(self, images: NDArray[np.uint8], pair: NDArray[np.int64], asked: Floats, dial: Floats) -> Candidates:
        """Those candidates that pass all checks."""
        judge = self.flow.judge
        theirs = None if self.committee is None else self.committee.judge(ImageSet.from_arrays(images, layout="NCHW"))
        rows = np.arange(len(images))
        if theirs is not None:
            rows = rows[_mass(theirs, pair) >= self.mass / 2]
        look = judge.glance(images[rows], pair[rows])
        self._learn(pair[rows], asked[rows], judge.lean(pair[rows], look), dial[rows])
        open_ = np.abs(_logit(_share(look.probabilities, pair[rows]))) < GLANCED
        rows, look = rows[open_], look.take(open_)
        full = judge.glance(images[rows], seen=look)
        kept = _mass(full.probabilities, pair[rows]) >= self.mass / 2
        rows, full = rows[kept], full.take(kept)
        seen = judge.examine(images[rows], full)
        between = _mass(seen.probabilities, pair[rows]) >= self.mass
        rows, seen = self._note("between", rows[between], pair), seen.take(between)
        first = _share(seen.probabilities, pair[rows])
        mild = np.abs(2 * first - 1) <= self.delta_max
        rows, seen, first = self._note("ambiguous", rows[mild], pair), seen.take(mild), first[mild]
        second = first if theirs is None else _share(theirs[rows], pair[rows])
        agreed = np.abs(second - first) <= self.disagreement
        rows, seen, second = self._note("agreed", rows[agreed], pair), seen.take(agreed), second[agreed]
        if self.reality is not None and len(rows):
            real = self.reality.accepts(images[rows])
            rows, seen, second = rows[real], seen.take(real), second[real]
        rows = self._note("real", rows, pair)
        first = judge.settle(images[rows], pair[rows], seen)[:, 0]
        settled = np.abs(2 * first - 1) <= self.delta_max
        rows, first, second = rows[settled], first[settled], second[settled]
        rows = self._note("settled", rows, pair)
        origin = {"dial": dial[rows], "share_generative": first, "share_committee": second}
        return Candidates(images[rows], pair[rows], first, origin)

    def _learn(self, pair: NDArray[np.int64], asked: Floats, leans: Floats, dial: Floats) -> None:
        """Let the dial learn from what the judge says of candidates."""
        for one in np.unique(pair, axis=0):
            mine = (pair == one).all(axis=1)
            self.dial.learn((int(one[0]), int(one[1])), asked[mine], leans[mine], dial[mine])

    def _note(self, check: str, rows: NDArray[np.int64], pair: NDArray[np.int64]) -> NDArray[np.int64]:
        self.passed[check].update(map(tuple, pair[rows].tolist()))
        return rows


def _mass(probabilities: Floats, pair: NDArray[np.int64]) -> Floats:
    return np.asarray(np.take_along_axis(probabilities, pair, axis=1).sum(axis=1))


def _share(probabilities: Floats, pair: NDArray[np.int64]) -> Floats:
    """Of the first class among the two (n,)."""
    both: Any = np.maximum(np.take_along_axis(probabilities, pair, axis=1), 1e-12)
    return np.asarray(both[:, 0] / both.sum(axis=1))


def _logit(share: Floats) -> Floats:
    inside = np.clip(share, 1e-4, 1 - 1e-4)
    return np.asarray(np.log(inside) - np.log1p(-inside))
