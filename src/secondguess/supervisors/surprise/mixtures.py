"""Multimodal surprise adequacy, for classes and layers whose traces form several clusters.

* MLSA (Kim and Yoo, AST 2021): -log p(at(x)) under a mixture of k Gaussians, of the predicted class or of all traces.
* MMDSA (Kim, Ju, Feldt and Yoo, ESEC/FSE 2020): k-means over all traces, k the one of best silhouette; the Mahalanobis
  distance within the cluster that is nearest to x.

A mixture with full covariances needs many traces per dimension. Traces are therefore whitened first (see `_whitening`)
and only the leading directions are given to the mixture: at most `dimensions`, and no more than leave each component
ten traces per dimension. The density is that of the trace in those directions. Expectation-maximisation and k-means
learn from at most `max_rows` traces, drawn by `seed`; the number of clusters is chosen on at most `SILHOUETTE` of them,
since a silhouette takes all pairs.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.observation import Observation
from secondguess.supervisors._traces import Layers, TraceSupervisor
from secondguess.supervisors.registry import register
from secondguess.supervisors.surprise._classes import by_group, class_rows, same_width
from secondguess.supervisors.surprise._whitening import RTOL, Rows, Whitening, mean_of, pack, unpack, whiten
from secondguess.supervisors.surprise._workers import workers
from secondguess.supervisors.surprise.mdsa import SMALL, mahalanobis

__all__ = ["MLSA", "MMDSA"]

PER_DIMENSION = 10  # traces for each component and dimension of a mixture
SILHOUETTE = 2000  # traces on which the number of clusters is chosen
REGULAR = 1e-6  # added to the variances of a component, which are near 1 in whitened coordinates
N_INIT = 10  # starts of k-means

Float = NDArray[np.float64]


@dataclass(frozen=True)
class _Mixture:
    """Gaussians in whitened coordinates: weights (k,), means (k, r), Cholesky factors (k, r, r) of their precisions."""

    whitening: Whitening
    weights: Float
    centres: Float
    cholesky: Float

    @property
    def rank(self) -> int:
        return self.whitening.rank

    def log_density(self, values: Float) -> Float:
        """The log-density (n,) at values (n, d), in the units of the values."""
        whitened = self.whitening.apply(values)
        terms = np.full((len(values), len(self.weights)), -np.inf)
        for index in np.flatnonzero(self.weights):
            factor = self.cholesky[index]
            away = (whitened - self.centres[index]) @ factor
            terms[:, index] = np.log(self.weights[index]) + np.log(np.diag(factor)).sum()
            terms[:, index] -= 0.5 * np.einsum("ij,ij->i", away, away)
        constant = 0.5 * (self.rank * np.log(2 * np.pi) + self.whitening.log_det)
        return np.asarray(np.logaddexp.reduce(terms, axis=1) - constant)


@register
class MLSA(TraceSupervisor):
    """Suspicious = improbable under a mixture of Gaussians of the training traces with the same prediction.

    Score: -log p of a Gaussian mixture with full covariances in the leading whitened directions (Kim and Yoo, AST
    2021). An image whose class was predicted for fewer than two different training traces scores +inf, with a warning.

    Cost: a few products with matrices of at most `dimensions` columns per image; fitting runs expectation-maximisation
        (scikit-learn).

    Good at: what `mdsa` is good at, and classes with several modes. Bad at: ambiguous images; novelty in directions in
    which the training traces hardly vary, since only the leading ones are used.

    Args:
        layers: whose traces are used.
        components: of a mixture; fewer where a class has too few traces (3 per class in the literature).
        per_class: one mixture for each predicted class; otherwise a single one.
        dimensions: the most leading directions that a mixture uses.
        max_rows: the most traces that a mixture learns from.
        rtol: share of the largest variance below which a direction counts as noise.
        seed: of the initial components and of the choice of traces.
    """

    name = "mlsa"
    means_: NDArray[np.float64]
    ranks_: NDArray[np.int64]

    def __init__(
        self,
        layers: Layers = "penultimate",
        *,
        components: int = 3,
        per_class: bool = True,
        dimensions: int = 64,
        max_rows: int = 20_000,
        rtol: float = RTOL,
        seed: int = 0,
    ) -> None:
        super().__init__(layers)
        _check_number("components", components, 1)
        _check_number("dimensions", dimensions, 1)
        _check_number("traces to learn from (max_rows)", max_rows, 2)
        self.components = components
        self.per_class = per_class
        self.dimensions = dimensions
        self.max_rows = max_rows
        self.rtol = rtol
        self.seed = seed

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        matrix = self._matrix(observation)
        groups = class_rows(self._groups(observation))
        found = []
        for rows in groups.values():
            found.append(self._mixture(matrix, rows))
            self._advance(len(found), len(groups))
        self.classes_ = np.array(list(groups), dtype=np.int64)
        whitenings = [mixture.whitening for mixture in found]
        for name, value in pack(whitenings, room=sum(one.factor.size for one in whitenings)).items():
            setattr(self, name, value)
        self.weights_ = np.stack([mixture.weights for mixture in found])
        self.centres_ = np.concatenate([mixture.centres.ravel() for mixture in found])
        self.cholesky_ = np.concatenate([mixture.cholesky.ravel() for mixture in found])

    def _score(self, observation: Observation) -> Float:
        matrix = same_width(self._matrix(observation), self.means_.shape[1], self.name)
        return by_group(matrix, self._groups(observation), self._mixtures().get, _surprise, self.name)

    def _groups(self, observation: Observation) -> NDArray[np.int64]:
        return observation.predictions if self.per_class else np.zeros(len(observation), dtype=np.int64)

    def _mixture(self, matrix: NDArray[np.floating[Any]], rows: NDArray[np.int64]) -> _Mixture:
        source = Rows(matrix, _some(rows, self.max_rows, self.seed))
        whitening = whiten(source, rtol=self.rtol)
        used = max(1, min(self.components, len(source) // (2 * PER_DIMENSION)))
        leading = whitening.leading(min(self.dimensions, max(1, len(source) // (used * PER_DIMENSION))))
        whitened = np.concatenate([leading.apply(block) for _, block in source.blocks()])
        return _Mixture(leading, *_fit_mixture(whitened, used, self.components, self.seed))

    def _mixtures(self) -> dict[int, _Mixture]:
        k, ranks = self.components, self.ranks_
        centres = np.split(self.centres_, np.cumsum(k * ranks)[:-1])
        cholesky = np.split(self.cholesky_, np.cumsum(k * ranks**2)[:-1])
        parts = zip(self.classes_.tolist(), unpack(self.state()), self.weights_, centres, cholesky, strict=True)
        return {
            label: _Mixture(own, weights, means.reshape(k, own.rank), factors.reshape(k, own.rank, own.rank))
            for label, own, weights, means, factors in parts
        }


@register
class MMDSA(TraceSupervisor):
    """Suspicious = many standard deviations away from the training traces of the nearest cluster.

    Score: the Mahalanobis distance within the nearest of k clusters of all training traces, whatever their class (Kim,
    Ju, Feldt and Yoo, ESEC/FSE 2020). An image nearest to a cluster without variance scores +inf, with a warning.

    Cost: one product with a matrix of d x rank numbers per image; fitting runs k-means for each number of clusters and
        one eigenvalue decomposition per cluster.

    Good at: what `mdsa` is good at, where predictions cannot be relied on to say which traces to compare with. Bad at:
    inputs that resemble another class than the predicted one, and ambiguous images.

    Args:
        layers: whose traces are used.
        min_clusters: the smallest number to choose from by silhouette.
        max_clusters: the largest (2 to 5 in the literature).
        squared: return the squared distance.
        max_rows: the most traces that k-means learns from.
        rtol: share of the largest variance below which a direction counts as noise.
        seed: of k-means and of the choice of traces.
    """

    name = "mmdsa"
    means_: NDArray[np.float64]

    def __init__(
        self,
        layers: Layers = "penultimate",
        *,
        min_clusters: int = 2,
        max_clusters: int = 5,
        squared: bool = False,
        max_rows: int = 10_000,
        rtol: float = RTOL,
        seed: int = 0,
    ) -> None:
        super().__init__(layers)
        if not 1 <= min_clusters <= max_clusters:
            raise UserError(
                f"The number of clusters is to be chosen from {min_clusters} to {max_clusters}; give a smallest number "
                "of at least 1 and a largest that is not below it."
            )
        _check_number("traces to learn from (max_rows)", max_rows, 2)
        self.min_clusters = min_clusters
        self.max_clusters = max_clusters
        self.squared = squared
        self.max_rows = max_rows
        self.rtol = rtol
        self.seed = seed

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        matrix = self._matrix(observation)
        mean_of(Rows(matrix))  # raises our own error where a trace is not finite
        chosen = _some(np.arange(len(matrix)), self.max_rows, self.seed)
        self.centres_ = _centres(np.asarray(matrix[chosen]), self.min_clusters, self.max_clusters, self.seed)
        groups = class_rows(self._nearest(matrix))
        self.clusters_ = np.array(list(groups), dtype=np.int64)
        width = matrix.shape[1]
        learnt = (whiten(Rows(matrix, rows), rtol=self.rtol) for rows in groups.values())
        room = sum(width * min(len(rows), width) for rows in groups.values())
        for name, value in pack(learnt, room).items():
            setattr(self, name, value)

    def _score(self, observation: Observation) -> Float:
        matrix = same_width(self._matrix(observation), self.means_.shape[1], self.name)
        known = dict(zip(self.clusters_.tolist(), unpack(self.state()), strict=True))
        nearest = self._nearest(matrix)
        with workers(1 if matrix.size < SMALL else None) as crew:
            squares = by_group(matrix, nearest, known.get, mahalanobis, self.name, kind="cluster", run=crew.run)
        return squares if self.squared else np.sqrt(squares)

    def _nearest(self, matrix: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
        """The nearest centre of each row; ties and rows that are not finite go to the lowest index."""
        nearest = np.empty(len(matrix), dtype=np.int64)
        middle = self.centres_.mean(axis=0)
        centres = self.centres_ - middle
        lengths = np.einsum("ij,ij->i", centres, centres)
        with np.errstate(invalid="ignore", over="ignore"):
            for part, block in Rows(matrix).blocks():
                block -= middle
                nearest[part] = np.argmin(lengths - 2 * (block @ centres.T), axis=1)
        return nearest


def _check_number(what: str, value: Any, least: int) -> None:
    if not isinstance(value, Integral) or value < least:
        raise UserError(f"The number of {what} is {value!r}; it must be a whole number of at least {least}.")


def _surprise(mixture: _Mixture, source: Rows) -> Float:
    with np.errstate(invalid="ignore", over="ignore"):
        surprise = -np.concatenate([mixture.log_density(block) for _, block in source.blocks()])
    return np.nan_to_num(surprise, nan=np.inf, posinf=np.inf)


def _some(rows: NDArray[np.int64], most: int, seed: int) -> NDArray[np.int64]:
    """At most `most` of the rows, drawn without replacement, in ascending order."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, size=most, replace=False))


