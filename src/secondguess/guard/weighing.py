"""How much each piece of evidence weighs in the statistic of a panel, so that no kind of anomaly is neglected.

A network that has learnt kinds of anomaly is the best on those it has met and like; on others a single supervisor may
see more, and which one differs from kind to kind and from model to model. With x (f,) the evidence about an image, here
what the network says and the surprise -log p of each supervisor, the statistic is w'x. Of every kind k, with U_k(w) the
probability that an image of this kind has a larger statistic than a quiet one, and B_k the largest that a single
supervisor reaches, the weights maximise the smallest of

    U_k(w) - B_k,    w >= 0

in smooth form: the logistic function in place of the comparison, and a soft minimum over kinds. No weight is negative:
what is more suspicious to a supervisor never makes an image less suspicious to the panel by this road.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["weigh"]

Floats = NDArray[np.float64]

PAIRS = 4000  # of a quiet image and one of a kind, for each kind
SOFTNESS = 0.5  # of a comparison, in units of the statistic
SHARPNESS = 60.0  # of the minimum over kinds
PENALTY = 1e-3
FIRST = 0.1  # of each weight, where the search begins


def weigh(quiet: Floats, kinds: Sequence[Floats], *, seed: int = 0) -> Floats:
    """The weights (f,) of pieces of evidence, the first of which is the network's; they are 0 or more.

    Args:
        quiet: (n, f) evidence about images on which an alarm would be false.
        kinds: (k, f) the same for each kind of anomaly.
        seed: of the pairs that are compared.
    """
    from scipy.optimize import minimize
    from scipy.special import expit, logsumexp, softmax

    rng = np.random.default_rng([seed, 2])
    pairs = [one[rng.integers(len(one), size=PAIRS)] - quiet[rng.integers(len(quiet), size=PAIRS)] for one in kinds]
    best = np.array([((one[:, 1:] > 0) + 0.5 * (one[:, 1:] == 0)).mean(axis=0).max() for one in pairs])

    def loss(weights: Floats) -> tuple[float, Floats]:
        larger = [expit(one @ weights / SOFTNESS) for one in pairs]
        short = SHARPNESS * (best - [one.mean() for one in larger])
        slopes = [one.T @ (up * (1 - up)) / (SOFTNESS * PAIRS) for one, up in zip(pairs, larger, strict=True)]
        slope = -softmax(short) @ np.array(slopes) + 2 * PENALTY * weights
        return float(logsumexp(short)) / SHARPNESS + PENALTY * float(weights @ weights), slope

    start = np.full(quiet.shape[1], FIRST)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * len(start))
    return np.asarray(found.x, dtype=np.float64)
