"""Rows of a matrix by group, touched block by block: the matrix may be a memory-mapped file larger than memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.supervisors._traces import row_blocks

__all__ = [
    "Grouped",
    "Indices",
    "as_float32",
    "blocks",
    "centre",
    "exact_distances",
    "gather",
    "grouped",
    "split",
]

Indices = NDArray[np.int64]
THREADS = min(8, os.cpu_count() or 1)


@dataclass(frozen=True)
class Grouped:
    """Some rows of a matrix, in the order of their groups; the matrix itself is left where it is.

    Attributes:
        rows: (N, d) float32, maybe memory-mapped.
        order: (n,) rows, by group and then ascending.
        starts: (K + 1,) where each group begins in `order`.
    """

    rows: NDArray[np.float32]
    order: Indices
    starts: Indices

    def __len__(self) -> int:
        return len(self.order)

    @property
    def groups(self) -> Indices:
        """The group of each entry of `order`, (n,)."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))


def grouped(rows: NDArray[np.float32], groups: Indices, num_groups: int, kept: Indices | None = None) -> Grouped:
    """Group the rows (N, d) by `groups` (N,), numbers below `num_groups`; `kept` are the only rows to use, if given."""
    kept = np.arange(len(groups)) if kept is None else np.unique(kept)
    of_kept = np.asarray(groups)[kept]
    order = kept[np.argsort(of_kept, kind="stable")]
    counts = np.bincount(of_kept, minlength=num_groups)
    return Grouped(rows, order.astype(np.int64), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))


def exact_distances(
    first: NDArray[np.float32], of_first: Indices, second: NDArray[np.float32], of_second: Indices
) -> NDArray[np.float64]:
    """The float64 distance between row `of_first[i]` of one matrix and row `of_second[i]` of another, (k,)."""
    distances = np.empty(len(of_first))
    step = max(1, (1 << 19) // max(1, first.shape[1]))

    def measure(start: int) -> None:
        part = slice(start, start + step)
        difference = first[of_first[part]].astype(np.float64)
        difference -= second[of_second[part]]
        difference *= difference
        distances[part] = np.sqrt(difference.sum(axis=1))

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(measure, range(0, len(of_first), step)))
    return distances


def blocks(starts: Indices, most: int, multiple: int) -> Iterator[tuple[int, int]]:
    """Cut [0, n) into pieces of at most `most`: a large group into several, small groups packed whole into one."""
    begin = end = 0
    for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        if stop - begin > most and end > begin:
            yield begin, end
            begin = start
        if stop - start > most:
            yield from split(start, stop, most, multiple)
            begin = stop
        end = stop
    if end > begin:
        yield begin, end


def split(start: int, stop: int, most: int, multiple: int) -> Iterator[tuple[int, int]]:
    """Cut [start, stop) into the fewest pieces of at most `most`, of about equal size and without much padding."""
    pieces = -(-(stop - start) // most)
    step = -(-(stop - start) // (multiple * max(1, pieces))) * multiple
    for begin in range(start, stop, max(1, step)):
        yield begin, min(begin + step, stop)


def centre(rows: NDArray[np.float32], indices: Indices) -> NDArray[np.float32]:
    """About the mean (d,) of some rows; any point near them suffices."""
    most = max(1, min(2048, (16 << 20) // (4 * max(1, rows.shape[1]))))
    sample = indices[:: -(-len(indices) // most)]
    with np.errstate(over="ignore", invalid="ignore"):  # extreme values are refused a little later
        return rows[sample].mean(axis=0, dtype=np.float64).astype(np.float32)


def as_float32(rows: NDArray[Any], shift: NDArray[np.float64]) -> NDArray[np.float32]:
    """The rows (n, d) less a shift (d,), which is taken off in float64 before they are rounded.

    Rows of float32 that are not shifted are handed on as they are; others are copied, a block at a time.
    """
    if rows.dtype == np.float32 and not shift.any():
        return rows
    converted = np.empty(rows.shape, dtype=np.float32)
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is treated so
        for block in row_blocks(*rows.shape):
            converted[block] = rows[block] - shift
    return converted


def gather(rows: NDArray[np.float32], indices: Indices, out: NDArray[np.float32]) -> None:
    """Copy some rows into the head of a buffer; large copies by several threads, as one does not fill the bus."""

    def copy(start: int, stop: int) -> None:
        np.take(rows, indices[start:stop], axis=0, out=out[start:stop], mode="clip")

    size = len(indices)
    threads = THREADS if size * rows.shape[1] > 1 << 23 else 1
    if threads == 1:
        return copy(0, size)
    edges = np.linspace(0, size, threads + 1).astype(int)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(copy, edges[:-1], edges[1:]))
    return None
