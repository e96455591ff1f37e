"""Distance to the decision boundaries, in units of the distance to the training data (fDBD).

    score(x) = - mean over the classes c other than y of  |f_y - f_c| / ||w_y - w_c||  / ||at(x) - mu||

with y the predicted class, w_c the rows of the last layer, logits f = W at + b, and mu the mean of the training traces.
|f_y - f_c| / ||w_y - w_c|| is how far the trace must move until c is as likely as y. Source: Liu and Qin, Fast
Decision Boundary based Out-of-Distribution Detector (ICML 2024), regularised as there. W is recovered from the training
images (`_last_layer` says how and why).

Two classes with the same w have no boundary between them and are left out of the mean. A trace at mu itself is
infinitely far from the boundaries, in these units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from secondguess.model.observation import Observation
from secondguess.supervisors._last_layer import LastLayerSupervisor, LayerMoments
from secondguess.supervisors._traces import Layers
from secondguess.supervisors.registry import register

if TYPE_CHECKING:
    import torch

    from secondguess.supervisors.base import ScoreGraph
    from secondguess.supervisors.graph import Tensors

__all__ = ["FastDecisionBoundary"]

Floats = NDArray[np.float64]

SAME = 1e-6  # relative to the largest: rows of W that are closer differ by rounding
TINY = 1e-12  # instead of a distance of 0 to the mean


@register
class FastDecisionBoundary(LastLayerSupervisor):
    """Suspicious = near to decision boundaries, for how far it is from the training data.

    Minus the mean distance to the boundaries with the other classes over the distance to the mean trace. Source: Liu
    and Qin (ICML 2024). Cost: a few operations per class. Good at unfamiliar images and mistakes alike, at next to no
    cost; bad at attacks, which may lie deep within a wrong class. A trace that holds NaN or infinity scores +inf.

    Args:
        layers: the layer that feeds the last one; see `TraceSupervisor`.

    Attributes:
        mean_: (d,) mu.
        inverse_: (K, K) 1 / ||w_i - w_j|| over the number of boundaries of class i; 0 where there is none.
    """

    name = "fdbd"
    family: ClassVar[str] = "baseline"

    def __init__(self, layers: Layers = "penultimate") -> None:
        super().__init__(layers)

    def _learn(self, merged: LayerMoments) -> bool:
        super()._learn(merged)
        self.mean_ = merged.traces.means[0]
        apart = np.stack([np.linalg.norm(self.weight_ - row, axis=1) for row in self.weight_])
        inverse = np.divide(1.0, apart, where=apart > SAME * apart.max(), out=np.zeros_like(apart))
        self.inverse_ = inverse / np.maximum((inverse > 0).sum(axis=1, keepdims=True), 1)
        return False

    def _score(self, observation: Observation) -> Floats:
        assert observation.logits is not None
        scores = self._by_row(observation, self.mean_.size, self._distances, observation.logits)
        return np.where(np.isnan(scores), np.inf, scores)

    def _distances(self, traces: Floats, logits: NDArray[Any]) -> Floats:
        """The scores (n,) of traces (n, d) with logits (n, K)."""
        f = logits.astype(np.float64)
        gaps = f.max(axis=1, keepdims=True) - f
        boundaries = (gaps * self.inverse_[f.argmax(axis=1)]).sum(axis=1)
        return np.asarray(-boundaries / np.maximum(np.linalg.norm(traces - self.mean_, axis=1), TINY))

    def _graph(self) -> ScoreGraph:
        from secondguess.supervisors.graph import TraceGraph

        def distances(h: torch.Tensor, seen: Tensors, mean: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
            assert seen.logits is not None
            gaps = seen.logits.amax(1, keepdim=True) - seen.logits
            boundaries = (gaps * inverse[seen.logits.argmax(1)]).sum(1)
            return -boundaries / (h - mean).square().sum(1).sqrt().clamp(min=TINY)

        return TraceGraph(self.traces, distances, mean=self.mean_, inverse=self.inverse_)
