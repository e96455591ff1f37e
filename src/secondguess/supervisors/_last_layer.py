"""The last layer of a model, logits = W at + b, recovered from what was seen of the training images.

Several scores change the penultimate activations and ask what the logits would then be, or measure the distance to the
boundaries between the classes; their papers read W and b from the model. Here they are the least-squares solution of
the observed pairs (at, logits). That is one road for torch modules, `torch.export` programs, ONNX files and bare arrays
alike, with no guess about which node of a graph the last layer is, and it is exact: logits are affine in the traces
that feed a linear layer, so nothing but rounding is left over once there are more images than neurons. What is left
over is checked, and a layer that does not feed a linear one is refused.

Directions in which the training traces never vary (dead neurons) leave W open; the shortest W is taken. So that a
neuron which wakes up later still counts, changed traces at' give the logits f + W (at' - at) with the model's own f.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.merging import keepable
from secondguess.errors import UserError
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.supervisors._traces import TraceSupervisor, finite_rows
from secondguess.supervisors.surprise._moments import Moments
from secondguess.supervisors.surprise._whitening import Rows, Whitening

__all__ = ["LastLayerSupervisor", "LayerMoments", "check_finite_logits", "last_layer"]

Floats = NDArray[np.float64]

LEFT_OVER = 1e-4  # the share of the logits' variance beyond which no linear layer follows; half precision leaves 1e-6
SPARE = 8  # images beyond those that determine W, without which nothing is ever left over


class LastLayerSupervisor(TraceSupervisor):
    """A supervisor of the logits and of the layer that feeds the last one.

    Attributes:
        weight_: (K, d) of the last layer.
        bias_: (K,).
    """

    @property
    def needs(self) -> Needs:
        """The logits, and the traces of the chosen layers."""
        return super().needs | Needs(logits=True)

    def _statistics(self, observation: Observation, labels: NDArray[np.int64] | None) -> LayerMoments:
        assert observation.logits is not None
        return LayerMoments.of(self._training_matrix(observation), observation.logits, self.name)

    def _learn(self, merged: LayerMoments) -> bool:
        whitening, count = merged.traces.whitened(ddof=0), merged.joint.count
        if count < whitening.rank + 1 + SPARE:
            raise UserError(
                f"{count} images do not determine the last layer, which takes traces of {merged.width} "
                f"neurons, so {self.name!r} cannot learn from them; give more images than neurons."
            )
        self.weight_, self.bias_, unexplained = last_layer(merged, whitening)
        if unexplained > LEFT_OVER:
            raise UserError(
                f"The logits are no linear function of the traces given to {self.name!r} ({unexplained:.2g} of their "
                "variance is left over); give it the layer that feeds the last linear one."
            )
        return False


@keepable
@dataclass(frozen=True, eq=False)
class LayerMoments:
    """The moments of traces and logits together, from which the layer between them follows.

    Attributes:
        joint: of rows of d neurons and K logits.
        width: d.
    """

    joint: Moments
    width: int

    @classmethod
    def of(cls, traces: NDArray[np.float32], logits: NDArray[np.float32], name: str) -> Self:
        """Of traces (n, d) and logits (n, K); a `UserError` for a supervisor if a logit is not finite."""
        check_finite_logits(logits, name)
        return cls(Moments.of(_Beside(traces, logits=logits)), traces.shape[1])

    @property
    def traces(self) -> Moments:
        """The moments of the traces alone."""
        return self.joint.leading(self.width)

    def merge(self, other: Self) -> Self:
        """Those of the rows of both."""
        return type(self)(self.joint.merge(other.joint), self.width)


@dataclass(frozen=True, kw_only=True)
class _Beside(Rows):
    """Traces with their logits beside them."""

    logits: NDArray[np.float32]

    @property
    def width(self) -> int:
        """The number of neurons and logits."""
        return int(self.matrix.shape[1] + self.logits.shape[1])

    def block(self, start: int, stop: int) -> Floats:
        """The rows from `start` to `stop`, a fresh array."""
        return np.concatenate([super().block(start, stop), self.logits[start:stop]], axis=1)


def last_layer(moments: LayerMoments, whitening: Whitening) -> tuple[Floats, Floats, float]:
    """W (K, d) and b (K,) by least squares, and the share of the variance of the logits that they leave over.

    Args:
        moments: of traces and logits.
        whitening: of the traces, with the covariance divided by n.
    """
    width, mean = moments.width, moments.joint.means[0, moments.width :]
    covariance = moments.joint.whole() / moments.joint.count
    shared, total = covariance[width:, :width] @ whitening.factor, float(np.trace(covariance[width:, width:]))
    unexplained = max(0.0, total - float(np.square(shared).sum())) / total if total else 0.0
    weight = shared @ whitening.factor.T
    return weight, mean - weight @ whitening.mean, unexplained


def check_finite_logits(logits: NDArray[np.float32], name: str) -> None:
    """Raise a `UserError`, on behalf of a supervisor, if a row of logits (n, K) holds NaN or infinity."""
    if (finite := finite_rows(logits)) is not None:
        raise UserError(
            f"The logits of image {int(finite.argmin())} hold NaN or infinity, from which {name!r} cannot learn; "
            "leave such images out."
        )
