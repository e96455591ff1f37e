"""From log-odds to shares: what a judge that was calibrated on real images says of an image between two classes.

Log-odds say which class a real image has. Of an image that is a mixture they say far more than its share allows. Let
classes have Gaussian densities with means of their own and one covariance. Then a mixture s x + (1 - s) y of an image x
of the first and an image y of the second has log-odds with

    mean      (2 s - 1) D            D = the mean log-odds of real images, for the class that they have
    variance  2 D (s^2 + (1 - s)^2)

so that the linear estimate of s - 1/2 with the least error is log-odds / 2 over D + E[s^2 + (1 - s)^2] / (2 Var[s]),
and at s = 1/2, where a logit grows by 4 for 1,

    logit(share) = scale * log-odds / (D + 2.5)      scale = 2

The 2.5 is that of images of which half are blends with any share and half are real. That half is a convention: with
blends alone, more images of which a judge is as sure as of real ones would pass for mixtures. The scale that is used is
fitted to known mixtures (`mixtures.py`), of which half are no blends but cuts (with a variance of 2 D, if pixels are
independent and D is spread evenly over the image); it does better with near and far classes than one factor for all
log-odds would.

How frequent a class is matters to log-odds, and not to shares: it is taken out before. A judge that has learnt blends
with the labels of blends, as the committee has, knows shares already, and needs neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from secondguess.errors import UserError
from secondguess.stress.ambiguous.flow.mixtures import Mixtures

__all__ = ["ShareCalibration", "cost_of", "log_odds_of", "priors", "separations"]

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
SCATTER = 2.5  # nats, see above
FEW = 5  # images that the mean of all pairs counts for, where a pair has few of its own
SCALES = (1e-2, 1e2)  # that are looked for
NEVER = 1e-9  # images of a class that has none
TINY = 1e-300  # of a probability: hundreds of nats are not many between classes that lie far apart


@dataclass(frozen=True, eq=False)
class ShareCalibration:
    """How a judge's log-odds between two classes become the logit of a share.

    Attributes:
        scale: what they are multiplied by.
        separation: float64 (K, K), D of two classes; None for a judge that has learnt blends.
        prior: float64 (K,), what frequencies add to the logarithms of the probabilities of classes; None for nothing.
    """

    scale: float = 1.0
    separation: Floats | None = None
    prior: Floats | None = None

    def logits(self, log_odds: Floats, pair: Rows) -> Floats:
        """Of the share of the first of two classes (n, 2), from their log-odds (n,)."""
        prior = 0.0 if self.prior is None else self.prior[pair[:, 0]] - self.prior[pair[:, 1]]
        return np.asarray((log_odds - prior) * self.per_nat(pair))

    def per_nat(self, pair: Rows) -> Floats:
        """By how much these logits (n,) grow with the log-odds."""
        if self.separation is None:
            return np.full(len(pair), self.scale)
        return np.asarray(self.scale / (self.separation[pair[:, 0], pair[:, 1]] + SCATTER))

    def cost(self, log_odds: Floats, known: Mixtures) -> float:
        """What the shares of known mixtures cost more, in nats, than the known ones would."""
        return cost_of(self.logits(log_odds, known.pair), known.share)

    @classmethod
    def fit(
        cls, log_odds: Floats, known: Mixtures, separation: Floats | None = None, prior: Floats | None = None
    ) -> Self:
        """The scale of the least cost, for log-odds (n,) of known mixtures."""
        if not np.isfinite(log_odds).all():
            raise UserError("A judge of ambiguous images gives some images log-odds that are no numbers.")

        def cost(exponent: float) -> float:
            return cls(float(np.exp(exponent)), separation, prior).cost(log_odds, known)

        found = minimize_scalar(cost, bounds=tuple(np.log(SCALES)), method="bounded")
        return cls(float(np.exp(found.x)), separation, prior)

    def quality(self, log_odds: Floats, known: Mixtures) -> dict[str, float]:
        """The scale, and what shares cost on mixtures whose scale was not fitted to them, beside one half for all.

        Each half of the mixtures is judged with the scale of the other.
        """
        costs = []
        for fitted, judged in ((slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2))):
            one = ShareCalibration.fit(log_odds[fitted], known.take(fitted), self.separation, self.prior)
            costs.append(one.cost(log_odds[judged], known.take(judged)))
        even = ShareCalibration(0.0).cost(log_odds, known)
        return {"scale_of_shares": self.scale, "cost_of_shares": float(np.mean(costs)), "cost_of_even_shares": even}

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        tables = {"separation": self.separation, "prior": self.prior}
        return {"scale": self.scale, **{name: None if one is None else one.tolist() for name, one in tables.items()}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The opposite of `to_dict`."""
        tables = (values[name] for name in ("separation", "prior"))
        return cls(float(values["scale"]), *(None if one is None else np.array(one) for one in tables))


def separations(logits: Floats, labels: Rows) -> Floats:
    """D (K, K), from the logits (n, K), without priors, of real images with these labels.

    The images of both classes of a pair count alike. A pair with few images is drawn to the mean of all pairs; one of
    which a class has none has that mean.
    """
    classes = logits.shape[1]
    counts = np.bincount(labels, minlength=classes)
    sums = np.zeros((classes, classes))
    np.add.at(sums, labels, logits[np.arange(len(labels)), labels][:, None] - logits)
    means = sums / np.maximum(counts, 1)[:, None]
    both = (counts[:, None] > 0) & (counts[None, :] > 0) & ~np.eye(classes, dtype=bool)
    found = np.where(both, (means + means.T) / 2, 0.0)
    usual = found[both].mean() if both.any() else 0.0
    weight = np.where(both, 2 / (1 / np.maximum(counts, 1)[:, None] + 1 / np.maximum(counts, 1)[None, :]), 0.0)
    return np.asarray(np.maximum((weight * found + FEW * usual) / (weight + FEW), 0.0))


def priors(labels: Rows, classes: int) -> Floats:
    """Logarithms (K,) of the frequencies of classes, up to a constant; far below all others for one without images."""
    return np.asarray(np.log(np.maximum(np.bincount(labels, minlength=classes), NEVER)))


def log_odds_of(probabilities: Floats, pair: Rows) -> Floats:
    """Log-odds (n,) of the first of two classes (n, 2) from the probabilities (n, K) of all."""
    both = np.log(np.maximum(np.take_along_axis(probabilities, pair, axis=1), TINY))
    return np.asarray(both[:, 0] - both[:, 1])


def cost_of(logits: Floats, share: Floats) -> float:
    """What the shares with these logits (n,) cost more, in nats, than the known ones (n,) would."""
    least = -_times_log(share) - _times_log(1 - share)
    return float((np.logaddexp(0, logits) - share * logits - least).mean())


def _times_log(share: Floats) -> Floats:
    return share * np.log(np.maximum(share, TINY))
