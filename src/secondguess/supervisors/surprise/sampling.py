"""Which training traces to keep: three ways to choose a share of them, after Weiss, Chakraborty and Tonella (2021).

| function           | keeps                                                       | for      |
|--------------------|-------------------------------------------------------------|----------|
| uniform            | a random share                                              | DSA, LSA |
| unsurprising_first | of each class, the share with the lowest scores (LSA)       | DSA      |
| epsilon_free       | of each class, rows none of which is closer than epsilon    | DSA      |

Classes are the predictions of the model. Departures from the published code: every class keeps at least one row, there
may be any number of classes, and `epsilon_free` can be given the share to keep instead of epsilon. All functions return
ascending row numbers and are deterministic; `epsilon_free` depends on the order of the rows, as Algorithm 1 does.
"""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.errors import UserError
from secondguess.supervisors.surprise._grouped import Grouped, Indices, centre, exact_distances, grouped
from secondguess.supervisors.surprise._rounding import largest, rounding, stated_precision
from secondguess.supervisors.surprise._workers import workers

if TYPE_CHECKING:
    import torch

__all__ = ["epsilon_free", "find_epsilon", "share_of", "uniform", "unsurprising_first"]

BLOCK = 1024


def share_of(subsampling: float | int, count: int) -> float:
    """The share of `count` training traces that a parameter `subsampling` asks for, in (0, 1].

    Args:
        subsampling: a share up to 1.0, or a number of traces from 2 on; a Python or a NumPy number.
        count: how many traces there are.
    """
    whole = isinstance(subsampling, Integral)
    if whole and subsampling >= 2:
        return min(1.0, subsampling / count)
    if not whole and isinstance(subsampling, (float, np.floating)) and 0 < subsampling <= 1:
        return float(subsampling)
    raise UserError(f"subsampling must be a share up to 1.0 or a number of traces from 2 on, not {subsampling!r}.")


def uniform(classes: Indices, share: float, *, seed: int = 0, stratified: bool = False, fewest: int = 1) -> Indices:
    """A random share of the rows, without replacement; no class vanishes.

    Args:
        classes: (n,) the predicted class of each row.
        share: how much to keep, in (0, 1].
        seed: of the draw.
        stratified: keep the share of every class rather than of the whole.
        fewest: rows that a class keeps in any case, or all that it has.
    """
    _check_share(share)
    priority = np.random.default_rng(seed).permutation(len(classes))
    if stratified:
        return _lowest_of_each_class(priority, classes, share, fewest)
    kept = priority < round(share * len(classes))
    kept[_lowest_of_each_class(priority, classes, 0.0, fewest)] = True
    return np.flatnonzero(kept)


def unsurprising_first(scores: ArrayLike, classes: Indices, share: float) -> Indices:
    """Of each class, the floor(share x size) rows, but at least one, with the lowest scores; ties to the lowest row.

    Args:
        scores: (n,) the surprise of each training row, likelihood-based in the paper.
        classes: (n,) the predicted class of each row.
        share: how much of each class to keep, in (0, 1].
    """
    _check_share(share)
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != np.shape(classes):
        raise UserError(f"{values.size} scores were given for {np.size(classes)} training traces; give one for each.")
    if np.isnan(values).any():
        raise UserError(
            "Scores that choose training traces must not be NaN; leave those traces out, or score them inf."
        )
    return _lowest_of_each_class(values, classes, share)


def epsilon_free(
    traces: NDArray[np.float32],
    classes: Indices,
    epsilon: float | None = None,
    *,
    target_ratio: float | None = None,
) -> Indices:
    """Keep of each class the greedy choice of rows that are pairwise at least epsilon apart (Algorithm 1).

    Row after row in ascending order, a row is kept unless a row kept before it is closer than epsilon (strictly). So
    every row that is dropped has a kept one nearer than epsilon, and no nearest distance grows by more than that.
    Decisions near epsilon are taken in float64. The cost is at most one multiplication of each pair of a class.

    Args:
        traces: (n, d) float32, maybe memory-mapped.
        classes: (n,) the predicted class of each row.
        epsilon: the distance.
        target_ratio: the share to keep, instead of epsilon, which is then searched for.
    """
    if (epsilon is None) == (target_ratio is None):
        raise UserError("Give either epsilon or target_ratio to choose training traces, and not both.")
    if epsilon is None:
        assert target_ratio is not None
        return find_epsilon(traces, classes, target_ratio)[1]
    if not 0 <= epsilon < np.inf:
        raise UserError(f"epsilon is {epsilon}; it is a distance, 0 or more.")
    return np.sort(_thinned(_by_class(traces, classes), float(epsilon)))


def find_epsilon(
    traces: NDArray[np.float32], classes: Indices, target_ratio: float, *, tolerance: float = 0.005
) -> tuple[float, Indices]:
    """The epsilon for which `epsilon_free` keeps about the wanted share, and the rows that it keeps.

    Bisection: the share falls with epsilon, but for small fluctuations of the greedy choice. Where it jumps over the
    target (many identical distances), or the target is less than one row per class, the closest result is returned.

    Args:
        traces: (n, d) float32, maybe memory-mapped.
        classes: (n,) the predicted class of each row.
        target_ratio: the share to keep, in (0, 1].
        tolerance: how far from the target the share may be.
    """
    _check_share(target_ratio)
    members = _by_class(traces, classes)
    best = (abs(1.0 - target_ratio), 0.0, np.sort(members.order))
    low, high = 0.0, np.inf
    epsilon = _typical_distance(members)
    for _ in range(60):
        if best[0] <= tolerance or (high < np.inf and high - low <= 1e-6 * high):
            break
        kept = np.sort(_thinned(members, epsilon))
        ratio = len(kept) / len(members)
        best = min(best, (abs(ratio - target_ratio), epsilon, kept), key=lambda one: one[0])
        low, high = (epsilon, high) if ratio > target_ratio else (low, epsilon)
        epsilon = 2.0 * epsilon if high == np.inf else 0.5 * (low + high)
        if epsilon > 1e20:
            break
    return best[1], best[2]


