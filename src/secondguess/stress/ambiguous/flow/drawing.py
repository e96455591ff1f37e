"""Draw compositions until every pair has its share of ambiguous images, or has had its chances.

A round asks for compositions of every pair that still lacks images, each with a share of its first class drawn from the
wanted range (`dial.py`), and has them checked (`selection.py`). What a pair does not need of its candidates, by its
yield so far, is left to the others. The first round is smaller: nothing is known yet of how a pair follows the dial,
nor of its rivals, the classes that the committee sees in its candidates instead, from which guidance leads away
(`balancing.py`). Near misses of one round are composed anew in the next (`misses.py`). Rounds are kept in a folder
(`rounds.py`).
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.progress import Progress
from secondguess.stress.ambiguous.base import Candidates, water_fill
from secondguess.stress.ambiguous.flow.dial import Dial, Lessons, Pair
from secondguess.stress.ambiguous.flow.misses import NearMisses
from secondguess.stress.ambiguous.flow.model import Flow
from secondguess.stress.ambiguous.flow.rounds import Round, Rounds
from secondguess.stress.ambiguous.flow.selection import CHECKS, Selected, Selection
from secondguess.training._examples import derive_seed

__all__ = ["FlowDrawer"]

ROUNDS = 40
FIRST = 4  # times smaller than others is the first round
LEAST_YIELD = 0.005  # of the candidates, after some rounds; below, a pair counts as barren
PATIENCE = 6
SPARE = 1.2  # times as many candidates as a pair seems to need
SOUNDED = 4  # every fourth candidate is looked at for the dial, whatever the committee says of it
KEPT = 0.3  # of an image's logit, when it is composed anew; until more is known
SPELT = {
    "between": "were not lost to a third class",
    "ambiguous": "leant to neither",
    "agreed": "were agreed on",
    "real": "looked real",
    "settled": "stayed undecided at a longer look",
}


@dataclass
class FlowDrawer:
    """One drawing of ambiguous images.

    Attributes:
        flow: the generator.
        selection: the checks of its compositions.
        guidance, contrast, steps: of the sampling.
        each: candidates in a round, divided by the pairs of the drawing, at the most.
        seed: of everything random.
        rounds: where rounds are kept, or None.
        drawn: candidates by pair.
        again: how many of these were composed anew from near misses.
        passed: by check, how many candidates of each pair were lost neither to it nor to one before it.
        dial: what was learnt about it.
        dial_again: the same for what is composed anew.
        out_of_time: whether the drawing ended before its pairs were full or barren.
        seconds: that all rounds took.
    """

    flow: Flow
    selection: Selection
    guidance: float
    contrast: float
    steps: int
    each: int
    seed: int
    rounds: Rounds | None = None
    drawn: Counter[Pair] = field(default_factory=Counter)
    again: Counter[Pair] = field(default_factory=Counter)
    passed: dict[str, Counter[Pair]] = field(default_factory=lambda: {name: Counter() for name in CHECKS})
    dial: Dial = field(default_factory=Dial)
    dial_again: Dial = field(default_factory=lambda: Dial(kept=KEPT))
    out_of_time: bool = False
    seconds: float = 0.0
    _pools: dict[Pair, list[Candidates]] = field(default_factory=lambda: defaultdict(list))
    _seen: dict[Pair, NDArray[np.float64]] = field(default_factory=dict)
    _near: NearMisses | None = None

    def run(
        self, pairs: list[Pair], count: int, *, stratify: bool, progress: Progress, minutes: float | None = None
    ) -> Candidates | None:
        """`count` images, or as many as there are, also after so many minutes; None if there is not one.

        Stratified, every pair has the same share of them, and what barren pairs do not give is shared by the others;
        otherwise all pairs that are not barren go on until there are enough together.
        """
        began, most = time.monotonic(), -(-count // len(pairs)) if stratify else count
        kept = self.rounds.load() if self.rounds is not None else []
        with progress.task("Composing ambiguous images", count) as advance:
            for turn in range(ROUNDS):
                lacking = self._lacking(pairs, count, turn, stratify=stratify)
                late = minutes is not None and time.monotonic() - began > 60 * minutes
                if turn < len(kept):
                    one = kept[turn]
                elif not lacking:
                    break
                elif turn and late:
                    self.out_of_time = True
                    break
                else:
                    one = self._round(self._shared(lacking, self.each * len(pairs), turn), turn)
                    if self.rounds is not None:
                        self.rounds.keep(one)
                self._take(one)
                advance(min(count, sum(min(most, self._found(pair)) for pair in pairs)), count)
        return self._chosen(count, stratify)

    def spelt(self) -> str:
        """How many candidates were left after each check."""
        return ", ".join(f"{sum(self.passed[check].values()):,} {SPELT[check]}" for check in CHECKS)

    def _found(self, pair: Pair) -> int:
        return sum(map(len, self._pools[pair]))

    def _lacking(self, pairs: list[Pair], count: int, turn: int, *, stratify: bool) -> dict[Pair, int]:
        """How many images each pair lacks that is to give more; pairs that lack none, and barren ones, are left out."""
        barren = {
            pair
            for pair in pairs
            if turn >= PATIENCE and self.passed[CHECKS[-1]][pair] < LEAST_YIELD * self.drawn[pair]
        }
        fertile = [pair for pair in pairs if pair not in barren]
        if not fertile:
            return {}
        if stratify:
            missing = count - sum(min(self._found(pair), -(-count // len(pairs))) for pair in barren)
            share = -(-missing // len(fertile))
            lacking = {pair: share - self._found(pair) for pair in fertile}
        else:
            missing = count - sum(map(self._found, pairs))
            lacking = dict.fromkeys(fertile, -(-missing // len(fertile)))
        return {pair: number for pair, number in lacking.items() if number > 0}

    def _shared(self, lacking: dict[Pair, int], count: int, turn: int) -> dict[Pair, int]:
        """How many candidates of each pair to ask for, `count` in all at the most."""
        if not turn:
            return dict.fromkeys(lacking, max(1, self.each // FIRST))
        needed = {}
        for pair, number in lacking.items():
            per_image = (self.drawn[pair] + 1) / (self._found(pair) + 1)
            needed[pair] = math.ceil(SPARE * number * per_image)
        return water_fill(needed, count)

    def _round(self, shares: dict[Pair, int], turn: int) -> Round:
        began = time.monotonic()
        pairs = list(shares)
        made = self._made(shares, turn)
        sound = np.arange(len(made.pair)) % (SOUNDED if turn else 1) == 0
        seen = self.selection.select(made.images, made.pair, sound)
        opinions = np.zeros((len(made.pair), self.flow.field.classes)) if seen.opinions is None else seen.opinions
        return Round(
            pairs=np.array(pairs, dtype=np.int64),
            each=np.array(list(shares.values())),
            again=_counted(made.pair[made.again], pairs),
            passed=np.stack([_counted(made.pair[seen.passed[check]], pairs) for check in CHECKS], axis=1),
            seen=np.stack([opinions[(made.pair == one).all(axis=1)].sum(axis=0) for one in pairs]),
            learnt=made.lessons(seen),
            found=made.accepted(seen),
            near=made.near_misses(seen),
            seconds=time.monotonic() - began,
        )

    def _made(self, shares: dict[Pair, int], turn: int) -> _Compositions:
        """Candidates of a round: fresh ones, then near misses of the round before, composed anew."""
        each = np.array(list(shares.values()))
        near = NearMisses.none(self.flow.network.architecture.shape) if self._near is None else self._near
        near = near.among(list(shares), each.tolist())
        fresh = np.repeat(np.array(list(shares), dtype=np.int64), each - _counted(near.pair, list(shares)), axis=0)
        pair, new = np.concatenate([fresh, near.pair]), len(fresh)
        rng = np.random.default_rng([self.seed, 2, turn])
        wanted = 0.5 + self.selection.delta_max * rng.uniform(-0.5, 0.5, len(pair))
        asked = self._asked(pair, wanted, near)
        first = self._composed(fresh, asked[:new], derive_seed(self.seed, turn))
        second = self._composed(near.pair, asked[new:], derive_seed(self.seed, turn, 1), near.images)
        return _Compositions(
            images=np.concatenate([first, second]),
            pair=pair,
            wanted=wanted,
            asked=asked,
            again=np.arange(len(pair)) >= new,
            before=np.concatenate([np.zeros(new), near.lean]),
            tries=np.concatenate([np.zeros(new, np.int64), near.tries + 1]),
        )

    def _asked(self, pair: NDArray[np.int64], wanted: NDArray[np.float64], near: NearMisses) -> NDArray[np.float64]:
        """The logits (n,) to ask for, to get the wanted shares (n,); near misses are the last ones."""
        asked, first = np.empty(len(pair)), len(pair) - len(near)
        for one in {(int(a), int(b)) for a, b in pair}:
            mine = (pair == one).all(axis=1)
            offset = (1 - self.dial_again.kept) * self.dial.offsets.get(one, 0.0)
            asked[:first][mine[:first]] = self.dial.logits(one, wanted[:first][mine[:first]])
            leant = near.lean[mine[first:]]
            again = self.dial_again.logits(one, wanted[first:][mine[first:]], leant, offset)
            asked[first:][mine[first:]] = again
        return asked

    def _composed(
        self,
        pair: NDArray[np.int64],
        asked: NDArray[np.float64],
        seed: int,
        again: NDArray[np.uint8] | None = None,
    ) -> NDArray[np.uint8]:
        """Compositions, or what earlier ones become when they are composed anew."""
        away = None
        if self.contrast and len(pair):
            different, which = np.unique(pair, axis=0, return_inverse=True)
            away = np.stack([self._rivals((int(a), int(b))) for a, b in different])[which.ravel()]
        nats = asked / self.flow.judge.shares.per_nat(pair)
        target = np.stack([nats, np.zeros_like(nats)], axis=1)
        settings: dict[str, Any] = {"guidance": self.guidance, "steps": self.steps}
        return self.flow.compose(pair, target, **settings, seed=seed, rivals=away, again=again)

    def _rivals(self, pair: Pair) -> NDArray[np.float64]:
        """Weights (K + 1,) of what guidance leads away from: rivals of the pair, and no class."""
        weights = np.append(self._seen.get(pair, np.zeros(self.flow.field.classes)), 0.0)
        weights[list(pair)] = 0.0
        if weights.any():
            weights *= self.contrast / weights.sum()
        weights[-1] = 1 - weights.sum()
        return weights

    def _take(self, one: Round) -> None:
        """Count a round, learn from it and add its images."""
        self.seconds += one.seconds
        self._near = one.near
        for dial, again in ((self.dial, False), (self.dial_again, True)):
            lessons = one.learnt.take(one.learnt.again == again)
            if len(lessons):
                dial.learn(lessons)
        for (first, second), each, again, passed, seen in zip(
            one.pairs.tolist(), one.each.tolist(), one.again.tolist(), one.passed.tolist(), one.seen, strict=True
        ):
            pair = (first, second)
            self.drawn[pair] += each
            self.again[pair] += again
            self._seen[pair] = self._seen.get(pair, 0.0) + seen
            for check, number in zip(CHECKS, passed, strict=True):
                self.passed[check][pair] += number
            rows = np.flatnonzero((one.found.pair == pair).all(axis=1))
            if len(rows):
                self._pools[pair].append(one.found.take(rows))

    def _chosen(self, count: int, stratify: bool) -> Candidates | None:
        full = {pair: Candidates.concatenate(pool) for pair, pool in sorted(self._pools.items()) if pool}
        if not full:
            return None
        sizes = {pair: len(pool) for pair, pool in full.items()}
        shares = water_fill(sizes, count) if stratify else sizes
        rng = np.random.default_rng([self.seed, 1])
        taken = [pool.take(rng.permutation(len(pool))[: shares[pair]]) for pair, pool in full.items()]
        everything = Candidates.concatenate([part for part in taken if len(part)])
        return everything.take(np.sort(rng.permutation(len(everything))[:count]))


@dataclass(frozen=True)
class _Compositions:
    """The candidates of a round.

    Attributes:
        images: uint8 (n, C, H, W).
        pair: int64 (n, 2), their classes.
        wanted: float64 (n,), the shares of the first class that were wanted.
        asked: float64 (n,), the logits that were asked for.
        again: bool (n,), whether they are near misses that were composed anew.
        before: float64 (n,), the logits that these had then; 0 for others.
        tries: int64 (n,), how often they were composed anew.
    """

    images: NDArray[np.uint8]
    pair: NDArray[np.int64]
    wanted: NDArray[np.float64]
    asked: NDArray[np.float64]
    again: NDArray[np.bool_]
    before: NDArray[np.float64]
    tries: NDArray[np.int64]

    def lessons(self, seen: Selected) -> Lessons:
        """What the dials learn from those that the judges have looked at for them."""
        rows = seen.sounded
        told = {name: getattr(self, name)[rows] for name in ("pair", "asked", "wanted", "again", "before")}
        return Lessons(**told, got=seen.leans)

    def accepted(self, seen: Selected) -> Candidates:
        """Those that came through all checks."""
        rows = seen.passed[CHECKS[-1]]
        origin = {"dial": self.wanted[rows], "share_generative": seen.share_generative, "tries": self.tries[rows]}
        if seen.share_committee is not None:
            origin["share_committee"] = seen.share_committee
        return Candidates(self.images[rows], self.pair[rows], seen.share, origin)

    def near_misses(self, seen: Selected) -> NearMisses:
        """Those that may be tried again."""
        rows = seen.near
        return NearMisses(self.images[rows], self.pair[rows], seen.near_leans, self.tries[rows]).open()


def _counted(pair: NDArray[np.int64], pairs: list[Pair]) -> NDArray[np.int64]:
    """How many rows (n, 2) are each of the pairs (p,)."""
    return np.array([(pair == one).all(axis=1).sum() for one in pairs], dtype=np.int64)
