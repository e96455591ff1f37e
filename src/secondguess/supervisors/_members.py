"""The members of a deep ensemble: trained together or handed in, and kept, so that three supervisors share them."""

from __future__ import annotations

import hashlib
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.outputs import softmax
from secondguess.progress import Progress
from secondguess.supervisors._sampling_scores import mean_softmax, mutual_information, predictive_entropy

if TYPE_CHECKING:
    from torch import nn

    from secondguess.images import ImageSource
    from secondguess.model.classifier import Classifier
    from secondguess.training import Fleet

__all__ = ["DeepEnsemble", "EnsemblePlan", "restored", "trained"]

Scores = NDArray[np.float64]

SCORES: dict[str, Callable[[Scores], Scores]] = {
    "ms": mean_softmax,
    "mi": mutual_information,
    "pe": predictive_entropy,
}
ROWS, BLOCK_BYTES = 1024, 64 << 20  # images, and bytes of answers, at a time
KEPT_SETS = 64  # sets of images whose scores are kept, 24 bytes per image
KEPT_ENSEMBLES, KEPT_BYTES = 2, 256 << 20  # ensembles, and bytes of their weights, that outlive their users
SMALL, MEDIUM = 10, 40  # pixels per side


@dataclass(frozen=True)
class EnsemblePlan:
    """How members are trained.

    Attributes:
        members: how many.
        architecture: a name of the zoo; `"auto"` is `icos_b` for images below 10 pixels per side, `simple_cnn` up to 40
            pixels, and `cats_dogs_cnn` beyond.
        epochs: passes of each over the images.
        batch_size: images per step.
        seed: of weights and order; each member has its own, derived from it.
        device: where to train.
    """

    members: int = 20
    architecture: str = "auto"
    epochs: int = 15
    batch_size: int = 128
    seed: int = 0
    device: str = "auto"

    def builder(self, shape: tuple[int, int, int], num_classes: int) -> Callable[[int], nn.Module]:
        """The function that makes a member from its seed, for images (C, H, W) and K classes."""
        from secondguess import zoo

        name = self.chosen(shape)
        return lambda seed: zoo.make(name, num_classes=num_classes, input_shape=shape, seed=seed)

    def recipe(self, shape: tuple[int, int, int]) -> dict[str, Any]:
        """How members are trained: as the architecture's own recipe says, but for epochs and batch size."""
        from secondguess import zoo

        recipe = zoo.get(self.chosen(shape)).recipe.as_kwargs(fleet=True)
        return recipe | {"epochs": self.epochs, "batch_size": self.batch_size}

    def chosen(self, shape: tuple[int, int, int]) -> str:
        """The architecture for images (C, H, W)."""
        side = min(shape[1:])
        fitting = "icos_b" if side < SMALL else "simple_cnn" if side <= MEDIUM else "cats_dogs_cnn"
        return fitting if self.architecture == "auto" else self.architecture


