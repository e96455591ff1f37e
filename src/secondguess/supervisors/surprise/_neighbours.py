"""Exact nearest neighbours among grouped rows, at the cost of one float32 matrix product.

Half the squared distance of a query q to a reference t is ||q||^2/2 + (||t||^2/2 - q.t), and the bracket alone ranks
the references of one query. It is computed tile by tile as a float32 product, after a shift by a common centre. Every
float32 value comes with a bound on its rounding error, so the winner is certainly among the few references whose value
lies within that bound of the smallest; these are measured again in float64 from the rows as they were given. Hence the
neighbours are those of a float64 brute force (ties go to the lowest row), on every device.

Order of the loops: references outside, queries inside, so a memory-mapped matrix is read once, in the order of its
groups, for as many queries as fit into a panel. Nothing is sorted, copied or centred as a whole. On a processor, what
is held beside the rows is a panel of queries (at most 96 MiB), one block of references and one tile (at most 16 MiB
each), the candidates (half a million) and a few numbers per row: below 256 MiB for a million rows, or for 30,000
neurons. On CUDA, panel and tile lie on the device and are larger, and products are of TF32, whose larger error only
means a few more candidates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from secondguess.devices import pick_device
from secondguess.supervisors.surprise._grouped import Grouped, Indices, blocks, centre, exact_distances, gather, split
from secondguess.supervisors.surprise._rounding import largest, rounding, stated_precision

if TYPE_CHECKING:
    import torch

__all__ = ["Neighbours", "nearest_other", "nearest_other_of_all", "nearest_same"]

STRIP = 128  # columns whose smallest value is found first; only strips that can hold the winner are searched
MAX_PENDING = 1 << 19  # candidates kept before they are measured
CROWD = 8  # more candidates than this in a strip are filtered before they are kept


class Neighbours(NamedTuple):
    """The nearest reference of each query: its row (m,) and its distance (m,); -1 and infinite where there is none."""

    row: Indices
    distance: NDArray[np.float64]


def nearest_same(reference: Grouped, queries: Grouped, device: str | torch.device = "auto") -> Neighbours:
    """The nearest reference in the group of each query, in the order of `queries.order`."""
    return _Search(reference, queries, device).same()


def nearest_other(reference: Grouped, queries: Grouped, device: str | torch.device = "auto") -> Neighbours:
    """The nearest reference in any other group than the query's own, in the order of `queries.order`."""
    return _Search(reference, queries, device).other()


def nearest_other_of_all(reference: Grouped, device: str | torch.device = "auto") -> Neighbours:
    """`nearest_other` of every reference: each pair is multiplied once and serves both its ends."""
    return _Search(reference, reference, device, both_ends=True).other()


