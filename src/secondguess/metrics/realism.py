"""How far generated images are from real ones, measured on feature vectors X (n, d) of real and Y (m, d) of generated.

    Fréchet distance    ‖μ_X - μ_Y‖² + Tr(Σ_X + Σ_Y - 2 (Σ_X Σ_Y)^½), of Gaussians fitted to both (Heusel et al. 2017)
    kernel distance     the unbiased estimate of the squared maximum mean discrepancy with k(x, y) = (x·y / d + 1)³
                        (KID; Bińkowski et al. 2018); 0 on average for equal distributions, hence sometimes negative
    precision           share of Y inside the manifold of X: within the k-th neighbour radius of some real image
    recall              share of X inside the manifold of Y (both Kynkäänniemi et al. 2019)
    density             in how many balls of X an image of Y lies, over k, on average; may exceed 1
    coverage            share of the balls of X that hold an image of Y (both Naeem et al. 2020)

All in float64. The trace of the root is the sum of singular values of R_X R_Yᵀ, with X - μ_X = Q_X R_X: no product of
covariances is formed, so that equal sets have the distance 0 to ten digits even where there are more features than
images. Balls are closed and do not count an image as its own neighbour. The Fréchet distance is biased upwards in small
samples (compare sets of equal size only), the kernel distance is not.

The features decide what is measured: values from different extractors are not comparable.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from secondguess.errors import UserError
from secondguess.metrics import checks
from secondguess.metrics.checks import Floats
from secondguess.metrics.interval import Interval, check_level

__all__ = [
    "Manifolds",
    "check_features",
    "frechet_distance",
    "kernel_distance",
    "kernel_distance_interval",
    "manifolds",
]

BLOCK = 1024  # rows of a table of distances or kernels held at a time
SLACK = 1e-9  # relative, so that rounding does not open a closed ball


@dataclass(frozen=True, slots=True)
class Manifolds:
    """How two sets of feature vectors overlap.

    Attributes:
        precision: share of the generated images that lie among real ones.
        recall: share of the real images that the generator could have made.
        density: as precision, but robust to real outliers; 1 for equal distributions on average.
        coverage: share of the real images that have a generated one near them.
        neighbours: k, which neighbour's distance is the radius of a ball.
    """

    precision: float
    recall: float
    density: float
    coverage: float
    neighbours: int


def frechet_distance(real: ArrayLike, generated: ArrayLike) -> float:
    """Return the Fréchet distance of the Gaussians fitted to two sets of features, at least 0.

    Args:
        real: (n, d), n ≥ 2.
        generated: (m, d), m ≥ 2.
    """
    first, second = check_features(real, generated, least=2)
    offset = np.square(first.mean(axis=0) - second.mean(axis=0)).sum()
    left, right = (_triangle(rows) for rows in (first, second))
    shared = np.linalg.svd(left @ right.T, compute_uv=False).sum()
    return max(0.0, float(offset + np.square(left).sum() + np.square(right).sum() - 2 * shared))


def kernel_distance(real: ArrayLike, generated: ArrayLike) -> float:
    """Return the kernel distance (KID) of all images.

    Args:
        real: (n, d), n ≥ 3.
        generated: (m, d), m ≥ 3.
    """
    return kernel_distance_interval(real, generated).value


def kernel_distance_interval(real: ArrayLike, generated: ArrayLike, *, level: float = 0.95) -> Interval:
    """Return the kernel distance (KID) of all images, with the normal interval of its jackknife variance.

    The published KID averages subsets of 1,000 images; this is their limit, which has less variance and needs no seed.

    Args:
        real: (n, d), n ≥ 3.
        generated: (m, d), m ≥ 3.
        level: nominal coverage of the interval.
    """
    first, second = check_features(real, generated, least=3)
    check_level(level)
    n, m = len(first), len(second)
    within_first = _kernel_sums(first, first) - _kernel_self(first)
    within_second = _kernel_sums(second, second) - _kernel_self(second)
    to_second, to_first = _kernel_sums(first, second), _kernel_sums(second, first)

    def estimate(a: Floats, b: Floats, c: Floats, n: int, m: int) -> Floats:
        return a / (n * (n - 1)) + b / (m * (m - 1)) - 2 * c / (n * m)

    a, b, c = within_first.sum(), within_second.sum(), to_second.sum()
    value = float(estimate(a, b, c, n, m))
    without_first = estimate(a - 2 * within_first, b, c - to_second, n - 1, m)
    without_second = estimate(a, b - 2 * within_second, c - to_first, n, m - 1)
    variance = sum((len(left) - 1) * left.var() for left in (without_first, without_second))
    half = NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(variance)
    return Interval(value, value - half, value + half, n + m, level)


def manifolds(real: ArrayLike, generated: ArrayLike, *, neighbours: int = 5) -> Manifolds:
    """Return precision, recall, density and coverage of generated images.

    Args:
        real: (n, d), more than `neighbours` rows.
        generated: (m, d), more than `neighbours` rows.
        neighbours: k, which neighbour's distance is the radius of a ball; both papers find 3 to 5 sensible.
    """
    k = checks.positive(neighbours, "neighbours")
    first, second = check_features(real, generated, least=k + 1)
    # Of squared distances; a row's nearest is itself.
    radii = _each_row(first, first, lambda table: np.partition(table, k, axis=1)[:, k]) * (1 + SLACK)
    others = _each_row(second, second, lambda table: np.partition(table, k, axis=1)[:, k]) * (1 + SLACK)
    balls = _each_row(second, first, lambda table: (table <= radii).sum(axis=1))
    covers = _each_row(first, second, lambda table: (table <= others).sum(axis=1))
    nearest = _each_row(first, second, lambda table: table.min(axis=1))
    return Manifolds(
        precision=float((balls > 0).mean()),
        recall=float((covers > 0).mean()),
        density=float(balls.mean() / k),
        coverage=float((nearest <= radii).mean()),
        neighbours=k,
    )


def check_features(real: ArrayLike, generated: ArrayLike, *, least: int) -> tuple[Floats, Floats]:
    """Return both as float64 (n, d) and (m, d) with at least `least` rows; raise a `UserError` otherwise."""
    sets = []
    for values, name in ((real, "real"), (generated, "generated")):
        array = checks.floats(values, f"{name} features")
        if array.ndim != 2 or array.shape[1] == 0:
            raise UserError(f"The {name} features have shape {array.shape}; give one row for each image, shape (n, d).")
        if len(array) < least:
            raise UserError(f"There are {len(array)} {name} features; at least {least} are needed.")
        if not np.isfinite(array).all():
            raise UserError(f"The {name} features hold NaN or infinite values; give finite ones.")
        sets.append(array)
    if sets[0].shape[1] != sets[1].shape[1]:
        raise UserError(
            f"The real features have {sets[0].shape[1]} dimensions, the generated {sets[1].shape[1]}; "
            "use the same extractor for both."
        )
    return sets[0], sets[1]


def _triangle(rows: Floats) -> Floats:
    """R with RᵀR = the covariance of the rows."""
    triangle: Floats = np.linalg.qr(rows - rows.mean(axis=0), mode="r")  # type: ignore[assignment]
    return triangle / math.sqrt(len(rows) - 1)


def _kernel_sums(first: Floats, second: Floats) -> Floats:
    """Σ_j k(x_i, y_j) for each i."""
    sums = np.empty(len(first))
    for start in range(0, len(first), BLOCK):
        table = first[start : start + BLOCK] @ second.T / first.shape[1] + 1
        sums[start : start + BLOCK] = (table**3).sum(axis=1)
    return sums


def _kernel_self(rows: Floats) -> Floats:
    return (np.square(rows).sum(axis=1) / rows.shape[1] + 1) ** 3


def _each_row(first: Floats, second: Floats, reduce: Callable[[Floats], Floats]) -> Floats:
    """Reduce the table of squared distances from each row of `first` to those of `second`, a block at a time."""
    centre = second.mean(axis=0)  # small numbers lose fewer digits in the difference below
    first, second = first - centre, second - centre
    squares = np.square(second).sum(axis=1)
    parts = []
    for start in range(0, len(first), BLOCK):
        rows = first[start : start + BLOCK]
        table = np.square(rows).sum(axis=1, keepdims=True) + squares - 2 * rows @ second.T
        parts.append(reduce(np.maximum(table, 0)))
    return np.concatenate(parts)
