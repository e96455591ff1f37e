"""How likely is each prediction wrong, given some answers? A Gaussian process classifier with an informed prior.

    P(error at x) = s(f(x)),   s the logistic function,   f(x) = m_j(x) + g(x),

m_j one of a few prior means, each right with a probability of its own, and g a Gaussian process with the covariance

    k(x, x') = u(x) . u(x') + a^2 exp(-|v(x) - v(x')|^2 / 2 l^2) + c^2 [x and x' are of one group].

u are columns with a linear effect, each scaled by how large that effect may be, v is where an image lies, and groups
are predicted classes. The posterior of f under each mean is Laplace's approximation by Newton's method (Rasmussen and
Williams, Gaussian processes for machine learning, 2006, algorithms 3.1 and 3.2, with a mean that is not 0), the means
are weighed by its evidence, and the average over s is that of MacKay (1992): s(mean / sqrt(1 + pi variance / 8)). All
hyper-parameters are fixed: fifty answers are too few to learn them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secondguess.search.base import Floats, Ints

__all__ = ["ErrorModel", "Posterior"]

STEPS = 50
CLOSE = 1e-9
FLAT = 1e-10  # the least curvature, where an answer is practically certain


@dataclass(frozen=True, eq=False)
class Posterior:
    """The posterior of f at m images, under each of j prior means.

    Attributes:
        mean: (j, m).
        variance: (j, m).
        weights: (j,) how probable each prior mean is after the answers.
    """

    mean: Floats
    variance: Floats
    weights: Floats

    def chance(self, optimism: float = 0.0) -> Floats:
        """(m,) the probability of an error, with f raised by `optimism` standard deviations."""
        raised = self.mean + optimism * np.sqrt(self.variance)
        return self.weights @ _logistic(raised / np.sqrt(1 + np.pi * self.variance / 8))


@dataclass(frozen=True, eq=False)
class ErrorModel:
    """The prior of a pool of m images.

    Attributes:
        means: (j, m) the prior means m_j(x), in logits.
        weights: (j,) how probable each of them is.
        columns: (m, u) u(x).
        places: (m, d) v(x).
        groups: (m,) numbers of groups.
        amplitude: a.
        length: l.
        group_scale: c.
    """

    means: Floats
    weights: Floats
    columns: Floats
    places: Floats
    groups: Ints
    amplitude: float
    length: float
    group_scale: float

    def posterior(self, labelled: Ints, errors: NDArray[np.bool_]) -> Posterior:
        """The posterior at all m images after the answers (t,) on those at the positions `labelled`."""
        from scipy.linalg import solve_triangular

        variance = (self.columns**2).sum(axis=1) + self.amplitude**2 + self.group_scale**2
        if len(labelled) == 0:
            return Posterior(self.means, np.broadcast_to(variance, self.means.shape), self.weights)
        across = self._covariance(labelled, slice(None))
        means, variances, evidence = [], [], []
        for prior in self.means:
            mode = _laplace(across[:, labelled], errors.astype(np.float64), prior[labelled])
            explained = solve_triangular(mode.factor, mode.root[:, None] * across, lower=True)
            means.append(prior + mode.slope @ across)
            variances.append(np.maximum(variance - (explained**2).sum(axis=0), 0.0))
            evidence.append(mode.evidence)
        weights = self.weights * np.exp(np.array(evidence) - max(evidence))
        return Posterior(np.stack(means), np.stack(variances), weights / weights.sum())

    def _covariance(self, first: Ints, second: slice) -> Floats:
        """(t, m) between some images and others."""
        from scipy.spatial.distance import cdist

        squared = cdist(self.places[first], self.places[second], "sqeuclidean")
        covariance: Floats = self.columns[first] @ self.columns[second].T
        covariance += self.amplitude**2 * np.exp(-squared / (2 * self.length**2))
        covariance += self.group_scale**2 * (self.groups[first, None] == self.groups[second])
        return covariance


@dataclass(frozen=True, eq=False)
class _Mode:
    """Where the posterior at the t answered images has its maximum.

    Attributes:
        slope: (t,) the inverse covariance K times (f - prior mean).
        root: (t,) the square root of the curvature W of the likelihood.
        factor: (t, t) the Cholesky factor of I + sqrt(W) K sqrt(W).
        evidence: the logarithm of the marginal likelihood.
    """

    slope: Floats
    root: Floats
    factor: Floats
    evidence: float


def _laplace(covariance: Floats, outcomes: Floats, mean: Floats) -> _Mode:
    from scipy.linalg import cho_solve

    latent, slope, reached = np.zeros(len(mean)), np.zeros(len(mean)), -np.inf
    signs = np.where(outcomes > 0, 1.0, -1.0)
    for _ in range(STEPS):
        chance = _logistic(latent + mean)
        curvature = np.maximum(chance * (1 - chance), FLAT)
        root, factor = _factor(covariance, curvature)
        target = curvature * latent + outcomes - chance
        solved = cho_solve((factor, True), root * (covariance @ target))
        slope = target - root * solved
        latent = covariance @ slope
        previous, reached = reached, float(-np.logaddexp(0, -signs * (latent + mean)).sum() - 0.5 * slope @ latent)
        if abs(reached - previous) < CLOSE:
            break
    chance = _logistic(latent + mean)
    root, factor = _factor(covariance, np.maximum(chance * (1 - chance), FLAT))
    return _Mode(slope, root, factor, reached - float(np.log(np.diag(factor)).sum()))


def _factor(covariance: Floats, curvature: Floats) -> tuple[Floats, Floats]:
    root = np.sqrt(curvature)
    factor = np.asarray(np.linalg.cholesky(np.eye(len(root)) + root[:, None] * covariance * root), dtype=np.float64)
    return root, factor


def _logistic(logits: Floats) -> Floats:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * logits)))