@dataclass(frozen=True)
class _Sizes:
    """How large the pieces are: in cache on a processor, large enough to fill a GPU."""

    panel_rows: int
    block_rows: int
    tile_rows: int

    @classmethod
    def on(cls, device: torch.device, dimension: int) -> _Sizes:
        def rows(megabytes: int, most: int) -> int:
            return max(STRIP, min(most, (megabytes << 20) // (4 * max(1, dimension)) // STRIP * STRIP))

        if device.type == "cpu":
            return cls(rows(96, 1 << 20), rows(16, 2048), 1024)
        if device.type == "cuda" and _free(device) >= 8 << 30:
            return cls(rows(2048, 1 << 20), rows(128, 16384), 16384)
        return cls(rows(256, 1 << 20), rows(32, 4096), 4096)


def _free(device: torch.device) -> int:
    import torch

    return int(torch.cuda.mem_get_info(device)[0])


class _Block(NamedTuple):
    """References [start, stop) on the device: centred rows, half squared norms that are infinite in the padding."""

    start: int
    stop: int
    rows: torch.Tensor
    halves: torch.Tensor
    furthest: float


class _Tile(NamedTuple):
    """Values of queries and references that follow each other.

    Attributes:
        block: where the references come from, or the queries where the tile is `turned`.
        strips: (queries, strips, STRIP) values.
        smallest: (queries, strips) the smallest value of each strip, taken where that is quick.
        slack: (queries,) the largest error of a value.
        query: position of the first query.
        reference: position of the first reference.
        turned: whether the panel holds the references, and the block the queries.
    """

    block: _Block
    strips: torch.Tensor
    smallest: torch.Tensor
    slack: torch.Tensor
    query: int
    reference: int
    turned: bool = False


class _Search:
    """One search: the bounds of all queries, the panel that is at work, and the candidates not yet measured."""

    def __init__(
        self, reference: Grouped, queries: Grouped, device: str | torch.device, *, both_ends: bool = False
    ) -> None:
        import torch

        self.reference, self.queries, self.both_ends = reference, queries, both_ends
        self.groups = reference.groups
        self.device = pick_device(device)
        dimension = reference.rows.shape[1]
        self.sizes = _Sizes.on(self.device, dimension)
        self.relative = rounding(dimension, self.device)
        self.staging = torch.zeros((self.sizes.block_rows, dimension), pin_memory=self.device.type == "cuda")
        self.tile = torch.empty(self.sizes.tile_rows * self.sizes.block_rows, device=self.device)
        largest_number = torch.finfo(torch.float32).max  # below the infinity that hides a reference
        self.bound = torch.full((len(queries),), largest_number, device=self.device)
        self.within = torch.full((len(queries),), torch.inf, device=self.device)
        # One buffer for all candidates: many small tensors between large ones would fragment the heap.
        self.candidates = torch.empty((2, 2 * MAX_PENDING), dtype=torch.int64, device=self.device)
        self.lowest = torch.empty(2 * MAX_PENDING, device=self.device)
        self.num_pending = 0
        self.best = np.full(len(queries), np.inf)
        self.winner = np.full(len(queries), -1, dtype=np.int64)
        self.firsts: dict[tuple[int, int], torch.Tensor] = {}

    def same(self) -> Neighbours:
        """Group by group, each around its own centre: errors then are small beside the distances within a group."""
        with stated_precision(self.device):
            for group in np.flatnonzero(np.diff(self.queries.starts) * np.diff(self.reference.starts)):
                start, stop = self.reference.starts[group : group + 2].tolist()
                self._centre_on(self.reference.order[start:stop])
                for first, last in self._panels(*self.queries.starts[group : group + 2].tolist()):
                    for begin, end in split(start, stop, self.sizes.block_rows, STRIP):
                        self._scan(first, last, self._load(begin, end))
        return self._finish()

    def other(self) -> Neighbours:
        """Block by block, around a common centre."""
        ours = self.queries.starts
        self._centre_on(self.reference.order)
        with stated_precision(self.device):
            for first, last in self._panels(0, len(self.queries)):
                for start, stop in blocks(self.reference.starts, self.sizes.block_rows, STRIP):
                    low, high = self.groups[start], self.groups[stop - 1]
                    before, after = int(ours[low]), int(ours[high + 1])
                    if self.both_ends and (before if low == high else after) <= first:
                        continue  # as queries of an earlier panel, these references were compared with all queries here
                    block = self._load(start, stop)
                    self._scan(first, min(last, before), block)
                    if low < high:
                        self._scan(max(first, before), min(last, after), block, masked=True)
                    if not self.both_ends:
                        self._scan(max(first, after), last, block)
        return self._finish()

    def _centre_on(self, rows: Indices) -> None:
        import torch

        self.centre = torch.from_numpy(centre(self.reference.rows, rows)).to(self.device)

    def _panels(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Load queries [start, stop), as many at a time as memory allows, and yield which ones are at work."""
        import torch

        for first in range(start, stop, self.sizes.panel_rows):
            last = min(first + self.sizes.panel_rows, stop)
            self.first = first
            self.panel = torch.empty((last - first, self.staging.shape[1]), device=self.device)
            self.lengths = torch.empty(last - first, device=self.device)
            for begin in range(first, last, len(self.staging)):
                end = min(begin + len(self.staging), last)
                inside = slice(begin - first, end - first)
                rows = self._centred(self.queries, begin, end)
                torch.linalg.vector_norm(rows, dim=1, out=self.lengths[inside])
                torch.neg(rows, out=self.panel[inside])
            largest(self.lengths)
            yield first, last

    def _centred(self, source: Grouped, start: int, stop: int, padding: int = 0) -> torch.Tensor:
        """Entries [start, stop) of `source.order`, shifted to the centre, and padding that holds anything finite."""
        gather(source.rows, source.order[start:stop], self.staging.numpy())
        rows = self.staging[: stop - start + padding].to(self.device)
        rows[: stop - start].sub_(self.centre)
        return rows

    def _load(self, start: int, stop: int) -> _Block:
        import torch

        size = stop - start
        rows = self._centred(self.reference, start, stop, padding=-size % STRIP)
        lengths = torch.linalg.vector_norm(rows, dim=1)
        furthest = largest(lengths[:size])
        lengths[size:] = torch.inf
        return _Block(start, stop, rows, lengths.square_().mul_(0.5), furthest)

    def _scan(self, low: int, high: int, block: _Block, *, masked: bool = False) -> None:
        """Compare queries [low, high) with a block; `masked` hides the references of a query's own group."""
        import torch

        width = len(block.halves)
        for start in range(low, high, self.sizes.tile_rows):
            stop = min(start + self.sizes.tile_rows, high)
            inside = slice(start - self.first, stop - self.first)
            lengths = self.lengths[inside]
            tile = self.tile[: (stop - start) * width].view(stop - start, width)
            slack = lengths * block.furthest + block.furthest**2
            torch.addmm(block.halves, self.panel[inside], block.rows.T, out=tile)
            if masked:
                self._mask(tile, start, block)
            if self.both_ends:  # a whole half square, for the columns
                tile += lengths.square().mul_(0.5)[:, None]
                slack += lengths.square()
            slack *= self.relative
            strips = tile.view(stop - start, -1, STRIP)
            self._collect(_Tile(block, strips, strips.amin(dim=2), slack, start, block.start))
            if self.both_ends and not masked:
                self._collect_columns(stop - start, start, block, float(lengths.max()))

    def _mask(self, tile: torch.Tensor, first_query: int, block: _Block) -> None:
        ours, theirs = self.queries.starts - first_query, self.reference.starts - block.start
        for group in range(self.groups[block.start], self.groups[block.stop - 1] + 1):
            rows = slice(max(0, int(ours[group])), max(0, int(ours[group + 1])))
            tile[rows, int(theirs[group]) : int(theirs[group + 1])] = np.inf

    def _collect_columns(self, height: int, start: int, block: _Block, furthest: float) -> None:
        """Process the tile just scanned from the side of its references, as queries themselves."""
        import torch

        size, width = block.stop - block.start, len(block.halves)
        padded = height + -height % STRIP
        tile = self.tile[: padded * width].view(padded, width)[:, :size]
        tile[height:] = torch.inf
        strips = torch.unflatten(tile, 0, (-1, STRIP))
        squares = block.halves[:size] * 2.0
        slack = (squares.sqrt() * furthest + furthest**2 + squares) * self.relative
        self._collect(_Tile(block, strips.permute(2, 0, 1), strips.amin(dim=1).T, slack, block.start, start, True))

    def _collect(self, tile: _Tile) -> None:
        """Tighten the bounds of the queries, and remember the references that may be the nearest."""
        import torch

        bound = self.bound[tile.query : tile.query + len(tile.strips)]
        torch.minimum(bound, tile.smallest.amin(dim=1).add_(tile.slack), out=bound)
        limit = bound + tile.slack
        hits = (tile.smallest <= limit[:, None]).nonzero()
        for part in torch.split(hits, MAX_PENDING // STRIP):
            row, strip = part.unbind(dim=1)
            values = tile.strips[row, strip]
            which, column = (values <= limit[row, None]).nonzero(as_tuple=True)
            lowest = values[which, column] - tile.slack[row[which]]
            query = row[which].add_(tile.query)
            reference = strip[which].mul_(STRIP).add_(column).add_(tile.reference)
            if len(query) > CROWD * len(part):
                chosen = self._first_of_its_kind(tile)[reference - tile.reference]
                query, reference, lowest = query[chosen], reference[chosen], lowest[chosen]
                chosen = self._looked_at_closely(tile, query, reference)
                query, reference, lowest = query[chosen], reference[chosen], lowest[chosen]
            self._remember(query, reference, lowest)

    def _first_of_its_kind(self, tile: _Tile) -> torch.Tensor:
        """Which of the references of a tile repeat none before them of the same group, (references,) bool.

        Identical references are equally far and the lowest row wins, so the repetitions need not be measured. Without
        this, a thousand black images in the training data would make a thousand candidates for every query near them.
        """
        import torch

        start, size = tile.reference, tile.strips.shape[1] * STRIP
        if (start, size) not in self.firsts:
            seen: set[tuple[int, bytes]] = set()
            first = np.zeros(size, dtype=bool)
            for position in range(start, min(start + size, len(self.reference))):
                content = self.reference.rows[self.reference.order[position]].tobytes()
                key = int(self.groups[position]), hashlib.blake2b(content, digest_size=16).digest()
                first[position - start] = key not in seen
                seen.add(key)
            self.firsts = {(start, size): torch.from_numpy(first).to(self.device)}  # of the last block alone
        return self.firsts[start, size]

    def _looked_at_closely(self, tile: _Tile, query: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        """Which candidates may still be the nearest if differences are squared, not squares subtracted; (k,) bool.

        The error is relative to the distance then, not to the norms: where groups are tight and far from each other,
        this takes most of the candidates away, still on the device.
        """
        import torch

        panel, block = (reference, query) if tile.turned else (query, reference)
        panel, block = panel - self.first, block - tile.block.start
        distance = torch.empty(len(query), device=self.device)
        step = max(1, self.tile.numel() // (4 * self.panel.shape[1]))
        for start in range(0, len(query), step):
            part = slice(start, start + step)
            difference = self.panel[panel[part]].add_(tile.block.rows[block[part]])  # the panel holds -q
            torch.linalg.vector_norm(difference, dim=1, out=distance[part])
        unit = 2.0**-23
        error = (self.lengths[panel] + tile.block.halves[block].mul(2.0).sqrt_()).mul_(4 * unit)
        error += distance * (unit * (self.panel.shape[1] + 8))
        self.within.scatter_reduce_(0, query, distance + error, "amin")
        return distance - error <= self.within[query]

    def _remember(self, queries: torch.Tensor, references: torch.Tensor, lowest: torch.Tensor) -> None:
        end = self.num_pending + len(queries)
        self.candidates[0, self.num_pending : end] = queries
        self.candidates[1, self.num_pending : end] = references
        self.lowest[self.num_pending : end] = lowest
        self.num_pending = end
        if self.num_pending > MAX_PENDING:
            self._measure()

    def _measure(self) -> None:
        """Measure in float64 the candidates that can still win, and keep the nearest of each query."""
        candidates = self.candidates[:, : self.num_pending]
        alive = self.lowest[: self.num_pending] <= self.bound[candidates[0]]
        query, reference = candidates[:, alive].cpu().numpy()
        self.num_pending = 0
        order = np.argsort(reference)  # front to back through the file
        query, row = query[order], self.reference.order[reference[order]]
        distance = exact_distances(self.queries.rows, self.queries.order[query], self.reference.rows, row)
        order = np.lexsort((row, distance, query))
        order = order[np.flatnonzero(np.diff(query[order], prepend=-1))]
        query, row, distance = query[order], row[order], distance[order]
        nearer = (distance < self.best[query]) | ((distance == self.best[query]) & (row < self.winner[query]))
        self.best[query[nearer]], self.winner[query[nearer]] = distance[nearer], row[nearer]

    def _finish(self) -> Neighbours:
        self._measure()
        return Neighbours(self.winner, self.best)
