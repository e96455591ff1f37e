"""Calibration of a classifier in operation, from sets in which the true labels must lie.

The label y of an image in operation is unknown, but a rule may give a set A of classes that contains it. That is less
than a label but informative: a calibrated model puts as much probability into A as there are labels in A. The model
here, for logits z(x) and K classes, is

    k | x ~ softmax(z(x) / T),        y | k = k with probability 1 - e_k, else one of the K - 1 others, all alike.

T is how much the model exaggerates on these images; e_k is how often "k" has nothing to do with the truth, whatever the
confidence: near 1 for a class whose label was swapped with another one's, large for the class into which a model lumps
images it cannot read. T and e maximise the likelihood of the sets, prod_i P(y_i in A_i | x_i), by EM over k and over
whether the second step went astray, with a search over T in between. Two weak priors matter for small sets only, and
where rules say nothing: log T is normal around its value on labelled images with standard deviation 1/2, and e_k has
the density 3 (1 - e)^2.

What comes out is the probability that a prediction c is right given what the rules know,

    P(y = c | x, y in A) = (P C)_c 1(c in A) / sum_{j in A} (P C)_j,      C = diag(1 - e) + e (1 - I) / (K - 1).

Errors that stay inside a set are thus inferred from those that leave it. A swap of two classes that no rule
distinguishes cannot be detected.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy._scaling import softened

__all__ = ["Channel", "fit_channel", "probability_right"]

Floats = NDArray[np.float64]

SPREAD = 0.5  # standard deviation of log T around its value on labelled images
DOUBT = 2.0  # imagined images of every class whose label was what the model saw
STEPS = 100
CLOSE_T, CLOSE_E = 2e-3, 5e-4
TINY = 1e-300


class Channel(NamedTuple):
    """How what the model sees relates to the truth: the temperature T, and e (K,)."""

    temperature: float
    astray: Floats


def fit_channel(
    scores: Floats, allowed: NDArray[np.bool_], temperature: float, start: Channel | None = None, steps: int = STEPS
) -> Channel:
    """T and e by maximum likelihood of the allowed sets.

    Args:
        scores: (n, K) logits with a row maximum of zero.
        allowed: (n, K), no row empty.
        temperature: on labelled images, around which T is expected.
        start: where to begin.
        steps: of EM, at most.
    """
    channel = start or Channel(temperature, np.full(scores.shape[1], 0.01))
    sets, which = _distinct(allowed)
    others = _others(sets)
    for step in range(steps):
        seen = softened(scores, channel.temperature)
        straight, astray = ((1 - channel.astray) * sets)[which], (channel.astray * others)[which]
        share = seen / np.maximum((seen * (straight + astray)).sum(axis=1, keepdims=True), TINY)
        lost, kept = (share * astray).sum(axis=0), (share * straight).sum(axis=0)
        rates = lost / (lost + kept + DOUBT)
        hotter = channel.temperature
        if step % 3 == 0 or (step < 3 and start is None):  # the search is much more expensive than a step
            hotter = _temperature(scores, (sets + rates * (others - sets))[which], channel.temperature, temperature)
        still = abs(math.log(hotter / channel.temperature)) < CLOSE_T and step >= 3 and step % 3 == 0
        moved = float(np.abs(rates - channel.astray).max())
        channel = Channel(hotter, rates)
        if still and moved < CLOSE_E:
            break
    return channel


def probability_right(scores: Floats, allowed: NDArray[np.bool_], channel: Channel) -> Floats:
    """The probability that each prediction is right, (n,); 0 where a rule excludes it.

    Args:
        scores: (n, K) logits with a row maximum of zero.
        allowed: (n, K) the classes that can be; in an empty row rules contradict each other and nothing is right.
        channel: what `fit_channel` has found.
    """
    classes = scores.shape[1]
    noise = channel.astray[:, None] * (1 - np.eye(classes)) / max(classes - 1, 1)
    truth = softened(scores, channel.temperature) @ (np.diag(1 - channel.astray) + noise) * allowed
    of_prediction = np.take_along_axis(truth, scores.argmax(axis=1)[:, None], axis=1)[:, 0]
    return np.asarray(of_prediction / np.maximum(truth.sum(axis=1), TINY))


def _distinct(allowed: NDArray[np.bool_]) -> tuple[Floats, NDArray[np.int64]]:
    """The different sets as rows (S, K) of zeros and ones, and which of them each image has, (n,)."""
    packed = np.packbits(allowed, axis=1)
    _, first, which = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    return allowed[first].astype(np.float64), which.reshape(-1)


def _others(sets: Floats) -> Floats:
    """The share of the K - 1 other classes that lies in each set, (S, K)."""
    return np.asarray((sets.sum(axis=1, keepdims=True) - sets) / max(sets.shape[1] - 1, 1))


def _temperature(scores: Floats, inside: Floats, near: float, expected: float) -> float:
    """The T with the highest posterior density, given the probability (n, K) that what is seen ends up in the set."""
    from scipy.optimize import minimize_scalar

    def loss(log_t: float) -> float:
        likelihood = np.maximum((softened(scores, math.exp(log_t)) * inside).sum(axis=1), TINY)
        return 0.5 * ((log_t - math.log(expected)) / SPREAD) ** 2 - float(np.log(likelihood).sum())

    centre = math.log(near)
    found = minimize_scalar(loss, bounds=(centre - 0.7, centre + 0.7), method="bounded", options={"xatol": 1e-3})
    return math.exp(float(found.x))
