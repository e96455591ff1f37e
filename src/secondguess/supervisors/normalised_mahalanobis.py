"""Mahalanobis distance to the nearest class on the unit sphere (Mahalanobis++).

    z = at(x) / ||at(x)||,    score(x) = min_c (z - mu_c)' S^-1 (z - mu_c)

with mu_c the means of the normalised training traces of each class and S their covariance within the classes, shared by
all of them. Source: Mueller and Hein, Mahalanobis++: Improving OOD Detection via Feature Normalization (ICML 2025).
Without the normalisation the length of a trace, which differs between classes and images for reasons of its own,
dominates the distance.

A trace of zeros has no direction and stays zero. Departure: directions in which normalised traces do not vary within
the classes are left out, where a covariance that is not of full rank has no inverse.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from secondguess.model.observation import Observation
from secondguess.supervisors._classes import known_classes, within_classes
from secondguess.supervisors._traces import Layers, TraceSupervisor, directions
from secondguess.supervisors.registry import register
from secondguess.supervisors.surprise._moments import Moments
from secondguess.supervisors.surprise._whitening import Rows

if TYPE_CHECKING:
    import torch

    from secondguess.supervisors.base import ScoreGraph
    from secondguess.supervisors.graph import Tensors

__all__ = ["NormalisedMahalanobis"]

Floats = NDArray[np.float64]


@register
class NormalisedMahalanobis(TraceSupervisor):
    """Suspicious = far, in direction, from the mean of every class, in units of the spread within the classes.

    min_c (z - mu_c)' S^-1 (z - mu_c) with z = at(x) / ||at(x)||. Source: Mueller and Hein (ICML 2025). Cost: a product
    with a d x d matrix per image, and its eigenvectors to fit. Good at images unlike any class, on large pre-trained
    networks above all; bad at ambiguous images, and where classes have shapes of their own.

    Classes are the labels given to `fit` (unknown ones, -1, are left out), or the predictions if there are none. A
    trace that holds NaN or infinity scores +inf.

    Args:
        layers: see `TraceSupervisor`.

    Attributes:
        mean_: (d,) of all normalised traces.
        factor_: (d, r) from a normalised trace less that mean to coordinates in which S is the identity.
        centres_: (c, r) the means of the classes that occur, in those coordinates.
    """

    name = "normalised_mahalanobis"
    family: ClassVar[str] = "baseline"

    def __init__(self, layers: Layers = "penultimate") -> None:
        super().__init__(layers)

    def _statistics(self, observation: Observation, labels: NDArray[np.int64] | None) -> Moments:
        traces, classes = self._training_matrix(observation), known_classes(observation, labels)
        known = np.flatnonzero(classes >= 0)
        return Moments.of(_Directions(traces, known), classes[known])

    def _learn(self, merged: Moments) -> bool:
        means, shares, within = within_classes(merged)
        if within.rank == 0:
            warnings.warn(
                "The directions of the traces do not vary within the classes, so the normalised Mahalanobis distance "
                "is 0 for every image; fit it on more images, or on another layer.",
                stacklevel=3,
            )
        self.mean_ = shares @ means
        self.factor_ = within.factor
        self.centres_ = (means - self.mean_) @ within.factor
        return False

    def _score(self, observation: Observation) -> Floats:
        return self._by_row(observation, self.mean_.size, self._distances)

    def _distances(self, traces: Floats) -> Floats:
        """The scores (n,) of traces (n, d)."""
        coordinates = (directions(traces) - self.mean_) @ self.factor_
        nearest = (np.square(self.centres_).sum(axis=1) - 2 * coordinates @ self.centres_.T).argmin(axis=1)
        return np.asarray(np.square(coordinates - self.centres_[nearest]).sum(axis=1))

    def _graph(self) -> ScoreGraph:
        from secondguess.supervisors.graph import TraceGraph

        def distances(
            x: torch.Tensor, seen: Tensors, mean: torch.Tensor, factor: torch.Tensor, centres: torch.Tensor
        ) -> torch.Tensor:
            lengths = x.square().sum(1, keepdim=True).sqrt()
            coordinates = (x / lengths.where(lengths > 0, 1.0) - mean) @ factor
            nearest = centres[(centres.square().sum(1) - 2 * coordinates @ centres.T).argmin(1)]
            return (coordinates - nearest).square().sum(1)

        return TraceGraph(self.traces, distances, mean=self.mean_, factor=self.factor_, centres=self.centres_)


class _Directions(Rows):
    """Rows of length one."""

    def block(self, start: int, stop: int) -> Floats:
        """The rows from `start` to `stop`, a fresh array."""
        return directions(super().block(start, stop))
