"""How far predictions are from calling classes equally likely: what a generator of ambiguous images drives to 0.

The confusion distance of an image is |1/2 - p| for two classes (Cunha et al., GASTeN, 2023) and, for K, the total
variation distance to the uniform distribution, ½ Σ_k |p_k - 1/K|, which is the same for K = 2; ACD is its mean.

Ambiguity between a set C of classes among K: KL(uniform on C ‖ p) = -ln |C| - (1/|C|) Σ_{k ∈ C} ln p_k is exactly
`balance`, KL(uniform on C ‖ p restricted to C), plus `mass`, -ln Σ_{k ∈ C} p_k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.errors import UserError
from secondguess.metrics import checks
from secondguess.metrics.checks import Floats
from secondguess.metrics.interval import Interval, bootstrap

__all__ = ["SubsetAmbiguity", "acd", "acd_interval", "as_rows", "confusion_distance", "subset_ambiguity"]

_SMALLEST = np.finfo(np.float64).tiny  # what a probability of 0 counts as where its logarithm is weighed


@dataclass(frozen=True, slots=True, eq=False)
class SubsetAmbiguity:
    """How far predictions are from "any of these classes, equally, and no other".

    Attributes:
        balance: (n,) KL(uniform ‖ prediction restricted to the classes), nats; 0 if it is equal on them.
        mass: (n,) -ln of the probability of the classes together, nats; 0 if there is none elsewhere.
        valid: (n,) whether the likeliest classes are exactly these.
    """

    balance: Floats
    mass: Floats
    valid: NDArray[np.bool_]

    @property
    def total(self) -> Floats:
        """(n,) the divergence itself, balance plus mass, nats."""
        return self.balance + self.mass


def confusion_distance(predictions: ArrayLike) -> Floats:
    """Return the distance (n,) of each prediction from "all classes equally": |1/2 - p| for two classes.

    Args:
        predictions: (n,) or (n, 1) probabilities of one of two classes, or (n, K) rows that sum to 1.
    """
    rows = as_rows(predictions, "predictions")
    return np.abs(rows - 1 / rows.shape[1]).sum(axis=1) / 2


def acd(predictions: ArrayLike) -> float:
    """Return the average confusion distance: 0 for complete ambiguity, 1 - 1/K for certain predictions."""
    return float(confusion_distance(predictions).mean())


def acd_interval(predictions: ArrayLike, *, resamples: int = 500, level: float = 0.95, seed: int = 0) -> Interval:
    """Return `acd` with its bootstrap interval."""
    return bootstrap(np.mean, confusion_distance(predictions), resamples=resamples, level=level, seed=seed)


def subset_ambiguity(probabilities: ArrayLike, classes: Sequence[int]) -> SubsetAmbiguity:
    """Return how far predictions are from equal probabilities on some classes and none elsewhere.

    Args:
        probabilities: (n, K), rows sum to 1; below 2.2e-308 counts as that.
        classes: at least two different class numbers.
    """
    rows = as_rows(probabilities, "probabilities")
    chosen = sorted(set(classes))
    if len(chosen) < 2 or len(chosen) != len(classes) or chosen[0] < 0 or chosen[-1] >= rows.shape[1]:
        raise UserError(
            f"The classes are {list(classes)}; give at least two different numbers from 0 to {rows.shape[1] - 1}."
        )
    inside = np.maximum(rows[:, chosen], _SMALLEST)
    mass = inside.sum(axis=1)
    balance = -math.log(len(chosen)) - np.log(inside / mass[:, None]).mean(axis=1)
    outside = np.delete(rows, chosen, axis=1).max(axis=1, initial=-1)
    return SubsetAmbiguity(np.maximum(balance, 0), np.maximum(-np.log(mass), 0), rows[:, chosen].min(axis=1) > outside)


def as_rows(values: ArrayLike, name: str) -> Floats:
    """Return predictions as distributions (n, K), each with the sum 1 to the last digit.

    Args:
        values: (n,) or (n, 1) probabilities of one of two classes, which becomes the second, or (n, K) rows.
        name: what to call them in a message.
    """
    array = checks.floats(values, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim == 1:
        array = np.stack([1 - array, array], axis=1)
    rows = checks.distributions(array, name)
    return rows / rows.sum(axis=1, keepdims=True)
