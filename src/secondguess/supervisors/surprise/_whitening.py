"""Mean and covariance of activation traces in double precision, and the whitening that respects their rank.

With the covariance S = V diag(l) V^T of rows x with mean m, the whitened coordinates are

    z = (x - m) V diag(l)^(-1/2),      so that  z . z = (x - m)^T S^-1 (x - m)

Layers are rarely of full rank: dead neurons, duplicated ones, softmax outputs that sum to one, fewer rows than neurons.
Directions whose eigenvalue is below `rtol` times the largest hold only the rounding noise of float32 and are
left out; what is left is the subspace that the rows span, of dimension `rank`. A point may lie off that subspace:
`Whitening.residual` says by how much.

Traces may be memory-mapped files larger than memory. They are read in blocks of rows, twice, and only a block at a time
is copied to double precision. Few rows are an exception: up to n = d they are whitened from one copy of 8 n d bytes, no
more than a (d, d) covariance takes, and up to n = 2 d `mdsa` finds the share of Ledoit and Wolf from such a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError

__all__ = ["RTOL", "Rows", "Whitening", "check_finite", "decomposed", "mean_of", "moments", "pack", "unpack", "whiten"]

RTOL = 1e-10  # float32 noise of a direction lies near 1e-14 of the largest variance, what a layer computes far above
NOISE = 8 * float(np.finfo(np.float64).eps)  # of a mean, relative
CONDITION = 100.0  # a direction with more than 1/100 of the mean variance is not lost in the rounding of others
BLOCK = 1 << 20  # numbers per block: 8 MiB in double precision

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """Some rows and columns of a matrix (n, d), read in blocks.

    Attributes:
        matrix: (n, d) floats, perhaps memory-mapped.
        rows: ascending indices of the rows, or None for all.
        columns: ascending indices of the columns, or None for all.
    """

    matrix: NDArray[np.floating[Any]]
    rows: NDArray[np.int64] | None = None
    columns: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.matrix) if self.rows is None else len(self.rows)

    @property
    def width(self) -> int:
        """The number of columns."""
        return int(self.matrix.shape[1]) if self.columns is None else len(self.columns)

    def block(self, start: int, stop: int) -> Float:
        """The rows from `start` to `stop` in double precision, a fresh array."""
        part = self.matrix[start:stop] if self.rows is None else self.matrix[self.rows[start:stop]]
        part = part if self.columns is None else part[:, self.columns]
        return np.array(part, dtype=np.float64)

    def blocks(self, size: int | None = None) -> Iterator[tuple[slice, Float]]:
        """All rows in double precision, block by block, with their positions."""
        size = size or max(1, min(BLOCK // max(1, self.width), 1 << 14))
        for start in range(0, len(self), size):
            stop = min(start + size, len(self))
            yield slice(start, stop), self.block(start, stop)


@dataclass(frozen=True)
class Whitening:
    """The mean and the whitening of a set of rows.

    Attributes:
        mean: (d,).
        factor: (d, rank); `(x - mean) @ factor` has covariance one.
        eigenvalues: (rank,) variances along the kept directions, largest first.
        count: how many rows it was learnt from.
    """

    mean: Float
    factor: Float
    eigenvalues: Float
    count: int

    @property
    def rank(self) -> int:
        """The dimension of the subspace in which the rows vary; 0 for a single row or identical ones."""
        return len(self.eigenvalues)

    @property
    def log_det(self) -> float:
        """The logarithm of the determinant of the covariance within the subspace."""
        return float(np.log(self.eigenvalues).sum())

    @property
    def sturdy(self) -> int:
        """How many leading directions can be computed from centred values in single precision, to about 1e-6."""
        return int((self.eigenvalues * CONDITION >= self.eigenvalues.mean()).sum()) if self.rank else 0

    def leading(self, rank: int) -> Whitening:
        """The whitening of the directions of largest variance alone, at most `rank` of them."""
        return Whitening(self.mean, self.factor[:, :rank], self.eigenvalues[:rank], self.count)

    def apply(self, values: NDArray[np.floating[Any]]) -> Float:
        """Whitened coordinates (n, rank) of values (n, d)."""
        return np.asarray((values - self.mean) @ self.factor)

    def residual(self, values: NDArray[np.floating[Any]]) -> Float:
        """Distance (n,) of values (n, d) from the subspace, in the units of the values."""
        centred = values - self.mean
        basis = self.factor * np.sqrt(self.eigenvalues)
        return np.linalg.norm(centred - (centred @ basis) @ basis.T, axis=1)


def pack(whitenings: Iterable[Whitening], room: int) -> dict[str, NDArray[Any]]:
    """Whitenings of one width as flat arrays that can be saved; their ranks may differ.

    Args:
        whitenings: may be learnt one by one while they are packed, so that they are never all held twice.
        room: at least as many numbers as their factors have; what is not used takes no memory.
    """
    factors, used, kept = np.empty(room), 0, []
    for one in whitenings:
        factors[used : used + one.factor.size] = one.factor.ravel()
        used += one.factor.size
        kept.append((one.mean, one.eigenvalues, one.rank, one.count))
    means, eigenvalues, ranks, counts = zip(*kept, strict=True)
    return {
        "means_": np.stack(means),
        "factors_": factors[:used],
        "eigenvalues_": np.concatenate(eigenvalues),
        "ranks_": np.array(ranks, dtype=np.int64),
        "counts_": np.array(counts, dtype=np.int64),
    }


def unpack(packed: Mapping[str, NDArray[Any]]) -> list[Whitening]:
    """What `pack` was given; the arrays are views."""
    ranks, width = packed["ranks_"], packed["means_"].shape[1]
    ends = np.cumsum(ranks)
    factors = np.split(packed["factors_"], ends[:-1] * width)
    eigenvalues = np.split(packed["eigenvalues_"], ends[:-1])
    parts = zip(packed["means_"], factors, eigenvalues, packed["counts_"].tolist(), strict=True)
    return [Whitening(mean, flat.reshape(width, -1 if len(own) else 0), own, count) for mean, flat, own, count in parts]


def moments(source: Rows) -> tuple[Float, Float]:
    """Mean (d,) and population variance (d,) of the columns, in double precision; a constant column has exactly 0."""
    mean = mean_of(source)
    square = np.zeros(source.width)
    for _, block in source.blocks():
        block -= mean
        square += np.einsum("ij,ij->j", block, block)
    variance = square / len(source)
    variance[variance <= np.square(NOISE * mean)] = 0.0
    return mean, variance


def whiten(source: Rows, *, ddof: int = 1, rtol: float = RTOL) -> Whitening:
    """Learn the whitening of rows (n, d).

    Args:
        source: at least one row.
        ddof: the covariance is divided by n - ddof.
        rtol: directions with less than this share of the largest variance are dropped.
    """
    mean = mean_of(source)
    count, width = len(source), source.width
    if count <= ddof:
        return Whitening(mean, np.zeros((width, 0)), np.zeros(0), count)
    if count <= width:
        return _from_gram(source, mean, ddof, rtol)
    scatter = np.zeros((width, width))
    for _, block in source.blocks():
        block -= mean
        scatter += block.T @ block
    scatter /= count - ddof
    return decomposed(mean, scatter, count, rtol)


def decomposed(mean: Float, covariance: Float, count: int, rtol: float) -> Whitening:
    """The whitening of `count` rows of which the mean (d,) and the covariance (d, d) are known."""
    values, vectors = np.linalg.eigh(covariance)
    chosen = np.flatnonzero(_kept(values, rtol, _scale(mean)))[::-1]
    factor = vectors[:, chosen]
    factor /= np.sqrt(values[chosen])
    return Whitening(mean, factor, values[chosen], count)


def _from_gram(source: Rows, mean: Float, ddof: int, rtol: float) -> Whitening:
    """Fewer rows than columns: the same eigenvalues from the (n, n) products, far cheaper than from (d, d)."""
    centred = source.block(0, len(source)) - mean
    values, vectors = np.linalg.eigh(centred @ centred.T / (len(source) - ddof))
    kept = _kept(values, rtol, _scale(mean))
    kept[0] = False  # n centred rows span n - 1 directions at most
    chosen = np.flatnonzero(kept)[::-1]
    factor = centred.T @ vectors[:, chosen]
    factor /= values[chosen] * np.sqrt(len(source) - ddof)
    return Whitening(mean, factor, values[chosen], len(source))


def mean_of(source: Rows) -> Float:
    """The mean (d,) of the columns; a `UserError` where a row holds NaN or infinity."""
    total = np.zeros(source.width)
    for _, block in source.blocks():
        total += block.sum(axis=0)
    check_finite(total)
    return total / len(source)


def check_finite(sums: Float) -> None:
    """Raise a `UserError` where a sum of rows shows that one of them holds NaN or infinity."""
    if not np.isfinite(sums).all():
        raise UserError(
            "The training traces hold NaN or infinity, so no distribution can be learnt from them; leave out the "
            "images that cause it or trace another layer."
        )


def _scale(mean: Float) -> float:
    """Variance below which even the largest direction is rounding noise of a constant layer."""
    return float(np.square(NOISE * mean).sum())


def _kept(eigenvalues: Float, rtol: float, floor: float) -> NDArray[np.bool_]:
    top = eigenvalues[-1]
    return (eigenvalues > max(floor, 0.0)) & (eigenvalues >= rtol * top)
