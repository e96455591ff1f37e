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

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.supervisors._traces import TraceSupervisor, finite_rows
from secondguess.supervisors.surprise._whitening import Rows, Whitening, whiten

__all__ = ["LastLayerSupervisor", "check_finite_logits", "last_layer"]

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

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        assert observation.logits is not None
        traces, logits = self._training_matrix(observation), observation.logits
        check_finite_logits(logits, self.name)
        whitening = whiten(Rows(traces), ddof=0)
        if len(traces) < whitening.rank + 1 + SPARE:
            raise UserError(
                f"{len(traces)} images do not determine the last layer, which takes traces of {traces.shape[1]} "
                f"neurons, so {self.name!r} cannot learn from them; give more images than neurons."
            )
        self.weight_, self.bias_, unexplained = last_layer(Rows(traces), logits, whitening)
        if unexplained > LEFT_OVER:
            raise UserError(
                f"The logits are no linear function of the traces given to {self.name!r} ({unexplained:.2g} of their "
                "variance is left over); give it the layer that feeds the last linear one."
            )


def last_layer(traces: Rows, logits: NDArray[np.float32], whitening: Whitening) -> tuple[Floats, Floats, float]:
    """W (K, d) and b (K,) by least squares, and the share of the variance of the logits that they leave over.

    Args:
        traces: n rows of d numbers.
        logits: (n, K).
        whitening: of the traces, with the covariance divided by n.
    """
    mean = logits.mean(axis=0, dtype=np.float64)
    shared, total = np.zeros((len(mean), whitening.rank)), 0.0
    for rows, block in traces.blocks():
        centred = logits[rows] - mean
        shared += centred.T @ whitening.apply(block) / len(traces)
        total += float(np.square(centred).sum()) / len(traces)
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
