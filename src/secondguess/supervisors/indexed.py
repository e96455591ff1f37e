"""Supervisors that search their training traces, which may be cut into parts that no machine holds together.

A part answers for itself with what it has nearest to each image; of these answers the nearest of all parts follow
exactly. That is one road: all traces together are the case of a single part.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from secondguess.model.observation import Observation
from secondguess.supervisors._traces import TraceSupervisor

__all__ = ["IndexedSupervisor"]

Floats = NDArray[np.float64]


class IndexedSupervisor(TraceSupervisor):
    """A supervisor of the training traces nearest to an image.

    Attributes:
        traces_: (N, d) the training traces.
    """

    traces_: NDArray[np.floating]

    @abstractmethod
    def in_parts(self, count: int) -> list[Self]:
        """Supervisors that have a part of the training traces each, in their order; at most `count` of them."""

    @abstractmethod
    def nearest(self, observation: Observation) -> Floats:
        """What these traces have nearest to each image, (n, m) numbers."""

    @abstractmethod
    def combined(self, observation: Observation, found: Sequence[Floats]) -> Floats:
        """The scores (n,), from what each part has found nearest."""

    def _part(self, traces: NDArray[np.floating]) -> Self:
        """An unfinished copy with other training traces."""
        part = self.clone()
        part.fitted_classes_, part.traces_ = self.fitted_classes_, traces
        return part

    def _score(self, observation: Observation) -> Floats:
        return self.combined(observation, [self.nearest(observation)])
