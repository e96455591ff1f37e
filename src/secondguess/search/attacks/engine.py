"""Runs an attack on many images: block by block, round by round, each image until its own end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from secondguess.images import ImageSource
from secondguess.progress import Advance
from secondguess.search.attacks.base import Attack
from secondguess.search.attacks.checkpoint import Results
from secondguess.search.attacks.decisions import UNUSABLE, Decisions
from secondguess.search.attacks.noise import Noise
from secondguess.search.attacks.starts import Starts
from secondguess.search.attacks.walk import Walk, differ, pixelwise

__all__ = ["AttackRun"]

BLOCK_BYTES = 1 << 26  # of pixels: a walk holds a few tensors of this size
BLOCK_IMAGES = 1024
FARTHER = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # from its image, in units of its distance: where the last check says no


class AttackRun:
    """An attack under way.

    Args:
        attack: what to run.
        source: the n images.
        decide: the model and the ledger.
        results: where the results are written.
        seed: of all noise.
        places: (n,) of the images in the whole set, where they are a part of one.
    """

    def __init__(
        self,
        attack: Attack,
        source: ImageSource,
        decide: Decisions,
        results: Results,
        seed: int,
        places: NDArray[np.int64] | None = None,
    ) -> None:
        self.attack, self.source, self.decide, self.results = attack, source, decide, results
        self.noise = Noise(seed, None if places is None else torch.from_numpy(places).to(decide.device))

    def run(self, classes: NDArray[np.int64], starts: Starts, advance: Advance) -> None:
        """Attack all images that are not finished.

        Args:
            classes: (n,) the model's predictions for them, already charged.
            starts: where to begin.
            advance: called with the queries made so far and about how many there will be.
        """
        self.decide.heard = lambda: self._report(advance)
        walk = self.results.under_way(self.decide)
        for rows in self._blocks():
            if walk is None:
                walk = self._begin(rows, classes, starts)
            while len(walk):
                self.attack.step(walk, self.decide, self.noise)
                walk = self._retire(walk, self.attack.finished(walk, self.decide))
                self.results.save(walk, self.decide)
                self._report(advance)
            walk = None
        self.results.save(Walk.begin(*self._load(np.zeros(0, dtype=np.int64), classes)), self.decide, now=True)

    def _blocks(self) -> Iterator[NDArray[np.int64]]:
        """The rows of one block after another, without those that are finished."""
        size = max(1, min(BLOCK_IMAGES, BLOCK_BYTES // (4 * int(np.prod(self.source.shape)))))
        wanted = np.flatnonzero(self.results.wanted)
        for first in range(0, len(wanted), size):
            rows = wanted[first : first + size]
            if len(rows := rows[~self.results.arrays["done"][rows]]):
                yield rows

    def _load(
        self, rows: NDArray[np.int64], classes: NDArray[np.int64]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        pixels = self.source[rows] if len(rows) else np.zeros((0, *self.source.shape), dtype=np.float32)
        return (
            torch.from_numpy(rows).to(self.decide.device),
            torch.from_numpy(pixels).to(self.decide.device),
            torch.from_numpy(classes[rows]).to(self.decide.device),
        )

    def _begin(self, rows: NDArray[np.int64], classes: NDArray[np.int64], starts: Starts) -> Walk:
        """A walk at its start; images without a decision that could be changed, or without a start, leave at once."""
        walk = Walk.begin(*self._load(rows, classes))
        walk = self._retire(walk, walk.classes == UNUSABLE)
        if self.attack.needs_start:
            starts.begin(walk, self.decide, self.noise)
            walk = self._retire(walk, ~walk.found)
        self.attack.start(walk, self.decide)
        return self._retire(walk, ~walk.found | self.attack.finished(walk, self.decide))

    def _retire(self, walk: Walk, done: torch.Tensor) -> Walk:
        """Record the finished images, after a last check of their counterexamples; return the others."""
        if not bool(done.any()):
            return walk
        gone = walk.take(done)
        answers = self._checked(gone)
        failed = ~differ(answers, gone.classes)
        counterexamples = torch.where(failed.reshape(-1, 1, 1, 1), gone.images, gone.counterexamples).cpu().numpy()
        change = np.abs(counterexamples.astype(np.float64) - gone.images.cpu().numpy()).reshape(len(gone), -1)
        rows, missed = gone.rows.cpu().numpy(), failed.cpu().numpy()
        arrays = self.results.arrays
        arrays["mae"][rows] = np.where(missed, np.inf, change.mean(axis=1))
        arrays["l2"][rows] = np.where(missed, np.inf, np.sqrt((change**2).sum(axis=1)))
        arrays["linf"][rows] = np.where(missed, np.inf, change.max(axis=1))
        arrays["failed"][rows] = missed
        arrays["queries"][rows] = self.decide.spent[gone.rows].cpu().numpy()
        arrays["unusable"][rows] = self.decide.unusable[gone.rows].cpu().numpy()
        arrays["counterexample_predictions"][rows] = torch.where(failed, gone.classes, answers).cpu().numpy()
        self.results.counterexamples[rows] = counterexamples
        arrays["done"][rows] = True
        return walk.take(~done)

    def _checked(self, walk: Walk) -> torch.Tensor:
        """(m,) what the model says of the counterexamples; of the images themselves where there is none.

        A GPU rounds otherwise in another batch, and may take a counterexample on the very boundary for its image's
        class. Such a one is moved away from its image, a little and then more, until it is decided otherwise, nothing
        is left of its budget, or it has been moved as far as `FARTHER` goes.
        """
        answers, asked = walk.classes.clone(), walk.found.clone()
        across = walk.counterexamples - walk.images
        for farther in (*FARTHER, None):
            if not bool(asked.any()):
                break
            answers[asked] = self.decide.classes(walk.counterexamples[asked], walk.rows[asked])
            asked &= ~differ(answers, walk.classes) & (self.decide.left(walk.rows) >= 0)
            if farther is not None and bool(asked.any()):
                moved = (walk.images + (1 + farther) * across).clamp_(0, 1)
                walk.counterexamples = torch.where(pixelwise(asked, moved), moved, walk.counterexamples)
        return answers

    def _report(self, advance: Advance) -> None:
        """The queries made so far of about those there will be; an image that is done has made all of its own."""
        done, wanted = self.results.arrays["done"], self.results.wanted
        usual = min(self.decide.budget, self.attack.usual_queries)
        spent = self.decide.spent.clamp_max(usual).cpu().numpy()
        made = np.where(done, usual, spent)[wanted]
        advance(int(made.sum()), int(wanted.sum()) * usual)
