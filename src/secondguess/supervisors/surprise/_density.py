"""A Gaussian kernel density in whitened coordinates, at the speed of a matrix product.

For n rows x_i with covariance S (divisor n - 1) of rank r and bandwidth h, as in `scipy.stats.gaussian_kde`:

    log f(q) = -log n - r/2 log 2 pi - 1/2 log det(h^2 S) + log sum_i exp(-|z(q) - z(x_i)|^2 / 2)

z whitens and divides by h. Scott: h = n^(-1/(r+4)); Silverman: h = (n (r+2) / 4)^(-1/(r+4)); a number is h itself.

The exponent is z(q).z(x_i) - |z(x_i)|^2/2 - |z(q)|^2/2. The first two terms are one float32 matrix product per tile,
kept in cache, reduced there with a running maximum, so that nothing underflows; the last is added in double precision.
What float32 can lose grows with |z(q)| |z(x_i)|; a query for which that could exceed `tolerance` times its log-density
(a tiny bandwidth, a log-density near zero, a training row itself) is computed again in double precision.

Departures from SciPy: directions without variance are dropped (see `_whitening`), unless `compat="scipy"`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from secondguess.devices import pick_device
from secondguess.errors import UserError
from secondguess.supervisors.surprise._whitening import RTOL, Rows, whiten
from secondguess.supervisors.surprise._workers import Crew, workers

if TYPE_CHECKING:
    import torch

__all__ = ["Bandwidth", "Density", "bandwidth_factor", "check_bandwidth", "crew_on"]

Bandwidth = Literal["scott", "silverman"] | float

TILE = {"cpu": (512, 2048), "cuda": (4096, 8192), "mps": (2048, 4096)}  # queries x rows: 4 MiB fit the cache
QUERIES = 2 << 20  # numbers of queries taken at once: 16 MiB in double precision
ROUNDING = float(np.finfo(np.float32).eps) / 2
LARGEST = 1 << 20  # numbers of a tile of rows
NEGLIGIBLE = -80.0  # exponents below cannot change a float32 sum, and subnormal results are slow
COARSE = 256  # columns from which sturdy directions are whitened in single precision


class Density:
    """The density of rows (n, d), as plain arrays in and out.

    Args:
        bandwidth: `"scott"`, `"silverman"`, or the factor h itself.
        rtol: see `whiten`.
        compat: `"scipy"` keeps every direction and refuses a singular covariance, as SciPy does.
        tolerance: wanted accuracy of a log-density, relative to the larger of its absolute value and one.
        device: where the kernel is computed.

    Attributes:
        rank: the dimension of the subspace in which the rows vary.
        factor: the bandwidth factor h.
    """

    def __init__(
        self,
        bandwidth: Bandwidth = "scott",
        *,
        rtol: float = RTOL,
        compat: Literal["scipy"] | None = None,
        tolerance: float = 1e-6,
        device: str = "auto",
    ) -> None:
        check_bandwidth(bandwidth)
        self.bandwidth = bandwidth
        self.rtol = rtol
        self.compat = compat
        self.tolerance = tolerance
        self.device = pick_device(device)

    def fit(self, samples: NDArray[np.floating[Any]] | Rows, *, hold: bool = True) -> Self:
        """Learn the density of rows (n, d).

        Args:
            samples: the rows; they are referred to, not copied, and may be memory-mapped.
            hold: whether to keep the whitened rows, 4 n rank bytes; otherwise every call of `log_density` makes them.
        """
        import torch

        self._source = samples if isinstance(samples, Rows) else Rows(samples)
        singular = self._source.width * float(np.finfo(np.float64).eps)
        found = whiten(self._source, rtol=singular if self.compat else self.rtol)
        self.rank, self.count = found.rank, found.count
        if self.compat and self.rank < self._source.width:
            raise UserError(
                f"The covariance of {self.count} traces has rank {self.rank}, not {self._source.width}, so "
                "compat='scipy' has no density for them; remove more neurons or leave compat out."
            )
        self.factor = bandwidth_factor(self.bandwidth, self.count, self.rank)
        self._constant = (
            -math.log(self.count)
            - 0.5 * self.rank * math.log(2 * math.pi)
            - 0.5 * found.log_det
            - self.rank * math.log(self.factor)
        )
        exact = torch.device("cpu") if self.device.type == "mps" else self.device  # which has no double precision
        self._mean = torch.from_numpy(found.mean).to(exact)
        scaled = torch.from_numpy(found.factor).div_(self.factor)
        coarse = 0 if self.compat or self._source.width < COARSE else found.sturdy
        self._coarse = scaled[:, :coarse].to(exact, torch.float32, copy=True)
        self._fine = scaled[:, coarse:].to(exact, copy=coarse > 0)
        self._held: torch.Tensor | None = None
        if hold:
            self.hold()
        return self

    @property
    def columns(self) -> NDArray[np.int64] | None:
        """Which columns of their matrix the rows consist of; None for all."""
        return self._source.columns

    @property
    def nbytes(self) -> int:
        """Bytes of the whitening, without the whitened rows."""
        return 8 * len(self._mean) + 4 * self._coarse.numel() + 8 * self._fine.numel()

    def hold(self) -> None:
        """Keep the whitened rows from now on."""
        import torch

        held = torch.empty(self.count, self.rank, device=self.device)
        with crew_on(self.device) as crew:
            for part, block in self._source.blocks():
                held[part] = self._whiten(block, torch.float32, crew)
        self._held = held

    def log_density(self, queries: NDArray[np.floating[Any]] | Rows, crew: Crew | None = None) -> NDArray[np.float64]:
        """The logarithm of the density (m,) at queries (m, d); -inf where a query is not finite.

        Rows that do not vary have no density: it is infinite at their single point and 0 elsewhere. The answer is -inf.

        Args:
            queries: where to compute it.
            crew: the threads of `crew_on`, where many densities share them.
        """
        queries = queries if isinstance(queries, Rows) else Rows(queries)
        answer = np.full(len(queries), -np.inf)
        if self.rank == 0:
            return answer
        with nullcontext(crew) if crew else crew_on(self.device) as crew:
            for part, block in queries.blocks(max(1, QUERIES // queries.width)):
                finite = np.isfinite(block).all(axis=1)
                if finite.all():
                    answer[part] = self._evaluate(block, crew)
                elif finite.any():
                    answer[part][finite] = self._evaluate(block[finite], crew)
        return answer

    def _evaluate(self, queries: NDArray[np.float64], crew: Crew) -> NDArray[np.float64]:
        """Single precision for all, double precision for those that need it."""
        import torch

        log_sum, doubt = self._log_sum(self._whiten(queries, torch.float32, crew), crew)
        settled = doubt <= self.tolerance * np.maximum(1.0, np.abs(log_sum + self._constant))  # an overflow is not
        if len(again := np.flatnonzero(~settled)):
            log_sum[again] = self._log_sum(self._whiten(queries[again], torch.float64, crew), crew)[0]
        return np.nan_to_num(log_sum + self._constant, nan=-np.inf, neginf=-np.inf)

    def _log_sum(self, queries: torch.Tensor, crew: Crew) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """For whitened queries (m, rank): log sum_i exp(-|q - z_i|^2 / 2), and what single precision may have lost."""
        import torch

        sums = _Sums(queries, TILE[self.device.type][0], crew)
        for rows in self._tiles(queries, crew):
            sums.add(rows)
        lengths = torch.linalg.vector_norm(queries.to(self._mean.device), dim=1, dtype=torch.float64)
        squares, best, total, moment = (
            one.cpu().double().numpy() for one in (lengths.square(), sums.best, sums.total, sums.moment)
        )
        with np.errstate(invalid="ignore", over="ignore"):
            log_sum = best + np.log(total) - 0.5 * squares
            return log_sum, _doubt(squares, -2 * moment / total, best, total, self.rank)

    def _tiles(self, like: torch.Tensor, crew: Crew) -> Iterator[torch.Tensor]:
        """The whitened rows, some at a time, with the type and on the device of the queries."""
        import torch

        width = max(1, min(TILE[self.device.type][1], LARGEST // self.rank))
        if self._held is not None and (like.dtype == torch.float32 or self._coarse.shape[1] > 0):
            tiles: Iterator[torch.Tensor] = iter(torch.split(self._held, width))
        else:
            tiles = (self._whiten(block, like.dtype, crew) for _, block in self._source.blocks(width))
        for tile in tiles:
            yield tile.to(like)

    def _whiten(self, values: NDArray[np.float64], dtype: torch.dtype, crew: Crew) -> torch.Tensor:
        """Whitened rows of values (n, d): float32 on the device, float64 where there is double precision."""
        import torch

        exact, split = self._mean.device, self._coarse.shape[1]
        given = torch.from_numpy(values)
        whitened = torch.empty(len(given), self.rank, dtype=dtype, device=exact)

        def fill(part: slice) -> None:
            centred = given[part].to(exact) - self._mean
            if split:
                whitened[part, :split] = centred.float() @ self._coarse
            if split < self.rank:
                whitened[part, split:] = centred @ self._fine

        crew.share(fill, len(given))
        return whitened.to(self.device if dtype == torch.float32 else exact)


class _Sums:
    """Running sums over tiles of rows, for every query: the largest exponent, and relative to it the sum of kernels.

    Attributes:
        best: (m,) the largest z(q).z(x_i) - |z(x_i)|^2 / 2.
        total: (m,) the sum of exp(exponent - best).
        moment: (m,) the sum of -|z(x_i)|^2 / 2, weighted by the kernels.
    """

    def __init__(self, queries: torch.Tensor, height: int, crew: Crew) -> None:
        import torch

        self.queries = queries
        self.best = torch.full_like(queries[:, 0], -math.inf)
        self.total, self.moment = torch.zeros_like(self.best), torch.zeros_like(self.best)
        self._height, self._crew = height, crew
        self._buffers: list[torch.Tensor] = []

    def add(self, rows: torch.Tensor) -> None:
        """Add a tile of rows (t, rank)."""
        import torch

        bias = rows.new_empty(len(rows))

        def measure(part: slice) -> None:
            torch.linalg.vector_norm(rows[part], dim=1, out=bias[part]).square_().mul_(-0.5)

        def step(part: slice) -> None:
            queries, best = self.queries[part], self.best[part]
            size = len(queries) * len(rows)
            try:
                buffer = self._buffers.pop()
            except IndexError:
                buffer = rows.new_empty(0)
            buffer = buffer if len(buffer) >= size else rows.new_empty(size)
            tile = buffer[:size].view(len(queries), len(rows))
            torch.addmm(bias, queries, rows.T, out=tile)
            top = torch.maximum(best, tile.amax(1))
            tile.sub_(top[:, None]).clamp_min_(NEGLIGIBLE).exp_()
            fade = (best - top).exp_()
            self.total[part].mul_(fade).add_(tile.sum(1))
            self.moment[part].mul_(fade).add_(tile.mv(bias))
            best.copy_(top)
            self._buffers.append(buffer)

        self._crew.share(measure, len(rows))
        self._crew.share(step, len(self.queries), self._height)


def crew_on(device: torch.device) -> AbstractContextManager[Crew]:
    """The threads of a processor, or one for an accelerator, which gets whole operations; full precision on both."""
    return workers(None if device.type == "cpu" else 1)


def bandwidth_factor(bandwidth: Bandwidth, count: int, dimension: int) -> float:
    """The factor h by which the standard deviations of `count` rows are multiplied to get those of a kernel."""
    if bandwidth == "scott":
        return float(count ** (-1.0 / (dimension + 4)))
    if bandwidth == "silverman":
        return float((count * (dimension + 2) / 4.0) ** (-1.0 / (dimension + 4)))
    return float(bandwidth)


def check_bandwidth(bandwidth: Any) -> None:
    """Raise a `UserError` unless it is one of the rules or a positive number."""
    number = isinstance(bandwidth, (int, float, np.number)) and not isinstance(bandwidth, bool)
    if bandwidth not in ("scott", "silverman") and not (number and 0 < bandwidth < math.inf):
        raise UserError(f"The bandwidth must be 'scott', 'silverman' or a positive number, not {bandwidth!r}.")


def _doubt(
    squares: NDArray[np.float64],
    reach: NDArray[np.float64],
    best: NDArray[np.float64],
    total: NDArray[np.float64],
    rank: int,
) -> NDArray[np.float64]:
    """What single precision may have lost in a log-sum.

    A pair loses some roundings of |z(q)| |z(x)|, and sqrt(rank) roundings of z(q).z(x) where the products have one
    sign. Errors of pairs are independent and the largest weight is 1 / total: the more kernels matter, the more they
    cancel.

    Args:
        squares: |z(q)|^2.
        reach: the mean of |z(x_i)|^2, weighted by the kernels.
        best: the largest z(q).z(x_i) - |z(x_i)|^2 / 2.
        total: the sum of the kernels, relative to the largest.
        rank: the number of products in a sum.
    """
    product = np.maximum(best + reach / 2, 0.0)
    pair = 2 * np.sqrt(np.maximum(squares, reach) * reach) + math.sqrt(rank) * product
    return ROUNDING * (pair / np.sqrt(total) + 4)
