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

Departure: alpha as published is negative where the logits are, such as after a constant was taken from all of them,
which no prediction depends on; being far from the training data would then lower the score. There, max f_k - mean f_k
takes the place of max f_k, with a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.merging import Sums
from secondguess.errors import UserError
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.supervisors._last_layer import LayerMoments, last_layer
from secondguess.supervisors._traces import Layers, TraceSupervisor
from secondguess.supervisors.logits import are_log_probabilities, energy, say_log_probabilities
from secondguess.supervisors.registry import register

if TYPE_CHECKING:
    import torch

    from secondguess.supervisors.base import ScoreGraph
    from secondguess.supervisors.graph import Tensors

__all__ = ["ViM"]

Floats = NDArray[np.float64]

UNEXPLAINED = 0.1  # the share of the logits' variance beyond which "a linear layer follows" is plainly wrong
ROUNDING = 1e-6  # relative: residuals of the traces, or singular values of W, below this are float32 rounding


@register
class ViM(TraceSupervisor):
    """Suspicious = the trace leaves the principal space of the training traces, or all logits are small.

    alpha ||residual|| - log sum exp f. Source: Wang et al. (CVPR 2022). Cost: a product with a d x (d - D) matrix per
    image. Good at images far from the training data, also where the logits are still large; bad at ambiguous images,
    and no better than `energy` where the layer is hardly wider than the number of classes. A trace that holds NaN or
    infinity scores +inf.

    Args:
        layers: the layer that feeds the last one; see `TraceSupervisor`.
        dimension: D, of the principal space, from 0 and below the number of neurons; the authors' rule if left out.
    """

    name = "vim"
    family: ClassVar[str] = "baseline"

    def __init__(self, layers: Layers = "penultimate", dimension: int | None = None) -> None:
        super().__init__(layers)
        if dimension is not None and not (isinstance(dimension, int | np.integer) and dimension >= 0):
            raise UserError(f"The dimension of the principal space is {dimension!r}; it must be a whole number from 0.")
        self.dimension = dimension

    @property
    def needs(self) -> Needs:
        """The logits, and the traces of the chosen layers."""
        return super().needs | Needs(logits=True)

    def _statistics(self, observation: Observation, labels: NDArray[np.int64] | None) -> LayerMoments | Sums:
        assert observation.logits is not None
        logits = observation.logits
        if not hasattr(self, "residual_"):
            return LayerMoments.of(self._training_matrix(observation), logits, self.name)
        return Sums(
            {
                "images": len(logits),
                "residual": float(self._by_row(observation, self.origin_.size, self._residuals).sum()),
                "largest": float(logits.max(axis=1).sum(dtype=np.float64)),
                "mean": float(logits.mean(axis=1, dtype=np.float64).sum()),
                "log_probabilities": len(logits) * are_log_probabilities(logits),
            }
        )

    def _learn(self, merged: LayerMoments | Sums) -> bool:
        if isinstance(merged, LayerMoments):
            self._find_residual_space(merged)
            return True  # once more over all images, to scale what they leave there
        self.alpha_ = self._alpha(merged.values)
        return False

    def _find_residual_space(self, merged: LayerMoments) -> None:
        width = merged.width
        dimension = _rule(width) if self.dimension is None else self.dimension
        if dimension >= width:
            raise UserError(
                f"The principal space has {dimension} dimensions, but the traces have {width} and something must be "
                f"left over; give a dimension below {width}."
            )
        whitening = merged.traces.whitened(ddof=0)
        weight, bias, unexplained = last_layer(merged, whitening)
        if unexplained > UNEXPLAINED:
            warnings.warn(
                f"The logits are no linear function of the traces that ViM was given ({unexplained:.0%} of their "
                "variance is left over), so its origin is a guess; give it the layer that feeds the last one.",
                stacklevel=5,
            )
        self.origin_ = -np.linalg.pinv(weight, rcond=ROUNDING) @ bias
        shift = whitening.mean - self.origin_
        scaled = whitening.factor * whitening.eigenvalues  # times its transpose, the covariance
        energies, directions = np.linalg.eigh(scaled @ scaled.T + np.outer(shift, shift))
        self.residual_ = np.ascontiguousarray(directions[:, : width - dimension])
        self._size = float(np.sqrt(energies.clip(0).sum()))

    def _score(self, observation: Observation) -> Floats:
        assert observation.logits is not None
        width = self.origin_.size
        virtual = self._by_row(observation, width, lambda traces: self.alpha_ * self._residuals(traces))
        scores = virtual + energy(observation.logits)
        return np.where(np.isnan(scores), np.inf, scores)  # NaN in a trace is NaN in the logits, most often

    def _graph(self) -> ScoreGraph:
        from secondguess.supervisors.graph import TraceGraph

        alpha = float(self.alpha_)

        def virtual_logit(x: torch.Tensor, seen: Tensors, origin: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
            assert seen.logits is not None
            return alpha * ((x - origin) @ residual).square().sum(1).sqrt() - seen.logits.logsumexp(1)

        return TraceGraph(self.traces, virtual_logit, origin=self.origin_, residual=self.residual_)

    def _residuals(self, traces: Floats) -> Floats:
        """||R'(at - u)|| of traces (n, d), as (n,)."""
        return np.linalg.norm((traces - self.origin_) @ self.residual_, axis=1)

    def _alpha(self, sums: Mapping[str, float]) -> float:
        """The factor that makes the virtual logit as large as the largest real one, on average."""
        images = sums["images"]
        residual, largest, mean = (sums[name] / images for name in ("residual", "largest", "mean"))
        told = images > 1 and sums["log_probabilities"] == images
        if told:
            say_log_probabilities(self.name, stacklevel=6)
        if residual <= ROUNDING * self._size:
            warnings.warn(
                f"The training traces lie within {self.origin_.size - self.residual_.shape[1]} dimensions, so ViM "
                "finds no residual and falls back to the energy; give it a smaller dimension, or another layer.",
                stacklevel=4,
            )
            return 0.0
        if largest > 0:
            return largest / residual
        if not told:
            warnings.warn(
                f"The largest logit of a training image is {largest:.3g} on average, so ViM scales its residual by the "
                "largest less the mean instead; hand in a model that returns its logits as they were trained.",
                stacklevel=4,
            )
        return (largest - mean) / residual


def _rule(width: int) -> int:
    """The authors' dimension of the principal space for traces of this width."""
    return 1000 if width >= 2048 else 512 if width >= 768 else width // 2