def _check_share(share: float) -> None:
    if not 0 < share <= 1:
        raise UserError(f"The share of training traces to keep is {share}; it must be above 0 and at most 1.")


def _lowest_of_each_class(values: NDArray[np.generic], classes: Indices, share: float, fewest: int = 1) -> Indices:
    order = np.lexsort((values, classes))
    of_order = np.asarray(classes)[order]
    first = np.searchsorted(of_order, of_order, side="left")
    size = np.searchsorted(of_order, of_order, side="right") - first
    quota = np.maximum(fewest, np.floor(share * size + 1e-9))
    return np.sort(order[np.arange(len(order)) - first < quota])


def _by_class(traces: NDArray[np.float32], classes: Indices) -> Grouped:
    present, codes = np.unique(classes, return_inverse=True)
    return grouped(traces, codes, len(present))


def _typical_distance(members: Grouped) -> float:
    """A distance to begin with: half of that between rows some way apart in the same class."""
    groups = members.groups
    first = np.arange(0, len(members) - 1, max(1, len(members) // 1000))
    first = first[groups[first] == groups[first + 1]]
    apart = exact_distances(members.rows, members.order[first], members.rows, members.order[first + 1])
    return 0.5 * float(np.median(apart)) if len(apart) and np.median(apart) > 0 else 1.0


def _thinned(members: Grouped, epsilon: float) -> Indices:
    import torch

    middle = torch.from_numpy(centre(members.rows, members.order))

    def thin(bounds: tuple[int, int]) -> Indices:
        return _thin_class(members.rows, members.order[slice(*bounds)], epsilon, middle)

    classes = zip(members.starts[:-1].tolist(), members.starts[1:].tolist(), strict=True)
    with stated_precision(middle.device), workers() as crew:  # the classes are independent of each other
        return np.concatenate(list(crew.run(thin, classes)))


def _thin_class(rows: NDArray[np.float32], members: Indices, epsilon: float, middle: torch.Tensor) -> Indices:
    """Algorithm 1 on one class, a block at a time: against what was kept before, then among themselves."""
    kept = np.empty(0, dtype=np.int64)
    size = max(1, min(BLOCK, (16 << 20) // (4 * max(1, rows.shape[1]))))
    for start in range(0, len(members), size):
        block = members[start : start + size]
        for begin in range(0, len(kept), 2 * size):
            block = block[~_any_close(rows, block, kept[begin : begin + 2 * size], epsilon, middle)]
        kept = np.concatenate([kept, block[_greedy(_close(rows, block, block, epsilon, middle))]])
    return kept


def _any_close(
    rows: NDArray[np.float32], block: Indices, kept: Indices, epsilon: float, middle: torch.Tensor
) -> NDArray[np.bool_]:
    """Which rows of the block lie closer than epsilon to one of the kept."""
    halves, slack = _half_squares(rows, block, kept, middle)
    smallest = halves.amin(dim=1)
    close = (smallest < 0.5 * epsilon**2 - slack).numpy()
    doubtful = np.flatnonzero(~close & (smallest <= 0.5 * epsilon**2 + slack).numpy())
    if len(doubtful):
        near = halves[doubtful] <= (0.5 * epsilon**2 + slack[doubtful])[:, None]
        which, column = (index.numpy() for index in near.nonzero(as_tuple=True))
        closer = exact_distances(rows, block[doubtful[which]], rows, kept[column]) < epsilon
        close[doubtful[which[closer]]] = True
    return close


def _close(
    rows: NDArray[np.float32], block: Indices, other: Indices, epsilon: float, middle: torch.Tensor
) -> NDArray[np.bool_]:
    """Which pairs are closer than epsilon, (block, other)."""
    halves, slack = _half_squares(rows, block, other, middle)
    limit = (0.5 * epsilon**2 + slack)[:, None]
    near = halves <= limit
    close = halves < limit - 2.0 * slack[:, None]
    first, second = (index.numpy() for index in (near & ~close).nonzero(as_tuple=True))
    decided: NDArray[np.bool_] = close.numpy()
    decided[first, second] = exact_distances(rows, block[first], rows, other[second]) < epsilon
    return decided


def _half_squares(
    rows: NDArray[np.float32], block: Indices, other: Indices, middle: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Half the squared distances, (block, other) float32, and the largest error in each row."""
    import torch

    here, there = (torch.from_numpy(rows[indices]).sub_(middle) for indices in (block, other))
    ours, theirs = torch.linalg.vector_norm(here, dim=1), torch.linalg.vector_norm(there, dim=1)
    furthest = max(largest(ours), largest(theirs)) if len(block) and len(other) else 0.0
    halves = torch.addmm(theirs.square().mul_(0.5), here, there.T, alpha=-1.0)
    halves += ours.square().mul_(0.5)[:, None]
    return halves, (ours * furthest + furthest**2 + ours.square()) * rounding(rows.shape[1], middle.device)


def _greedy(close: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Row after row, keep it and drop all later ones close to it; rows of bits make that one operation per kept row."""
    size = len(close)
    packed = np.packbits(close, axis=1, bitorder="little")
    kept = np.zeros(size, dtype=bool)
    alive = (1 << size) - 1
    while alive:
        lowest = alive & -alive
        position = lowest.bit_length() - 1
        kept[position] = True
        alive &= ~(int.from_bytes(packed[position].tobytes(), "little") | lowest)
    return kept
