"""Nuclear norm of the probabilities: large where predictions are confident and spread over the classes.

For probabilities P (n, K) of n images, with singular values s_k (Deng et al., Confidence and dispersity speak, 2023):

    N(P) = sum_k s_k / sqrt(n K)      in [0, 1]

N is 1 where every prediction is certain and the classes are equally frequent. It is a score that rises with accuracy,
not an accuracy. To become one it needs sets of known accuracy; here they come from the validation images. With S_r and
S_w the mean of p p' over the images predicted rightly and wrongly, a set with a share a of right ones has, since the
s_k are the roots of the eigenvalues of P'P,

    N(a) = trace sqrt(a S_r + (1 - a) S_w) / sqrt(K),

with no resampling. The estimate is the a at which N(a) is what is observed in operation. That assumes that right and
wrong predictions in operation are like those on the validation images, in another proportion. The original regresses
accuracy on N over many labelled sets instead.

The original divides by sqrt(n min(n, K)). The two differ where there are fewer images than classes; P has then fewer
than K singular values whatever the accuracy, N says how few images there are, and the interval is the whole of [0, 1].
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy.base import Estimator, Rows
from secondguess.accuracy.registry import register
from secondguess.model.observation import Observation

__all__ = ["NuclearNorm", "nuclear_norm"]

GRID = np.linspace(0, 1, 201)
MOST_NUMBERS = 4_000_000  # in matrices whose eigenvalues are found together
MANY_CLASSES, FEW_POINTS = 200, 25  # classes beyond which the curve is interpolated between so many points


class NormCurve(NamedTuple):
    """The score (201,) of sets of accuracy 0 to 1, and the accuracy on the validation images."""

    scores: NDArray[np.float64]
    accuracy: float


@register
class NuclearNorm(Estimator):
    """The accuracy at which validation images would have the nuclear norm that is observed in operation."""

    name = "nuclear_norm"

    def _see(self, seen: Observation) -> Rows:
        return seen.probabilities, seen.predictions

    def _learn(self, seen: Rows, labels: NDArray[np.int64]) -> NormCurve:
        probabilities, predictions = seen
        right = predictions == labels
        if right.all() or not right.any():  # of one kind nothing is known: the curve is a point
            return NormCurve(np.full(len(GRID), nuclear_norm(probabilities)), float(right.mean()))
        return NormCurve(_curve(probabilities[right], probabilities[~right]), float(right.mean()))

    def _value(self, learnt: NormCurve, seen: Rows) -> float:
        """The curve is concave and may bend down at its end: of two answers the one nearer to validation is taken."""
        distance = learnt.scores - nuclear_norm(seen[0])
        crossings = np.flatnonzero(np.sign(distance[:-1]) * np.sign(distance[1:]) < 0)
        if len(crossings) == 0:
            best = np.flatnonzero(np.abs(distance) <= np.abs(distance).min() + 1e-12)
            answers = GRID[best]
        else:
            left, right = distance[crossings], distance[crossings + 1]
            answers = GRID[crossings] + (GRID[1] - GRID[0]) * left / (left - right)
        return float(answers[np.abs(answers - learnt.accuracy).argmin()])

    def _bounds(self, learnt: NormCurve, value: float, seen: Rows) -> tuple[float, float]:
        images, classes = seen[0].shape
        if images >= classes:
            return super()._bounds(learnt, value, seen)
        warnings.warn(
            f"The nuclear norm of {images} images says nothing about a model with {classes} classes, so its interval "
            f"is everything from 0 to 1; give at least {classes} images, or go by the other estimators.",
            stacklevel=3,
        )
        return 0.0, 1.0

    def _details(self, learnt: NormCurve, seen: Rows) -> dict[str, float]:
        return {"nuclear_norm": nuclear_norm(seen[0])}


def _curve(right: NDArray[np.float64], wrong: NDArray[np.float64]) -> NDArray[np.float64]:
    """The score (201,) of mixtures of images that are answered rightly (n, K) and wrongly (m, K)."""
    good, bad = (_second_moment(rows) for rows in (right, wrong))
    few = len(good) > MANY_CLASSES  # eigenvalues of large matrices are dear, and the curve is smooth but for its ends
    shares = np.sin(np.linspace(0, np.pi / 2, FEW_POINTS)) ** 2 if few else GRID
    # All at once, but for models with so many classes that the matrices would fill the memory.
    parts = np.array_split(shares[:, None, None], 1 + shares.size * good.size // MOST_NUMBERS)
    curve = np.concatenate([_norm(a * good + (1 - a) * bad) for a in parts])
    if not few:
        return curve
    from scipy.interpolate import PchipInterpolator

    return np.asarray(PchipInterpolator(shares, curve)(GRID))


def nuclear_norm(probabilities: NDArray[np.float64]) -> float:
    """N(P) of probabilities (n, K), which means something where n >= K."""
    return float(_norm(_second_moment(probabilities)))


def _second_moment(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(probabilities.T @ probabilities / len(probabilities))


def _norm(moments: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of one second moment (K, K), or of several (..., K, K)."""
    eigenvalues = np.linalg.eigvalsh(moments)
    return np.asarray(np.sqrt(np.maximum(eigenvalues, 0)).sum(axis=-1) / np.sqrt(moments.shape[-1]))
