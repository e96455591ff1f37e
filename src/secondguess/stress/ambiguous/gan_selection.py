"""Which alpha and which variance: a grid of second stages from one first stage, and the choice between them.

The Fréchet distance to real images (realism) and the average confusion distance (ambiguity) should both be small, and
one is traded for the other. The settings that no other setting beats in both are the Pareto front; of these the paper
takes the lowest Fréchet distance "provided ACD remains acceptable". Here acceptable is a number that the user gives; if
no setting reaches it, the most ambiguous one is taken.

In the paper's sum only alpha / variance matters, so that a grid over both repeats itself; settings of equal ratio and
equal `combine` are trained once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.metrics.realism import frechet_distance
from secondguess.progress import Progress
from secondguess.stress.ambiguous.ambigan import AmbiGAN, TrainedGan
from secondguess.stress.ambiguous.companion import Rejection, draw_companion
from secondguess.stress.ambiguous.estimator import balanced_rows
from secondguess.stress.ambiguous.gan_losses import Target
from secondguess.stress.ambiguous.gan_training import Collapsed, Snapshot
from secondguess.training._examples import derive_seed

__all__ = ["Candidate", "choose", "pareto_front", "search"]

ALPHAS, VARIANCES = (0.5, 1.0, 1.5), (0.01, 0.1)  # the paper's grid
GUARDED_ALPHAS, GUARDED_VARIANCES = (2.0, 4.0, 8.0), (0.002, 0.01)  # for guarded steps, whose alpha has another meaning
Features = Callable[[NDArray[np.float32]], NDArray[np.float64]]


@dataclass(frozen=True)
class Candidate:
    """A setting and what it gave.

    Attributes:
        alpha: weight or threshold of the ambiguity.
        variance: v.
        frechet: distance of its images from real ones; lower is more realistic.
        acd: average confusion distance; lower is more ambiguous.
        disagreement: mean variance of the estimator's members.
        trained: the GAN.
    """

    alpha: float
    variance: float
    frechet: float
    acd: float
    disagreement: float
    trained: TrainedGan


def search(
    maker: AmbiGAN,
    train: ImageSet,
    features: Features,
    *,
    alphas: Sequence[float] | None = None,
    variances: Sequence[float] | None = None,
    images: int = 2048,
    seed: int = 0,
    stage1: Snapshot | None = None,
    progress: Progress | None = None,
) -> list[Candidate]:
    """Train a stage 2 for every setting, all from the same stage 1, and measure unrejected images of each.

    A setting whose generator collapses is left out.

    Args:
        maker: everything but alpha and variance.
        train: labelled images.
        features: images (n, C, H, W) in [0, 1] -> (n, d), in whose space the Fréchet distance is taken.
        alphas: to try; the paper's if left out, or our own for guarded steps.
        variances: to try, likewise.
        images: how many images are measured; 2,048 in the paper.
        seed: of everything random.
        stage1: where every stage 2 starts; it is trained if left out.
        progress: where to report.
    """
    guarded = maker.combine == "guarded"
    alphas = (GUARDED_ALPHAS if guarded else ALPHAS) if alphas is None else alphas
    variances = (GUARDED_VARIANCES if guarded else VARIANCES) if variances is None else variances
    if not alphas or not variances:
        raise UserError("The grid is empty; give at least one alpha and one variance.")
    base = copy.copy(maker)
    base.estimator = maker.fit_estimator(train, seed=seed, progress=progress)
    if stage1 is None:
        stage1, _ = base.first_stage(train, seed=seed, progress=progress)
    known: dict[Any, Candidate | None] = {}
    candidates = []
    for alpha, variance in product(alphas, variances):
        key = alpha / variance if maker.combine == "sum" else (alpha, variance)
        if key not in known:
            known[key] = _try(base, train, stage1, (alpha, variance), features, images, seed, progress)
        if (found := known[key]) is not None:
            candidates.append(replace(found, alpha=alpha, variance=variance))
    if not candidates:
        raise UserError("The generator collapsed with every setting; train stage 1 for longer, or give smaller alphas.")
    return candidates


def pareto_front(first: ArrayLike, second: ArrayLike) -> NDArray[np.bool_]:
    """Which points (n,) no other point beats: as small in both coordinates and smaller in one."""
    points = np.stack([np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)], axis=1)
    as_small = (points[:, None] <= points[None]).all(axis=2)
    smaller = (points[:, None] < points[None]).any(axis=2)
    return np.asarray(~(as_small & smaller).any(axis=0))


def choose(candidates: Sequence[Candidate], *, acceptable: float = 0.1) -> Candidate:
    """The most realistic candidate with an acceptable ACD, or the most ambiguous one if none has."""
    if not candidates:
        raise UserError("There is nothing to choose from; search gave no candidate.")
    fine = [one for one in candidates if one.acd <= acceptable]
    return min(fine, key=lambda one: one.frechet) if fine else min(candidates, key=lambda one: one.acd)


def _try(
    base: AmbiGAN,
    train: ImageSet,
    stage1: Snapshot,
    setting: tuple[float, float],
    features: Features,
    images: int,
    seed: int,
    progress: Progress | None,
) -> Candidate | None:
    """One setting; nothing if its generator collapses."""
    maker = copy.copy(base)
    maker.alpha, maker.variance = setting
    try:
        trained = maker.train(train, seed=seed, progress=progress, stage1=stage1)
    except Collapsed:
        return None
    classes = trained.estimator.classes
    drawn = draw_companion(
        trained.generator(maker.recipe, maker.device),
        trained.estimator,
        Target.parse(maker.r, len(classes)),
        images,
        rejection=Rejection.nothing(),
        seed=derive_seed(seed, 12),
    )
    real = np.unique(balanced_rows(train, classes, seed)[0])
    fake = drawn.images.astype(np.float32) / np.float32(255)
    distance = frechet_distance(features(train.images[real]), features(fake))
    return Candidate(*setting, distance, drawn.acd, float(drawn.agreement.variance.mean()), trained)
