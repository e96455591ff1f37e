"""Three supervisors that use other models: a deep ensemble, trained like the model under test.

Networks of one architecture that differ only in their random initialisation agree where they have training data, and
diverge elsewhere (Lakshminarayanan, Pritzel and Blundell, 2017). For the members' softmax vectors s^1 ... s^S of an
image the scores are those of `_sampling_scores`: mean softmax, mutual information, predictive entropy. 20 members,
dropout off, as compared by Weiss, Garcia Gomez and Tonella (Empirical Software Engineering, 2023).

The model under test itself plays no part: the score is how certain the members are of the image, and they need not
agree with its answer. A member is trained as in the paper's classifiers: Adam, 15 epochs, batches of 128.

The three share their members. Fitted with the same parameters on the same images and labels, in one process, they train
them once, and observe a set of images once; `DeepEnsemble` is what they share. Members, classifiers or
torch modules, may also be handed in: `EnsembleMutualInformation.of(DeepEnsemble([first, second, third]))`.

Cost: training 20 networks, then 20 passes per image; on a GPU the members train as one computation.
Memory: the weights of the members; the scores of the last 64 sets of images.

Good at: ambiguous images and mistakes, better calibrated than any single pass; out-of-distribution images, with mutual
information. Bad at: cost; adversarial images made for another model often do not disturb the members.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.progress import Callback
from secondguess.supervisors._members import DeepEnsemble, EnsemblePlan, restored, trained
from secondguess.supervisors.base import Supervisor
from secondguess.supervisors.registry import register

__all__ = ["DeepEnsemble", "EnsembleMeanSoftmax", "EnsembleMutualInformation", "EnsemblePredictiveEntropy"]


class _EnsembleSupervisor(Supervisor):
    """A score of the answers of an ensemble.

    Args:
        members: how many networks are trained.
        architecture: a name of `secondguess.zoo`; `"auto"` picks a small one by the size of the images.
        epochs: passes of each over the nominal images.
        batch_size: images per step.
        seed: of weights and order.
        device: where to train and to score: `"auto"`, `"cpu"`, `"cuda"`, `"cuda:N"` or `"mps"`.
    """

    _which: ClassVar[str]
    _ensemble: DeepEnsemble | None = None
    _handed_in = False

    expensive: ClassVar[bool] = True
    shared: ClassVar[str] = "ensemble"

    def __init__(
        self,
        members: int = 20,
        architecture: str = "auto",
        epochs: int = 15,
        batch_size: int = 128,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        if members < 2:
            raise UserError(f"An ensemble of {members} was asked for; it takes two or more members to disagree.")
        self.members = members
        self.architecture = architecture
        self.epochs = epochs
        self.batch_size = batch_size
        self.seed = seed
        self.device = device

    @classmethod
    def of(cls, ensemble: DeepEnsemble) -> Self:
        """A supervisor, ready to score, of members that were trained elsewhere."""
        made = cls(members=len(ensemble))
        made._ensemble, made._handed_in = ensemble, True
        return made

    @property
    def is_fitted(self) -> bool:
        """Whether there are members."""
        return self._handed_in or super().is_fitted

    @property
    def needs(self) -> Needs:
        """The images."""
        return Needs(images=True)

    def save(self, path: str | Path) -> None:
        """Write parameters and the members' weights to one `.safetensors` file, atomically."""
        if self._handed_in:
            raise UserError(
                f"The members of this {self.name!r} were handed in, and what they are made of is not known here; save "
                "the models themselves and hand them in again."
            )
        super().save(path)

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        assert observation.pixels is not None  # checked against `needs`
        self._ensemble, self._handed_in = None, False
        truth = np.asarray(-1 if labels is None else labels, dtype=np.int64)
        if truth.max() < 0:
            raise UserError(
                f"The supervisor {self.name!r} trains classifiers of its own, and so needs the true labels of the "
                "nominal images; call fit(observation, labels)."
            )
        ensemble = trained(self._plan, observation.pixels, truth, observation.num_classes, Callback(self._advance))
        self._ensemble = ensemble
        self.shape_ = list(observation.pixels.shape)
        self.weights_ = ensemble.weights

    def _score(self, observation: Observation) -> NDArray[np.float64]:
        assert observation.pixels is not None  # checked against `needs`
        if self._ensemble is None:  # loaded from a file
            channels, height, width = self.shape_
            shape = (channels, height, width)
            self._ensemble = restored(self._plan, shape, observation.num_classes, self.weights_)
        if not self._handed_in and list(observation.pixels.shape) != list(self.shape_):
            raise UserError(
                f"The supervisor {self.name!r} was fitted on images of shape {tuple(self.shape_)}, but these are "
                f"{tuple(observation.pixels.shape)} (channels, height, width); load them alike."
            )
        return self._ensemble.scores(observation.pixels, observation.num_classes)[self._which].copy()

    @property
    def _plan(self) -> EnsemblePlan:
        return EnsemblePlan(**self.params())


@register
class EnsembleMeanSoftmax(_EnsembleSupervisor):
    """Suspicious = the largest probability of the members' mean is small: -max mean_i s^i.

    Args:
        members: how many networks are trained.
        architecture: a name of `secondguess.zoo`; `"auto"` picks a small one by the size of the images.
        epochs: passes of each over the nominal images.
        batch_size: images per step.
        seed: of weights and order.
        device: where to train and to score.
    """

    name = "ensemble_ms"
    _which = "ms"


@register
class EnsembleMutualInformation(_EnsembleSupervisor):
    """Suspicious = the members contradict each other: H(mean_i s^i) - mean_i H(s^i), in bits.

    The doubt that all members share is left out: weaker than the others on ambiguous images, and the one that separates
    an unknown image from an ambiguous one.

    Args:
        members: how many networks are trained.
        architecture: a name of `secondguess.zoo`; `"auto"` picks a small one by the size of the images.
        epochs: passes of each over the nominal images.
        batch_size: images per step.
        seed: of weights and order.
        device: where to train and to score.
    """

    name = "ensemble_mi"
    _which = "mi"


@register
class EnsemblePredictiveEntropy(_EnsembleSupervisor):
    """Suspicious = the members' mean is spread out: H(mean_i s^i), in bits.

    Args:
        members: how many networks are trained.
        architecture: a name of `secondguess.zoo`; `"auto"` picks a small one by the size of the images.
        epochs: passes of each over the nominal images.
        batch_size: images per step.
        seed: of weights and order.
        device: where to train and to score.
    """

    name = "ensemble_pe"
    _which = "pe"
