"""How well a classifier does where the truth itself is uncertain.

For the predicted distribution p_i and the true one q_i (a soft label) of image i over K classes:

    top-k accuracy      the drawn label is among the k classes with the largest p_i; of equal ones the first count
    top-pair accuracy   the two classes with the largest p_i are the two with the largest q_i (Weiss et al. 2023)
    entropy             H(p_i) = -Σ_k p_ik log2 p_ik, in bits, at most log2 K
    total variation     ½ Σ_k |p_ik - q_ik|, in [0, 1]: the most that the two can differ on any set of classes
    Jensen-Shannon      H((p_i + q_i) / 2) - (H(p_i) + H(q_i)) / 2, the divergence in bits, in [0, 1]; its square root
                        is the distance of the same name
    Kullback-Leibler    Σ_k q_ik log2(q_ik / p_ik), in bits; p_ik below 2.2e-308 counts as that, as in `nll`
    soft ECE            Σ_b (n_b / n) |conf_b - right_b|, as `ece`, with right_b the mean of q_ik at the prediction:
                        how often the prediction would be right if labels were drawn from q again and again

each averaged over the images. Top-pair accuracy asks for two classes, so it exists only where every soft label has two
strictly above the rest (Appendix A; the authors' code asks for exactly two above 0, where both say the same) and raises
an error elsewhere (see `has_pairs`). The cross-entropy and the Brier score against soft
labels are `nll` and `brier`, which take them as they are.

Source: Weiss, García Gómez, Tonella, "Generating and detecting true ambiguity", EMSE 2023.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.errors import UserError
from secondguess.metrics import checks
from secondguess.metrics.calibration import _SMALLEST, Binning, Reliability, _soft, reliability_of_hits
from secondguess.metrics.checks import Floats, Ints
from secondguess.metrics.interval import Interval, bootstrap, wilson

__all__ = [
    "attainable_accuracy",
    "entropy_rows",
    "has_pairs",
    "jensen_shannon",
    "jensen_shannon_interval",
    "kl_divergence",
    "kl_divergence_interval",
    "mean_entropy",
    "mean_entropy_interval",
    "soft_ece",
    "soft_ece_interval",
    "soft_reliability",
    "top_k_accuracy",
    "top_k_accuracy_interval",
    "top_pair_accuracy",
    "top_pair_accuracy_interval",
    "total_variation",
    "total_variation_interval",
]


def top_k_accuracy(probabilities: ArrayLike, labels: ArrayLike, k: int = 2) -> float:
    """Return how often the label is among the k likeliest classes.

    Args:
        probabilities: (n, K), rows sum to 1. Of equally likely classes the one with the lower number comes first.
        labels: (n,) integers; below 0 = unknown, left out.
        k: 1 for the accuracy, 2 for the top-2 accuracy; K or more is always right.
    """
    return top_k_accuracy_interval(probabilities, labels, k).value


def top_k_accuracy_interval(
    probabilities: ArrayLike, labels: ArrayLike, k: int = 2, *, level: float = 0.95
) -> Interval:
    """Return the top-k accuracy with its Wilson interval at a level; the other arguments as in `top_k_accuracy`."""
    rows, truth = checks.known(probabilities, labels)
    hits = (_likeliest(rows, checks.positive(k, "k")) == truth[:, None]).any(axis=1)
    return wilson(int(hits.sum()), len(hits), level)


def has_pairs(soft_labels: ArrayLike) -> bool:
    """Return whether in every soft label (n, K) two classes are strictly likelier than all others, and possible."""
    return bool((_pair(checks.distributions(soft_labels, "soft labels")).sum(axis=1) == 2).all())


def top_pair_accuracy(probabilities: ArrayLike, soft_labels: ArrayLike) -> float:
    """Return how often the two likeliest classes are the two that the soft label puts above the rest.

    Args:
        probabilities: (n, K), rows sum to 1. Of equally likely classes the one with the lower number comes first.
        soft_labels: (n, K), rows sum to 1, each with two classes strictly above the rest: see `has_pairs`.
    """
    return top_pair_accuracy_interval(probabilities, soft_labels).value


def top_pair_accuracy_interval(probabilities: ArrayLike, soft_labels: ArrayLike, *, level: float = 0.95) -> Interval:
    """Return the top-pair accuracy with its Wilson interval at a level; other arguments as in `top_pair_accuracy`."""
    rows, soft = _soft(probabilities, soft_labels)
    pair = _pair(soft)
    others = int((pair.sum(axis=1) != 2).sum())
    if others:
        raise UserError(
            f"Top-pair accuracy is defined where every soft label has two classes strictly above the rest; "
            f"{others} of {len(soft)} have not."
        )
    hits = np.take_along_axis(pair, _likeliest(rows, 2), axis=1).all(axis=1)
    return wilson(int(hits.sum()), len(rows), level)


def attainable_accuracy(soft_labels: ArrayLike, k: int = 1) -> float:
    """Return the largest expected top-k accuracy of any classifier: the mean sum of the k largest probabilities.

    Args:
        soft_labels: (n, K), rows sum to 1.
        k: number of guesses allowed.
    """
    soft = checks.distributions(soft_labels, "soft labels")
    return float(np.sort(soft, axis=1)[:, -checks.positive(k, "k") :].sum(axis=1).mean())


def mean_entropy(probabilities: ArrayLike) -> float:
    """Return the mean entropy in bits of distributions (n, K): 0 for certainty, log2 K for a uniform distribution."""
    return float(entropy_rows(checks.distributions(probabilities)).mean())


def mean_entropy_interval(
    probabilities: ArrayLike, *, resamples: int = 500, level: float = 0.95, seed: int = 0
) -> Interval:
    """Return `mean_entropy` with its bootstrap interval."""
    return _mean(entropy_rows(checks.distributions(probabilities)), resamples, level, seed)


def total_variation(probabilities: ArrayLike, soft_labels: ArrayLike) -> float:
    """Return the mean total variation distance between predictions and soft labels, both (n, K), in [0, 1]."""
    return float(_total_variation_rows(probabilities, soft_labels).mean())


def total_variation_interval(
    probabilities: ArrayLike, soft_labels: ArrayLike, *, resamples: int = 500, level: float = 0.95, seed: int = 0
) -> Interval:
    """Return `total_variation` with its bootstrap interval."""
    return _mean(_total_variation_rows(probabilities, soft_labels), resamples, level, seed)


def jensen_shannon(probabilities: ArrayLike, soft_labels: ArrayLike) -> float:
    """Return the mean Jensen-Shannon divergence between predictions and soft labels, both (n, K): 0 to 1 bit."""
    return float(_jensen_shannon_rows(probabilities, soft_labels).mean())


def jensen_shannon_interval(
    probabilities: ArrayLike, soft_labels: ArrayLike, *, resamples: int = 500, level: float = 0.95, seed: int = 0
) -> Interval:
    """Return `jensen_shannon` with its bootstrap interval."""
    return _mean(_jensen_shannon_rows(probabilities, soft_labels), resamples, level, seed)


def kl_divergence(probabilities: ArrayLike, soft_labels: ArrayLike) -> float:
    """Return the mean divergence KL(soft label || prediction) in bits, both (n, K).

    It is the cross-entropy minus the entropy of the soft labels. Always finite: a predicted probability below
    2.2e-308 counts as that, so a class with a predicted probability of 0 costs at most 1022 bits times its share.
    """
    return float(_kl_rows(probabilities, soft_labels).mean())


def kl_divergence_interval(
    probabilities: ArrayLike, soft_labels: ArrayLike, *, resamples: int = 500, level: float = 0.95, seed: int = 0
) -> Interval:
    """Return `kl_divergence` with its bootstrap interval."""
    return _mean(_kl_rows(probabilities, soft_labels), resamples, level, seed)


def soft_reliability(
    probabilities: ArrayLike, soft_labels: ArrayLike, *, bins: int = 15, binning: Binning = "width"
) -> Reliability:
    """Return the reliability diagram of the predicted class against soft labels.

    Args:
        probabilities: (n, K), rows sum to 1.
        soft_labels: (n, K), rows sum to 1; with rows of zeros and a one, this is `reliability`.
        bins: number of bins.
        binning: "width" for equally wide bins, "mass" for equally full ones; see `ece`.
    """
    return reliability_of_hits(*_confidence_and_share(probabilities, soft_labels), bins, binning)


def soft_ece(
    probabilities: ArrayLike, soft_labels: ArrayLike, *, bins: int = 15, binning: Binning = "width", norm: int = 1
) -> float:
    """Return the expected calibration error of the predicted class against soft labels (n, K), in [0, 1].

    As `ece`, but without the noise of labels that are drawn once: what counts as accuracy is the probability of the
    predicted class in the soft label.
    """
    return soft_reliability(probabilities, soft_labels, bins=bins, binning=binning).error(norm)


def soft_ece_interval(
    probabilities: ArrayLike,
    soft_labels: ArrayLike,
    *,
    bins: int = 15,
    binning: Binning = "width",
    norm: int = 1,
    resamples: int = 500,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Return `soft_ece` with its bootstrap interval; see `ece_interval` for how to read it."""

    def error(confidence: Floats, share: Floats) -> float:
        return reliability_of_hits(confidence, share, bins, binning).error(norm)

    rows = _confidence_and_share(probabilities, soft_labels)
    return bootstrap(error, rows, resamples=resamples, level=level, seed=seed)


