"""Distance to the k-th nearest training trace, on the unit sphere.

    z = at(x) / ||at(x)||,    score(x) = ||z - z_(k)||

where z_(k) is the k-th nearest among the normalised training traces. Source: Sun, Ming, Zhu and Li, Out-of-Distribution
Detection with Deep Nearest Neighbors (ICML 2022).

A trace of zeros has no direction: it stays zero, at distance 1 from every trace that has one. Neighbours are found with
a matrix product in float64, tile by tile, and the distance to the k-th is then taken once more from the difference, so
that traces that nearly coincide keep all their digits.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.observation import Observation
from secondguess.supervisors._traces import Layers, TraceSupervisor
from secondguess.supervisors.registry import register

__all__ = ["KNN", "kth_distances"]

Matrix = NDArray[np.floating[Any]]

_QUERIES, _TILE_CELLS = 256, 2**22  # a tile of traces in float64, and its products with the queries: 32 MiB each


@register
class KNN(TraceSupervisor):
    """Suspicious = far, in direction, from the k-th nearest training image.

    ||z - z_(k)|| with z = at(x) / ||at(x)||. Source: Sun et al. (ICML 2022). Cost: a matrix product with all training
    traces (or the share that is kept) an image, and they must be kept. Good at images unlike anything seen, with no
    assumption on the shape of the classes; bad at ambiguous images, which lie between classes yet close to some image,
    and blind to the length of a trace. A training image is its own nearest neighbour. A trace that holds NaN or
    infinity scores +inf.

    Args:
        layers: see `TraceSupervisor`.
        k: which neighbour counts, cut to the number of traces; 50 is the paper's for CIFAR-10.
        share: of the training traces that are kept, above 0 and up to 1; the paper keeps 1% of ImageNet.
        seed: of the choice of that share.
    """

    name = "knn"
    family: ClassVar[str] = "baseline"

    def __init__(self, layers: Layers = "penultimate", k: int = 50, share: float = 1.0, seed: int = 0) -> None:
        super().__init__(layers)
        if not (isinstance(k, int | np.integer) and k >= 1):
            raise UserError(f"The neighbour that counts is number {k!r}; k must be a whole number from 1 on.")
        if not 0 < share <= 1:
            raise UserError(f"The share of training traces to keep is {share}; it must be above 0 and at most 1.")
        self.k = k
        self.share = share
        self.seed = seed

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        traces = self._training_matrix(observation)
        if self.share < 1:
            count = max(1, round(self.share * len(traces)))
            kept = np.random.default_rng(self.seed).choice(len(traces), count, replace=False)
            traces = traces[np.sort(kept)]
        self.traces_ = np.array(traces)

    def _score(self, observation: Observation) -> NDArray[np.float64]:
        width = self.traces_.shape[1]
        return self._by_row(observation, width, lambda queries: kth_distances(queries, self.traces_, self.k))


def kth_distances(queries: Matrix, traces: Matrix, k: int) -> NDArray[np.float64]:
    """The distance (n,) of each of the queries (n, d) to its k-th nearest trace of (m, d), all of them normalised.

    Args:
        queries: (n, d).
        traces: (m, d); may be memory-mapped.
        k: 1 for the nearest; cut to m.
    """
    k = min(int(k), len(traces))
    distances = np.empty(len(queries))
    for start in range(0, len(queries), _QUERIES):
        rows = slice(start, min(start + _QUERIES, len(queries)))
        directions = _directions(queries[rows])
        neighbour = _kth_nearest(directions, traces, k)
        distances[rows] = np.linalg.norm(directions - _directions(traces[neighbour]), axis=1)
    return distances


def _kth_nearest(directions: NDArray[np.float64], traces: Matrix, k: int) -> NDArray[np.int64]:
    """The index (b,) of the k-th nearest of the traces (m, d) for each direction (b, d)."""
    import torch

    asked = torch.from_numpy(directions)
    step = max(1, _TILE_CELLS // max(len(directions), traces.shape[1]))
    nearest = torch.empty((len(directions), 0), dtype=torch.float64)
    where = torch.empty((len(directions), 0), dtype=torch.int64)
    for start in range(0, len(traces), step):
        tile = torch.from_numpy(_directions(traces[start : start + step]))
        # ||z - t||^2 = ||z||^2 - 2 (z.t - ||t||^2 / 2), and ||t|| is 1, or 0 for a trace of zeros
        closeness = (asked @ tile.T).sub_(0.5 * tile.any(dim=1))
        close, found = closeness.topk(min(k, len(tile)), dim=1)
        nearest, chosen = torch.cat([nearest, close], dim=1).topk(min(k, start + len(tile)), dim=1)
        where = torch.cat([where, found + start], dim=1).gather(1, chosen)
    return where[:, k - 1].numpy()


def _directions(traces: Matrix) -> NDArray[np.float64]:
    """Rows of length one, in float64; rows of zeros stay."""
    rows = np.array(traces, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, where=lengths > 0, out=np.zeros_like(rows))
