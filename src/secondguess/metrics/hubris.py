"""Hubris: how much more certain a classifier is than the data justify.

Prediction p_i and reference r_i are distributions over K classes for image i; with d_i = KL(p_i ‖ r_i) in nats,

    hubris = 1 - exp(-mean_i d_i / mean_i z_i),      z_i = E_u KL(u ‖ r_i) = 1 - H_K - (1/K) Σ_k ln r_ik

where u is uniform on the simplex, Dirichlet(1, ..., 1), and H_K = 1 + 1/2 + ... + 1/K: a predictor that draws its
answer at random scores 1 - 1/e, one that agrees with the reference 0. *Absolute* hubris has r_i = 1/K, the reference
of perfectly ambiguous images, and z = ln K - H_K + 1; *relative* hubris has a reference for each image: soft labels,
human votes, an ambiguity estimator.

How to read it: absolute hubris is a function of the mean predictive entropy alone, and its largest
value is 1 - exp(-ln K / z), .972 for K = 2. Relative hubris counts every disagreement with the reference, humility
too. So each result has beside it the raw mean divergence, the index `rescaled` by its ceiling (which reaches exactly
1), and a signed split: the part of the mean divergence that comes from images on which the prediction is surer (has
no more entropy) than the reference is `over`, the rest is `under`.

Source: Teixeira, Gomes, Soares, van Rijn, "Hubris benchmarking with AmbiGANs", 2025, where K = 2. Departures: the
published computation takes z from an even grid u_i = (i - 1) / (n - 1) that meets the references in the order of the
file, so its value depends on the order and the number of images, and it works in float32 with probabilities below
n · 1.2e-7 clipped. `compat=True` computes exactly that. K classes are ours and equal the published formula for K = 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.errors import UserError
from secondguess.metrics import checks
from secondguess.metrics.checks import Floats
from secondguess.metrics.confusion_distance import as_rows
from secondguess.metrics.interval import Interval, check_level, child_generators

__all__ = [
    "Hubris",
    "HubrisComparison",
    "absolute_hubris",
    "compare_hubris",
    "hubris",
    "hubris_ceiling",
    "hubris_scores",
    "random_divergence",
    "relative_hubris",
    "smoothed",
    "vote_shares",
]

_CLIP = np.finfo(np.float32).eps  # torch clamps the probabilities of a float32 categorical here
_TIE = 1e-12  # entropies that differ by less are equal


@dataclass(frozen=True, slots=True, eq=False)
class Hubris:
    """The hubris of one set of predictions against one reference.

    Attributes:
        value: the index, 0 to `ceiling`, with its bootstrap interval.
        rescaled: the index divided by `ceiling`: 1 for a predictor that is certain of the least likely class always.
        mean_kl: the mean divergence in nats, which does not saturate.
        over: the part of `mean_kl` from images on which the prediction is surer than the reference.
        under: the rest; `over + under` is `mean_kl`.
        ceiling: the largest index that any predictions can have against this reference.
        scores: (n,) the divergence of each image, negative where the prediction is less sure than the reference.
    """

    value: Interval
    rescaled: Interval
    mean_kl: Interval
    over: float
    under: float
    ceiling: float
    scores: Floats


@dataclass(frozen=True, slots=True)
class HubrisComparison:
    """Two models on the same images: first minus second, from resamples that draw the same images for both.

    Attributes:
        difference: of the index.
        mean_kl: of the mean divergence in nats.
        surer: share of the images on which the first is surer (has less entropy) than the second.
    """

    difference: Interval
    mean_kl: Interval
    surer: float


def absolute_hubris(predictions: ArrayLike, *, compat: bool = False) -> float:
    """Return the hubris against perfect ambiguity, from 0 to `hubris_ceiling(K)`.

    Args:
        predictions: (n,) or (n, 1) probabilities of one of two classes, or (n, K) rows that sum to 1.
        compat: the published computation (two classes only).
    """
    return _index(*_terms(*_pair(predictions, None), compat))


def relative_hubris(predictions: ArrayLike, reference: ArrayLike, *, compat: bool = False) -> float:
    """Return the hubris against a reference for each image.

    Args:
        predictions: (n,) or (n, 1) probabilities of one of two classes, or (n, K) rows that sum to 1.
        reference: as the predictions, or one number, or one row (1, K), for all images; no probability may be 0.
        compat: the published computation (two classes only), which depends on the order of the images.
    """
    return _index(*_terms(*_pair(predictions, reference), compat))


def hubris(
    predictions: ArrayLike,
    reference: ArrayLike | None = None,
    *,
    compat: bool = False,
    resamples: int = 500,
    level: float = 0.95,
    seed: int = 0,
) -> Hubris:
    """Return the index with its interval, the raw divergence, the split into over- and under-confidence, and scores.

    Args:
        predictions: (n,) or (n, 1) probabilities of one of two classes, or (n, K) rows that sum to 1.
        reference: None for absolute hubris; for relative hubris as in `relative_hubris`.
        compat: the published computation (two classes only); its normaliser is not resampled.
        resamples: how many bootstrap resamples are drawn.
        level: nominal coverage of the intervals.
        seed: of the resamples.
    """
    rows, refs = _pair(predictions, reference)
    divergence, random = _terms(rows, refs, compat)
    worst = -np.log(refs.min(axis=1))
    d, z, w = _resampled((divergence, random, worst), resamples, level, seed)
    scores = np.where(_surer(rows, refs), divergence, -divergence)
    index = _saturate(d / z)
    return Hubris(
        value=_interval(index, len(rows), level),
        rescaled=_interval(index / _saturate(w / z), len(rows), level),
        mean_kl=_interval(d, len(rows), level),
        over=float(np.maximum(scores, 0).mean()),
        under=float(np.maximum(-scores, 0).mean()),
        ceiling=_index(worst, random),
        scores=scores,
    )


def compare_hubris(
    first: ArrayLike,
    second: ArrayLike,
    reference: ArrayLike | None = None,
    *,
    resamples: int = 500,
    level: float = 0.95,
    seed: int = 0,
) -> HubrisComparison:
    """Return how much more hubris the first model has than the second on the same images, paired.

    Args:
        first: predictions of one model, as in `hubris`.
        second: predictions of the other, of the same images in the same order.
        reference: None for absolute hubris; for relative hubris as in `relative_hubris`.
        resamples: how many bootstrap resamples are drawn.
        level: nominal coverage of the intervals.
        seed: of the resamples.
    """
    (one, refs), (other, _) = _pair(first, reference), _pair(second, reference)
    if one.shape != other.shape:
        raise UserError(
            f"The two models predict {one.shape} and {other.shape} (images, classes); "
            "give the predictions of both for the same images and classes."
        )
    sample = (_divergence(one, refs), _divergence(other, refs), random_divergence(refs))
    a, b, z = _resampled(sample, resamples, level, seed)
    return HubrisComparison(
        difference=_interval(_saturate(a / z) - _saturate(b / z), len(one), level),
        mean_kl=_interval(a - b, len(one), level),
        surer=float((_entropy(one) < _entropy(other) - _TIE).mean()),
    )


def hubris_scores(predictions: ArrayLike, reference: ArrayLike | None = None) -> Floats:
    """Return the divergence (n,) of each image in nats, negative where the prediction is less sure than the reference.

    The largest scores are the images on which a model is most overconfident. Arguments as in `hubris`.
    """
    rows, refs = _pair(predictions, reference)
    divergence = _divergence(rows, refs)
    return np.where(_surer(rows, refs), divergence, -divergence)


def random_divergence(reference: ArrayLike) -> Floats:
    """Return the mean divergence (n,) from each reference of a predictor that answers at random.

    Args:
        reference: (n,) probabilities of one of two classes, or (n, K) rows that sum to 1; none may be 0.
    """
    refs = _positive(as_rows(reference, "references"))
    harmonic = math.fsum(1 / k for k in range(1, refs.shape[1] + 1))
    return 1 - harmonic - np.log(refs).mean(axis=1)


def hubris_ceiling(classes: int = 2) -> float:
    """Return the largest absolute hubris with K classes, that of certain predictions: .972366 for two."""
    if checks.positive(classes, "classes") < 2:
        raise UserError(f"classes is {classes}; hubris needs at least 2.")
    return _index(np.array([math.log(classes)]), random_divergence(np.full((1, classes), 1 / classes)))


def vote_shares(counts: ArrayLike, smoothing: float = 0.5) -> Floats:
    """Return human votes as a reference: (votes + smoothing) / (all votes + K smoothing), (n, K), never 0.

    Args:
        counts: (n, K) how many people chose each class; every image needs a vote.
        smoothing: pseudo-votes for every class; 0.5 is Jeffreys' prior. Few votes are thus never certainty.
    """
    votes = checks.floats(counts, "votes")
    if votes.ndim != 2 or votes.shape[0] == 0 or votes.shape[1] < 2:
        raise UserError(f"The votes have shape {votes.shape}; give one row for each image, shape (n, classes).")
    if not np.isfinite(votes).all() or (votes < 0).any() or (votes.sum(axis=1) <= 0).any():
        raise UserError("The votes hold a negative or missing number or an image without votes; give counts from 0 on.")
    if not smoothing > 0:
        raise UserError(f"The smoothing is {smoothing!r}; give a number above 0, such as 0.5.")
    return (votes + smoothing) / (votes + smoothing).sum(axis=1, keepdims=True)


def smoothed(reference: ArrayLike, epsilon: float = 0.01) -> Floats:
    """Return a reference mixed with the uniform distribution, (1 - ε) r + ε / K, so that no probability is 0.

    Args:
        reference: (n,) probabilities of one of two classes, or (n, K) soft labels.
        epsilon: ε, between 0 and 1.

    Returns:
        Rows (n, K), for K = 2 with the second column the probability given.
    """
    if not 0 < epsilon < 1:
        raise UserError(f"The smoothing epsilon is {epsilon!r}; give a number between 0 and 1, such as 0.01.")
    rows = as_rows(reference, "references")
    return (1 - epsilon) * rows + epsilon / rows.shape[1]


def _index(divergence: Floats, random: Floats) -> float:
    return -math.expm1(-float(np.mean(divergence)) / float(np.mean(random)))


def _saturate(ratio: Floats) -> Floats:
    return -np.expm1(-ratio)


def _resampled(columns: tuple[Floats, ...], resamples: int, level: float, seed: int) -> Floats:
    """The means of columns (n,) on the data as given and on bootstrap resamples, (columns, 1 + resamples).

    All that hubris needs of a resample are means, which are a product with how often each row was drawn.
    """
    check_level(level)
    table = np.stack(columns, axis=1)
    n = len(table)
    (rng,) = child_generators(seed, 1)
    draws = (np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(checks.positive(resamples, "resamples")))
    return np.stack([table.mean(axis=0), *(counts @ table / n for counts in draws)], axis=1)


def _interval(values: Floats, n: int, level: float) -> Interval:
    """From the value on the data, which comes first, and those on the resamples."""
    return Interval.from_replicates(float(values[0]), values[1:], n, level)


def _terms(rows: Floats, refs: Floats, compat: bool) -> tuple[Floats, Floats]:
    """The divergence of each image and that of a random prediction for it, both (n,)."""
    return _published(rows, refs) if compat else (_divergence(rows, refs), random_divergence(refs))


def _divergence(rows: Floats, refs: Floats) -> Floats:
    logs = np.log(np.where(rows > 0, rows, 1)) - np.log(refs)
    return np.maximum((rows * logs).sum(axis=1), 0)  # rounding can make the divergence of equal rows negative


def _published(rows: Floats, refs: Floats) -> tuple[Floats, Floats]:
    """The divergences as the published computation has them; the normaliser is one number, repeated."""
    if rows.shape[1] != 2:
        raise UserError(f"The published computation takes two classes, not {rows.shape[1]}; leave compat out.")
    grid = np.linspace(0, 1, len(rows))
    return _categorical(rows[:, 1], refs[:, 1]), np.full(len(rows), _categorical(grid, refs[:, 1]).mean())


def _categorical(p: Floats, r: Floats) -> Floats:
    """(n,) terms of n KL(P ‖ R) in float32, where P and R are each one categorical over 2 n outcomes, (p, 1 - p) / n.

    Logarithms are rounded from float64: float32 ones differ between libraries by more than the last digit.
    """

    def outcomes(values: Floats) -> NDArray[np.float32]:
        single = values.astype(np.float32)
        both = np.concatenate([single, 1 - single])
        return both / both.sum(dtype=np.float64).astype(np.float32)

    def logs(shares: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.log(np.clip(shares, _CLIP, 1 - _CLIP).astype(np.float64)).astype(np.float32)

    shares, others = outcomes(p), outcomes(r)
    terms = shares * (logs(shares) - logs(others))
    return terms.reshape(2, -1).astype(np.float64).sum(axis=0) * len(p)


def _surer(rows: Floats, refs: Floats) -> NDArray[np.bool_]:
    """Which predictions (n,) have no more entropy than the reference, equal certainty about another class included."""
    return _entropy(rows) <= _entropy(refs) + _TIE


def _entropy(rows: Floats) -> Floats:
    return -(rows * np.log(np.where(rows > 0, rows, 1))).sum(axis=1)


def _pair(predictions: ArrayLike, reference: ArrayLike | None) -> tuple[Floats, Floats]:
    """Predictions and, for each, its reference, both (n, K)."""
    rows = as_rows(predictions, "predictions")
    if reference is None:
        return rows, np.full(rows.shape, 1 / rows.shape[1])
    refs = _positive(as_rows(np.atleast_1d(checks.floats(reference, "references")), "references"))
    if refs.shape[1] != rows.shape[1] or len(refs) not in (1, len(rows)):
        raise UserError(
            f"The references are {refs.shape} (images, classes), the predictions {rows.shape}; "
            "give one reference for each prediction, or one for all."
        )
    return rows, np.broadcast_to(refs, rows.shape)


def _positive(refs: Floats) -> Floats:
    zeros = int((refs <= 0).any(axis=1).sum())
    if zeros:
        raise UserError(
            f"{zeros} of {len(refs)} references call a class impossible, against which hubris is infinite; "
            "smooth them first, with smoothed(reference) or, for votes, vote_shares(counts)."
        )
    return refs
