"""The response curve: what a model answers, p, as the dial r of an image goes from one class to the other.

A model that follows the dial has p = r. The curve is summarised by p ≈ σ(a + b logit r), fitted by least
cross-entropy: the slope b is 1 for a model that follows, above 1 for one that turns "rather this" into "certainly
this", below 1 for one that hesitates more than the images justify; the offset a is its bias towards the first class.
At r = 1/2 an unbiased curve crosses the diagonal b times as steeply as the diagonal rises.

A slope is about the mean answer at each dial. A model that answers 0 or 1 at random has slope 0 and still all the
hubris there is: read both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.errors import UserError
from secondguess.metrics import Interval, bootstrap

__all__ = ["Response", "response_curve"]

Floats = NDArray[np.float64]

FLAT = 0.02  # standard deviation of the dial below which there is no slope
RIDGE = 1e-4  # keeps the slope of a model finite that answers 0 or 1 only
STEPS = 60
EDGE = 1e-3  # a dial of 0 or 1 has no logit


@dataclass(frozen=True, eq=False)
class Response:
    """A response curve in bins of the dial; empty bins are left out.

    Attributes:
        dial: (b,) the mean dial of each bin.
        answer: (b,) the mean answer.
        low: (b,) the 10 % quantile of the answers.
        high: (b,) the 90 % quantile.
        count: (b,) how many images.
        slope: b with its bootstrap interval; None where all images have the same dial.
        offset: a; None where there is no slope.
    """

    dial: Floats
    answer: Floats
    low: Floats
    high: Floats
    count: NDArray[np.int64]
    slope: Interval | None
    offset: float | None

    def to_dict(self) -> dict[str, Any]:
        """The curve and its summary."""
        return {
            "dial": self.dial.tolist(),
            "answer": self.answer.tolist(),
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "count": self.count.tolist(),
            "slope": None if self.slope is None else self.slope.to_dict(),
            "offset": self.offset,
        }


def response_curve(
    dial: ArrayLike, answers: ArrayLike, *, bins: int = 10, resamples: int = 200, level: float = 0.95, seed: int = 0
) -> Response:
    """Return how the answers follow the dial.

    Args:
        dial: (n,) the share of the first class in each image, in [0, 1].
        answers: (n,) the model's probability of the first class.
        bins: equally wide, over the range of the dial.
        resamples: how many bootstrap resamples are drawn for the interval of the slope.
        level: nominal coverage of that interval.
        seed: of the resamples.
    """
    r, p = np.asarray(dial, dtype=np.float64), np.asarray(answers, dtype=np.float64)
    if r.ndim != 1 or r.shape != p.shape or len(r) == 0:
        raise UserError(f"The dial has shape {r.shape} and the answers {p.shape}; give one of each for every image.")
    if not (((r >= 0) & (r <= 1)).all() and ((p >= 0) & (p <= 1)).all()):
        raise UserError("The dial and the answers must be probabilities between 0 and 1.")
    edges = np.linspace(r.min(), r.max(), bins + 1)[1:-1]
    place = np.searchsorted(edges, r, side="right") if np.ptp(r) > 0 else np.zeros(len(r), dtype=int)
    filled = np.unique(place)
    groups = [p[place == one] for one in filled]
    slope = offset = None
    if r.std() >= FLAT:
        whole = _fit(r, p, np.array([0.0, 1.0]))
        slope = bootstrap(lambda a, b: _fit(a, b, whole)[1], (r, p), resamples=resamples, level=level, seed=seed)
        offset = float(whole[0])
    return Response(
        dial=np.array([r[place == one].mean() for one in filled]),
        answer=np.array([group.mean() for group in groups]),
        low=np.array([np.quantile(group, 0.1) for group in groups]),
        high=np.array([np.quantile(group, 0.9) for group in groups]),
        count=np.array([len(group) for group in groups], dtype=np.int64),
        slope=slope,
        offset=offset,
    )


def _fit(r: Floats, p: Floats, weights: Floats) -> Floats:
    """(a, b) by Newton's method with halved steps on the mean cross-entropy, which is convex, from any start."""
    inside = np.clip(r, EDGE, 1 - EDGE)
    design = np.stack([np.ones_like(r), np.log(inside / (1 - inside))], axis=1)
    penalty = np.diag([0.0, RIDGE])

    def loss(weights: Floats) -> float:
        z = design @ weights
        return float(np.mean(np.logaddexp(0, z) - p * z) + weights @ penalty @ weights / 2)

    for _ in range(STEPS):
        q = 1 / (1 + np.exp(-np.clip(design @ weights, -500, 500)))
        gradient = design.T @ (q - p) / len(r) + penalty @ weights
        curvature = (design * (q * (1 - q))[:, None]).T @ design / len(r) + penalty + 1e-12 * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        size, now = 1.0, loss(weights)
        while size > 1e-8 and loss(weights - size * step) > now:
            size /= 2
        weights = weights - size * step
        if np.abs(size * step).max() < 1e-8:
            break
    return weights
