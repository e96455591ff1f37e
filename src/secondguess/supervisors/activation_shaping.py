"""Three supervisors that reshape the penultimate activations and take the energy of the logits that follow.

With the trace h = at(x) of the layer that feeds the last one, logits f = W h + b,

| name  | h'                                                                    | source                   |
|-------|-----------------------------------------------------------------------|--------------------------|
| react | min(h, c), c the 90th percentile of all training activations          | Sun et al., NeurIPS 2021 |
| ash   | 0 but for the largest h; these become h exp(s1 / s2), or h, or s1 / k | Djurisic et al., 2023    |
| scale | h exp(s1 / s2)                                                        | Xu et al., ICLR 2024     |

    score(x) = -log sum_k exp f'_k,     f' = W h' + b

where s1 is the sum of all activations of the image, s2 the sum and k the number of the largest ones, those at or above
the percentile. The idea behind all three: an unfamiliar image excites many units a little, or a few too much, where a
familiar one excites the units of its class. They read a rectified layer, as that behind a ReLU and a pooling. W and b
are recovered from the training images (`_last_layer` says how and why).

Departure: where activations may be negative, as behind a GELU, ASH and SCALE count the positive ones only, in the sums
and among the largest; for a rectified layer that is no change. An image without a positive activation is not scaled.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.observation import Observation
from secondguess.supervisors._last_layer import LastLayerSupervisor
from secondguess.supervisors._traces import Layers
from secondguess.supervisors.logits import energy
from secondguess.supervisors.registry import register

if TYPE_CHECKING:
    import torch

    from secondguess.supervisors.base import ScoreGraph
    from secondguess.supervisors.graph import Tensors

__all__ = ["ASH", "ReAct", "Scale", "kept_activations"]

Floats = NDArray[np.float64]

LARGEST_POWER = 500.0  # of e; the sums differ that much only where nearly all is pruned, and logits stay finite
MOST_ACTIVATIONS = 1 << 24  # of which a percentile is taken; of more, those of every so many images


class _Shaping(LastLayerSupervisor):
    """The energy of the logits behind reshaped traces."""

    family: ClassVar[str] = "baseline"

    def __init__(self, layers: Layers, percentile: float) -> None:
        super().__init__(layers)
        if not 0 <= percentile < 100:
            raise UserError(f"The percentile of {self.name!r} is {percentile!r}; it must be from 0 and below 100.")
        self.percentile = percentile

    def _score(self, observation: Observation) -> Floats:
        assert observation.logits is not None
        scores = self._by_row(
            observation, self.weight_.shape[1], lambda h, f: energy(self._logits(h, f)), observation.logits
        )
        return np.where(np.isnan(scores), np.inf, scores)  # a logit of a bare array may be NaN

    def _logits(self, traces: Floats, logits: NDArray[np.float32]) -> Floats:
        """The logits (n, K) of reshaped traces (n, d), whose own are given."""
        return np.asarray(logits + (self._shape(traces) - traces) @ self.weight_.T)

    @abstractmethod
    def _shape(self, traces: Floats) -> Floats:
        """Traces (n, d) reshaped."""


@register
class ReAct(_Shaping):
    """Suspicious = the logits are small once no unit may be excited more than is usual.

    The energy behind min(h, c). Source: Sun, Guo and Li, ReAct: Out-of-distribution Detection With Rectified
    Activations (NeurIPS 2021). Cost: a product with the last layer. Good at unfamiliar images that excite few units far
    too much, on networks with batch norm above all; bad at mistakes and ambiguous images.

    Args:
        layers: the layer that feeds the last one; see `TraceSupervisor`.
        percentile: of all training activations, at which they are cut off; 90 is the paper's.

    Attributes:
        limit_: c.
    """

    name = "react"

    def __init__(self, layers: Layers = "penultimate", percentile: float = 90.0) -> None:
        super().__init__(layers, percentile)

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        super()._fit(observation, labels)
        traces = self._matrix(observation)
        step = -(-traces.size // MOST_ACTIVATIONS)
        self.limit_ = float(np.percentile(traces[::step], self.percentile))

    def _shape(self, traces: Floats) -> Floats:
        return np.minimum(traces, self.limit_)

    def _graph(self) -> ScoreGraph:
        from secondguess.supervisors.graph import TraceGraph

        limit = float(self.limit_)

        def score(h: torch.Tensor, seen: Tensors, weight: torch.Tensor) -> torch.Tensor:
            assert seen.logits is not None
            return -(seen.logits + (h.clamp(max=limit) - h) @ weight.T).logsumexp(1)

        return TraceGraph(self.traces, score, weight=self.weight_)


@register
class ASH(_Shaping):
    """Suspicious = the logits are small once only the most excited units count.

    The energy behind the largest activations alone, scaled by how much was cut away. Source: Djurisic, Bozanic, Ashok
    and Liu, Extremely Simple Activation Shaping for Out-of-Distribution Detection (ICLR 2023). Cost: a sort of the
    trace and a product with the last layer. Good at unfamiliar images on wide layers; bad on narrow ones, of which the
    largest tenth are a few units, and at mistakes.

    Args:
        layers: the layer that feeds the last one; see `TraceSupervisor`.
        variant: `"s"` scales what is kept by exp(s1 / s2), `"p"` leaves it, `"b"` gives all kept units the same s1 / k.
        percentile: of the activations of the image, below which they are cut to 0; 90 is the paper's for `"s"`, which
            takes 65 for `"b"` and 60 for `"p"`.
    """

    name = "ash"

    def __init__(
        self, layers: Layers = "penultimate", variant: Literal["s", "p", "b"] = "s", percentile: float = 90.0
    ) -> None:
        super().__init__(layers, percentile)
        if variant not in ("s", "p", "b"):
            raise UserError(f"There is no variant {variant!r} of ASH; there is s, p and b.")
        self.variant = variant

    def _shape(self, traces: Floats) -> Floats:
        kept, powers, level = _pruned(traces, self.percentile)
        if self.variant == "b":
            return np.where(kept, level, 0.0)
        return np.where(kept, traces * (np.exp(powers) if self.variant == "s" else 1.0), 0.0)

    def _graph(self) -> ScoreGraph:
        from secondguess.supervisors.graph import TraceGraph

        percentile, variant = float(self.percentile), self.variant

        def score(h: torch.Tensor, seen: Tensors, weight: torch.Tensor) -> torch.Tensor:
            assert seen.logits is not None
            kept, powers, level = _pruned_tensor(h, percentile)
            shaped = level.expand_as(h) if variant == "b" else h * (powers.exp() if variant == "s" else 1.0)
            return -(seen.logits + (shaped.where(kept, 0.0) - h) @ weight.T).logsumexp(1)

        return TraceGraph(self.traces, score, weight=self.weight_)


@register
class Scale(_Shaping):
    """Suspicious = the logits are small, magnified where a few units carry all of the activation.

    The energy behind h exp(s1 / s2), nothing cut away. Source: Xu, Chen, Franchi and Yao, Scaling for Training Time and
    Post-hoc Out-of-distribution Detection Enhancement (ICLR 2024). Cost: a sort of the trace. Good at what `ash` is
    good at, without its loss on familiar images; bad on narrow layers, and at mistakes.

    Args:
        layers: the layer that feeds the last one; see `TraceSupervisor`.
        percentile: of the activations of the image, from which they count as large; 85 is the paper's.
    """

    name = "scale"

    def __init__(self, layers: Layers = "penultimate", percentile: float = 85.0) -> None:
        super().__init__(layers, percentile)

    def _logits(self, traces: Floats, logits: NDArray[np.float32]) -> Floats:
        """W h exp(r) + b = exp(r) (f - b) + b: no W is needed."""
        _, powers, _ = _pruned(traces, self.percentile)
        return np.asarray(np.exp(powers) * (logits - self.bias_) + self.bias_)

    def _shape(self, traces: Floats) -> Floats:
        return traces * np.exp(_pruned(traces, self.percentile)[1])

    def _graph(self) -> ScoreGraph:
        from secondguess.supervisors.graph import TraceGraph

        percentile = float(self.percentile)

        def score(h: torch.Tensor, seen: Tensors, bias: torch.Tensor) -> torch.Tensor:
            assert seen.logits is not None
            _, powers, _ = _pruned_tensor(h, percentile)
            return -(powers.exp() * (seen.logits - bias) + bias).logsumexp(1)

        return TraceGraph(self.traces, score, bias=self.bias_)


def kept_activations(width: int, percentile: float) -> int:
    """How many of the activations of an image are at or above a percentile; at least one.

    >>> kept_activations(2048, 90), kept_activations(64, 85)
    (205, 10)
    """
    return max(1, width - round(width * percentile / 100))


def _pruned(traces: Floats, percentile: float) -> tuple[NDArray[np.bool_], Floats, Floats]:
    """Which activations (n, d) are positive and among the largest; s1 / s2 (n, 1), limited; s1 / k (n, 1)."""
    positive = np.maximum(traces, 0.0)
    count = kept_activations(traces.shape[1], percentile)
    smallest = np.partition(positive, -count, axis=1)[:, -count, None]
    kept = (positive >= smallest) & (positive > 0)
    total = positive.sum(axis=1, keepdims=True)
    large = np.where(kept, positive, 0.0).sum(axis=1, keepdims=True)
    powers = np.divide(total, large, where=large > 0, out=np.zeros_like(total))
    return kept, np.minimum(powers, LARGEST_POWER), total / np.maximum(kept.sum(axis=1, keepdims=True), 1)


def _pruned_tensor(traces: torch.Tensor, percentile: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What `_pruned` gives, of a tensor."""
    positive = traces.clamp(min=0.0)
    count = kept_activations(traces.shape[1], percentile)
    smallest = positive.topk(count, dim=1).values[:, -1:]
    kept = (positive >= smallest) & (positive > 0)
    total = positive.sum(1, keepdim=True)
    large = positive.where(kept, 0.0).sum(1, keepdim=True)
    powers = (total / large.where(large > 0, 1.0)).where(large > 0, 0.0)
    return kept, powers.clamp(max=LARGEST_POWER), total / kept.sum(1, keepdim=True).clamp(min=1)
