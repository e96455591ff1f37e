"""Mahalanobis distance to the nearest class, less the distance to the training data as a whole.

    score(x) = min_c MD_c(x) - MD_0(x)
    MD_c(x)  = (at(x) - mu_c)' S^-1 (at(x) - mu_c),     S   = covariance within the classes, shared by all of them
    MD_0(x)  = (at(x) - mu_0)' S_0^-1 (at(x) - mu_0),   S_0 = covariance of all traces

Source: Ren et al., A Simple Fix to Mahalanobis Distance for Improving Near-OOD Detection (2021). Distances are squared
and covariances divided by n, as there.

S_0 is S plus the spread of the class means around mu_0. With p_c the share of class c, m_c = S^-1/2 (mu_c - mu_0) and
g_c = m_c' S^-1/2 (at(x) - mu_0), Woodbury's identity therefore leaves of the difference

    score(x) = min_c (||m_c||^2 - 2 g_c) + g' (diag(1/p) + M M')^-1 g,     M = the rows m_c

so that what the two distances share, which far from the data is nearly all of them, need not be computed to cancel.

Departure: directions in which the traces of a class do not vary, such as dead or duplicated neurons and those that
training has collapsed, are left out of both distances. A pseudo-inverse of each covariance on its own would leave them
out of MD_c but not of MD_0, and being far away would then lower the score.
"""

from __future__ import annotations

import warnings
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.observation import Observation
from secondguess.supervisors._moments import blocks, mean_and_covariance, varying
from secondguess.supervisors._traces import Layers, TraceSupervisor
from secondguess.supervisors.registry import register

__all__ = ["RelativeMahalanobis"]


@register
class RelativeMahalanobis(TraceSupervisor):
    """Suspicious = far from every class, compared with how far it is from the data as a whole.

    min_c MD_c - MD_0, the squared Mahalanobis distance to the nearest class mean with one covariance for all classes,
    less that to the mean of all traces. Source: Ren et al. (2021). Cost: a product with a d x K matrix an image, and
    the eigenvectors of a d x d matrix to fit. Good at images that resemble the classes yet are none of them, since what
    is unusual for all classes alike cancels; bad at ambiguous images, at few training images for many neurons, and
    where classes have shapes of their own.

    Classes are the labels given to `fit` (unknown ones, -1, are left out), or the predictions if there are none. A
    class without any image plays no part.

    Args:
        layers: see `TraceSupervisor`.
    """

    name = "relative_mahalanobis"
    family: ClassVar[str] = "baseline"

    def __init__(self, layers: Layers = "penultimate") -> None:
        super().__init__(layers)

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        traces, classes = self._matrix(observation), observation.predictions
        if labels is not None and (np.asarray(labels) >= 0).any():
            classes = _checked(labels, observation.num_classes)
        known = np.flatnonzero(classes >= 0)
        if len(known) < len(classes):
            traces, classes = traces[known], classes[known]
        means, counts = _class_means(traces, classes, observation.num_classes)
        mean, total = mean_and_covariance(traces)
        shares = counts / len(traces)
        apart = (means - mean) * np.sqrt(shares)[:, None]
        variances, directions = varying(total - apart.T @ apart, scale=float(total.diagonal().max()))
        if not len(variances):
            warnings.warn(
                "The traces do not vary within the classes, so the relative Mahalanobis distance is 0 for every image; "
                "fit it on more images, or on another layer.",
                stacklevel=3,
            )
        whitening = directions / np.sqrt(variances)
        whitened = (means - mean) @ whitening
        products = whitened @ whitened.T
        self.mean_, self.projection_ = mean, whitening @ whitened.T
        self.squares_ = products.diagonal().copy()
        self.background_ = np.linalg.inv(np.diag(1 / shares) + products)

    def _score(self, observation: Observation) -> NDArray[np.float64]:
        traces, scores = self._matrix(observation), np.empty(len(observation))
        for rows in blocks(*traces.shape):
            g = (traces[rows] - self.mean_) @ self.projection_
            scores[rows] = (self.squares_ - 2 * g).min(axis=1) + ((g @ self.background_) * g).sum(axis=1)
        return scores


def _checked(labels: NDArray[np.int64], num_classes: int) -> NDArray[np.int64]:
    labels = np.asarray(labels)
    if labels.max() >= num_classes:
        raise UserError(
            f"A label is {labels.max()}, but the model has {num_classes} classes; labels go from 0 to "
            f"{num_classes - 1}."
        )
    return labels


def _class_means(
    traces: NDArray[np.float32], classes: NDArray[np.int64], num_classes: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The means (c, d) of the traces of the c classes that occur, and how many traces each of them has (c,)."""
    counts = np.bincount(classes, minlength=num_classes)
    sums = np.zeros((num_classes, traces.shape[1]))
    for rows in blocks(*traces.shape):
        order = np.argsort(classes[rows], kind="stable")
        found, first = np.unique(classes[rows][order], return_index=True)
        sums[found] += np.add.reduceat(traces[rows][order], first, axis=0, dtype=np.float64)
    present = counts > 0
    return sums[present] / counts[present, None], counts[present]
