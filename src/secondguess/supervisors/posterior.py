"""Two supervisors that read the whole softmax vector s, its small probabilities above all.

| name        | score                                              | source                                         |
|-------------|----------------------------------------------------|------------------------------------------------|
| gen         | sum over the M largest of s_k^g (1 - s_k)^g        | Liu, Lochman and Zach, CVPR 2023               |
| kl_matching | min_c KL(s, d_c), d_c the mean softmax of class c  | Hendrycks et al., ICML 2022 (arXiv 1911.11132) |

The entropy hardly notices whether a class has a probability of 10^-3 or of 10^-9. With a power g far below 1 these
count, and so does the usual shape of the softmax of each class.

Precision: 1 - s of the largest is the sum of the others, so that a saturated softmax still tells images apart. Where
nothing but the largest is left in double precision, the generalised entropy is 0.

Departure: mean probabilities are at least 10^-12, so that a class which never had any probability in training does not
make all divergences infinite. d_c is the mean over the images that `fit` is given and that are predicted as c, as in
the paper, which needs no labels either; a class that is never predicted has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.observation import Observation
from secondguess.supervisors.base import Supervisor
from secondguess.supervisors.registry import register

if TYPE_CHECKING:
    import torch

    from secondguess.supervisors.base import ScoreGraph
    from secondguess.supervisors.graph import Tensors

__all__ = ["GeneralisedEntropy", "KLMatching", "generalised_entropy", "kl_matching"]

Floats = NDArray[np.float64]

FLOOR = 1e-12  # of a mean probability


def generalised_entropy(probabilities: NDArray[np.floating[Any]], gamma: float = 0.1, top: int = 100) -> Floats:
    """The sum of s^gamma (1 - s)^gamma over the `top` largest of each row, for (n, K) probabilities.

    >>> generalised_entropy(np.array([[1.0, 0.0], [0.5, 0.5]]), gamma=0.5).tolist()
    [0.0, 1.0]
    """
    s = -np.sort(-np.asarray(probabilities, dtype=np.float64), axis=1)
    rest = np.concatenate([s[:, 1:].sum(axis=1, keepdims=True), 1 - s[:, 1:]], axis=1)
    return np.asarray(((s * rest)[:, :top] ** gamma).sum(axis=1))


def kl_matching(probabilities: NDArray[np.floating[Any]], templates: Floats) -> Floats:
    """min_c KL(s, d_c) in nats, at least 0, for (n, K) probabilities and positive templates (c, K).

    >>> kl_matching(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[0.5, 0.5]])).round(4).tolist()
    [0.0, 0.6931]
    """
    s = np.asarray(probabilities, dtype=np.float64)
    logs = np.log(s, where=s > 0, out=np.zeros_like(s))
    divergences = (s * logs).sum(axis=1, keepdims=True) - s @ np.log(templates).T
    return np.maximum(divergences.min(axis=1), 0.0)


@register
class GeneralisedEntropy(Supervisor):
    """Suspicious = many classes have a probability, however small (GEN).

    The sum of s^g (1 - s)^g over the M largest. Source: Liu, Lochman and Zach, GEN: Pushing the Limits of Softmax-Based
    Out-of-Distribution Detection (CVPR 2023). Cost: a sort and a power per class. Good at unfamiliar images, for a
    score that needs the softmax only, and at mistakes; bad at confident mistakes and attacks.

    Args:
        gamma: g, above 0 and below 1; 0.1 is the paper's. The closer to 0, the more small probabilities count.
        top: M, how many classes count, cut to their number; 100 is the paper's for ImageNet.
    """

    name = "gen"
    family: ClassVar[str] = "baseline"
    requires_fit = False

    def __init__(self, gamma: float = 0.1, top: int = 100) -> None:
        if not 0 < gamma < 1:
            raise UserError(f"The power gamma of 'gen' is {gamma!r}; it must be above 0 and below 1.")
        if not (isinstance(top, int | np.integer) and top >= 1):
            raise UserError(f"The number of classes that count in 'gen' is {top!r}; it must be a whole number from 1.")
        self.gamma = gamma
        self.top = top

    def _score(self, observation: Observation) -> Floats:
        return generalised_entropy(observation.probabilities, self.gamma, self.top)

    def _graph(self) -> ScoreGraph:
        gamma, top = float(self.gamma), int(self.top)

        def spread(seen: Tensors) -> torch.Tensor:
            s = seen.probabilities
            s = s.topk(s.shape[1], dim=1).values
            largest = s[:, :1] * s[:, 1:].sum(1, keepdim=True)
            others = (s * (1 - s))[:, 1:top]
            return largest.pow(gamma).sum(1) + others.clamp(min=0.0).pow(gamma).sum(1)

        return spread


@register
class KLMatching(Supervisor):
    """Suspicious = the softmax has the usual shape of no class.

    min_c KL(s, d_c). Source: Hendrycks et al., Scaling Out-of-Distribution Detection for Real-World Settings (ICML
    2022). Cost: a K x K product per image. Good at many classes, whose confusions have a shape; bad at few classes, and
    at mistakes that are usual ones.

    Attributes:
        templates_: (c, K) the mean softmax of each class that is predicted.
    """

    name = "kl_matching"
    family: ClassVar[str] = "baseline"

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        s, predictions = observation.probabilities, observation.predictions
        means = np.stack([s[predictions == c].mean(axis=0, dtype=np.float64) for c in np.unique(predictions)])
        self.templates_ = np.maximum(means, FLOOR)

    def _score(self, observation: Observation) -> Floats:
        return kl_matching(observation.probabilities, self.templates_)

    def _graph(self) -> ScoreGraph:
        from secondguess.supervisors.graph import Graph

        def nearest(seen: Tensors, templates: torch.Tensor) -> torch.Tensor:
            s = seen.probabilities
            entropies = (s * s.where(s > 0, 1.0).log()).sum(1, keepdim=True)
            return (entropies - s @ templates.log().T).amin(1).clamp(min=0.0)

        return Graph(nearest, templates=self.templates_)
