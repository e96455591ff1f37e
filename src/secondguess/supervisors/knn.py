"""Distance to the k-th nearest training trace, on the unit sphere.

    z = at(x) / ||at(x)||,    score(x) = ||z - z_(k)||

where z_(k) is the k-th nearest among the normalised training traces. Source: Sun, Ming, Zhu and Li, Out-of-Distribution
Detection with Deep Nearest Neighbors (ICML 2022).

A trace of zeros has no direction: it stays zero, at distance 1 from every trace that has one.

Neighbours are found with a float32 matrix product, block by block. The k best of a row lie in the k strips of columns
whose largest values are best, so only these strips are sorted. A few more than k are kept, and their distances are
taken once more from the differences in float64: traces that nearly coincide keep all their digits, and only where more
than `SPARE` traces tie with the k-th to the last digits of float32 may one of these stand in for another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.merging import Kept
from secondguess.devices import pick_device
from secondguess.errors import UserError
from secondguess.model.observation import Observation
from secondguess.supervisors._traces import Layers, directions, finite_rows, same_width
from secondguess.supervisors.approximate import Cells
from secondguess.supervisors.indexed import IndexedSupervisor
from secondguess.supervisors.registry import register

if TYPE_CHECKING:
    import torch

    from secondguess.supervisors.base import ScoreGraph
    from secondguess.supervisors.graph import Tensors

__all__ = ["KNN", "kth_distances"]

Matrix = NDArray[np.floating[Any]]
Search = Callable[[NDArray[np.float64]], NDArray[np.float64]]

STRIP = 64  # columns of which only the best value is sorted at first
SPARE = 16  # candidates beyond k, against the rounding of float32
_PANEL, _TILE_ROWS = 8192, 128  # queries for which the traces are read once, and those multiplied at once
_CELLS = 1 << 23  # of a tile of products (32 MiB), of a block of traces and of the differences to candidates (64 MiB)


@register
class KNN(IndexedSupervisor):
    """Suspicious = far, in direction, from the k-th nearest training image.

    ||z - z_(k)|| with z = at(x) / ||at(x)||. Source: Sun et al. (ICML 2022). Cost: a matrix product with all training
    traces (or the share that is kept) per image, and they must be kept. Good at images unlike anything seen, with no
    assumption on the shape of the classes; bad at ambiguous images, which lie between classes yet close to some image,
    and blind to the length of a trace. A training image is its own nearest neighbour. A trace that holds NaN or
    infinity scores +inf.

    Args:
        layers: see `TraceSupervisor`.
        k: which neighbour counts, cut to the number of traces; 50 is the paper's for CIFAR-10.
        share: of the training traces that are kept, above 0 and up to 1; the paper keeps 1% of ImageNet.
        seed: of the choice of that share.
        device: where to multiply.
        index: `"exact"`, or `"faiss"` for an approximate search in a fraction of the time, where there are many traces;
            `recall` says how many of the neighbours it finds. A neighbour that is missed makes a score larger.
        probes: of the cells into which FAISS sorts the traces, how many it searches for an image.
    """

    name = "knn"
    family: ClassVar[str] = "baseline"
    _cells: tuple[Matrix, Cells] | None = None  # of FAISS, and the traces that they were made of

    def __init__(
        self,
        layers: Layers = "penultimate",
        k: int = 50,
        share: float = 1.0,
        seed: int = 0,
        device: str = "auto",
        index: Literal["exact", "faiss"] = "exact",
        probes: int = 16,
    ) -> None:
        super().__init__(layers)
        if not (isinstance(k, int | np.integer) and k >= 1):
            raise UserError(f"The neighbour that counts is number {k!r}; k must be a whole number from 1 on.")
        if not 0 < share <= 1:
            raise UserError(f"The share of training traces to keep is {share}; it must be above 0 and at most 1.")
        self.k = k
        self.share = share
        self.seed = seed
        self.device = device
        if index not in ("exact", "faiss"):
            raise UserError(f"The index is {index!r}; give 'exact' or 'faiss'.")
        if not (isinstance(probes, int | np.integer) and probes >= 1):
            raise UserError(f"{probes!r} cells are to be searched; probes must be a whole number from 1 on.")
        self.index = index
        self.probes = probes

    def recall(self, observation: Observation) -> float:
        """The share of the k nearest traces of each image that the approximate index finds; 1 for the exact one."""
        asked = directions(self._matrix(observation))
        exact, found = self._search("exact")(asked), self._search(self.index)(asked)
        tie = 1e-6 * np.maximum(exact[:, -1:], 1e-6)  # a trace as near as the k-th may stand in for it
        return float(np.mean(found <= exact[:, -1:] + tie))

    def in_parts(self, count: int) -> list[KNN]:
        """See `IndexedSupervisor`."""
        return [self._part(rows) for rows in np.array_split(self.traces_, min(count, len(self.traces_)))]

    def nearest(self, observation: Observation) -> NDArray[np.float64]:
        """The distances (n, k) to the k nearest of these traces, ascending; infinite where there are fewer."""
        matrix = same_width(self._matrix(observation), self.traces_.shape[1], self.name)
        found, finite = np.full((len(matrix), self.k), np.inf), finite_rows(matrix)
        rows = slice(None) if finite is None else np.flatnonzero(finite)
        near = self._search(self.index)(directions(matrix[rows]))
        found[rows, : near.shape[1]] = near
        return found

    def combined(self, observation: Observation, found: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """The k-th of the nearest of all parts, or the last where there are fewer."""
        near = np.sort(np.concatenate(found, axis=1), axis=1)
        there = np.isfinite(near).sum(axis=1)
        return np.where(there > 0, near[np.arange(len(near)), np.clip(there, 1, self.k) - 1], np.inf)

    def _statistics(self, observation: Observation, labels: NDArray[np.int64] | None) -> Kept:
        return Kept({"traces": self._training_matrix(observation)})

    def _learn(self, merged: Kept) -> bool:
        traces = merged.arrays["traces"]
        if self.share < 1:
            count = max(1, round(self.share * len(traces)))
            kept = np.random.default_rng(self.seed).choice(len(traces), count, replace=False)
            traces = traces[np.sort(kept)]
        self.traces_ = np.array(traces)
        return False

    def _score(self, observation: Observation) -> NDArray[np.float64]:
        search = self._search(self.index)  # block by block: the distances to all k would take k times the room
        return self._by_row(observation, self.traces_.shape[1], lambda queries: search(directions(queries))[:, -1])

    def _graph(self) -> ScoreGraph:
        from secondguess.supervisors.graph import TraceGraph

        if self.index != "exact":
            raise UserError("The supervisor 'knn' can be exported with index='exact' only.")
        k, count = (min(self.k + spare, len(self.traces_)) for spare in (0, SPARE))

        def kth(x: torch.Tensor, _seen: Tensors, traces: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            units = _units(x)
            products = units.float() @ traces.T.float() / lengths.where(lengths > 0, 1.0)
            candidates = (products - 0.5 * (lengths > 0)).topk(count, dim=1).indices
            # As the queries are: a trace that is asked about again is at distance 0, not at that of rounding.
            distances = (units[:, None] - _units(traces[candidates].double())).square().sum(2).sqrt()
            return distances.topk(k, dim=1, largest=False).values.amax(1)

        lengths = np.linalg.norm(self.traces_.astype(np.float64), axis=1).astype(np.float32)
        return TraceGraph(self.traces, kth, traces=self.traces_, lengths=lengths)

    def _search(self, index: str) -> Search:
        """From unit vectors (n, d) to the distances (n, k) of their nearest traces, k cut to their number."""
        if index == "exact":
            return lambda units: nearest_distances(units, self.traces_, self.k, pick_device(self.device))
        if self._cells is None or self._cells[0] is not self.traces_:
            self._cells = self.traces_, Cells(directions(self.traces_), self.seed)
        cells, k = self._cells[1], min(self.k, len(self.traces_))
        return lambda units: _distances(units, self.traces_, cells.candidates(units, k + SPARE, self.probes), k)


def kth_distances(queries: Matrix, traces: Matrix, k: int, device: str = "auto") -> NDArray[np.float64]:
    """The distance (n,) of each of the queries (n, d) to its k-th nearest trace of (m, d), all of them normalised.

    Args:
        queries: (n, d).
        traces: (m, d); may be memory-mapped.
        k: 1 for the nearest; cut to m.
        device: where to multiply.
    """
    return nearest_distances(directions(queries), traces, k, pick_device(device))[:, -1]


def nearest_distances(units: NDArray[np.float64], traces: Matrix, k: int, device: torch.device) -> NDArray[np.float64]:
    """The distances (n, k) of unit vectors (n, d) to their k nearest traces of (m, d), ascending; k is cut to m."""
    k = min(int(k), len(traces))
    distances = np.empty((len(units), k))
    for start in range(0, len(units), _PANEL):
        asked = units[start : start + _PANEL]
        candidates = _candidates(asked, traces, min(k + SPARE, len(traces)), device)
        distances[start : start + _PANEL] = _distances(asked, traces, candidates, k)
    return distances


def _candidates(units: NDArray[np.float64], traces: Matrix, count: int, device: torch.device) -> NDArray[np.int64]:
    """The nearest of the traces (m, d) to the precision of float32, (n, count), for each unit vector (n, d)."""
    import torch

    asked = torch.from_numpy(units).to(device, torch.float32)
    rows = _TILE_ROWS if device.type == "cpu" else len(asked)
    step = max(STRIP, _CELLS // max(_TILE_ROWS, traces.shape[1]) // STRIP * STRIP)
    nearest = torch.full((len(asked), count), -torch.inf, device=device)
    where = torch.zeros((len(asked), count), dtype=torch.int64, device=device)
    for first in range(0, len(traces), step):  # the traces outside: they are read and normalised once per panel
        block = torch.from_numpy(directions(traces[first : first + step])).to(device, torch.float32)
        halves = 0.5 * block.any(dim=1)
        for start in range(0, len(asked), rows):
            tile = slice(start, start + rows)
            # ||z - t||^2 = ||z||^2 - 2 (z.t - ||t||^2 / 2), and ||t|| is 1, or 0 for a trace of zeros
            close, found = _top((asked[tile] @ block.T).sub_(halves), min(count, len(block)))
            nearest[tile], chosen = torch.cat([nearest[tile], close], dim=1).topk(count, dim=1)
            where[tile] = torch.cat([where[tile], found + first], dim=1).gather(1, chosen)
    return where.cpu().numpy()


def _top(values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest values (b, count) of each row and their columns; what `topk` gives, but strip by strip."""
    import torch

    strips = values.shape[1] // STRIP
    if strips <= 2 * count:
        return values.topk(count, dim=1)
    even = values[:, : strips * STRIP].reshape(len(values), strips, STRIP)
    best = even.amax(dim=2).topk(count, dim=1).indices
    columns = (best[..., None] * STRIP + torch.arange(STRIP, device=values.device)).flatten(1)
    rest = torch.arange(strips * STRIP, values.shape[1], device=values.device).expand(len(values), -1)
    columns = torch.cat([columns, rest], dim=1)
    top, chosen = values.gather(1, columns).topk(count, dim=1)
    return top, columns.gather(1, chosen)


def _units(traces: torch.Tensor) -> torch.Tensor:
    """What `directions` does, along the last axis of a tensor."""
    lengths = traces.square().sum(-1, keepdim=True).sqrt()
    return traces / lengths.where(lengths > 0, 1.0)


def _distances(
    units: NDArray[np.float64], traces: Matrix, candidates: NDArray[np.int64], k: int
) -> NDArray[np.float64]:
    """The k smallest distances (b, k) of unit vectors (b, d) to their candidates (b, count) among the traces.

    A candidate of -1 is none.
    """
    nearest = np.empty((len(units), k))
    step = max(1, _CELLS // (candidates.shape[1] * units.shape[1]))
    for start in range(0, len(units), step):
        mine = candidates[start : start + step]
        near = directions(traces[mine.ravel()]).reshape(*mine.shape, -1)
        distances = np.linalg.norm(units[start : start + step, None] - near, axis=2)
        distances[mine < 0] = np.inf
        nearest[start : start + step] = np.sort(np.partition(distances, k - 1, axis=1)[:, :k], axis=1)
    return nearest
