"""Mahalanobis distance to the nearest class, less the distance to the training data as a whole.

    score(x) = min_c MD_c(x) - MD_0(x)
    MD_c(x)  = (at(x) - mu_c)' S^-1 (at(x) - mu_c),     S   = covariance within the classes, shared by all of them
    MD_0(x)  = (at(x) - mu_0)' S_0^-1 (at(x) - mu_0),   S_0 = covariance of all traces

Source: Ren et al., A Simple Fix to Mahalanobis Distance for Improving Near-OOD Detection (2021). Distances are squared
and covariances divided by n, as there.

S_0 is S plus the spread of the class means around mu_0. In the coordinates S^-1/2 (at - mu_0), S becomes the identity
and S_0 differs from it only within the span of the class means, along axes j with variances 1 + s_j. Outside that
span the two distances are the same; with m the nearest class mean and y = at(x) - m in those coordinates, there remains

    score(x) = sum_j y_j^2 - (y_j + m_j)^2 / (1 + s_j) = sum_j (s_j y_j^2 - 2 y_j m_j - m_j^2) / (1 + s_j)

so that nothing large need be computed to cancel: neither far from the data, where the two distances are alike, nor
where the classes are tight, so that m^2 and s are huge and the score is not.

Departure: directions in which the traces of a class do not vary, such as dead or duplicated neurons and those that
training has collapsed, are left out of both distances. A pseudo-inverse of each covariance on its own would leave them
out of MD_c but not of MD_0, and being far away would then lower the score.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from secondguess.model.observation import Observation
from secondguess.supervisors._classes import known_classes, within_classes
from secondguess.supervisors._traces import Layers, TraceSupervisor
from secondguess.supervisors.registry import register
from secondguess.supervisors.surprise._moments import Moments
from secondguess.supervisors.surprise._whitening import Rows

if TYPE_CHECKING:
    import torch

    from secondguess.supervisors.base import ScoreGraph
    from secondguess.supervisors.graph import Tensors

__all__ = ["RelativeMahalanobis"]

Floats = NDArray[np.float64]


@register
class RelativeMahalanobis(TraceSupervisor):
    """Suspicious = far from every class, compared with how far it is from the data as a whole.

    min_c MD_c - MD_0, the squared Mahalanobis distance to the nearest class mean with one covariance for all classes,
    less that to the mean of all traces. Source: Ren et al. (2021). Cost: a product with a d x K matrix per image, and
    the eigenvectors of a d x d matrix to fit. Good at images that resemble the classes yet are none of them, since what
    is unusual for all classes alike cancels, and, unlike most distances, at ambiguous images, which lie between the
    classes: far from each, yet near the centre of all. Bad at few training
    images for many neurons, and where classes have shapes of their own.

    Classes are the labels given to `fit` (unknown ones, -1, are left out), or the predictions if there are none. A
    class without any image plays no part. A trace that holds NaN or infinity scores +inf.

    Args:
        layers: see `TraceSupervisor`.

    Attributes:
        mean_: (d,) of all traces.
        projection_: (d, k) from a trace less that mean to its coordinates along the k axes of the class means.
        centres_: (c, k) the means of the c classes that occur, in those coordinates.
        spreads_: (k,) the variance of the class means along each axis, in units of that within the classes.
    """

    name = "relative_mahalanobis"
    family: ClassVar[str] = "baseline"

    def __init__(self, layers: Layers = "penultimate") -> None:
        super().__init__(layers)

    def _statistics(self, observation: Observation, labels: NDArray[np.int64] | None) -> Moments:
        traces, classes = self._training_matrix(observation), known_classes(observation, labels)
        known = np.flatnonzero(classes >= 0)
        return Moments.of(Rows(traces, known), classes[known])

    def _learn(self, merged: Moments) -> bool:
        means, shares, within = within_classes(merged)
        if within.rank == 0:
            warnings.warn(
                "The traces do not vary within the classes, so the relative Mahalanobis distance is 0 for every image; "
                "fit it on more images, or on another layer.",
                stacklevel=3,
            )
        self.mean_ = shares @ means
        apart = (means - self.mean_) @ within.factor
        _, deviations, axes = np.linalg.svd(apart * np.sqrt(shares)[:, None], full_matrices=False)
        self.projection_, self.centres_ = within.factor @ axes.T, apart @ axes.T
        self.spreads_ = np.square(deviations)
        return False

    def _score(self, observation: Observation) -> Floats:
        return self._by_row(observation, self.mean_.size, self._distances)

    def _graph(self) -> ScoreGraph:
        from secondguess.supervisors.graph import TraceGraph

        def distances(
            x: torch.Tensor,
            seen: Tensors,
            mean: torch.Tensor,
            projection: torch.Tensor,
            centres: torch.Tensor,
            spreads: torch.Tensor,
        ) -> torch.Tensor:
            coordinates = (x - mean) @ projection
            nearest = centres[(centres.square().sum(1) - 2 * coordinates @ centres.T).argmin(1)]
            away = coordinates - nearest
            terms = spreads * away.square() - (2 * away + nearest) * nearest
            return (terms / (1 + spreads)).sum(1)

        return TraceGraph(
            self.traces,
            distances,
            mean=self.mean_,
            projection=self.projection_,
            centres=self.centres_,
            spreads=self.spreads_,
        )

    def _distances(self, traces: Floats) -> Floats:
        """The scores (n,) of traces (n, d)."""
        coordinates = (traces - self.mean_) @ self.projection_
        squares = np.square(self.centres_).sum(axis=1)
        nearest = self.centres_[(squares - 2 * coordinates @ self.centres_.T).argmin(axis=1)]
        away = coordinates - nearest
        terms = self.spreads_ * np.square(away) - (2 * away + nearest) * nearest
        return np.asarray((terms / (1 + self.spreads_)).sum(axis=1))
