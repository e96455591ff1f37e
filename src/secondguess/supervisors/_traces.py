"""What all supervisors that read activation traces share: which layers, and their traces side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.observation import Needs, Observation, Trace
from secondguess.supervisors.base import Supervisor

__all__ = ["Layers", "TraceSupervisor", "chosen_traces", "side_by_side"]

Layers = str | Trace | Sequence[str | Trace]


class TraceSupervisor(Supervisor):
    """A supervisor of one or several layers; a subclass calls `super().__init__(layers)`.

    Args:
        layers: the name of a layer, a `Trace` where the reduction matters, or several of them, whose traces are put
            side by side in that order.
    """

    def __init__(self, layers: Layers = "penultimate") -> None:
        self.layers = layers
        chosen_traces(layers)

    @property
    def needs(self) -> Needs:
        """The traces of the chosen layers."""
        return Needs(traces=frozenset(chosen_traces(self.layers)))

    def _matrix(self, observation: Observation) -> NDArray[np.float32]:
        """The traces of the chosen layers, (n, d)."""
        return side_by_side(observation, chosen_traces(self.layers))


def chosen_traces(layers: Layers) -> tuple[Trace, ...]:
    """The traces that a choice of layers stands for."""
    single: list[Any] = [layers] if isinstance(layers, str | Trace) else list(layers)
    if not single:
        raise UserError("No layer was chosen; name at least one, or leave the default 'penultimate'.")
    return tuple(one if isinstance(one, Trace) else Trace(one) for one in single)


def side_by_side(observation: Observation, traces: Sequence[Trace]) -> NDArray[np.float32]:
    """The traces of several layers in one matrix (n, d); a single one is handed on as it is, memory-mapped or not."""
    matrices = [observation.trace(trace) for trace in traces]
    return matrices[0] if len(matrices) == 1 else np.concatenate(matrices, axis=1)
