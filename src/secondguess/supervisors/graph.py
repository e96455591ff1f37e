"""A score as a torch graph, so that it can be exported together with the model.

A supervisor that has one returns it from `_graph`: any function or module from `Tensors` to scores (n,), beside
`_score` and computing the same. Learnt arrays are handed to a `Graph`, which keeps them as constants:

    def _graph(self):
        return Graph(distance, mean=self.mean_)

    def distance(seen, mean):
        return (seen.traces[Trace()] - mean).square().sum(1)

`torch.export` must be able to follow it: no loops over images, and no branches that depend on values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from secondguess.model.needs import Trace

if TYPE_CHECKING:
    from secondguess.model.observation import Observation

__all__ = ["Graph", "Tensors", "TraceGraph", "tensors_of"]


@dataclass(frozen=True)
class Tensors:
    """What was seen of n images, as tensors in double precision: an `Observation` inside a graph.

    Attributes:
        probabilities: (n, K), rows sum to one.
        logits: (n, K), or None where the model gives probabilities only.
        traces: (n, d) by `Trace`.
        images: (n, C, H, W) in [0, 1], or None where nobody needs them.
    """

    probabilities: torch.Tensor
    logits: torch.Tensor | None
    traces: Mapping[Trace, torch.Tensor]
    images: torch.Tensor | None = None

    @property
    def predictions(self) -> torch.Tensor:
        """The most probable class of each image, (n,)."""
        return self.probabilities.argmax(1)


class Graph(nn.Module):
    """A function of what was seen, with arrays as constants.

    Args:
        score: from `Tensors` and the constants, by name, to scores (n,).
        constants: arrays of numbers.
    """

    def __init__(self, score: Callable[..., torch.Tensor], /, **constants: NDArray[Any]) -> None:
        super().__init__()
        self._score, self._names = score, tuple(constants)
        for name, array in constants.items():
            self.register_buffer(f"constant_{name}", torch.from_numpy(np.array(array)), persistent=False)

    def forward(self, seen: Tensors) -> torch.Tensor:
        """The scores (n,)."""
        return self._score(seen, **self.constants)

    @property
    def constants(self) -> dict[str, torch.Tensor]:
        """The arrays by name."""
        return {name: getattr(self, f"constant_{name}") for name in self._names}


class TraceGraph(Graph):
    """A function of traces, put side by side; +inf where one holds NaN or infinity.

    Args:
        traces: which.
        score: from finite traces (n, d), `Tensors` and the constants, by name, to scores (n,).
        constants: arrays of numbers.
    """

    def __init__(
        self, traces: Sequence[Trace], score: Callable[..., torch.Tensor], /, **constants: NDArray[Any]
    ) -> None:
        super().__init__(score, **constants)
        self._traces = tuple(traces)

    def forward(self, seen: Tensors) -> torch.Tensor:
        """The scores (n,)."""
        x = torch.cat([seen.traces[trace] for trace in self._traces], dim=1)
        finite = torch.isfinite(x).all(dim=1)
        scores = self._score(torch.where(finite[:, None], x, torch.zeros_like(x)), seen, **self.constants)
        return torch.where(finite, scores, torch.full_like(scores, torch.inf))


def tensors_of(observation: Observation) -> Tensors:
    """An observation as tensors."""

    def tensor(array: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(np.array(array, dtype=np.float64))

    return Tensors(
        tensor(observation.probabilities),
        None if observation.logits is None else tensor(observation.logits),
        {trace: tensor(values) for trace, values in observation.traces.items()},
        None if observation.pixels is None else tensor(observation.pixels[np.arange(len(observation))]),
    )
