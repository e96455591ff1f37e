"""Do several methods differ over many data sets, and which from which?

The Friedman test ranks k methods within each of N blocks, rank 1 for the smallest value, ties sharing their mean rank.
With mean ranks R_j and C = 1 - sum_ties (t^3 - t) / (N k (k^2 - 1)) the correction for ties,

    chi2 = 12 N / (k (k + 1)) sum_j (R_j - (k + 1) / 2)^2 / C                 k - 1 degrees of freedom
    F    = (N - 1) chi2 / (N (k - 1) - chi2)                                  k - 1 and (k - 1)(N - 1)

F is the correction of Iman and Davenport (1980), less conservative. Nemenyi's test (1963) compares all pairs: two
methods differ at level a if their mean ranks are further apart than

    CD = q_a(k, infinity) / sqrt(2) * sqrt(k (k + 1) / (6 N)),

with q the studentized range; the p-value of a pair is its survival function at |R_i - R_j| sqrt(2) / sqrt(k(k+1)/(6N)).
The form is that of Demšar, Statistical comparisons of classifiers over multiple data sets, JMLR 2006.

Blocks are taken to be independent. Repetitions that share a model and a pool of images are not: their p-values are
optimistic, and 30 such blocks are worth fewer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from secondguess.errors import UserError
from secondguess.metrics import checks
from secondguess.metrics.checks import Floats

__all__ = ["Friedman", "critical_difference", "friedman", "mean_absolute_error"]


@dataclass(frozen=True, slots=True, eq=False)
class Friedman:
    """The Friedman test of k methods over N blocks, with Nemenyi's comparison of all pairs.

    Attributes:
        names: the k methods.
        ranks: (k,) mean ranks, 1 = smallest value in every block.
        blocks: N.
        chi2: the statistic, corrected for ties.
        p_value: of chi2.
        f: the statistic of Iman and Davenport; infinite if all blocks agree on the order.
        f_p_value: of f.
        pairwise: (k, k) Nemenyi's p-values; 1 on the diagonal.
        critical_difference: of mean ranks, at `alpha`.
        alpha: the level of significance.
    """

    names: tuple[str, ...]
    ranks: Floats
    blocks: int
    chi2: float
    p_value: float
    f: float
    f_p_value: float
    pairwise: Floats
    critical_difference: float
    alpha: float

    def groups(self) -> list[tuple[str, ...]]:
        """The largest sets of two or more methods that do not differ, best first: the bars of the diagram."""
        order = np.argsort(self.ranks, kind="stable")
        sorted_ranks = self.ranks[order]
        found: list[tuple[int, int]] = []
        for first, rank in enumerate(sorted_ranks):
            last = int(np.searchsorted(sorted_ranks, rank + self.critical_difference, side="right")) - 1
            if last > first and (not found or last > found[-1][1]):
                found.append((first, last))
        return [tuple(self.names[j] for j in order[first : last + 1]) for first, last in found]


def friedman(values: ArrayLike, names: tuple[str, ...] | list[str] = (), *, alpha: float = 0.05) -> Friedman:
    """Test whether k methods differ over N blocks.

    Args:
        values: (N, k), one block a row; smaller is better, such as the error of an estimate.
        names: of the k methods; their numbers if left out.
        alpha: the level of significance.
    """
    from scipy.stats import chi2 as chi2_distribution
    from scipy.stats import f as f_distribution
    from scipy.stats import rankdata, studentized_range

    table = _table(values)
    blocks, methods = table.shape
    names = tuple(names) or tuple(str(j) for j in range(methods))
    if len(names) != methods:
        raise UserError(f"{len(names)} names were given for {methods} methods; give one for each column.")
    ranked = rankdata(table, axis=1)
    ranks = ranked.mean(axis=0)
    spread = (ranked**2).sum() - blocks * methods * (methods + 1) ** 2 / 4
    if spread <= 0:
        raise UserError("All methods have the same value in every block, so there is nothing to rank.")
    chi2 = float((methods - 1) * blocks**2 * ((ranks - (methods + 1) / 2) ** 2).sum() / spread)
    rest = blocks * (methods - 1) - chi2
    f = (blocks - 1) * chi2 / rest if rest > 1e-9 * chi2 else np.inf
    scale = np.sqrt(methods * (methods + 1) / (6 * blocks))
    apart = np.abs(ranks[:, None] - ranks) * np.sqrt(2) / scale
    pairwise = np.minimum(studentized_range.sf(apart, methods, np.inf), 1.0)
    np.fill_diagonal(pairwise, 1.0)
    return Friedman(
        names,
        ranks,
        blocks,
        chi2,
        float(chi2_distribution.sf(chi2, methods - 1)),
        float(f),
        float(f_distribution.sf(f, methods - 1, (methods - 1) * (blocks - 1))),
        pairwise,
        critical_difference(methods, blocks, alpha),
        alpha,
    )


def critical_difference(methods: int, blocks: int, alpha: float = 0.05) -> float:
    """The difference of mean ranks from which two of `methods` methods differ over `blocks` blocks (Nemenyi)."""
    from scipy.stats import studentized_range

    if methods < 2 or blocks < 1 or not 0 < alpha < 1:
        raise UserError(
            f"{methods} methods, {blocks} blocks and alpha = {alpha} were given; at least 2 methods, 1 block and an "
            "alpha between 0 and 1 are needed."
        )
    quantile = float(studentized_range.ppf(1 - alpha, methods, np.inf)) / np.sqrt(2)
    return float(quantile * np.sqrt(methods * (methods + 1) / (6 * blocks)))


def mean_absolute_error(estimates: ArrayLike, truths: ArrayLike) -> float:
    """The mean distance between estimates (r,) and truths (r,) over r repetitions."""
    guessed, known = checks.scores(estimates, "estimated"), checks.scores(truths, "true")
    if guessed.shape != known.shape:
        raise UserError(f"{len(guessed)} estimates but {len(known)} truths were given; give both for every repetition.")
    return float(np.abs(guessed - known).mean())


def _table(values: ArrayLike) -> Floats:
    table = checks.floats(values, "values")
    if table.ndim != 2 or table.shape[0] < 2 or table.shape[1] < 3:
        raise UserError(
            f"The values have shape {table.shape}; a Friedman test needs 2 or more blocks (rows) of 3 or more methods."
        )
    if not np.isfinite(table).all():
        raise UserError("The values hold NaN or infinity; every method needs a number in every block.")
    return table
