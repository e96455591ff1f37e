"""The scores of supervisors as torch modules, so that they can be exported to ONNX.

Each module computes what its supervisor's `_score` computes, from the probabilities (n, K), the logits (n, K) and the
traces (n, d), in double precision where `quick` does not say otherwise. The formulas are explained where the
supervisors are; here they are in the terms of a graph, without loops over images.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from secondguess.errors import UserError
from secondguess.guard.jury import SupervisorSet
from secondguess.guard.quick import prepared
from secondguess.model.observation import GRID_WIDTH, Trace
from secondguess.supervisors._traces import chosen_traces
from secondguess.supervisors.base import Supervisor

__all__ = ["EXPORTABLE", "Scores", "reduce_trace"]

Seen = Mapping[Any, torch.Tensor]  # "probabilities", "logits", and each trace


class Scores(nn.Module):
    """From the raw output and the layers of a model to probabilities (n, K) and scores (n, m).

    Args:
        jury: fitted supervisors.
        logits: whether the raw output is logits, rather than probabilities.
        places: the position of each trace's layer among the layers that are handed in.
    """

    def __init__(self, jury: SupervisorSet, *, logits: bool, places: Mapping[Trace, int]) -> None:
        super().__init__()
        self.logits, self.places = logits, dict(places)
        self.parts = nn.ModuleList([_module(one) for one in jury.supervisors])

    def forward(self, raw: torch.Tensor, *layers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Probabilities and scores."""
        values = raw.flatten(1).double()
        if values.shape[1] == 1:
            values = torch.cat([torch.zeros_like(values) if self.logits else 1 - values, values], dim=1)
        probabilities = values.softmax(1) if self.logits else values.clamp_min(0) / values.clamp_min(0).sum(1, True)
        seen: dict[Any, torch.Tensor] = {"probabilities": probabilities, "logits": values}
        seen |= {trace: reduce_trace(trace, layers[place]).double() for trace, place in self.places.items()}
        return probabilities, torch.stack([part(seen) for part in self.parts], dim=1)


def reduce_trace(trace: Trace, values: torch.Tensor) -> torch.Tensor:
    """What `Trace.apply` does, for a tensor."""
    if trace.reduce == "grid" and values.ndim > 3:
        side = trace._side(tuple(values.shape[1:]))
        for axis in range(2, values.ndim):
            values = _cells(values, axis, side)
    if values.ndim == 3 and trace.reduce != "flatten":
        values = values.mean(1)
    elif trace.reduce == "mean" and values.ndim > 3:
        values = values.mean(tuple(range(2, values.ndim)))
    values = values.flatten(1)
    return _cells(values, 1, GRID_WIDTH) if trace.reduce == "grid" else values


def _cells(values: torch.Tensor, axis: int, most: int) -> torch.Tensor:
    """Means over at most `most` runs of neighbours along an axis, by a product with a matrix of their shares."""
    size = values.shape[axis]
    if size <= most:
        return values
    starts = np.arange(most) * size // most
    runs = np.repeat(np.arange(most), np.diff(starts, append=size))
    shares = np.zeros((size, most), dtype=np.float32)
    shares[np.arange(size), runs] = 1
    shares /= shares.sum(axis=0)
    return (values.movedim(axis, -1) @ torch.from_numpy(shares).to(values.device)).movedim(-1, axis)


class _Formula(nn.Module):
    """A supervisor that has learnt nothing."""

    def __init__(self, formula: Callable[[Seen], torch.Tensor]) -> None:
        super().__init__()
        self.formula = formula

    def forward(self, seen: Seen) -> torch.Tensor:
        return self.formula(seen)


