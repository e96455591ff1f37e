"""MDSA for an image that comes alone.

`MDSA.score` is made for many images: it sorts them by class, shares them among threads and multiplies blocks, and what
that costs is lost on a single one. Here the Gaussians of all classes are unpacked once, and a single trace is measured
against its own by

    sqrt( |(x - m)' F|^2 ),   F the whitening factor, or with shrinkage a towards l I
    sqrt( |x - m|^2 / (a l) - sum_j e_j ((x - m)' F)_j^2 ),   e_j = v_j (1 / (a l) - 1 / ((1 - a) v_j + a l))

as in `secondguess.supervisors.surprise.mdsa`, in double precision throughout.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from secondguess.observation import Observation
from secondguess.supervisors._traces import chosen_traces
from secondguess.supervisors.surprise._whitening import unpack
from secondguess.supervisors.surprise.mdsa import MDSA

__all__ = ["quick_mdsa"]

# mean (d,), factor (d, r), and with shrinkage 1 / (a l) and the excess (r,)
Own = tuple[NDArray[np.float64], NDArray[np.float64], float, NDArray[np.float64] | None]


def quick_mdsa(supervisor: MDSA) -> Callable[[Observation], NDArray[np.float64]]:
    """The scores of a supervisor: quickly for one image of a class it knows, by `score` in all other cases."""
    traces = chosen_traces(supervisor.layers)
    known: dict[int, Own] = {}
    squared = supervisor.squared or supervisor.compat is not None

    def score(observation: Observation) -> NDArray[np.float64]:
        if len(observation) > 1 or len(traces) > 1 or not supervisor.is_fitted:
            return supervisor.score(observation)
        if not known:
            known.update(_gaussians(supervisor))
        own = known.get(int(observation.predictions[0]) if supervisor.per_class else 0)
        x = observation.traces[traces[0]][0] if traces[0] in observation.traces else None
        if own is None or x is None or x.shape != own[0].shape:
            return supervisor.score(observation)  # which says what is wrong
        square = _square(x, own)
        return np.array([square if squared else math.sqrt(square)])

    return score


def _square(x: NDArray[np.float32], own: Own) -> float:
    mean, factor, whole, excess = own
    centred = x - mean
    whitened = centred @ factor
    square = (
        float(whitened @ whitened)
        if excess is None
        else whole * float(centred @ centred) - float(np.square(whitened) @ excess)
    )
    return math.inf if math.isnan(square) else max(square, 0.0)


def _gaussians(supervisor: MDSA) -> dict[int, Own]:
    width = supervisor.means_.shape[1]
    found: dict[int, Own] = {}
    for label, one, share in zip(
        supervisor.classes_.tolist(), unpack(supervisor.state()), supervisor.shrinkages_.tolist(), strict=True
    ):
        if one.rank == 0:
            continue
        floor = share * float(one.eigenvalues.sum()) / width
        shrunk = one.eigenvalues * (1 / floor - 1 / ((1 - share) * one.eigenvalues + floor)) if share > 0 else None
        found[label] = (one.mean, one.factor, 1 / floor if share > 0 else 0.0, shrunk)
    return found