def _pair(soft: Floats) -> NDArray[np.bool_]:
    """Mark the classes (n, K) above the third likeliest: two in a row that has a pair, fewer in any other."""
    third = np.sort(soft, axis=1)[:, -3] if soft.shape[1] > 2 else np.zeros(len(soft))
    return np.asarray(soft > third[:, None])


def _likeliest(rows: Floats, k: int) -> Ints:
    """Return the k likeliest classes of each row, (n, min(k, K)), the likeliest first and ties in their order."""
    return np.argsort(-rows, axis=1, kind="stable")[:, :k]


def entropy_rows(rows: Floats) -> Floats:
    """Return the entropy in bits of each of the distributions (n, K), (n,)."""
    # 0 log 0 = 0: the logarithm of 1 replaces that of 0. Adding 0 turns -0 into 0.
    return -np.einsum("ik,ik->i", rows, np.log2(np.where(rows > 0, rows, 1))) + 0.0


def _total_variation_rows(probabilities: ArrayLike, soft_labels: ArrayLike) -> Floats:
    rows, soft = _soft(probabilities, soft_labels)
    return np.abs(rows - soft).sum(axis=1) / 2


def _jensen_shannon_rows(probabilities: ArrayLike, soft_labels: ArrayLike) -> Floats:
    rows, soft = _soft(probabilities, soft_labels)
    divergence = entropy_rows((rows + soft) / 2) - (entropy_rows(rows) + entropy_rows(soft)) / 2
    return np.maximum(divergence, 0)  # rounding can make the divergence of equal rows negative


def _kl_rows(probabilities: ArrayLike, soft_labels: ArrayLike) -> Floats:
    rows, soft = _soft(probabilities, soft_labels)
    cross: Floats = -np.einsum("ik,ik->i", soft, np.log2(np.maximum(rows, _SMALLEST)))
    return cross - entropy_rows(soft)


def _confidence_and_share(probabilities: ArrayLike, soft_labels: ArrayLike) -> tuple[Floats, Floats]:
    """Return (n,) confidence in, and (n,) true probability of, the predicted class."""
    rows, soft = _soft(probabilities, soft_labels)
    prediction = rows.argmax(axis=1)[:, None]
    return np.take_along_axis(rows, prediction, axis=1)[:, 0], np.take_along_axis(soft, prediction, axis=1)[:, 0]


def _mean(rows: Floats, resamples: int, level: float, seed: int) -> Interval:
    return bootstrap(np.mean, rows, resamples=resamples, level=level, seed=seed)
