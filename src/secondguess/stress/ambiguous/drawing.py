"""Draw images from accepted autoencoders until every pair has its share, or proves to have none."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from secondguess.progress import Progress
from secondguess.stress.ambiguous.acceptance import TrainedFleet
from secondguess.stress.ambiguous.base import Candidates, water_fill
from secondguess.stress.ambiguous.latent import Grid, Mode, draw, survey
from secondguess.stress.ambiguous.realism import Realism, sharpness

__all__ = ["Drawer"]

Pair = tuple[int, int]
CANDIDATES = 64  # points drawn for each autoencoder in a round
ROUNDS = 60
PATIENCE = 3  # rounds after which a pair is judged
LEAST = 0.2  # share of its images that must be realistic: below, even those that pass are the tail of something else


@dataclass
class Drawer:
    """One drawing of ambiguous images.

    Attributes:
        trained: stacks of autoencoders.
        delta_max: the largest |p1 - p2|.
        cells: of the grid, along each axis.
        mode: `"paper"` or `"legacy"`.
        check: of realism, or None.
        seed: of everything random.
        drawn: points drawn, by pair.
        ambiguous: those that passed the final filter.
        realistic: those that passed the check of realism too.
        barren: pairs between which no realistic ambiguity was found.
    """

    trained: Sequence[TrainedFleet]
    delta_max: float
    cells: int
    mode: Mode
    check: Realism | None
    seed: int
    drawn: Counter[Pair] = field(default_factory=Counter)
    ambiguous: Counter[Pair] = field(default_factory=Counter)
    realistic: Counter[Pair] = field(default_factory=Counter)
    barren: set[Pair] = field(default_factory=set)

    def run(self, count: int, *, stratify: bool, progress: Progress) -> Candidates | None:
        """`count` images, or as many as there are; None if there is not one."""
        pools: dict[Pair, list[Candidates]] = defaultdict(list)
        settings = {"delta_max": self.delta_max, "cells": self.cells, "mode": self.mode}
        grids = [survey(one.fleet, **settings) for one in self.trained]  # type: ignore[arg-type]
        generator = torch.Generator(self.trained[0].fleet.device).manual_seed(self.seed)
        able = {m.pair for one in self.trained for m, ok in zip(one.fleet.members, one.accepted, strict=True) if ok}
        with progress.task("Drawing ambiguous images", count) as advance:
            for turn in range(ROUNDS):
                hungry = self._hungry(able, pools, count)
                if not hungry:
                    break
                for pair, parts in self._round(grids, hungry, generator).items():
                    pools[pair] += self._sift(parts, pair)
                if turn + 1 == PATIENCE:
                    self.barren = {pair for pair in able if self.realistic[pair] < LEAST * self.ambiguous[pair]}
                    for pair in self.barren:
                        pools.pop(pair, None)
                advance(min(count, sum(sum(map(len, pool)) for pool in pools.values())), count)
        return _share(pools, count, stratify, self.seed)

    def _hungry(self, able: set[Pair], pools: dict[Pair, list[Candidates]], count: int) -> set[Pair]:
        """The pairs that should be drawn from again."""
        fertile = able - self.barren
        sizes = {pair: sum(map(len, pools[pair])) for pair in fertile}
        wanted = math.ceil(count / max(1, len(fertile)))
        below = {pair for pair in fertile if sizes[pair] < wanted}
        return below if sum(min(size, wanted) for size in sizes.values()) < count else set()

    def _round(
        self, grids: Sequence[Grid], hungry: set[Pair], generator: torch.Generator
    ) -> dict[Pair, list[tuple[Candidates, float]]]:
        """What passes the final filter, by pair, with the blur of the autoencoder it comes from."""
        found: dict[Pair, list[tuple[Candidates, float]]] = defaultdict(list)
        for one, grid in zip(self.trained, grids, strict=True):
            for candidates, blur in self._from_stack(one, grid, hungry, generator):
                found[int(candidates.pair[0, 0]), int(candidates.pair[0, 1])].append((candidates, blur))
        return found

    def _from_stack(
        self, one: TrainedFleet, grid: Grid, hungry: set[Pair], generator: torch.Generator
    ) -> Iterator[tuple[Candidates, float]]:
        points = draw(one.fleet, grid, CANDIDATES, delta_max=self.delta_max, generator=generator, mode=self.mode)
        with torch.no_grad():
            decoded = _to_bytes(one.fleet.decode(points.z))
        z, p1, kept = (tensor.cpu().numpy().astype(np.float64) for tensor in (points.z, points.p1, points.kept))
        for index, member in enumerate(one.fleet.members):
            if member.pair not in hungry or not one.accepted[index]:
                continue
            rows = np.flatnonzero(kept[index])
            self.drawn[member.pair] += CANDIDATES
            self.ambiguous[member.pair] += len(rows)
            if len(rows):
                origin = {
                    "autoencoder": np.full(len(rows), member.number),
                    "z_1": z[index, rows, 0],
                    "z_2": z[index, rows, 1],
                }
                pair = np.tile(np.array(member.pair, dtype=np.int64), (len(rows), 1))
                yield Candidates(decoded[index, rows], pair, p1[index, rows], origin), float(one.blur[index])

    def _sift(self, parts: list[tuple[Candidates, float]], pair: Pair) -> list[Candidates]:
        """Those candidates of one pair that a person could call either class."""
        found = Candidates.concatenate([candidates for candidates, _ in parts])
        if self.check is not None:
            blur = np.concatenate([np.full(len(candidates), blur) for candidates, blur in parts])
            images = (found.images / 255).astype(np.float32)
            found = found.take(np.flatnonzero((sharpness(images) >= blur) & self.check.plausible(images, pair)))
        self.realistic[pair] += len(found)
        return [found] if len(found) else []


def _share(pools: dict[Pair, list[Candidates]], count: int, stratify: bool, seed: int) -> Candidates | None:
    """`count` of the candidates: equally many of each pair, or whatever comes first."""
    full = {pair: Candidates.concatenate(pool) for pair, pool in sorted(pools.items()) if pool}
    if not full:
        return None
    rng = np.random.default_rng([seed, 1])
    if not stratify:
        everything = Candidates.concatenate(list(full.values()))
        return everything.take(rng.permutation(len(everything))[:count])
    shares = water_fill({pair: len(pool) for pair, pool in full.items()}, count)
    taken = [pool.take(rng.permutation(len(pool))[: shares[pair]]) for pair, pool in full.items()]
    return Candidates.concatenate([part for part in taken if len(part)])


def _to_bytes(images: Tensor) -> NDArray[np.uint8]:
    """256 equal steps; a pixel of exactly 1 stays 255 (the authors' code lets it wrap around to 0)."""
    return (images * 256).clamp(0, 255).byte().cpu().numpy()
