"""Designs for choosing which images to label: four of them, all of one form.

The next image is drawn from those not labelled yet, with probability

    q_i = r w_i / sum w + (1 - r) / remaining

and before its label is seen there is a guess g_i of how likely the prediction is wrong. Weights decide which images are
drawn, guesses how much is left to learn from them; neither can bias the estimate, only widen its interval (see
`few_labels`).

* simple random: r = 0, no guesses.
* stratified: images with the same verdict of an oracle and similar confidence form a stratum h. Weights go by Neyman's
  allocation, sqrt(p_h (1 - p_h)); the guess is what the labels of the stratum say so far, begun at p_h.
* importance-weighted: w_i = sqrt(p_i (1 - p_i)), the weights of least variance if p_i is how likely the prediction is
  wrong, and the guess is p_i (active testing, and prediction-powered inference).
* DeepEST-like (Guerriero et al., ICSE 2021): w_i = p_i where it exceeds a threshold, else 0, and r = 0.8. It finds many
  errors; with its estimator, to which no guesses belong, the interval is no narrower than that of simple random.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy.oracles import Verdicts
from secondguess.errors import UserError

__all__ = ["Design", "deepest", "importance", "simple_random", "stratified"]

Floats = NDArray[np.float64]

FLOOR = 0.01  # no image is taken for surely right or surely wrong


@dataclass(frozen=True, eq=False)
class Design:
    """How images are chosen for labelling.

    Attributes:
        name: what to call it.
        expected: (n,) how likely each prediction is wrong, for planning.
        weights: (n,) of the images in the draws; zeros are allowed.
        share: r, the share of draws that go by the weights; below 1, so that every image can be drawn.
        guesses: (n,) g; zeros for none.
        strata: (n,) numbers from 0 of groups whose guess is learnt from their labels; None for fixed guesses.
    """

    name: str
    expected: Floats
    weights: Floats
    share: float
    guesses: Floats
    strata: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise UserError(f"A share of {self.share} of the draws goes by the weights; it must be in [0, 1).")
        if not (np.isfinite(self.weights).all() and (self.weights >= 0).all()):
            raise UserError("The weights of a design must be finite and not negative.")

    def __len__(self) -> int:
        """The number of images n."""
        return len(self.expected)


def simple_random(expected: Floats) -> Design:
    """Every image is as likely as any other.

    Args:
        expected: (n,) how likely each prediction is wrong, such as one minus `RulesAndConfidence.right`; for planning.
    """
    expected = _checked(expected)
    return Design("simple_random", expected, np.zeros(len(expected)), 0.0, np.zeros(len(expected)))


def stratified(expected: Floats, verdicts: Verdicts | None = None, *, bins: int = 4, share: float = 0.8) -> Design:
    """Strata of an oracle's verdict and of how likely the prediction is wrong.

    Args:
        expected: (n,) how likely each prediction is wrong.
        verdicts: of an oracle on the same predictions; None where there is no oracle.
        bins: levels of `expected` in each verdict, equally many images in each.
        share: of the draws that go by Neyman's allocation.
    """
    expected = _checked(expected)
    wrong = np.zeros(len(expected), dtype=np.int64) if verdicts is None else verdicts.wrong.astype(np.int64)
    if len(wrong) != len(expected):
        raise UserError(f"{len(wrong)} verdicts were given for {len(expected)} predictions; give one for each.")
    if bins < 1:
        raise UserError(f"{bins} bins of confidence were asked for; at least 1 is needed.")
    level = np.empty(len(expected), dtype=np.int64)
    for verdict in np.unique(wrong):
        mine = np.flatnonzero(wrong == verdict)
        level[mine[np.argsort(expected[mine], kind="stable")]] = np.arange(len(mine)) * bins // len(mine)
    _, strata = np.unique((wrong + 1) * bins + level, return_inverse=True)
    rate = np.clip(np.bincount(strata, expected) / np.bincount(strata), FLOOR, 1 - FLOOR)
    weights = np.sqrt(rate * (1 - rate))[strata]
    return Design("stratified", expected, weights, share, rate[strata], strata.astype(np.int64))


def importance(expected: Floats, *, share: float = 0.8) -> Design:
    """The weights and guesses of least variance, if `expected` is right.

    Args:
        expected: (n,) how likely each prediction is wrong.
        share: of the draws that go by the weights.
    """
    expected = _checked(expected)
    rate = np.clip(expected, FLOOR, 1 - FLOOR)
    return Design("importance", expected, np.sqrt(rate * (1 - rate)), share, expected)


def deepest(expected: Floats, *, threshold: float = 0.3, share: float = 0.8) -> Design:
    """Mostly where errors are suspected.

    Args:
        expected: (n,) how likely each prediction is wrong; the paper takes one minus the confidence, among others.
        threshold: suspicion up to which an image is drawn by chance only.
        share: of the draws that go by suspicion.
    """
    expected = _checked(expected)
    weights = np.where(expected > threshold, expected, 0.0)
    return Design("deepest", expected, weights, share, np.zeros(len(expected)))


def _checked(expected: Floats) -> Floats:
    expected = np.asarray(expected, dtype=np.float64)
    if expected.ndim != 1 or len(expected) == 0 or not ((expected >= 0) & (expected <= 1)).all():
        raise UserError(
            f"How likely each prediction is wrong was given as an array of shape {expected.shape}; "
            "probabilities (n,) between 0 and 1 are needed."
        )
    return expected
