r"""Distance-based surprise adequacy, after Kim, Feldt and Yoo (ICSE 2019) and Weiss, Chakraborty and Tonella (2021).

For an image x that is predicted as c, with T_c the training images predicted as c and T all of them,

    t1     = argmin over t in T_c of ||at(x) - at(t)||        a = ||at(x) - at(t1)||
    b      = min over t in T \ T_c of ||at(t1) - at(t)||      (from t1, not from x)
    DSA(x) = a / b

b is a property of t1 alone: it is computed once for every training image that is hit, and kept. Neighbours are found by
a float32 matrix product and settled in float64 (`_neighbours.py`), so they are those of a brute force.

That is for traces of float32, as a classifier gives them. Others are copied to float32 first: narrower ones (float16)
as they are, wider ones (float64) after a point in the midst of the training traces was subtracted in float64, so that
each number is off by at most 2^-24 of its distance from that point, however far from zero the traces lie. The
neighbours are exact for the traces thus rounded.

What the definition leaves open is settled here: a class that no training image is predicted as gives +inf, with a
warning; identical traces in two classes make b = 0, where a = 0 gives 0 and a > 0 a score that is huge but finite and
still ordered by a; training data of one class only cannot be fitted; a trace that holds NaN or infinity scores +inf,
and so does one longer than 4e16, beyond which single precision cannot square distances (`"dsa2"` needs no such limit).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.merging import Kept
from secondguess.errors import UserError
from secondguess.model.needs import Trace
from secondguess.model.observation import Observation
from secondguess.supervisors._traces import Layers, finite_rows, same_width
from secondguess.supervisors.indexed import IndexedSupervisor
from secondguess.supervisors.registry import register
from secondguess.supervisors.surprise._classes import one_of
from secondguess.supervisors.surprise._grouped import Grouped, Indices, as_float32, centre, grouped
from secondguess.supervisors.surprise._neighbours import nearest_other, nearest_other_of_all, nearest_same
from secondguess.supervisors.surprise._rounding import REACH, rows_in_reach
from secondguess.supervisors.surprise.sampling import epsilon_free, share_of, uniform, unsurprising_first

if TYPE_CHECKING:
    import torch

    from secondguess.supervisors.base import ScoreGraph
    from secondguess.supervisors.graph import Tensors

__all__ = ["DSA"]

TINY = float(np.finfo(np.float32).tiny)

Variant = Literal["dsa", "dsa1", "dsa2"]
Sampler = Literal["uniform", "stratified", "unsurprising_first", "epsilon_free"]


@register
class DSA(IndexedSupervisor):
    """Suspicious = far from the class it is predicted as, where that class is close to another.

    DSA(x) = a / b: a is the distance of the trace to the nearest training trace t1 of the same predicted class, b the
    distance of t1 to the nearest training trace of any other class.

    Cost: a float32 matrix product with the training traces of one class, for every image, and with those of all the
        other classes once for every t1 (`other_distances="fit"` computes the latter in advance). The training traces of
        a single layer are kept by reference, memory-mapped or
    not; those of several layers are copied side by side into memory and kept there.

    Good at invalid, corrupted and adversarial images, whose traces lie away from the training data. Bad at ambiguous
    images, which lie between two classes and near both. Depends much on the layer.

    Args:
        layers: the name of a layer, a `Trace`, or several of them, put side by side in memory.
        variant: `"dsa"`, the definition; `"dsa1"` measures b from x instead of t1; `"dsa2"` divides the distance to
            the mean of the own class by that to the nearest mean of another (both after Ouyang et al., 2021).
        subsampling: the share of the training traces to keep, up to 1.0, or their number, from 2 on. All by default;
            the ambiguity study of Weiss, Garcia Gomez and Tonella (2023) kept a third.
        sampler: how to choose them; see `secondguess.supervisors.surprise.sampling`. `"unsurprising_first"` fits LSA
            on the same layers.
        epsilon: for `"epsilon_free"`, the distance itself, in place of a share.
        other_distances: when b is computed: `"lazy"`, as soon as a t1 is hit, or `"fit"`, for all training traces in
            advance, which is worth it for images that come one by one.
        seed: of the sampler.
        device: where to multiply.

    Attributes:
        traces_: (N, d) the training traces, as given where they are float32.
        shift_: (d,) what was subtracted from them: 0, unless they were wider than float32.
        order_: the rows of `traces_` that are used, by class.
        starts_: (K + 1,) where each class begins in `order_`.
        other_: (N,) b of each row of `traces_`; NaN where it has not been needed yet.
    """

    name = "dsa"

    def __init__(
        self,
        layers: Layers = "penultimate",
        *,
        variant: Variant = "dsa",
        subsampling: float | int = 1.0,
        sampler: Sampler = "uniform",
        epsilon: float | None = None,
        other_distances: Literal["lazy", "fit"] = "lazy",
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        super().__init__(layers)
        one_of("variant", variant, ("dsa", "dsa1", "dsa2"))
        one_of("sampler", sampler, ("uniform", "stratified", "unsurprising_first", "epsilon_free"))
        one_of("other_distances", other_distances, ("lazy", "fit"))
        share_of(subsampling, 1)
        if epsilon is not None and (sampler != "epsilon_free" or subsampling != 1.0):
            raise UserError("epsilon goes with sampler='epsilon_free' and takes the place of subsampling.")
        self.variant = variant
        self.subsampling = subsampling
        self.sampler = sampler
        self.epsilon = epsilon
        self.other_distances = other_distances
        self.seed = seed
        self.device = device

    def state(self) -> dict[str, Any]:
        """What `fit` has learnt, without the training traces that are not used."""
        state = super().state()
        if self.is_fitted and len(self.order_) < len(self.traces_):
            kept = np.sort(self.order_)
            state["traces_"], state["other_"] = self.traces_[kept], self.other_[kept]
            state["order_"] = np.searchsorted(kept, self.order_)
        return state

    def in_parts(self, count: int) -> list[DSA]:
        """See `IndexedSupervisor`; the distances to other classes are computed for all traces before."""
        if self.variant == "dsa2":
            return [self]
        state, members = self.state(), Grouped(self.traces_, self.order_, self.starts_)
        if self.variant == "dsa":
            self._other(members, members.order)
            state = self.state()
        classes = np.empty(len(state["traces_"]), dtype=np.int64)
        classes[state["order_"]] = members.groups
        parts = []
        for rows in np.array_split(np.arange(len(classes)), min(count, len(classes))):
            part = self._part(state["traces_"][rows])
            own = grouped(part.traces_, classes[rows], len(self.starts_) - 1)
            part.order_, part.starts_ = own.order, own.starts
            part.shift_, part.other_ = self.shift_, state["other_"][rows]
            parts.append(part)
        return parts

    def nearest(self, observation: Observation) -> NDArray[np.float64]:
        """A and b of each image by these traces, (n, 2); infinite where there is no trace of its class."""
        matrix = as_float32(same_width(self._matrix(observation), len(self.shift_), self.name), self.shift_)
        usable = finite_rows(matrix) if self.variant == "dsa2" else rows_in_reach(matrix)
        kept = None if usable is None else np.flatnonzero(usable)
        queries = grouped(matrix, observation.predictions, observation.num_classes, kept)
        found = np.full((len(matrix), 2), np.inf)
        if len(queries):
            found[queries.order] = np.stack(self._distances(queries), axis=1)
        return found

    def combined(self, observation: Observation, found: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """A / b of the nearest trace of all parts; the first of those that are equally near, as in one part."""
        parts = np.stack(found)
        winner = parts[:, :, 0].argmin(axis=0)
        own, other = parts[winner, np.arange(parts.shape[1])].T
        if self.variant == "dsa1":
            other = parts[:, :, 1].min(axis=0)
        self._warn_of_absent(observation, np.isinf(own))
        other = np.where(np.isinf(own), 1.0, other)
        return np.divide(own, np.maximum(other, TINY))

    def _statistics(self, observation: Observation, labels: NDArray[np.int64] | None) -> Kept:
        known, traces = np.array([observation.num_classes]), self._training_matrix(observation)
        return Kept({"traces": traces, "classes": observation.predictions, "num_classes": known})

    def _learn(self, merged: Kept) -> bool:
        given, classes, known = (merged.arrays[name] for name in ("traces", "classes", "num_classes"))
        if len(np.unique(classes)) < 2:
            raise UserError(
                f"All {len(classes)} training images are predicted as class {int(classes[0])}, but dsa needs two; "
                "fit on more images, or use 'mdsa'."
            )
        self.shift_ = np.zeros(given.shape[1])
        if not np.can_cast(given.dtype, np.float32):
            self.shift_ += centre(given, np.arange(len(given)))
        traces = as_float32(given, self.shift_)
        if self.variant != "dsa2" and (near := rows_in_reach(traces)) is not None:
            raise UserError(
                f"The trace of image {int(near.argmin())} is longer than {REACH:g}, beyond which single precision "
                f"cannot square distances, so that {self.name!r} cannot learn from it; leave such images out, or "
                "choose another layer."
            )
        members = grouped(traces, classes, int(known.max()), self._sampled(given, traces, classes))
        self.traces_, self.order_, self.starts_ = members.rows, members.order, members.starts
        self.other_ = np.full(len(traces), np.nan)
        if self.variant == "dsa" and self.other_distances == "fit":
            self.other_[members.order] = nearest_other_of_all(members, self.device).distance
        if self.variant == "dsa2":
            self.means_ = _means(members)
        return False

    def _graph(self) -> ScoreGraph:
        import torch

        from secondguess.supervisors.graph import TraceGraph

        state = self.state()
        other = state["other_"][state["order_"]]
        if self.variant != "dsa" or np.isnan(other).any():
            raise UserError("The supervisor 'dsa' can be exported with variant='dsa' and other_distances='fit' only.")

        def ratio(
            x: torch.Tensor,
            seen: Tensors,
            shift: torch.Tensor,
            traces: torch.Tensor,
            groups: torch.Tensor,
            other: torch.Tensor,
        ) -> torch.Tensor:
            x = x - shift
            squares = traces.square().sum(1) - 2 * x @ traces.T
            foreign = seen.predictions[:, None] != groups
            closest, nearest = torch.where(foreign, torch.full_like(squares, torch.inf), squares).min(1)
            own = (x - traces[nearest]).square().sum(1).sqrt()
            return torch.where(torch.isinf(closest), closest, own / other[nearest])

        return TraceGraph(
            self.traces,
            ratio,
            shift=self.shift_,
            traces=state["traces_"][state["order_"]].astype(np.float64),
            groups=np.repeat(np.arange(len(self.starts_) - 1), np.diff(self.starts_)),
            other=np.maximum(other, TINY),
        )

    def _distances(self, queries: Grouped) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """A and b of the queries, in their order, (n,) each."""
        if self.variant == "dsa2":
            return _to_means(queries, self.means_)
        members = Grouped(self.traces_, self.order_, self.starts_)
        own, rows = nearest_same(members, queries, self.device)[::-1]
        if self.variant == "dsa1":
            return own, nearest_other(members, queries, self.device).distance
        known = rows >= 0
        other = np.ones(len(own))
        other[known] = self._other(members, rows[known])
        return own, other

    def _other(self, members: Grouped, rows: Indices) -> NDArray[np.float64]:
        """The distance of training rows to the nearest of another class, computed where it is not known yet.

        Two threads may do the same work at once; they write the same numbers, so none needs to wait.
        """
        unknown = rows[np.isnan(self.other_[rows])]
        if len(unknown):
            wanted = np.zeros(len(members.rows), dtype=bool)
            wanted[unknown] = True
            positions = np.flatnonzero(wanted[members.order])
            starts = np.searchsorted(positions, members.starts)
            hit = Grouped(members.rows, members.order[positions], starts)
            self.other_[hit.order] = nearest_other(members, hit, self.device).distance
        return np.asarray(self.other_[rows])

    def _sampled(self, given: NDArray[Any], traces: NDArray[np.float32], classes: Indices) -> Indices | None:
        if self.epsilon is not None:
            return epsilon_free(traces, classes, self.epsilon)
        share = share_of(self.subsampling, len(classes))
        if share >= 1.0:
            return None
        if self.sampler == "epsilon_free":
            return epsilon_free(traces, classes, target_ratio=share)
        if self.sampler == "unsurprising_first":
            from secondguess.supervisors.surprise.lsa import LSA

            whole = Trace("side by side")
            seen = Observation(predictions=classes, traces={whole: given})
            scores = LSA(whole, device=self.device).fit(seen).score(seen)
            return unsurprising_first(scores, classes, share)
        return uniform(classes, share, seed=self.seed, stratified=self.sampler == "stratified")

    def _warn_of_absent(self, observation: Observation, without: NDArray[np.bool_]) -> None:
        """Warn of images predicted as classes that no training trace has."""
        empty = np.diff(self.starts_) == 0
        counts = np.bincount(observation.predictions[without], minlength=len(empty)) * empty
        if not counts.any():
            return
        absent = np.flatnonzero(counts)
        listed = ", ".join(map(str, absent[:10])) + (", ..." if len(absent) > 10 else "")
        warnings.warn(
            f"{counts.sum()} images are predicted as classes ({listed}) that no training image is predicted as; their "
            "dsa score is inf.",
            stacklevel=5,
        )


def _means(members: Grouped) -> NDArray[np.float64]:
    """The mean trace of each class (K, d); NaN where a class is empty."""
    means = np.full((len(members.starts) - 1, members.rows.shape[1]), np.nan)
    for group in np.flatnonzero(np.diff(members.starts)):
        rows = members.order[members.starts[group] : members.starts[group + 1]]
        sums = [members.rows[part].sum(axis=0, dtype=np.float64) for part in _parts(rows, means.shape[1])]
        means[group] = np.sum(sums, axis=0) / len(rows)
    return means


def _to_means(queries: Grouped, means: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The distance of each query to the mean of its class, and to the nearest other mean."""
    from scipy.spatial.distance import cdist

    present = ~np.isnan(means[:, 0])
    distances = np.full((len(queries), len(means)), np.inf)
    done = 0
    for rows in _parts(queries.order, means.shape[1]):
        distances[done : done + len(rows), present] = cdist(queries.rows[rows], means[present])
        done += len(rows)
    own = np.arange(len(queries)), queries.groups
    to_own = distances[own]
    distances[own] = np.inf
    return to_own, np.where(np.isinf(to_own), 1.0, distances.min(axis=1))


def _parts(rows: Indices, dimension: int) -> list[Indices]:
    """The rows in pieces of about 16 MiB."""
    return np.array_split(rows, -(-len(rows) * 8 * dimension // (16 << 20)))
