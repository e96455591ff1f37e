"""The Gaussian of a class, prepared for few images at a time and for a graph.

With rows R of directions and a number b, and c = x - m, the squared Mahalanobis distance is

    |R c|^2            R = F', the whitening factor, or with shrinkage a towards l I
    b |c|^2 - |R c|^2  b = 1 / (a l),  R_j = sqrt(v_j (b - 1 / ((1 - a) v_j + a l))) F_j'

as in `mdsa`, by one product with half the numbers to read, since R is kept in single precision. torch multiplies, with
the threads that the model has just used: those of NumPy beside them would wait for the same cores. Directions that this
would spoil stay in double precision: without shrinkage those of small variance (`Whitening.sturdy`), with it those
whose variance is more than 1,000 times the floor a l, where b |c|^2 and |R c|^2 are large and their difference is not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from secondguess.supervisors.surprise._whitening import Whitening

if TYPE_CHECKING:
    import torch

__all__ = ["COARSE", "Prepared", "packed", "prepare"]

Floats = NDArray[np.float64]
COARSE = 32  # columns from which sturdy directions are computed in single precision
STEEP = 1000.0  # times the floor: a variance whose rounding in single precision would be seen in the distance


@dataclass(frozen=True)
class Prepared:
    """The Gaussian of a class, ready to be multiplied with.

    Attributes:
        mean: (d,).
        fine: (p, d) rows of R in double precision.
        coarse: (q, d) rows of R in single precision.
        whole: b, or 0 where there is no shrinkage.
    """

    mean: Floats
    fine: Floats
    coarse: NDArray[np.float32]
    whole: float

    def squares(self, traces: NDArray[np.float32]) -> Floats:
        """Squared distances (n,) of traces (n, d); +inf where one is not finite."""
        import torch

        centred = torch.from_numpy(traces - self.mean)
        found = _lengths(centred.float() @ torch.from_numpy(self.coarse).T)
        found += _lengths(centred @ torch.from_numpy(self.fine).T)
        if self.whole:
            found = self.whole * _lengths(centred) - found
        return np.maximum(np.where(np.isfinite(found), found, np.inf), 0.0)

    def square(self, trace: NDArray[np.float32]) -> float:
        """The same for one trace (d,): products of a matrix and a vector need little of the above."""
        import torch

        centred = trace - self.mean
        length = float(centred @ centred)
        if not math.isfinite(length):
            return math.inf
        coarse = torch.from_numpy(self.coarse).mv(torch.from_numpy(centred.astype(np.float32))).numpy()
        fine = torch.from_numpy(self.fine).mv(torch.from_numpy(centred)).numpy()
        found = float(np.square(coarse, dtype=np.float64).sum()) + float(fine @ fine)
        if self.whole:
            found = self.whole * length - found
        return max(found, 0.0) if math.isfinite(found) else math.inf


def prepare(whitening: Whitening, share: float) -> Prepared:
    """What a whitening and the share of the identity come to; see `mdsa.Gaussian.distances`."""
    rows, values, width = whitening.factor.T, whitening.eigenvalues, len(whitening.mean)
    floor = share * float(values.sum()) / width
    if share > 0:
        rows = rows * np.sqrt(values * (1 / floor - 1 / ((1 - share) * values + floor)))[:, None]
        fine = values > STEEP * floor
    else:
        fine = np.arange(len(values)) >= whitening.sturdy
    if width < COARSE:
        fine = np.ones(len(values), dtype=bool)
    return Prepared(
        whitening.mean,
        np.ascontiguousarray(rows[fine]),
        np.ascontiguousarray(rows[~fine], dtype=np.float32),
        1 / floor if share > 0 else 0.0,
    )


def packed(prepared: Mapping[int, Prepared]) -> dict[int, Prepared]:
    """The same with all coarse rows in one block of memory: images of changing classes then miss fewer pages."""
    block, used, found = np.empty(sum(one.coarse.size for one in prepared.values()), dtype=np.float32), 0, {}
    for label, one in prepared.items():
        own = block[used : used + one.coarse.size].reshape(one.coarse.shape)
        own[:] = one.coarse
        found[label] = replace(one, coarse=own)
        used += own.size
    return found


def _lengths(rows: torch.Tensor) -> Floats:
    """The squared length (n,) of each row."""
    return np.asarray(rows.double().square().sum(dim=1).numpy())
