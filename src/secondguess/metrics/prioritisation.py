"""How early an order of images brings the faulty ones: the average percentage of faults detected (APFD).

Images are looked at from the most suspicious on. With r_i the rank of image i among n, from 1, and w_i its fault,

    APFD = 1 - sum_i w_i r_i / (n sum_i w_i) + 1 / 2n

(Rothermel, Untch, Chu and Harrold, TSE 2001, for w in {0, 1}; with other weights it is the cost-cognisant APFD of
Elbaum, Malishevsky and Rothermel, ICSE 2001, all tests at equal cost). Images with the same score count as in random
order, and the expectation over these orders is taken, which is exact: each has their mean rank. With B_i the share of
images before image i, where those with the same score, itself among them, count half, this is

    APFD = 1 - sum_i w_i B_i / sum_i w_i.

For k faults of 1 each it says what the AUROC of faulty against other images says, on another scale:

    APFD = 1 - k/2n - (1 - AUROC) (n - k)/n.

An order by chance has 1/2, the best one 1 - k/2n, so values compare only at one share of faults.

What is the fault of an ambiguous image, to which several answers are right? Weiss, Garcia Gomez and Tonella (Empirical
Software Engineering, 2023, section 4.2) name two aims. Who tests wants whatever is likely to be answered wrongly, and
an ambiguous image is: its fault is the chance that an answer drawn from its soft label differs from the prediction
(`fault_chances`). Who looks for images to learn from must leave it out, since no training avoids that fault: there it
counts only where the prediction is none of the possible answers (`avoidable_faults`).

The interval is that of the delta method. With V = 1 - APFD, A_i the mean over all images of w_j where j comes after i
(half of it where both have the same score) and m the mean of w, image i moves APFD by phi_i / n,

    phi_i = (w_i (V - B_i) + m V - A_i) / m,   and the standard error is sqrt(mean(phi^2) / n).
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.errors import UserError
from secondguess.metrics import checks
from secondguess.metrics.checks import Floats
from secondguess.metrics.interval import Interval, check_level

__all__ = ["apfd", "apfd_interval", "avoidable_faults", "best_apfd", "fault_chances", "share_of_first"]

SHARE = 0.1  # of a soft label, below which a class is no possible answer


def apfd(scores: ArrayLike, faults: ArrayLike) -> float:
    """Return the average percentage of faults detected when images are looked at by falling score.

    >>> apfd([0.9, 0.2, 0.4, 0.1], [True, False, False, True])
    0.5

    Args:
        scores: (n,) suspicion of each image.
        faults: (n,) whether it is answered wrongly, or how likely; at least one above 0.
    """
    return 1 - _parts(scores, faults)[3]


def apfd_interval(scores: ArrayLike, faults: ArrayLike, *, level: float = 0.95) -> Interval:
    """Return `apfd` with the interval of the delta method; images are taken for independent draws."""
    check_level(level)
    weights, before, after, behind = _parts(scores, faults)
    mean = weights.mean()
    moves = (weights * (behind - before) + mean * behind - after) / mean
    margin = NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(float((moves**2).mean()) / len(moves))
    value = 1 - behind
    return Interval(value, max(0.0, value - margin), min(1.0, value + margin), len(weights), float(level))


def best_apfd(faults: ArrayLike) -> float:
    """Return the APFD of the best order: faults (n,) from the largest on. The worst one has 1 less this."""
    return apfd(faults, faults)


def share_of_first(scores: ArrayLike, which: ArrayLike, count: int) -> float:
    """Return how much of the first `count` images by falling score is of one kind, ties in random order.

    Args:
        scores: (n,) suspicion of each image.
        which: (n,) whether it is of the kind.
        count: from 1 to n.
    """
    values, chosen = _same_length(scores, which, "marks")
    if not 1 <= count <= len(values):
        raise UserError(f"The first {count} of {len(values)} images were asked for; give a number from 1 to their own.")
    last = np.sort(values)[-count]
    above, level = values > last, values == last
    return float((chosen[above].sum() + (count - above.sum()) * chosen[level].mean()) / count)


def fault_chances(predictions: ArrayLike, soft_labels: ArrayLike) -> Floats:
    """Return the chance (n,) that an answer drawn from the soft label (n, K) of an image is not the prediction (n,)."""
    guessed, soft = _answers(predictions, soft_labels)
    return np.asarray(1 - soft[np.arange(len(guessed)), guessed])


def avoidable_faults(predictions: ArrayLike, soft_labels: ArrayLike) -> NDArray[np.bool_]:
    """Return which predictions (n,) are no possible answer: a class with less than a tenth of the soft label (n, K)."""
    guessed, soft = _answers(predictions, soft_labels)
    return np.asarray(soft[np.arange(len(guessed)), guessed] < SHARE)


def _parts(scores: ArrayLike, faults: ArrayLike) -> tuple[Floats, Floats, Floats, float]:
    """The faults, the share of images before each, the mean fault of images after each, and 1 - APFD."""
    values, weights = _same_length(scores, faults, "faults")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise UserError(
            "The faults must be 0 or above and not all 0; give at least one image that is answered wrongly."
        )
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    faulty = np.bincount(place, weights)
    before = (len(values) - counts.cumsum() + counts / 2) / len(values)  # of each distinct score, rising
    after = (faulty.cumsum() - faulty / 2) / len(values)
    return weights, before[place], after[place], float((faulty * before).sum() / faulty.sum())


def _same_length(scores: ArrayLike, other: ArrayLike, name: str) -> tuple[Floats, Floats]:
    values, others = checks.scores(scores, "suspicion"), checks.floats(other, name)
    if others.shape != values.shape:
        raise UserError(f"There are {values.size} scores but {others.size} {name}; give one for each image.")
    return values, others


def _answers(predictions: ArrayLike, soft_labels: ArrayLike) -> tuple[NDArray[np.int64], Floats]:
    guessed, soft = checks.integers(predictions, "predictions"), checks.distributions(soft_labels, "soft labels")
    checks.same_length(guessed, soft, "predictions")
    checks.below(guessed, soft.shape[1], "predictions")
    return guessed, soft
