"""Two supervisors that read the logits f only, the outputs before the softmax.

| name      | score                           | source                                     |
|-----------|---------------------------------|--------------------------------------------|
| energy    | -T log sum_k exp(f_k / T)       | Liu et al., NeurIPS 2020                   |
| max_logit | -max_k f_k                      | Hendrycks et al., ICML 2022 (arXiv 1911.11132) |

The softmax is blind to a constant added to all logits; these two are not, which is their point: an image unlike the
training data tends to get small logits for all classes. They read the logits as the model gives them; a model that
returns probabilities has none. One that returns their logarithms, such as a last layer of log-softmax, has taken that
constant away: the energy is 0 for every image, and a warning says so.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.supervisors.base import Supervisor
from secondguess.supervisors.registry import register

if TYPE_CHECKING:
    import torch

    from secondguess.supervisors.base import ScoreGraph
    from secondguess.supervisors.graph import Tensors

__all__ = [
    "Energy",
    "MaxLogit",
    "are_log_probabilities",
    "energy",
    "max_logit",
    "say_log_probabilities",
    "warn_of_log_probabilities",
]

Logits = NDArray[np.floating[Any]]

ROUNDING = 1e-4  # of the logarithm of a sum of float32 probabilities


def energy(logits: Logits, temperature: float = 1.0) -> NDArray[np.float64]:
    """-T log sum exp(f / T) for (n, K) logits f, without overflow.

    >>> energy(np.array([[0.0, 0.0], [1000.0, 0.0]])).round(4).tolist()
    [-0.6931, -1000.0]
    """
    f = np.asarray(logits, dtype=np.float64) / temperature
    top = f.max(axis=1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):  # a row of -inf has energy +inf
        return -temperature * (np.log(np.exp(f - top).sum(axis=1)) + top[:, 0])


def max_logit(logits: Logits) -> NDArray[np.float64]:
    """-max f for (n, K) logits f.

    >>> max_logit(np.array([[0.5, 3.0, -1.0]])).tolist()
    [-3.0]
    """
    return -np.asarray(logits, dtype=np.float64).max(axis=1)


def warn_of_log_probabilities(logits: Logits, name: str, *, stacklevel: int = 5) -> bool:
    """Warn, on behalf of a supervisor, if all rows of logits (n, K) are logarithms of probabilities.

    A single row is not judged: real logits may be such by chance.

    Returns:
        Whether they are.
    """
    found = len(logits) > 1 and are_log_probabilities(logits)
    if found:
        say_log_probabilities(name, stacklevel=stacklevel + 1)
    return found


def are_log_probabilities(logits: Logits) -> bool:
    """Whether all rows of logits (n, K) may be logarithms of probabilities."""
    # The first few rows answer for nearly every model; only where they raise suspicion are all of them read.
    return all(bool((np.abs(energy(part)) < ROUNDING).all()) for part in (logits[:8], logits))


def say_log_probabilities(name: str, *, stacklevel: int) -> None:
    """Warn, on behalf of a supervisor, that its logits are logarithms of probabilities."""
    warnings.warn(
        f"The logits given to {name!r} are logarithms of probabilities, which have lost what it measures; give it "
        "a model that returns logits, without a softmax or log-softmax at its end.",
        stacklevel=stacklevel,
    )


class _OfLogits(Supervisor):
    """What both have in common: logits are needed, nothing is learnt."""

    family: ClassVar[str] = "baseline"
    requires_fit = False

    @property
    def needs(self) -> Needs:
        """The logits."""
        return Needs(logits=True)


@register
class Energy(_OfLogits):
    """Suspicious = all logits are small: -T log sum exp(f / T).

    Source: Liu, Wang, Owens and Li, Energy-based Out-of-distribution Detection (NeurIPS 2020). Cost: one exponential
        per class, negligible next to the forward pass. Good at images far from everything seen in training and at many
        classes,
    where the softmax saturates; bad at confident mistakes and attacks, whose logits are as large as any, and the larger
    T, the closer it comes to minus the mean logit.

    Args:
        temperature: T, above 0; 1 is the paper's.
    """

    name = "energy"

    def __init__(self, temperature: float = 1.0) -> None:
        if not (temperature > 0 and math.isfinite(temperature)):
            raise UserError(f"The temperature of the energy is {temperature}; it must be a number above 0.")
        self.temperature = temperature

    def _score(self, observation: Observation) -> NDArray[np.float64]:
        assert observation.logits is not None
        warn_of_log_probabilities(observation.logits, self.name)
        return energy(observation.logits, self.temperature)

    def _graph(self) -> ScoreGraph:
        temperature = float(self.temperature)
        return lambda seen: -temperature * (_logits(seen) / temperature).logsumexp(1)


@register
class MaxLogit(_OfLogits):
    """Suspicious = the largest logit is small: -max f.

    Source: Hendrycks et al., Scaling Out-of-Distribution Detection for Real-World Settings (ICML 2022). Cost:
        negligible. Good at what `energy` is good at, of which it is the limit T -> 0; bad at confident mistakes, and
        behind
    the softmax at ambiguous images, where two large logits are one more than needed.
    """

    name = "max_logit"

    def _score(self, observation: Observation) -> NDArray[np.float64]:
        assert observation.logits is not None
        warn_of_log_probabilities(observation.logits, self.name)
        return max_logit(observation.logits)

    def _graph(self) -> ScoreGraph:
        return lambda seen: -_logits(seen).amax(1)


def _logits(seen: Tensors) -> torch.Tensor:
    assert seen.logits is not None
    return seen.logits
