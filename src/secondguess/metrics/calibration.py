"""Calibration: whether predictions with a confidence of 90 % are right nine times out of ten.

With confidence c_i = max_k p_ik, prediction = the first class that reaches it, and h_i = 1 if the prediction
is right:

    ECE   = Σ_b (n_b / n) |conf_b - acc_b|   expected calibration error (Naeini et al. 2015, Guo et al. 2017)
    MCE   = max_b |conf_b - acc_b|           maximum calibration error (the same)
    Brier = mean_i Σ_k (p_ik - y_ik)²        the sum over all classes, in [0, 2] (Brier 1950)
    NLL   = mean_i -Σ_k y_ik log p_ik        in nats

where conf_b and acc_b are the means of c and h over the n_b examples of bin b. The bins of ECE and MCE are
closed on the right, (e_{b-1}, e_b], with e_0 = 0 and e_B = 1; a confidence of 0 belongs to the first. The
inner edges are

    binning="width"   e_b = b / B, as in the papers above;
    binning="mass"    e_b = the ⌈n b / B⌉-th smallest confidence. Equal confidences are therefore never separated: a
                      run of ties fills the bin it begins in, and bins that it swallows are empty.

Brier score and NLL are proper: only the true probabilities minimise them. ECE is not, and it is biased
upwards in small samples, because the noise of acc_b never cancels inside |.|: a perfectly calibrated model
has an ECE above 0. The bootstrap adds that noise a second time, so the percentile interval of the ECE
inherits the bias and can lie wholly above the value.

Unknown labels (below 0) are left out. Each `*_interval` reduces the probabilities to what the score needs of
each example first and resamples that, so its cost does not grow with the number of classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.errors import UserError
from secondguess.metrics import checks
from secondguess.metrics.checks import Floats, Ints
from secondguess.metrics.interval import Interval, bootstrap

__all__ = [
    "Reliability",
    "brier",
    "brier_interval",
    "brier_rows",
    "ece",
    "ece_interval",
    "mce",
    "nll",
    "nll_interval",
    "nll_rows",
    "reliability",
    "reliability_of_hits",
]

Binning: TypeAlias = Literal["width", "mass"]

# The smallest positive normal float64: a probability of 0 for the truth costs 708.4 nats instead of infinity.
_SMALLEST = np.finfo(np.float64).tiny


@dataclass(frozen=True, slots=True, eq=False)
class Reliability:
    """The data of a reliability diagram with B bins.

    Attributes:
        edges: (B + 1,) from 0 to 1; bin b is (edges[b], edges[b + 1]].
        confidence: (B,) mean confidence in each bin; NaN in an empty one.
        accuracy: (B,) share of right predictions in each bin; NaN in an empty one.
        count: (B,) int64, number of examples in each bin.
    """

    edges: Floats
    confidence: Floats
    accuracy: Floats
    count: Ints

    @property
    def ece(self) -> float:
        """Expected calibration error, with norm 1."""
        return self.error(1)

    @property
    def mce(self) -> float:
        """Maximum calibration error over the bins that are not empty."""
        return float(np.nanmax(np.abs(self.confidence - self.accuracy)))

    @property
    def overconfidence(self) -> float:
        """Mean confidence minus accuracy: positive if the model is overconfident, negative if it is underconfident."""
        gap, share = self._gaps()
        return float(share @ gap)

    def error(self, norm: int = 1) -> float:
        """Return (Σ_b (n_b / n) |conf_b - acc_b|^norm)^(1 / norm) for norm 1 or 2."""
        if norm not in (1, 2):
            raise UserError(f"norm is {norm!r}; give 1 or 2, or use mce for the largest gap.")
        gap, share = self._gaps()
        return float((share @ np.abs(gap) ** norm) ** (1 / norm))

    def _gaps(self) -> tuple[Floats, Floats]:
        """Return confidence minus accuracy, and the share of the examples, for each bin that is not empty."""
        filled = self.count > 0
        return (self.confidence - self.accuracy)[filled], self.count[filled] / self.count.sum()


def reliability(
    probabilities: ArrayLike, labels: ArrayLike, *, bins: int = 15, binning: Binning = "width"
) -> Reliability:
    """Return the reliability diagram of the predicted class.

    Args:
        probabilities: (n, K), rows sum to 1.
        labels: (n,) integers; below 0 = unknown, left out.
        bins: number of bins B.
        binning: "width" for equally wide bins, "mass" for equally full ones; the module says exactly how.
    """
    return reliability_of_hits(*_confidence_and_hit(probabilities, labels), bins, binning)


def ece(
    probabilities: ArrayLike, labels: ArrayLike, *, bins: int = 15, binning: Binning = "width", norm: int = 1
) -> float:
    """Return the expected calibration error of the predicted class, in [0, 1].

    Bins are closed on the right, (e_{b-1}, e_b], from 0 to 1, and a confidence of 0 is in the first. With
    binning="width" the edges are b / bins; with "mass" they are order statistics, so that bins hold equally
    many examples as far as ties allow: equal confidences always share a bin. Biased upwards in small samples.

    Args:
        probabilities: (n, K), rows sum to 1.
        labels: (n,) integers; below 0 = unknown, left out.
        bins: number of bins.
        binning: "width" or "mass".
        norm: 1 for the mean absolute gap, 2 for the root of the mean squared gap.
    """
    return reliability(probabilities, labels, bins=bins, binning=binning).error(norm)


def mce(probabilities: ArrayLike, labels: ArrayLike, *, bins: int = 15, binning: Binning = "width") -> float:
    """Return the largest gap between confidence and accuracy of a bin that holds examples; see `ece`."""
    return reliability(probabilities, labels, bins=bins, binning=binning).mce


def brier(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Return the Brier score summed over the classes: 0 is perfect, 2 is certain and always wrong.

    For two classes this is twice the score that is usually quoted, which counts one class only.

    Args:
        probabilities: (n, K), rows sum to 1.
        labels: (n,) integers, below 0 = unknown and left out; or soft labels (n, K), rows sum to 1.
    """
    return float(brier_rows(probabilities, labels).mean())


