"""Nearest-neighbour guidance: the energy counts only as far as confident training images lie in the same direction.

    z = at(x) / ||at(x)||,   s(x) = log sum_k exp f_k(x)
    score(x) = - s(x) * mean over the k largest of  s(x_i) z_i . z

over the training images x_i that are kept. Source: Park, Jung and Teoh, Nearest Neighbor Guidance for
Out-of-Distribution Detection (ICCV 2023). A trace of zeros has no direction and no neighbour: its score is 0.

Departure: s must be positive for a product to be a confidence, and a constant in all logits, on which no prediction
depends, may make it negative. Where it is for more than a hundredth of the training images, the mean of the logits is
taken from each row first, with a warning; a later image with s < 0 counts as s = 0.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.supervisors._last_layer import check_finite_logits
from secondguess.supervisors._traces import Layers, TraceSupervisor, directions, row_blocks
from secondguess.supervisors.logits import energy, warn_of_log_probabilities
from secondguess.supervisors.registry import register

if TYPE_CHECKING:
    import torch

    from secondguess.supervisors.base import ScoreGraph
    from secondguess.supervisors.graph import Tensors

__all__ = ["NNGuide"]

Floats = NDArray[np.float64]


@register
class NNGuide(TraceSupervisor):
    """Suspicious = the logits are small, or no confident training image lies in the direction of the trace.

    The energy times the mean similarity to the k nearest training images, each weighted by its own energy. Source: Park
    et al. (ICCV 2023). Cost: a matrix product with the training traces that are kept. Good at unfamiliar images, near
    and far; bad at mistakes and ambiguous images. A trace that holds NaN or infinity scores +inf.

    Args:
        layers: see `TraceSupervisor`.
        k: how many neighbours count, cut to the number kept; 10 is the paper's.
        kept: the most training images that are kept; the paper keeps 1 % of ImageNet, which is about as many.
        seed: of the choice of those.

    Attributes:
        bank_: (m, d) s(x_i) z_i of the images that are kept.
        centred_: whether the mean of the logits is taken away.
    """

    name = "nnguide"
    family: ClassVar[str] = "baseline"

    def __init__(self, layers: Layers = "penultimate", k: int = 10, kept: int = 10_000, seed: int = 0) -> None:
        super().__init__(layers)
        if not (isinstance(k, int | np.integer) and k >= 1 and isinstance(kept, int | np.integer) and kept >= 1):
            raise UserError(f"k is {k!r} and kept {kept!r}; both must be whole numbers from 1 on.")
        self.k = k
        self.kept = kept
        self.seed = seed

    @property
    def needs(self) -> Needs:
        """The logits, and the traces of the chosen layers."""
        return super().needs | Needs(logits=True)

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        assert observation.logits is not None
        traces, logits = self._training_matrix(observation), observation.logits
        check_finite_logits(logits, self.name)
        warned = warn_of_log_probabilities(logits, self.name, stacklevel=4)
        self.centred_ = bool((energy(logits) > 0).mean() > 0.01)  # the energy is -s
        if self.centred_ and not warned:
            warnings.warn(
                "The logits of many training images are so small that their log-sum-exp is negative, so 'nnguide' "
                "takes their mean away first; hand in a model that returns its logits as they were trained.",
                stacklevel=3,
            )
        rows = np.arange(len(traces))
        if len(rows) > self.kept:
            rows = np.sort(np.random.default_rng(self.seed).choice(len(rows), self.kept, replace=False))
        self.bank_ = (self._confidences(logits[rows])[:, None] * directions(traces[rows])).astype(np.float32)

    def _score(self, observation: Observation) -> Floats:
        assert observation.logits is not None
        scores = self._by_row(observation, self.bank_.shape[1], self._guided, observation.logits)
        return np.where(np.isnan(scores), np.inf, scores)

    def _guided(self, traces: Floats, logits: NDArray[Any]) -> Floats:
        """The scores (n,) of traces (n, d) with logits (n, K)."""
        asked, count = directions(traces).astype(np.float32), min(int(self.k), len(self.bank_))
        guidance = np.empty(len(asked))
        for rows in row_blocks(len(asked), len(self.bank_)):
            near = np.partition(asked[rows] @ self.bank_.T, -count, axis=1)[:, -count:]
            guidance[rows] = near.mean(axis=1, dtype=np.float64)
        return -self._confidences(logits) * guidance

    def _confidences(self, logits: NDArray[Any]) -> Floats:
        """The confidence s (n,) of logits (n, K), at least 0."""
        f = logits.astype(np.float64)
        return np.maximum(-energy(f - f.mean(axis=1, keepdims=True) if self.centred_ else f), 0.0)

    def _graph(self) -> ScoreGraph:
        from secondguess.supervisors.graph import TraceGraph

        count, centred = min(int(self.k), len(self.bank_)), self.centred_

        def guided(h: torch.Tensor, seen: Tensors, bank: torch.Tensor) -> torch.Tensor:
            f = seen.logits
            assert f is not None
            confidences = (f - f.mean(1, keepdim=True) if centred else f).logsumexp(1).clamp(min=0.0)
            lengths = h.square().sum(1, keepdim=True).sqrt()
            near = ((h / lengths.where(lengths > 0, 1.0)) @ bank.T.to(h.dtype)).topk(count, dim=1).values
            return -confidences * near.mean(1)

        return TraceGraph(self.traces, guided, bank=self.bank_)
