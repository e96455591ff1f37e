"""Means of the classes in the space of traces, and the covariance within the classes that they share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.observation import Observation
from secondguess.supervisors.surprise._whitening import Rows, Whitening, whiten

__all__ = ["known_classes", "within_classes"]

Floats = NDArray[np.float64]

ROUNDING = 2.0**-22  # relative: a spread below this, four units in the last place of float32, is rounding


def known_classes(observation: Observation, labels: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """The labels (n,), -1 where unknown, or the predictions where no label is known."""
    if labels is None or not (np.asarray(labels) >= 0).any():
        return observation.predictions
    labels = np.asarray(labels)
    if labels.max() >= observation.num_classes:
        raise UserError(
            f"A label is {labels.max()}, but the model has {observation.num_classes} classes; labels go from 0 to "
            f"{observation.num_classes - 1}."
        )
    return labels


def within_classes(source: Rows, classes: NDArray[np.int64]) -> tuple[Floats, Floats, Whitening]:
    """The means (c, d) of the c classes that occur, their shares (c,), and the whitening of rows less their mean.

    The covariance is divided by n. Directions in which rows do not vary within the classes beyond rounding are left
    out of the whitening, whose rank is 0 where there is no other.

    Args:
        source: n rows.
        classes: (n,) of the rows, none of them unknown.
    """
    _, codes, counts = np.unique(classes, return_inverse=True, return_counts=True)
    means, shares = _means(source, codes, counts), counts / len(classes)
    within = whiten(
        _AroundMeans(source.matrix, source.rows, source.columns, source=source, means=means, codes=codes), ddof=0
    )
    noise = ROUNDING**2 * (shares @ np.square(means)).max()
    return means, shares, within.leading(int((within.eigenvalues > noise).sum()))


@dataclass(frozen=True, kw_only=True)
class _AroundMeans(Rows):
    """Rows less the mean of their class: the total less the spread of the means would drown where classes are tight.

    Attributes:
        source: the rows.
        means: (c, d) of the classes.
        codes: (n,) which of them each row belongs to.
    """

    source: Rows
    means: Floats
    codes: NDArray[np.int64]

    def block(self, start: int, stop: int) -> Floats:
        """The rows from `start` to `stop`, a fresh array."""
        return self.source.block(start, stop) - self.means[self.codes[start:stop]]


def _means(source: Rows, codes: NDArray[np.int64], counts: NDArray[np.int64]) -> Floats:
    """The means (c, d) of the rows of each of c classes, of which there are `counts` (c,)."""
    sums = np.zeros((len(counts), source.width))
    for rows, block in source.blocks():
        order = np.argsort(codes[rows], kind="stable")
        found, first = np.unique(codes[rows][order], return_index=True)
        sums[found] += np.add.reduceat(block[order], first, axis=0)
    return sums / counts[:, None]