class _OfTraces(nn.Module, ABC):
    """A supervisor of traces, whose learnt arrays become constants of the graph; +inf where a trace is not finite."""

    def __init__(self, supervisor: Any) -> None:
        super().__init__()
        self.wanted = chosen_traces(supervisor.layers)

    def keep(self, **arrays: NDArray[Any]) -> None:
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(np.array(array)), persistent=False)

    def forward(self, seen: Seen) -> torch.Tensor:
        x = torch.cat([seen[trace] for trace in self.wanted], dim=1)
        finite = torch.isfinite(x).all(dim=1)
        scores = self.measure(torch.where(finite[:, None], x, torch.zeros_like(x)), seen)
        return torch.where(finite, scores, torch.full_like(scores, torch.inf))

    @abstractmethod
    def measure(self, x: torch.Tensor, seen: Seen) -> torch.Tensor:
        """The scores (n,) of finite traces (n, d)."""


class _Mdsa(_OfTraces):
    """As `quick` computes it: each class measures the images that were predicted as it, and no others."""

    def __init__(self, supervisor: Any) -> None:
        super().__init__(supervisor)
        self.per_class, self.squared = supervisor.per_class, supervisor.squared or supervisor.compat is not None
        self.wholes: dict[int, float] = {}
        for label, one in prepared(supervisor).items():
            self.wholes[label] = one.whole
            arrays: dict[str, NDArray[Any]] = {"mean": one.mean, "fine": one.fine.T, "coarse": one.coarse.T}
            self.keep(**{f"{name}{label}": array for name, array in arrays.items()})

    def measure(self, x: torch.Tensor, seen: Seen) -> torch.Tensor:
        if self.per_class:
            squares = torch.full_like(x[:, 0], torch.inf)
            predictions = seen["probabilities"].argmax(1)
            for label in self.wholes:
                rows = (predictions == label).nonzero()[:, 0]
                squares = squares.scatter(0, rows, self._squares(x[rows], label))
        else:
            squares = self._squares(x, 0) if self.wholes else torch.full_like(x[:, 0], torch.inf)
        return squares if self.squared else squares.sqrt()

    def _squares(self, x: torch.Tensor, label: int) -> torch.Tensor:
        centred = x - getattr(self, f"mean{label}")
        fine, coarse = getattr(self, f"fine{label}"), getattr(self, f"coarse{label}")
        found = (centred @ fine).square().sum(1) + (centred.float() @ coarse).double().square().sum(1)
        whole = self.wholes[label]
        return (whole * centred.square().sum(1) - found).clamp_min(0) if whole else found


class _RelativeMahalanobis(_OfTraces):
    mean: torch.Tensor
    projection: torch.Tensor
    centres: torch.Tensor
    spreads: torch.Tensor

    def __init__(self, supervisor: Any) -> None:
        super().__init__(supervisor)
        names = ("mean_", "projection_", "centres_", "spreads_")
        self.keep(**{name[:-1]: getattr(supervisor, name) for name in names})

    def measure(self, x: torch.Tensor, seen: Seen) -> torch.Tensor:
        coordinates = (x - self.mean) @ self.projection
        nearest = self.centres[(self.centres.square().sum(1) - 2 * coordinates @ self.centres.T).argmin(1)]
        away = coordinates - nearest
        terms = self.spreads * away.square() - (2 * away + nearest) * nearest
        return (terms / (1 + self.spreads)).sum(1)


class _Vim(_OfTraces):
    origin: torch.Tensor
    residual: torch.Tensor

    def __init__(self, supervisor: Any) -> None:
        super().__init__(supervisor)
        self.alpha = float(supervisor.alpha_)
        self.keep(origin=supervisor.origin_, residual=supervisor.residual_)

    def measure(self, x: torch.Tensor, seen: Seen) -> torch.Tensor:
        virtual = self.alpha * ((x - self.origin) @ self.residual).square().sum(1).sqrt()
        return virtual - seen["logits"].logsumexp(1)


