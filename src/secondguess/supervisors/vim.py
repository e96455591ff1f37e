"""ViM: what the classes do not explain of a trace becomes one more logit, which competes with the real ones.

    u        = -W^+ b, the origin: where the last layer, logits = W at + b, gives zeros
    R        = the directions of least energy of at - u in training, all but the first D
    score(x) = alpha ||R'(at(x) - u)|| - log sum_k exp f_k(x)
    alpha    = mean of max_k f_k / mean of ||R'(at - u)||, both over the training images

Source: Wang, Li, Feng and Zhang, ViM: Out-Of-Distribution with Virtual-logit Matching (CVPR 2022). D follows the
authors' rule: 1000 for d >= 2048, 512 for d >= 768, else d // 2.

Departure: the paper reads W and b from the model; here they are recovered by least squares from the logits and traces
of the training images, which works for any model whose traces can be seen, ONNX files included. Where the traces feed a
linear layer and vary in all directions the two agree to rounding. Directions in which they never vary (dead neurons)
leave W open; the shortest W is taken, which moves the origin but no logit.
"""

from __future__ import annotations

import warnings
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.observation import Needs, Observation
from secondguess.supervisors._moments import blocks, mean_and_covariance, varying
from secondguess.supervisors._traces import Layers, TraceSupervisor
from secondguess.supervisors.logits import energy
from secondguess.supervisors.registry import register

__all__ = ["ViM"]

Floats = NDArray[np.float64]

UNEXPLAINED = 0.1  # the share of the logits' variance beyond which "a linear layer follows" is plainly wrong
ROUNDING = 1e-6  # relative: residuals of the traces, or singular values of W, below this are float32 rounding


@register
class ViM(TraceSupervisor):
    """Suspicious = the trace leaves the space in which training images live, or all logits are small.

    alpha ||residual|| - log sum exp f. Source: Wang et al. (CVPR 2022). Cost: a product with a d x (d - D) matrix an
    image. Good at images far from the training data, also where the logits are still large; bad at ambiguous images,
    and no better than `energy` where the layer is hardly wider than the number of classes.

    Args:
        layers: the layer that feeds the last one; see `TraceSupervisor`.
        dimension: D, of the principal space, from 0 and below the number of neurons; the authors' rule if left out.
    """

    name = "vim"
    family: ClassVar[str] = "baseline"

    def __init__(self, layers: Layers = "penultimate", dimension: int | None = None) -> None:
        super().__init__(layers)
        if dimension is not None and dimension < 0:
            raise UserError(f"The dimension of the principal space is {dimension}; it must be 0 or more.")
        self.dimension = dimension

    @property
    def needs(self) -> Needs:
        """The logits, and the traces of the chosen layers."""
        return super().needs | Needs(logits=True)

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        assert observation.logits is not None
        traces, logits = self._matrix(observation), observation.logits
        width = traces.shape[1]
        dimension = _rule(width) if self.dimension is None else self.dimension
        if dimension >= width:
            raise UserError(
                f"The principal space has {dimension} dimensions, but the traces have {width} and something must be "
                f"left over; give a dimension below {width}."
            )
        mean, covariance = mean_and_covariance(traces, logits)
        weight, bias = _last_layer(mean, covariance, width)
        self.origin_ = -np.linalg.pinv(weight, rcond=ROUNDING) @ bias
        shift = mean[:width] - self.origin_
        _, directions = np.linalg.eigh(covariance[:width, :width] + np.outer(shift, shift))
        self.residual_ = np.ascontiguousarray(directions[:, : width - dimension])
        size = float(np.sqrt(np.trace(covariance[:width, :width]) + shift @ shift))
        self.alpha_ = self._alpha(logits, self._residuals(traces), size)

    def _score(self, observation: Observation) -> Floats:
        assert observation.logits is not None
        return self.alpha_ * self._residuals(self._matrix(observation)) + energy(observation.logits)

    def _residuals(self, traces: NDArray[np.float32]) -> Floats:
        """||R'(at - u)|| of traces (n, d), as (n,)."""
        lengths = np.empty(len(traces))
        for rows in blocks(*traces.shape):
            lengths[rows] = np.linalg.norm((traces[rows] - self.origin_) @ self.residual_, axis=1)
        return lengths

    def _alpha(self, logits: NDArray[np.float32], residuals: Floats, size: float) -> float:
        """The factor that makes the virtual logit as large as the largest real one, on average."""
        if residuals.mean() > ROUNDING * size:
            return float(logits.max(axis=1).mean(dtype=np.float64) / residuals.mean())
        warnings.warn(
            f"The training traces lie within {self.origin_.size - self.residual_.shape[1]} dimensions, so ViM finds no "
            "residual and falls back to the energy; give it a smaller dimension, or another layer.",
            stacklevel=4,
        )
        return 0.0


def _rule(width: int) -> int:
    """The authors' dimension of the principal space for traces of this width."""
    return 1000 if width >= 2048 else 512 if width >= 768 else width // 2


def _last_layer(mean: Floats, covariance: Floats, width: int) -> tuple[Floats, Floats]:
    """W (K, d) and b (K,) by least squares, from the joint moments of traces (the first `width` columns) and logits."""
    variances, directions = varying(covariance[:width, :width])
    weight = covariance[width:, :width] @ (directions / variances) @ directions.T
    total = np.trace(covariance[width:, width:])
    unexplained = total - np.trace(weight @ covariance[:width, width:])
    if unexplained > UNEXPLAINED * total:
        warnings.warn(
            f"The logits are no linear function of the traces that ViM was given ({unexplained / total:.0%} of their "
            "variance is left over), so its origin is a guess; give it the layer that feeds the last one.",
            stacklevel=4,
        )
    return weight, mean[width:] - weight @ mean[:width]
