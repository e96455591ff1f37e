"""Four supervisors that let the model vote: the same image in many passes with the dropout layers on.

Dropout during inference draws another thinned network in every pass (Gal and Ghahramani, 2016). Where the passes
disagree, the answer depends on which neurons happened to be kept. The formulas are in `_sampling_scores`; 100 passes,
all dropout layers on and batch-norm in eval mode, as compared by Weiss, Garcia Gomez and Tonella (2023).

The passes are the first `samples` of the observation, however many it holds, and sample s of an image is the same
however many were asked for: a supervisor gives the same scores alone and beside others that need more.

Cost per image: `samples` passes through what comes after the first dropout layer, and one through what comes before it
(all of the model, where a connection goes around that layer); scoring them is cheap. Nothing is learnt. The
observation holds 4 * samples * K bytes per image.

Good at: ambiguous images and mistakes, about as well as the softmax scores of a single pass. Bad at:
out-of-distribution images on which all thinned networks agree. A model whose only dropout is before the last layer
varies little; one without dropout layers, or frozen in an ONNX or `.pt2` file, cannot be used.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.supervisors._sampling_scores import (
    mean_softmax,
    mutual_information,
    predictive_entropy,
    variation_ratio,
)
from secondguess.supervisors.base import Supervisor
from secondguess.supervisors.registry import register

__all__ = ["DropoutMeanSoftmax", "DropoutMutualInformation", "DropoutPredictiveEntropy", "DropoutVariationRatio"]


class _DropoutSupervisor(Supervisor):
    """A score of passes with dropout.

    Args:
        samples: how many passes.
    """

    requires_fit = False

    dial, least = "samples", 10

    def __init__(self, samples: int = 100) -> None:  # the paper's number
        if samples < 1:
            raise UserError(f"{samples} dropout samples were asked for; at least 1 is needed, 100 are usual.")
        self.samples = samples

    @property
    def needs(self) -> Needs:
        """Dropout samples."""
        return Needs(samples=self.samples)

    def _score(self, observation: Observation) -> NDArray[np.float64]:
        assert observation.samples is not None  # checked against `needs`
        return self._of_samples(observation.samples[:, : self.samples])

    @staticmethod
    @abstractmethod
    def _of_samples(samples: NDArray[np.float32]) -> NDArray[np.float64]:
        """The scores (n,) of samples (n, S, K)."""


@register
class DropoutVariationRatio(_DropoutSupervisor):
    """Suspicious = many passes with dropout vote against the majority: 1 - (votes for the top class) / samples.

    Good at ambiguous images; the coarsest of the four: it takes `samples` values at most, and most images tie at 0.

    Args:
        samples: how many passes.
    """

    name = "mc_dropout_vr"
    _of_samples = staticmethod(variation_ratio)


@register
class DropoutMeanSoftmax(_DropoutSupervisor):
    """Suspicious = the largest probability of the mean over passes with dropout is small: -max mean_i s^i.

    Good at ambiguous images and mistakes; the smoothed form of `max_softmax`.

    Args:
        samples: how many passes.
    """

    name = "mc_dropout_ms"
    _of_samples = staticmethod(mean_softmax)


@register
class DropoutMutualInformation(_DropoutSupervisor):
    """Suspicious = passes with dropout contradict each other: H(mean_i s^i) - mean_i H(s^i), in bits.

    It leaves out the doubt that all passes share, and so is the one that separates an unknown image from an ambiguous
    one; on ambiguous images it is weaker than the others.

    Args:
        samples: how many passes.
    """

    name = "mc_dropout_mi"
    _of_samples = staticmethod(mutual_information)


@register
class DropoutPredictiveEntropy(_DropoutSupervisor):
    """Suspicious = the mean over passes with dropout is spread out: H(mean_i s^i), in bits.

    Good at ambiguous images and mistakes; the smoothed form of `entropy`.

    Args:
        samples: how many passes.
    """

    name = "mc_dropout_pe"
    _of_samples = staticmethod(predictive_entropy)