class _Dsa(_OfTraces):
    shift: torch.Tensor
    traces: torch.Tensor
    groups: torch.Tensor
    other: torch.Tensor

    def __init__(self, supervisor: Any) -> None:
        super().__init__(supervisor)
        state = supervisor.state()
        groups = np.repeat(np.arange(len(state["starts_"]) - 1), np.diff(state["starts_"]))
        other = state["other_"][state["order_"]]
        if supervisor.variant != "dsa" or np.isnan(other).any():
            raise UserError("The supervisor 'dsa' can be exported with variant='dsa' and other_distances='fit' only.")
        traces = state["traces_"][state["order_"]].astype(np.float64)
        self.keep(
            shift=state["shift_"], traces=traces, groups=groups, other=np.maximum(other, np.finfo(np.float32).tiny)
        )

    def measure(self, x: torch.Tensor, seen: Seen) -> torch.Tensor:
        x = x - self.shift
        squares = self.traces.square().sum(1) - 2 * x @ self.traces.T
        foreign = seen["probabilities"].argmax(1)[:, None] != self.groups
        closest, nearest = torch.where(foreign, torch.full_like(squares, torch.inf), squares).min(1)
        own = (x - self.traces[nearest]).square().sum(1).sqrt()
        return torch.where(torch.isinf(closest), closest, own / self.other[nearest])


class _Dissector(nn.Module):
    shares: torch.Tensor
    biases: torch.Tensor

    def __init__(self, supervisor: Any) -> None:
        super().__init__()
        self.traces, self.paper = supervisor.traces, supervisor.mode == "paper"
        self.register_buffer("shares", torch.from_numpy(supervisor._weights()), persistent=False)
        for number in range(len(self.traces)):
            weights = torch.from_numpy(np.array(supervisor.weights_[str(number)]))
            self.register_buffer(f"weights{number}", weights, persistent=False)
        self.register_buffer("biases", torch.from_numpy(np.array(supervisor.biases_)), persistent=False)

    def forward(self, seen: Seen) -> torch.Tensor:
        own = torch.nn.functional.one_hot(seen["probabilities"].argmax(1), seen["probabilities"].shape[1]).bool()
        supports = []
        for number, trace in enumerate(self.traces):
            logits = seen[trace] @ getattr(self, f"weights{number}") + self.biases[number]
            lead = logits.masked_fill(~own, -torch.inf).amax(1) - logits.masked_fill(own, -torch.inf).amax(1)
            supports.append(torch.where(torch.isfinite(logits).all(1), lead.sigmoid(), torch.zeros_like(lead)))
        if self.paper:
            top = seen["probabilities"].topk(2, dim=1).values
            supports.append(top[:, 0] / top.sum(1))
        return -(torch.stack(supports, dim=1) @ self.shares)


def _entropy(seen: Seen) -> torch.Tensor:
    s = seen["probabilities"]
    return -(s * torch.where(s > 0, s, torch.ones_like(s)).log2()).sum(1)


def _pcs(seen: Seen) -> torch.Tensor:
    top = seen["probabilities"].topk(2, dim=1).values
    return top[:, 1] - top[:, 0]


def _energy(supervisor: Any) -> nn.Module:
    temperature = float(supervisor.temperature)
    return _Formula(lambda seen: -temperature * (seen["logits"] / temperature).logsumexp(1))


EXPORTABLE: dict[str, Callable[[Any], nn.Module]] = {
    "max_softmax": lambda _: _Formula(lambda seen: -seen["probabilities"].amax(1)),
    "pcs": lambda _: _Formula(_pcs),
    "entropy": lambda _: _Formula(_entropy),
    "deep_gini": lambda _: _Formula(lambda seen: 1 - seen["probabilities"].square().sum(1)),
    "max_logit": lambda _: _Formula(lambda seen: -seen["logits"].amax(1)),
    "energy": _energy,
    "mdsa": _Mdsa,
    "mdsa_global": _Mdsa,
    "relative_mahalanobis": _RelativeMahalanobis,
    "vim": _Vim,
    "dsa": _Dsa,
    "dissector": _Dissector,
}
"""The supervisors that can be exported, by name."""


def _module(supervisor: Supervisor) -> nn.Module:
    if supervisor.name not in EXPORTABLE:
        raise UserError(
            f"The supervisor {supervisor.name!r} cannot be exported to ONNX; these can: "
            f"{', '.join(sorted(EXPORTABLE))}."
        )
    return EXPORTABLE[supervisor.name](supervisor)
