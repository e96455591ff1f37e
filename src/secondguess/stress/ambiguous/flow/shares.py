"""From log-odds to shares: what a judge that was calibrated on real images says of an image between two classes.

Log-odds say which class a real image has. Of an image that is a mixture they say far more than its share allows. Let
classes have Gaussian densities with means of their own and one covariance. Then a mixture s x + (1 - s) y of an image x
of the first and an image y of the second has, in the mean over x and y, the log-odds

    (2 s - 1) D      D = the mean log-odds of real images, for the class that they have

which for classes that lie far apart are ten nats and more for a share of .75. So log-odds are counted in units of D,

    logit(share) = scale * log-odds / D

The tangent at s = 1/2 has the scale 2; the scale that is used is fitted to images with known shares (`mixtures.py`).
Half of them are real: without these, an image of which a judge is as sure as of most real ones would pass for a
mixture. A judge that has learnt blends, as the committee has, knows shares already and needs no D.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

__all__ = ["ShareCalibration", "log_odds_of", "separations"]

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
FEW = 5  # images that the mean of all pairs counts for, where a pair has few of its own
NEAREST = 2.0  # nats: of classes that overlap more than that, log-odds as they are tell no less than shares
SCALES = (1e-2, 1e2)  # that are looked for
TINY = 1e-300  # of a probability: hundreds of nats are not many between classes that lie far apart


@dataclass(frozen=True)
class ShareCalibration:
    """How a judge's log-odds between two classes become the log-odds of a share.

    Attributes:
        scale: what they are multiplied by.
        separation: float64 (K, K), what they are divided by for two classes; None for 1.
    """

    scale: float = 1.0
    separation: Floats | None = None

    def per_nat(self, pair: Rows) -> Floats:
        """By how much the logit of the share of the first of two classes (n, 2) grows with their log-odds (n,)."""
        if self.separation is None:
            return np.full(len(pair), self.scale)
        return np.asarray(self.scale / self.separation[pair[:, 0], pair[:, 1]])

    @classmethod
    def fit(cls, log_odds: Floats, pair: Rows, share: Floats, separation: Floats | None = None) -> Self:
        """The scale of the least cross-entropy.

        Args:
            log_odds: (n,), of the first of two classes.
            pair: (n, 2), the classes.
            share: (n,), the known shares of the first.
            separation: (K, K), or None.
        """
        x = log_odds * cls(1.0, separation).per_nat(pair)

        def cost(exponent: float) -> float:
            z = np.exp(exponent) * x
            return float((np.logaddexp(0, z) - share * z).mean())

        found = minimize_scalar(cost, bounds=tuple(np.log(SCALES)), method="bounded")
        return cls(float(np.exp(found.x)), separation)

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {"scale": self.scale, "separation": None if self.separation is None else self.separation.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The opposite of `to_dict`."""
        separation = values["separation"]
        return cls(float(values["scale"]), None if separation is None else np.array(separation))


def separations(logits: Floats, labels: Rows) -> Floats:
    """Mean log-odds (K, K) of real images of two classes, each for the class that it has, from their logits (n, K).

    A pair with few images is drawn to the mean of all.
    """
    classes = logits.shape[1]
    own = logits[np.arange(len(labels)), labels]
    sums, counts = np.zeros((classes, classes)), np.bincount(labels, minlength=classes)
    np.add.at(sums, labels, own[:, None] - logits)
    sums, counted = sums + sums.T, counts[:, None] + counts[None, :]
    apart = ~np.eye(classes, dtype=bool)
    usual = sums[apart].sum() / counted[apart].sum()
    found = (sums + FEW * usual) / (counted + FEW)
    return np.asarray(np.maximum(found, NEAREST))


def log_odds_of(probabilities: Floats, pair: Rows) -> Floats:
    """Log-odds (n,) of the first of two classes (n, 2) from the probabilities (n, K) of all."""
    both = np.log(np.maximum(np.take_along_axis(probabilities, pair, axis=1), TINY))
    return np.asarray(both[:, 0] - both[:, 1])
