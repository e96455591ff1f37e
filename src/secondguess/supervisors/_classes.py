"""Means of the classes in the space of traces, and the covariance within the classes that they share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.observation import Observation
from secondguess.supervisors.surprise._moments import Moments
from secondguess.supervisors.surprise._whitening import Whitening

__all__ = ["known_classes", "within_classes"]

Floats = NDArray[np.float64]

ROUNDING = 2.0**-22  # relative: a spread below this, four units in the last place of float32, is rounding


def known_classes(observation: Observation, labels: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """The labels (n,), -1 where unknown, or the predictions where no label is given."""
    if labels is None:
        return observation.predictions
    labels = np.asarray(labels)
    if labels.max(initial=-1) >= observation.num_classes:
        raise UserError(
            f"A label is {labels.max()}, but the model has {observation.num_classes} classes; labels go from 0 to "
            f"{observation.num_classes - 1}."
        )
    return labels


def within_classes(moments: Moments) -> tuple[Floats, Floats, Whitening]:
    """The means (c, d) of the c classes that occur, their shares (c,), and the whitening of rows less their mean.

    The covariance is divided by n. Directions in which rows do not vary within the classes beyond rounding are left
    out of the whitening, whose rank is 0 where there is no other.

    Args:
        moments: of rows by class.
    """
    means, shares = moments.means, moments.counts / moments.count
    within = moments.whitened(ddof=0)
    noise = ROUNDING**2 * (shares @ np.square(means)).max()
    return means, shares, within.leading(int((within.eigenvalues > noise).sum()))
