"""Copies of labelled images, shifted in known ways: what an estimator can learn a change of accuracy from.

A shift is a corruption at a severity and a strength s: images x become x + s (corrupted(x) - x), so that also
corruptions without severities come in several degrees. Used are the corruptions that `stress.Corrupted` does NOT apply
to images of as many channels unless asked to (`MNIST_C` for one, `COLOUR` for more), and a noise of our own, without
which noise would be missing from what is learnt for photographs: the audit and the experiments test on those, and so
nothing is ever tried on a kind of shift that was learnt from.

The copies are observed one shift after the other and their pixels dropped; `with_images` makes them again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.progress import Progress, Silent

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier

__all__ = ["Shift", "ShiftedCopies", "learnt_shifts", "most_copies"]

PER_SHIFT = 300  # copies; fewer of large images, so that a pass over all copies stays affordable
LARGE = 3 * 64 * 64  # numbers of an image from which on there are fewer copies
FEWEST = 100
BLOCK = 1 << 20  # numbers that are corrupted at once
OWN = {"uniform_noise": (0.1, 0.2, 0.35, 0.5, 0.7)}  # kinds of our own, with the parameter at severities 1 to 5
GRADED = ((1, 0.5), (2, 1.0), (4, 1.0))  # severity and strength where a corruption has severities
UNGRADED = ((None, 0.33), (None, 0.67), (None, 1.0))


@dataclass(frozen=True)
class Shift:
    """One way to shift images.

    Attributes:
        kind: the name of the corruption, or `"uniform_noise"`: v + U(-c, c), each channel on its own.
        severity: of the corruption, or None where it has none.
        strength: how far images are moved towards the corrupted ones, up to 1.
    """

    kind: str
    severity: int | None
    strength: float

    def apply(self, images: NDArray[np.float32], seed: int) -> NDArray[np.uint8]:
        """The images (n, C, H, W), shifted, in whole grey levels; block by block, for corruptions take much memory."""
        from secondguess.stress.corruptions.registry import noise

        rng = np.random.default_rng(seed) if self.kind in OWN else noise(self.kind, seed)
        size = max(1, BLOCK // math.prod(images.shape[1:]))
        return np.concatenate([self._block(images[start : start + size], rng) for start in range(0, len(images), size)])

    def _block(self, images: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.uint8]:
        from secondguess.stress.corruptions import corrupt

        if self.kind in OWN and self.severity is not None:
            reach = OWN[self.kind][self.severity - 1]
            spoilt = (images + rng.uniform(-reach, reach, images.shape)).clip(0, 1)
        else:
            spoilt = corrupt(images, self.kind, severity=self.severity, seed=rng)
        return np.rint((images + self.strength * (spoilt - images)) * 255).astype(np.uint8)


def learnt_shifts(channels: int) -> tuple[Shift, ...]:
    """The shifts that estimators learn from, for images of so many channels."""
    from secondguess.stress.corruptions import COLOUR, CORRUPTIONS, MNIST_C

    tested = {"identity", *(MNIST_C if channels == 1 else COLOUR)}
    graded = {name: one.levels is not None for name, one in CORRUPTIONS.items() if name not in tested}
    return tuple(
        Shift(name, severity, strength)
        for name, has_severities in (graded | dict.fromkeys(OWN, True)).items()
        for severity, strength in (GRADED if has_severities else UNGRADED)
    )


def most_copies(shape: tuple[int, int, int]) -> int:
    """How many images (C, H, W) are copied for each shift, where time does not matter."""
    return max(FEWEST, min(PER_SHIFT, PER_SHIFT * LARGE // math.prod(shape)))


@dataclass(frozen=True, eq=False)
class ShiftedCopies:
    """Labelled images, and what was observed of their copies. Made by `observe`.

    Attributes:
        rows: positions of the copied images within those that were given.
        images: the images before the shifts, all labelled.
        shifts: one for each set of copies.
        seen: of each set of copies, without pixels.
        seed: of the corruptions.
    """

    rows: NDArray[np.int64]
    images: ImageSet
    shifts: tuple[Shift, ...]
    seen: tuple[Observation, ...]
    seed: int

    @classmethod
    def observe(
        cls,
        classifier: Classifier,
        images: ImageSet,
        *,
        shifts: tuple[Shift, ...] | None = None,
        most: int | None = None,
        needs: Needs | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> ShiftedCopies:
        """Observe copies of some of the images under each shift.

        Args:
            classifier: the model in question.
            images: labelled ones that it was not trained on.
            shifts: those of `learnt_shifts` if left out.
            most: how many images are copied; `most_copies` if left out.
            needs: what to record besides probabilities.
            seed: of the choice of the images, and of the corruptions.
            progress: where to report; silent by default.
        """
        rows = np.random.default_rng(seed).permutation(len(images))[: most or most_copies(images.shape)]
        rows = np.sort(rows)
        made = cls(rows, images.take(rows), shifts or learnt_shifts(images.shape[0]), (), seed)
        seen = []
        with (progress or Silent()).task("Observing shifted copies", len(made.shifts)) as advance:
            for number in range(len(made.shifts)):
                found = classifier.observe(made._copies(number), needs)
                seen.append(found.replace(images=None, labels=found.labels))
                advance(number + 1, len(made.shifts))
        return replace(made, seen=tuple(seen))

    def with_images(self, number: int) -> Observation:
        """What was observed of one set of copies, with their pixels."""
        return self.seen[number].replace(images=self._copies(number), labels=None)

    def _copies(self, number: int) -> ImageSet:
        from secondguess.stress.base import changed

        shift, images = self.shifts[number], self.images
        pixels = shift.apply(images.materialise(), self.seed)
        return changed(images, pixels, f"{shift.kind} {number}", dict(images.columns))
