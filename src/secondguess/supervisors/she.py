"""Similarity of the trace to the stored pattern of its class (SHE, simplified Hopfield energy).

    score(x) = - at(x) . S_y,   S_c = mean trace of the training images of class c that the model gets right

with y the predicted class. Source: Zhang, Fu, Chen, Du, Li, Wang, Liu, Han and Zhang, Out-of-Distribution Detection
based on In-Distribution Data Patterns Memorization with Modern Hopfield Energy (ICLR 2023), the inner product that the
paper ends with.

Without labels, all training images of a predicted class make its pattern. A class that the model never gets right has
the mean of the other patterns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.merging import Sums
from secondguess.errors import UserError
from secondguess.model.observation import Observation
from secondguess.supervisors._classes import known_classes
from secondguess.supervisors._traces import Layers, TraceSupervisor
from secondguess.supervisors.registry import register
from secondguess.supervisors.surprise._whitening import Rows

if TYPE_CHECKING:
    import torch

    from secondguess.supervisors.base import ScoreGraph
    from secondguess.supervisors.graph import Tensors

__all__ = ["SimplifiedHopfield"]

Floats = NDArray[np.float64]


@register
class SimplifiedHopfield(TraceSupervisor):
    """Suspicious = the trace has little in common with the mean trace of the predicted class.

    Minus their inner product. Source: Zhang et al. (ICLR 2023). Cost: one product per image, the cheapest of the scores
    that read traces. Good at images that excite little, whose traces are short; bad at attacks and mistakes, and where
    the length of a trace says little. A trace that holds NaN or infinity scores +inf.

    Args:
        layers: see `TraceSupervisor`.

    Attributes:
        patterns_: (K, d) S.
    """

    name = "she"
    family: ClassVar[str] = "baseline"

    def __init__(self, layers: Layers = "penultimate") -> None:
        super().__init__(layers)

    def _statistics(self, observation: Observation, labels: NDArray[np.int64] | None) -> Sums:
        traces, predictions = self._training_matrix(observation), observation.predictions
        right = np.flatnonzero(predictions == known_classes(observation, labels))
        source, classes = Rows(traces, right), predictions[right]
        sums = np.zeros((observation.num_classes, source.width))
        for rows, block in source.blocks():
            np.add.at(sums, classes[rows], block)
        return Sums({"sums": sums, "counts": np.bincount(classes, minlength=len(sums)), "images": len(traces)})

    def _learn(self, merged: Sums) -> bool:
        sums, counts = merged.values["sums"], merged.values["counts"]
        seen = counts > 0
        if not seen.any():
            raise UserError(
                f"The model is right about none of these {merged.values['images']} images, so {self.name!r} has no "
                "pattern to learn; check the labels, or leave them out."
            )
        sums[seen] /= counts[seen, None]
        sums[~seen] = sums[seen].mean(axis=0)
        self.patterns_ = sums
        return False

    def _score(self, observation: Observation) -> Floats:
        return self._by_row(observation, self.patterns_.shape[1], self._products, observation.predictions)

    def _products(self, traces: Floats, predictions: NDArray[np.int64]) -> Floats:
        """The scores (n,) of traces (n, d) with predicted classes (n,)."""
        return -np.einsum("nd,nd->n", traces, self.patterns_[predictions])

    def _graph(self) -> ScoreGraph:
        from secondguess.supervisors.graph import TraceGraph

        def products(h: torch.Tensor, seen: Tensors, patterns: torch.Tensor) -> torch.Tensor:
            return -(h * patterns[seen.predictions]).sum(1)

        return TraceGraph(self.traces, products, patterns=self.patterns_)
