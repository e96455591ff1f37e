"""GIQA: quality and diversity of generated images from mixture densities of features (Gu et al., ECCV 2020).

A Gaussian mixture q is fitted to real features X, another to generated features Y. Quality is the mean log-density of
Y under the model of X, diversity that of X under the model of Y.

**As published** (`published_giqa`, the scores of Teixeira et al. 2025: 7 components, full covariances) the
log-densities of the scored set are scaled by *that set's own* minimum and maximum before they are averaged. The result
says where the mean lies between the worst and the best image of the same set, and nothing about the distance to real
images: one garbage image pushes the score of good ones towards 1, worse images can score higher, a collapsed generator
can score the diversity of a perfect one. Compare no two sets with it; it is here so that it can be recognised.

**Relative** (`relative_giqa`, ours): log-densities unscaled, minus those of real images that no model has seen,

    quality   = mean log q_X(Y) - mean log q_X(held-out)
    diversity = mean log q_Y(held-out) - mean log q_X(held-out)

in nats per image, with intervals. Both are 0 on average for a perfect generator. Quality far below 0 means implausible
images; above 0, images more typical than real ones are, as of a collapsed generator, whose diversity is far below 0.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from secondguess.errors import UserError
from secondguess.metrics.checks import Floats
from secondguess.metrics.interval import Interval, bootstrap
from secondguess.metrics.realism import check_features

__all__ = ["Giqa", "published_giqa", "relative_giqa"]

COMPONENTS = 7


@dataclass(frozen=True, slots=True)
class Giqa:
    """Quality and diversity in nats per image, 0 for a perfect generator.

    Attributes:
        quality: how plausible generated images are, minus how plausible unseen real ones are.
        diversity: how plausible unseen real images are to a model of the generated ones, minus to one of the real ones.
    """

    quality: Interval
    diversity: Interval


def published_giqa(real: ArrayLike, generated: ArrayLike, *, components: int = COMPONENTS, seed: int = 0) -> float:
    """Return the quality as published, in [0, 1]; the published diversity is the same with the two sets exchanged.

    Neither can rank generators: see the module's warning.

    Args:
        real: (n, d).
        generated: (m, d).
        components: of the mixture.
        seed: of its initialisation.
    """
    first, second = check_features(real, generated, least=components)
    return _scaled_by_itself(_mixture(first, components, seed).score_samples(second))


def relative_giqa(
    real: ArrayLike,
    generated: ArrayLike,
    held_out: ArrayLike,
    *,
    components: int = COMPONENTS,
    resamples: int = 500,
    level: float = 0.95,
    seed: int = 0,
) -> Giqa:
    """Return quality and diversity relative to real images that no model has seen.

    Args:
        real: (n, d) features of real images.
        generated: (m, d) features of generated images.
        held_out: (h, d) features of other real images.
        components: of each mixture; full covariances need many more images than features.
        resamples: how many bootstrap resamples are drawn; the mixtures are not fitted again.
        level: nominal coverage of the intervals.
        seed: of the mixtures' initialisation and the resamples.
    """
    first, second = check_features(real, generated, least=components)
    unseen, _ = check_features(held_out, second, least=2)
    of_real, of_generated = (_mixture(rows, components, seed) for rows in (first, second))
    own = of_real.score_samples(unseen)

    def difference(a: Floats, b: Floats) -> float:
        return float(a.mean() - b.mean())

    quality = bootstrap(difference, of_real.score_samples(second), own, resamples=resamples, level=level, seed=seed)
    diversity = bootstrap(
        difference, (of_generated.score_samples(unseen), own), resamples=resamples, level=level, seed=seed
    )
    return Giqa(quality, diversity)


def _mixture(rows: Floats, components: int, seed: int) -> Any:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    try:
        with warnings.catch_warnings():
            # A collapsed generator has fewer different images than components; its scores say so.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return GaussianMixture(components, covariance_type="full", random_state=seed).fit(rows)
    except ValueError as error:
        raise UserError(
            f"A mixture of {components} Gaussians cannot be fitted to {rows.shape} features ({error}); "
            "give more images, fewer features or fewer components."
        ) from error


def _scaled_by_itself(scores: Floats) -> float:
    spread = float(np.ptp(scores))
    return float((scores.mean() - scores.min()) / spread) if spread > 0 else 0.0
