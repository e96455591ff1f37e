"""The smallest change that fools a classifier, of a grid of sizes, for every image on its own.

An image is settled by the first size that works, and larger ones are tried on the others only. A batch that raises an
error is tried again in halves until the image at fault is isolated; it stays unchanged, with the reason, and the others
go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "GridAttack", "Ints", "SmallestChange", "pieces"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Result = TypeVar("Result")
REASON_LENGTH = 200


class GridAttack(Protocol):
    """A way to change images so that a model errs."""

    def prepare(self, images: Floats, labels: Ints, rows: Ints) -> Floats:
        """Compute what does not depend on the size, for each image an array of its shape.

        Args:
            images: (m, C, H, W) in [0, 1].
            labels: (m,) the classes that the model must not predict.
            rows: (m,) positions in the whole set, which seed all random numbers.
        """

    def perturb(self, images: Floats, labels: Ints, prepared: Floats, epsilon: float) -> Floats:
        """Change each pixel by at most `epsilon`, within [0, 1]."""


class SmallestChange:
    """Search for the smallest change of m images that fools a classifier.

    Args:
        attack: makes the changes.
        predict: images -> classes (m,); the classifier to fool, whichever model the attack differentiates.
        images: (m, C, H, W) in [0, 1].
        labels: (m,) true classes; where below 0, the prediction for the unchanged image is used instead.
        rows: (m,) positions in the whole set.

    Attributes:
        images: (m, C, H, W) the smallest change that worked, or the image as it was.
        epsilon: (m,) its size; 0 where the unchanged image is misclassified, NaN where no size worked.
        success: (m,) whether the judge errs.
        reasons: m texts, "" unless the image could not be attacked at all.
    """

    def __init__(
        self, attack: GridAttack, predict: Callable[[Floats], Ints], images: Floats, labels: Ints, rows: Ints
    ) -> None:
        self.images = images.copy()
        self.epsilon = np.full(len(images), np.nan)
        self.success = np.zeros(len(images), dtype=bool)
        self.reasons = [""] * len(images)
        self._attack, self._predict = attack, predict
        self._originals, self._rows = images, rows
        self._truth = labels.copy()
        self._prepared = np.zeros_like(images)

    def run(self, epsilons: Sequence[float], settled: Callable[[int], None] | None = None) -> None:
        """Try the sizes, which are above 0 and increase; `settled` is called with the number of finished images."""
        self._find_mistakes()
        for part, prepared in pieces(self._prepare, self._open(), self.reasons):
            self._prepared[part] = prepared
        for epsilon in epsilons:
            waiting = self._open()
            if settled:
                settled(len(self.images) - len(waiting))
            if not len(waiting):
                return
            for part, (candidates, fooled) in pieces(partial(self._try, epsilon), waiting, self.reasons):
                self._succeed(part[fooled], candidates[fooled], epsilon)

    def _find_mistakes(self) -> None:
        """Settle the images that are misclassified without an attack."""
        for part, said in pieces(lambda part: self._predict(self._originals[part]), self._open(), self.reasons):
            self._truth[part] = np.where(self._truth[part] < 0, said, self._truth[part])
            wrong = part[said != self._truth[part]]
            self._succeed(wrong, self._originals[wrong], 0.0)

    def _prepare(self, part: Ints) -> Floats:
        return self._attack.prepare(self._originals[part], self._truth[part], self._rows[part])

    def _try(self, epsilon: float, part: Ints) -> tuple[Floats, NDArray[np.bool_]]:
        """Candidates, and whether each fools the judge."""
        candidates = self._attack.perturb(self._originals[part], self._truth[part], self._prepared[part], epsilon)
        return candidates, self._predict(candidates) != self._truth[part]

    def _succeed(self, part: Ints, candidates: Floats, epsilon: float) -> None:
        self.images[part], self.epsilon[part], self.success[part] = candidates, epsilon, True

    def _open(self) -> Ints:
        """Positions that are neither settled nor given up."""
        failed = np.array([bool(reason) for reason in self.reasons])
        return np.flatnonzero(~(self.success | failed)).astype(np.int64)


def pieces(function: Callable[[Ints], Result], positions: Ints, reasons: list[str]) -> Iterator[tuple[Ints, Result]]:
    """Yield (positions, function(positions)), in halves where the whole raises; the reason of one that fails is noted.

    Args:
        function: works on several positions at once.
        positions: (m,) what to work on.
        reasons: written to at the positions that fail on their own.
    """
    if not len(positions):
        return
    try:
        result = function(positions)
    except Exception as error:  # a model, driver or library may raise anything; the other images go on
        if len(positions) == 1:
            reasons[positions[0]] = _first_line(error)
            return
        middle = len(positions) // 2
        yield from pieces(function, positions[:middle], reasons)
        yield from pieces(function, positions[middle:], reasons)
    else:
        yield positions, result


def _first_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    return text[:REASON_LENGTH]
