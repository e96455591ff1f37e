"""How fast a classifier answers here: seconds per image for each way of asking, measured on a few batches."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from secondguess.engine import open_engine
from secondguess.model.needs import Needs

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier

__all__ = ["Clock", "Pace", "paced", "timed"]

Clock = Callable[[], float]
SHARE = 20  # at most one image in so many is spent on measuring
FEWEST, MOST = 4, 64  # images that are timed
SORTED, SORTS, REFERENCE = 100_000, 5, 0.029  # numbers that are sorted to see how fast this machine is; seconds
RUNS, ENOUGH = 3, 1.0  # runs that are timed, and seconds after which no other one is begun
MORE, SHORT = 20, 0.05  # runs of work that is over in an instant, and seconds that they take together
SAMPLED = 8  # dropout samples of an image that are timed
EFFICIENCY = 0.85  # of a worker: two do 1.7 times as much as one (docs/evidence/scaling.md)
WARM = 2  # images that go first: some models are compiled at the first call


class Pace:
    """Measures a classifier, each way of asking once, when it is first wanted, past any cache.

    Args:
        classifier: the system under test.
        images: those it will be asked about; the first few are observed.
        clock: what tells the time.
    """

    def __init__(self, classifier: Classifier, images: ImageSet, *, clock: Clock = time.perf_counter) -> None:
        self.classifier = copy.copy(classifier)
        self.classifier.cache = None
        self.images = images.head(max(FEWEST, min(MOST, len(images) // SHARE)))
        self.clock = clock
        self._known: dict[object, float] = {}

    def observing(self, needs: Needs | None = None) -> float:
        """Seconds per image to read it and to observe it with what is needed; dropout samples are left out."""
        plain = Needs(traces=(needs or Needs()).traces)
        return self._once(plain, lambda some: self.classifier.observe(some, plain))

    def passing(self, needs: Needs | None = None) -> float:
        """The same in a pass over many images, which the workers of an engine share."""
        return self.observing(needs) / self.workers

    def sampling(self) -> float:
        """Seconds per image for one sample with dropout, for which only the last layers may have to be run again."""
        needs = Needs(samples=SAMPLED)
        seconds = self._once("sampling", lambda some: self.classifier.observe(some, needs))
        return max(0.0, seconds - self.observing()) / SAMPLED / self.workers

    def extra(self, needs: Needs) -> float:
        """Seconds per image that needs add to a plain pass over many images.

        Logits and pixels come with every pass and are not timed: a model whose calls are counted is not asked for them.
        """
        traces = Needs(traces=needs.traces)
        more = max(0.0, self.passing(traces) - self.passing()) if needs.traces else 0.0
        return more + (needs.samples * self.sampling() if needs.samples else 0.0)

    def gradient(self) -> float:
        """Seconds per image for one pass forwards and back to the pixels."""

        def back(some: ImageSet) -> None:
            import torch

            model = self.classifier.differentiable()
            pixels = torch.from_numpy(some.materialise()).to(model.device).requires_grad_()
            with torch.enable_grad():
                torch.autograd.grad(model(pixels).max(dim=1).values.sum(), pixels)

        return self._once("gradient", back)

    @property
    def timing(self) -> float:
        """Seconds that it takes to time one more way of asking, about."""
        run = min(ENOUGH, self.observing() * len(self.images))
        return min(RUNS * run, ENOUGH + run)

    @cached_property
    def workers(self) -> float:
        """How many times faster a pass over many images is with the engine than in this process; 1 without one.

        Processes of this machine share the cores that a model in this process has for itself.
        """
        name = self.classifier.engine
        if name is None:
            return 1.0
        import torch

        here = torch.get_num_threads() if name.startswith("local") and self.classifier.device == "cpu" else 1
        return max(1.0, EFFICIENCY * open_engine(name).workers() / here)

    @cached_property
    def slowness(self) -> float:
        """How many times longer ordinary arithmetic takes here than where constants of prices were measured."""
        values = np.random.default_rng(0).random(SORTED)
        np.sort(values[:1000], kind="stable")
        # Stable: wide registers make the other sorts ten times faster where there are some, and little else.
        return timed(lambda: [np.sort(values, kind="stable") for _ in range(SORTS)], self.clock) / REFERENCE

    def _once(self, key: object, work: Callable[[ImageSet], object]) -> float:
        if key not in self._known:
            first = min(WARM, len(self.images))
            self._known[key] = paced(lambda count: work(self.images.head(count)), first, len(self.images), self.clock)
        return self._known[key]


def paced(work: Callable[[int], object], few: int, most: int, clock: Clock = time.perf_counter) -> float:
    """Seconds for an image, of work on a number of images, measured on as many as a second allows.

    Args:
        work: on so many images.
        few: images that go first, twice, for what is imported or compiled then must not count; slow work ends there.
        most: the largest number of images.
        clock: what tells the time.
    """
    work(few)
    began = clock()
    work(few)
    each = max((clock() - began) / few, 1e-9)
    some = round(min(most, ENOUGH / each))
    return each if some <= few else timed(lambda: work(some), clock) / some


def timed(work: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    """Seconds that a piece of work takes; the best of a few runs if it is short, when a hiccup would count for much."""
    best, spent = math.inf, 0.0
    for run in range(1, MORE + 1):
        began = clock()
        work()
        took = clock() - began
        best, spent = min(best, took), spent + took
        if spent > (SHORT if run >= RUNS else ENOUGH):
            break
    return best
