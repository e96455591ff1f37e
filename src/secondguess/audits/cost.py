"""What a supervisor costs: to fit, to score an image, and to observe what it needs beyond the probabilities."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass

from secondguess.images import ImageSet
from secondguess.model.classifier import Classifier
from secondguess.model.needs import Needs

__all__ = ["Cost", "Stopwatch"]

PASSES = 1024  # images that go through the model, dropout samples counted one by one, to time an observation
REPEATS, LONG = 3, 1.0  # runs of which the best counts, unless one takes longer than a second


@dataclass(frozen=True)
class Cost:
    """The measured cost of a supervisor on this machine.

    Attributes:
        fitting: seconds to learn from the training images, their observation not counted; None if it was not fitted
            here.
        observing: microseconds per image that its needs add to a plain forward pass.
        scoring: microseconds per image, given the observation.
    """

    fitting: float | None
    observing: float
    scoring: float


class Stopwatch:
    """Times observations, each kind of needs once, past any cache.

    Args:
        classifier: the system under test; a copy without a cache is timed.
        images: some of these are observed.
    """

    def __init__(self, classifier: Classifier, images: ImageSet) -> None:
        self._classifier = copy.copy(classifier)
        self._classifier.cache = None
        self._images = images
        self._known: dict[Needs, float] = {}

    def extra(self, needs: Needs) -> float:
        """Microseconds per image that `needs` add to a plain pass.

        Logits and pixels come with every pass and are not timed: a model whose calls are counted is not asked for them.
        """
        beyond = Needs(traces=needs.traces, samples=needs.samples)
        if beyond == Needs():
            return 0.0
        if beyond not in self._known:
            images = self._images.head(max(1, PASSES // (1 + needs.samples)))
            self._known[beyond] = max(0.0, self._seconds(images, beyond) - self._seconds(images, Needs()))
        return 1e6 * self._known[beyond]

    def _seconds(self, images: ImageSet, needs: Needs) -> float:
        best = float("inf")
        for _ in range(REPEATS):
            began = time.perf_counter()
            self._classifier.observe(images, needs)
            took = time.perf_counter() - began
            best = min(best, took / len(images))
            if took > LONG:
                break
        return best