def _fit_mixture(whitened: Float, used: int, components: int, seed: int) -> tuple[Float, Float, Float]:
    """Weights, means and Cholesky factors of a mixture; components that are not `used` have weight 0."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    rank = whitened.shape[1]
    weights, centres = np.zeros(components), np.zeros((components, rank))
    cholesky = np.tile(np.eye(rank), (components, 1, 1))
    if rank:
        used = min(used, len(np.unique(whitened, axis=0)))
        mixture = GaussianMixture(used, reg_covar=REGULAR, random_state=seed)
        with warnings.catch_warnings():  # a likelihood that still grows a little is a density all the same
            warnings.simplefilter("ignore", ConvergenceWarning)
            mixture.fit(whitened)
        weights[:used], centres[:used] = mixture.weights_, mixture.means_
        cholesky[:used] = mixture.precisions_cholesky_
    return weights, centres, cholesky


def _centres(values: NDArray[np.floating[Any]], fewest: int, most: int, seed: int) -> Float:
    """The centres (k, d) of the k-means clustering of values (n, d) with the best silhouette."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    sample = values[_some(np.arange(len(values)), SILHOUETTE, seed)]
    distinct = len(np.unique(sample, axis=0))
    best, centres = -math.inf, values.mean(axis=0, keepdims=True, dtype=np.float64)
    for clusters in range(fewest, min(most, distinct - 1) + 1):
        found = KMeans(clusters, n_init=N_INIT, random_state=seed).fit(values)
        labels = found.predict(sample)
        quality = silhouette_score(sample, labels) if len(np.unique(labels)) > 1 else -1.0
        if quality > best:
            best, centres = quality, found.cluster_centers_.astype(np.float64)
    return centres