class DeepEnsemble:
    """Several classifiers that answer together.

    Args:
        members: `Classifier`s, or anything that one is made of (torch modules, files, callables); at least two, with
            the same classes in the same order.
        device: where members that are not `Classifier`s yet run.

    Attributes:
        weights: of members that were trained here, every tensor stacked along a first axis for the members; else empty.
    """

    def __init__(self, members: Sequence[Any], *, device: str = "auto") -> None:
        from secondguess.model.classifier import Classifier

        made = [one if isinstance(one, Classifier) else Classifier(one, device=device) for one in members]
        self._become(len(made), lambda images: [one.predict(images) for one in made], {}, made)

    @classmethod
    def of_fleet(cls, fleet: Fleet, *, device: str = "auto") -> DeepEnsemble:
        """The members of a trained fleet, which run as one computation on a GPU."""
        import torch

        states = [member.state_dict() for member in fleet]
        made = cls.__new__(cls)
        made._become(
            len(fleet),
            lambda images: [softmax(logits) for logits in fleet.predict(images, device=device)],
            {name: torch.stack([state[name] for state in states]).numpy() for name in states[0]},
        )
        return made

    def _become(
        self,
        members: int,
        answer: Callable[[NDArray[np.float32]], list[Scores]],
        weights: dict[str, NDArray[Any]],
        handed_in: Sequence[Classifier] = (),
    ) -> None:
        if members < 2:
            raise UserError(f"An ensemble of {members} was asked for; it takes two or more members to disagree.")
        self.weights = weights
        self._members = members
        self._answer = answer
        self._handed_in = handed_in  # the caller may still change their weights
        self._seen: OrderedDict[tuple[str, int, tuple[str, ...]], Mapping[str, Scores]] = OrderedDict()

    def __len__(self) -> int:
        return self._members

    def scores(self, images: ImageSource, num_classes: int) -> Mapping[str, Scores]:
        """Mean softmax `ms`, mutual information `mi` and predictive entropy `pe`, each (n,), of n images.

        A set that was seen before, recognised by its content, is not observed again unless a member has changed since
        or, like a bare function, cannot be recognised.
        """
        marks = [one.fingerprint for one in self._handed_in]
        if None in marks:
            return self._scored(images, num_classes)
        key = (images.fingerprint, num_classes, tuple(str(mark) for mark in marks))
        if key not in self._seen:
            self._seen[key] = self._scored(images, num_classes)
        self._seen.move_to_end(key)
        while len(self._seen) > KEPT_SETS:
            self._seen.popitem(last=False)
        return self._seen[key]

    def _scored(self, images: ImageSource, num_classes: int) -> dict[str, Scores]:
        parts: dict[str, list[Scores]] = {name: [] for name in SCORES}
        rows = max(1, min(ROWS, BLOCK_BYTES // (8 * len(self) * num_classes)))
        for start in range(0, len(images), rows):
            answers = self._answer(images[start : start + rows])
            if wrong := [one.shape[1] for one in answers if one.shape[1] != num_classes]:
                raise UserError(
                    f"A member of the ensemble gives {wrong[0]} classes, but the observed model has {num_classes}; all "
                    "must tell the same classes apart."
                )
            samples = np.stack(answers, axis=1)
            for name, score in SCORES.items():
                parts[name].append(score(samples))
        return {name: np.concatenate(found) for name, found in parts.items()}


_in_use: weakref.WeakValueDictionary[Any, DeepEnsemble] = weakref.WeakValueDictionary()
_latest: OrderedDict[Any, DeepEnsemble] = OrderedDict()


def trained(
    plan: EnsemblePlan,
    images: ImageSource,
    labels: NDArray[np.int64],
    num_classes: int,
    progress: Progress | None = None,
) -> DeepEnsemble:
    """Train an ensemble, or give back the one that was trained by the same plan on the same images and labels.

    Args:
        plan: how.
        images: n images.
        labels: (n,); images labelled -1 are left out.
        num_classes: K.
        progress: where to report.
    """
    key = (plan, images.fingerprint, hashlib.blake2b(labels.tobytes(), digest_size=16).hexdigest(), num_classes)
    found = _in_use.get(key)
    if found is None:
        found = _in_use[key] = _train(plan, images, labels, num_classes, progress)
    if sum(array.nbytes for array in found.weights.values()) <= KEPT_BYTES:
        _latest[key] = found
        _latest.move_to_end(key)
        while len(_latest) > KEPT_ENSEMBLES:
            _latest.popitem(last=False)
    return found


def restored(
    plan: EnsemblePlan, shape: tuple[int, int, int], num_classes: int, weights: Mapping[str, NDArray[Any]]
) -> DeepEnsemble:
    """An ensemble from its stacked weights."""
    import torch

    from secondguess.training import Fleet

    build = plan.builder(shape, num_classes)
    members = [build(number) for number in range(plan.members)]
    for number, member in enumerate(members):
        # A number of its own has no axis left, and what comes out of an array then is no array any more.
        member.load_state_dict({name: torch.from_numpy(np.array(array[number])) for name, array in weights.items()})
    return DeepEnsemble.of_fleet(Fleet(members, np.zeros((0, plan.members))), device=plan.device)


def _train(
    plan: EnsemblePlan,
    images: ImageSource,
    labels: NDArray[np.int64],
    num_classes: int,
    progress: Progress | None,
) -> DeepEnsemble:
    from secondguess.images.sources import ViewSource
    from secondguess.training import train_fleet

    known = np.flatnonzero(labels >= 0)
    fleet = train_fleet(
        plan.builder(images.shape, num_classes),
        plan.members,
        images if len(known) == len(labels) else ViewSource(images, known),
        labels[known],
        **plan.recipe(images.shape),
        seed=plan.seed,
        device=plan.device,
        progress=progress,
    )
    return DeepEnsemble.of_fleet(fleet, device=plan.device)