def nll(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Return the mean negative log-likelihood in nats; with soft labels, the cross-entropy.

    Always finite: probabilities below the smallest positive normal float64, 2.2e-308, count as that.

    Args:
        probabilities: (n, K), rows sum to 1.
        labels: (n,) integers, below 0 = unknown and left out; or soft labels (n, K), rows sum to 1.
    """
    return float(nll_rows(probabilities, labels).mean())


def ece_interval(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    bins: int = 15,
    binning: Binning = "width",
    norm: int = 1,
    resamples: int = 500,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Return `ece` with its bootstrap interval; equal-mass edges are drawn anew on each resample.

    The ECE is biased upwards in small samples and resampling adds to it: read the interval as the spread of
    the number, not as a test of whether the model is calibrated.
    """

    def error(confidence: Floats, hit: NDArray[np.bool_]) -> float:
        return reliability_of_hits(confidence, hit, bins, binning).error(norm)

    rows = _confidence_and_hit(probabilities, labels)
    return bootstrap(error, rows, resamples=resamples, level=level, seed=seed)


def brier_interval(
    probabilities: ArrayLike, labels: ArrayLike, *, resamples: int = 500, level: float = 0.95, seed: int = 0
) -> Interval:
    """Return `brier` with its bootstrap interval."""
    rows = brier_rows(probabilities, labels)
    return bootstrap(np.mean, rows, resamples=resamples, level=level, seed=seed)


def nll_interval(
    probabilities: ArrayLike, labels: ArrayLike, *, resamples: int = 500, level: float = 0.95, seed: int = 0
) -> Interval:
    """Return `nll` with its bootstrap interval."""
    rows = nll_rows(probabilities, labels)
    return bootstrap(np.mean, rows, resamples=resamples, level=level, seed=seed)


def _confidence_and_hit(probabilities: ArrayLike, labels: ArrayLike) -> tuple[Floats, NDArray[np.bool_]]:
    """Return (n,) confidence and (n,) whether the prediction is right, of the examples with a known label."""
    rows, truth = checks.known(probabilities, labels)
    prediction = rows.argmax(axis=1)
    return rows[np.arange(len(rows)), prediction], prediction == truth


def reliability_of_hits(
    confidence: Floats, hit: NDArray[np.bool_] | Floats, bins: int = 15, binning: Binning = "width"
) -> Reliability:
    """Return the reliability diagram of (n,) confidences and (n,) hits, or probabilities of a hit."""
    edges = _edges(confidence, checks.positive(bins, "bins"), binning)
    # The first inner edge at or above a confidence closes its bin on the right.
    index = np.searchsorted(edges[1:-1], confidence, side="left")
    count = np.bincount(index, minlength=bins)
    filled = np.maximum(count, 1)
    empty = np.where(count > 0, 0.0, np.nan)
    return Reliability(
        edges=edges,
        confidence=np.bincount(index, weights=confidence, minlength=bins) / filled + empty,
        accuracy=np.bincount(index, weights=hit, minlength=bins) / filled + empty,
        count=count.astype(np.int64, copy=False),
    )


def _edges(confidence: Floats, bins: int, binning: Binning) -> Floats:
    """Return the (bins + 1,) edges, from 0 to 1."""
    if binning == "width":
        # Not linspace: its 3 / 5 is not the float 0.6, and a confidence of 0.6 would change bins.
        return np.arange(bins + 1) / bins
    if binning == "mass":
        # Whole-number arithmetic: ⌈n b / B⌉ in floats would sometimes be one too many.
        ranks = -(-len(confidence) * np.arange(1, bins) // bins)
        return np.concatenate([[0.0], np.sort(confidence)[ranks - 1], [1.0]])
    raise UserError(f'binning is {binning!r}; give "width" or "mass".')


def brier_rows(probabilities: ArrayLike, labels: ArrayLike) -> Floats:
    """Return the squared distance between probabilities and truth of each example, (n,)."""
    if np.ndim(labels) == 2:
        rows, soft = _soft(probabilities, labels)
        gap = rows - soft
    else:
        rows, truth = checks.known(probabilities, labels)
        gap = rows.copy()
        gap[np.arange(len(gap)), truth] -= 1
    squares: Floats = np.einsum("ik,ik->i", gap, gap)
    return squares


def nll_rows(probabilities: ArrayLike, labels: ArrayLike) -> Floats:
    """Return the surprise at the truth of each example, (n,)."""
    if np.ndim(labels) == 2:
        rows, soft = _soft(probabilities, labels)
        entropy: Floats = -np.einsum("ik,ik->i", soft, np.log(np.maximum(rows, _SMALLEST)))
        return entropy
    rows, truth = checks.known(probabilities, labels)
    likelihood: Floats = rows[np.arange(len(rows)), truth]
    return -np.log(np.maximum(likelihood, _SMALLEST))


def _soft(probabilities: ArrayLike, labels: ArrayLike) -> tuple[Floats, Floats]:
    """Return probabilities and soft labels, both (n, K)."""
    rows, soft = checks.distributions(probabilities), checks.distributions(labels, "soft labels")
    if rows.shape != soft.shape:
        raise UserError(
            f"The probabilities have shape {rows.shape} but the soft labels {soft.shape}; give both for "
            f"the same examples and classes."
        )
    return rows, soft
