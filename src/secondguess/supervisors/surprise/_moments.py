"""Count, mean and scatter of rows within groups: sums that merge exactly, whoever has seen which rows.

With n_c, m_c and S = sum (x - m_c)(x - m_c)' of two sets of rows, those of both together are

    n = n_1 + n_2,    m = m_1 + (n_2 / n) d,    S = S_1 + S_2 + sum_c (n_1 n_2 / n) d d',    d = m_2 - m_1

(Chan, Golub and LeVeque, 1979), which loses no digits where means are large and scatters small. Few rows, fewer than
twice their width, are kept as they are instead: they take less room than S, and some methods need them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.merging import keepable
from secondguess.supervisors.surprise._whitening import RTOL, Rows, Whitening, check_finite, decomposed, whiten

__all__ = ["FEW", "Moments"]

Float = NDArray[np.float64]
Ints = NDArray[np.int64]

FEW = 2  # times their width: fewer rows than that are kept


@keepable
@dataclass(frozen=True, eq=False)
class Moments:
    """The moments of n rows (n, d) in c groups.

    Attributes:
        groups: (c,) those that occur, ascending.
        counts: (c,) of their rows.
        means: (c, d).
        scatter: (d, d) about the means, summed over the groups; None where the rows are kept.
        rows: (n, d), and `codes`: (n,) which of the groups each belongs to; None where there are many.
    """

    groups: Ints
    counts: Ints
    means: Float
    scatter: Float | None = None
    rows: Float | None = None
    codes: Ints | None = None

    @classmethod
    def of(cls, source: Rows, groups: Ints | None = None) -> Self:
        """The moments of rows, of one group unless `groups` (n,) says otherwise."""
        given = np.zeros(len(source), dtype=np.int64) if groups is None else groups
        present, codes, counts = np.unique(given, return_inverse=True, return_counts=True)
        means = _means(source, codes, counts)
        if len(source) < FEW * source.width:
            return cls(present, counts, means, rows=source.block(0, len(source)), codes=codes)
        return cls(present, counts, means, scatter=_scatter(source, means, codes))

    @property
    def count(self) -> int:
        """The number of rows n."""
        return int(self.counts.sum())

    @property
    def mean(self) -> Float:
        """(d,) of all rows."""
        return self.counts @ self.means / self.count if len(self.groups) > 1 else self.means[0]

    def merge(self, other: Self) -> Self:
        """The moments of the rows of both."""
        if self.rows is not None and other.rows is not None:
            rows = np.concatenate([self.rows, other.rows])
            named = [part.groups[part.codes] for part in (self, other) if part.codes is not None]
            return self.of(Rows(rows), np.concatenate(named))
        groups = np.union1d(self.groups, other.groups)
        (first, of_first), (second, of_second) = (one._spread(groups) for one in (self, other))
        counts, apart = first + second, of_second - of_first
        means = of_first + (second / counts)[:, None] * apart
        scatter = self.whole() + other.whole() + (apart * (first * second / counts)[:, None]).T @ apart
        return type(self)(groups, counts, means, scatter)

    def whole(self) -> Float:
        """The scatter (d, d), also where the rows are kept."""
        if self.scatter is not None:
            return self.scatter
        assert self.rows is not None and self.codes is not None
        return _scatter(Rows(self.rows), self.means, self.codes)

    def leading(self, width: int) -> Self:
        """The moments of the first columns alone."""
        scatter = None if self.scatter is None else self.scatter[:width, :width]
        rows = None if self.rows is None else self.rows[:, :width]
        return type(self)(self.groups, self.counts, self.means[:, :width], scatter, rows, self.codes)

    def whitened(self, *, ddof: int = 1, rtol: float = RTOL) -> Whitening:
        """The whitening of rows less the mean of their group; its mean is that of a single group, or 0."""
        if self.rows is not None and self.codes is not None:
            source = Rows(self.rows) if len(self.groups) == 1 else Rows(self.rows - self.means[self.codes])
            return whiten(source, ddof=ddof, rtol=rtol)
        mean = self.means[0] if len(self.groups) == 1 else np.zeros(self.means.shape[1])
        return decomposed(mean, self.whole() / (self.count - ddof), self.count, rtol)

    def _spread(self, groups: Ints) -> tuple[Ints, Float]:
        """Counts and means of these groups, of which those without rows have the count 0 and any mean."""
        counts, means = np.zeros(len(groups), dtype=np.int64), np.zeros((len(groups), self.means.shape[1]))
        where = np.searchsorted(groups, self.groups)
        counts[where], means[where] = self.counts, self.means
        return counts, means


def _means(source: Rows, codes: Ints, counts: Ints) -> Float:
    """The means (c, d) of the rows of each of c groups, of which there are `counts` (c,)."""
    sums = np.zeros((len(counts), source.width))
    for rows, block in source.blocks():
        if len(counts) == 1:
            sums[0] += block.sum(axis=0)
            continue
        order = np.argsort(codes[rows], kind="stable")
        found, first = np.unique(codes[rows][order], return_index=True)
        sums[found] += np.add.reduceat(block[order], first, axis=0)
    check_finite(sums)
    return sums / counts[:, None]


def _scatter(source: Rows, means: Float, codes: Ints) -> Float:
    """The sum (d, d) of the outer products of rows less the mean of their group."""
    scatter = np.zeros((source.width, source.width))
    for rows, block in source.blocks():
        block -= means[codes[rows]]
        scatter += block.T @ block
    return scatter
