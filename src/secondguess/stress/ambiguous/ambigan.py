"""AmbiGAN: a generator of images that many classifiers find ambiguous.

Teixeira, Gomes, Soares, van Rijn, "Hubris benchmarking with AmbiGANs" (2025), for some classes of a data set:

1. train an ambiguity estimator of 50 small classifiers, and freeze it                        `estimator.py`
2. stage 1: train a GAN on the images of these classes together, 100 epochs                  `gan_step.py`
3. stage 2: 50 epochs more, with weights and optimiser as they are, on realism and ambiguity `gan_losses.py`
4. draw images; the paper takes 5,000 of them                                                `companion.py`

| method      | judge          | loss                         | source                  |
|-------------|----------------|------------------------------|-------------------------|
| `gasten`    | one classifier | confusion distance           | Cunha et al. 2023       |
| `gasten2`   | one classifier | Gaussian likelihood          | Teixeira et al. 2024    |
| `ambigan`   | estimator      | Gaussian likelihood, of mean | Teixeira et al. 2025    |
| `agreement` | estimator      | Gaussian, of every member    | ours, the default       |

Ours also differs in the judges and in the step, so that it is possible to make them all hesitate, and not possible by
fading: members see all images in turn and are calibrated (`estimator_for`), and steps are guarded (`gan_losses.py`).

Beyond the paper: any number of classes, a target r other than 1/2, a dial (`r="dial"`: the generator takes r as an
input, another one for every image), rejection of images, restarts after a collapse, and a search over alpha and the
variance from one stage 1 (`gan_selection.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from torch import nn

from secondguess.contracts.saving import Writable
from secondguess.devices import pick_device
from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.progress import Progress
from secondguess.stress.ambiguous.base import AmbiguousGenerator, AmbiguousImages
from secondguess.stress.ambiguous.companion import (
    Reality,
    Rejection,
    assemble_companion,
    companion_card,
    draw_companion,
)
from secondguess.stress.ambiguous.estimator import AmbiguityEstimator
from secondguess.stress.ambiguous.gan_losses import Combine, LossName, Target
from secondguess.stress.ambiguous.gan_networks import Gan, GanArchitecture
from secondguess.stress.ambiguous.gan_step import Ambiguity, GanRecipe
from secondguess.stress.ambiguous.gan_training import Collapsed, RealImages, Snapshot, Watch, fresh, train_stage
from secondguess.stress.ambiguous.gasten import ClassifierJudge, small_judge
from secondguess.stress.registry import register
from secondguess.training._examples import derive_seed

__all__ = ["METHODS", "AmbiGAN", "Method", "TrainedGan", "estimator_for"]

Method = Literal["agreement", "ambigan", "gasten", "gasten2"]
METHODS: dict[str, LossName] = {
    "agreement": "agreement",
    "ambigan": "gaussian",
    "gasten": "confusion",
    "gasten2": "gaussian",
}
ATTEMPTS = 3
GUARDED, UNGUARDED = (4.0, 0.01), (1.0, 0.1)  # alpha and variance if nothing is said


def estimator_for(method: Method, classes: Sequence[int], **options: Any) -> AmbiguityEstimator:
    """An untrained estimator: for `agreement` of members that can agree, calibrated and trained on all images in turn.

    Args:
        method: the method that will use it; the paper's estimator for the paper's methods.
        classes: the labels it tells apart.
        **options: parameters of `AmbiguityEstimator`, which go before those of the method.
    """
    ours: dict[str, Any] = {"subsets": "batch", "calibrated": True} if method == "agreement" else {}
    return AmbiguityEstimator(classes, **(ours | options))


@dataclass(frozen=True)
class TrainedGan:
    """A GAN after both stages, with the judges.

    Attributes:
        stage1: after stage 1, which another stage 2 can start from.
        stage2: after stage 2.
        estimator: that judges its images.
        attempts: how often each stage was begun; more than 1 after a collapse.
    """

    stage1: Snapshot
    stage2: Snapshot
    estimator: AmbiguityEstimator
    attempts: tuple[int, int]

    def generator(self, recipe: GanRecipe, device: str = "auto", *, stage: int = 2) -> Gan:
        """The networks after a stage, in evaluation mode on a device."""
        snapshot = self.stage1 if stage == 1 else self.stage2
        return snapshot.revive(recipe, pick_device(device))[0].eval()


def _dataclass(kind: Any) -> Writable:
    """A dataclass of settings, written field by field."""
    return Writable(
        kind, lambda one: {field.name: getattr(one, field.name) for field in fields(one)}, lambda d: kind(**d)
    )


@register
class AmbiGAN(AmbiguousGenerator):
    """Ambiguous images from a generative adversarial network that is trained to confuse classifiers.

    Args:
        classes: the labels between which images are made, two or more; the two most alike if left out.
        method: which judges and which loss are used; see the module's table.
        combine: `"sum"` of the losses, `"alternate"` steps on them, or a `"guarded"` step; guarded for `agreement` and
            the sum for all others if left out.
        alpha: weight of the ambiguity (`"sum"`), or norm to which its gradient is clipped (`"alternate"`); 0.5 to 1.5
            in the paper. Bound of its gradient in units of that of realism (`"guarded"`). 4 if guarded and 1 if not,
            if left out.
        variance: v of the Gaussian likelihood; 0.01 and 0.1 in the paper. 0.01 if guarded and 0.1 if not, if left out.
        r: target probability of the first class, targets of all classes, or `"dial"`.
        epochs: of stage 1 and stage 2; 100 and 50 in the paper.
        architecture: sizes of the networks; those of the paper if left out, which want a GPU.
        recipe: how to train them.
        estimator: an estimator of the same classes, trained or not; see `estimator_for` if left out.
        classifier: for `gasten` and `gasten2`, a module that gives logits of all classes; a small one is trained if
            left out.
        rejection: which images are thrown away.
        watch: epochs between checkpoints and sample sheets, and the threshold of a collapse; its folder is ignored.
        device: where to compute.
        folder: for estimator, checkpoints and sample sheets, so that an interrupted run goes on.
    """

    name = "ambiguous_ambigan"
    expensive: ClassVar[bool] = True

    def __init__(
        self,
        classes: Sequence[int] | None = None,
        *,
        method: Method = "agreement",
        combine: Combine | None = None,
        alpha: float | None = None,
        variance: float | None = None,
        r: float | Literal["dial"] | Sequence[float] = 0.5,
        epochs: tuple[int, int] = (100, 50),
        architecture: GanArchitecture | None = None,
        recipe: GanRecipe | None = None,
        estimator: AmbiguityEstimator | None = None,
        classifier: nn.Module | None = None,
        rejection: Rejection | None = None,
        watch: Watch | None = None,
        device: str = "auto",
        folder: str | Path | None = None,
    ) -> None:
        if method not in METHODS:
            raise UserError(f"There is no method {method!r}; there is {', '.join(METHODS)}.")
        combine = combine or ("guarded" if method == "agreement" else "sum")
        if combine not in get_args(Combine):
            raise UserError(f"combine is {combine!r}; it must be one of {', '.join(get_args(Combine))}.")
        usual = GUARDED if combine == "guarded" else UNGUARDED
        alpha, variance = usual[0] if alpha is None else alpha, usual[1] if variance is None else variance
        if alpha < 0 or variance <= 0 or min(epochs) < 0 or epochs[0] < 1:
            raise UserError(
                f"alpha={alpha}, variance={variance} and epochs={epochs} were given; alpha must not be negative, the "
                "variance must be positive, and stage 1 needs an epoch."
            )
        self.classes = None if classes is None else tuple(int(label) for label in classes)
        self.method: Method = method
        self.combine: Combine = combine
        self.alpha, self.variance, self.r = alpha, variance, r
        self.epochs, self.architecture, self.recipe = (epochs[0], epochs[1]), architecture, recipe or GanRecipe()
        self.estimator, self.classifier = estimator, classifier
        self.rejection, self.watch = rejection or Rejection(), watch or Watch()
        self.device = device
        self.folder = Path(folder) if folder is not None else None

    @classmethod
    def _writable(cls) -> Mapping[str, Writable]:
        kinds = {"architecture": GanArchitecture, "recipe": GanRecipe, "rejection": Rejection, "watch": Watch}
        return {**super()._writable(), **{f"a_gan_{name}": _dataclass(kind) for name, kind in kinds.items()}}

    def generate(
        self,
        train: ImageSet,
        count: int,
        *,
        seed: int = 0,
        progress: Progress | None = None,
        trained: TrainedGan | None = None,
    ) -> AmbiguousImages:
        """Make a companion set of `count` images; of fewer, if too many must be rejected.

        Args:
            train: labelled images.
            count: how many.
            seed: of everything random.
            progress: where to report.
            trained: what `train` returned, to draw from the same generator again.
        """
        if count < 1:
            raise UserError(f"{count} images were asked for; ask for at least one.")
        trained = trained or self.train(train, seed=seed, progress=progress)
        classes = trained.estimator.classes
        made = draw_companion(
            trained.generator(self.recipe, self.device),
            trained.estimator,
            Target.parse(self.r, len(classes)),
            count,
            rejection=self.rejection,
            reality=Reality.of(train, classes, seed=seed) if self.rejection.realism else None,
            seed=derive_seed(seed, 11),
            progress=progress,
        )
        card = companion_card(train, classes, made, count, self._settings(train) | {"seed": seed})
        card |= {
            "attempts": list(trained.attempts),
            "last_epoch": trained.stage2.history[-1] if trained.stage2.history else {},
            "estimator": trained.estimator.settings() | best_of(trained.estimator),
        }
        return AmbiguousImages(assemble_companion(train, classes, made, name="ambigan", seed=seed), card)

    def train(
        self,
        train: ImageSet,
        *,
        seed: int = 0,
        progress: Progress | None = None,
        stage1: Snapshot | None = None,
    ) -> TrainedGan:
        """Train the estimator, stage 1 and stage 2.

        Args:
            train: labelled images.
            seed: of everything random.
            progress: where to report.
            stage1: where stage 2 starts, instead of a stage 1 of its own.
        """
        estimator = self.fit_estimator(train, seed=seed, progress=progress)
        tries = 1
        if stage1 is None:
            stage1, tries = self.first_stage(train, seed=seed, progress=progress)
        classes = estimator.classes
        data = RealImages.of(train, classes, seed, pick_device(self.device))
        ambiguity = Ambiguity(
            self._judge(train, classes, estimator, seed), METHODS[self.method], self.combine, self.alpha, self.variance
        )
        stage = partial(
            train_stage,
            data=data,
            recipe=self.recipe,
            epochs=self.epochs[1],
            target=Target.parse(self.r, len(classes)),
            ambiguity=ambiguity,
            progress=progress,
        )
        settings = self._settings(train)
        del settings["rejection"]  # rejection does not affect the training
        key = [data.fingerprint, estimator.settings(), settings, stage1.epoch, seed]
        stage2, more = self._attempts(stage, lambda _: stage1, "stage2", key, seed)
        return TrainedGan(stage1, stage2, estimator, (tries, more))

    def fit_estimator(self, train: ImageSet, *, seed: int = 0, progress: Progress | None = None) -> AmbiguityEstimator:
        """The estimator: the one given, trained if it is not yet, or a new one; or the one in the folder."""
        classes = self._classes(train)
        estimator = self.estimator or estimator_for(self.method, classes, seed=seed, device=self.device)
        if estimator.classes != classes:
            raise UserError(f"The estimator knows the classes {estimator.classes}, not {classes}; give one that does.")
        if estimator.is_fitted:
            return estimator
        path = None
        if self.folder is not None:
            path = self.folder / f"estimator-{_digest([train.fingerprint, estimator.settings()])}.safetensors"
            if path.exists():
                return AmbiguityEstimator.load(path, device=self.device)
        estimator.fit(train, progress=progress)
        if path is not None:
            estimator.save(path)
        return estimator

    def first_stage(self, train: ImageSet, *, seed: int = 0, progress: Progress | None = None) -> tuple[Snapshot, int]:
        """The GAN after stage 1, and how often it was begun."""
        classes = self._classes(train)
        target = Target.parse(self.r, len(classes))
        data = RealImages.of(train, classes, seed, pick_device(self.device))
        architecture = self._architecture(train, target)
        begin = partial(fresh, train.shape, architecture, self.recipe)
        stage = partial(
            train_stage, data=data, recipe=self.recipe, epochs=self.epochs[0], target=target, progress=progress
        )
        key = [data.fingerprint, asdict(architecture), asdict(self.recipe), self.epochs[0], seed]
        return self._attempts(stage, begin, "stage1", key, seed)

    def _attempts(
        self,
        stage: Callable[..., Snapshot],
        begin: Callable[[int], Snapshot],
        name: str,
        key: list[Any],
        seed: int,
    ) -> tuple[Snapshot, int]:
        """Train a stage; after a collapse once more from its beginning, with other random numbers."""
        for attempt in range(ATTEMPTS):
            own = seed if attempt == 0 else derive_seed(seed, 13, attempt) % 2**32
            folder = None if self.folder is None else self.folder / f"{name}-{_digest(key)}-{attempt + 1}"
            try:
                return stage(begin(own), seed=own, watch=replace(self.watch, folder=folder)), attempt + 1
            except Collapsed:
                if attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _classes(self, train: ImageSet) -> tuple[int, ...]:
        if not train.is_labelled:
            raise UserError("Companion images are made between the classes of labelled images; these have no labels.")
        if self.classes is not None:
            return self.classes
        from secondguess.stress.ambiguous.pairs import choose_pairs

        return choose_pairs(train, "confused")[0]

    def _architecture(self, train: ImageSet, target: Target) -> GanArchitecture:
        dial = target.probabilities is None
        chosen = self.architecture or GanArchitecture.for_shape(train.shape)
        return replace(chosen, dial=dial, targets=target.inputs)

    def _judge(self, train: ImageSet, classes: tuple[int, ...], estimator: AmbiguityEstimator, seed: int) -> nn.Module:
        if self.method in ("agreement", "ambigan"):
            return estimator.module()
        if self.classifier is not None:
            return ClassifierJudge(self.classifier, classes).to(pick_device(self.device))
        return small_judge(train, classes, seed=seed, device=self.device)

    def _settings(self, train: ImageSet) -> dict[str, Any]:
        target = Target.parse(self.r, len(self._classes(train)))
        names = ("method", "combine", "alpha", "variance", "r", "epochs")
        return {name: getattr(self, name) for name in names} | {
            "architecture": asdict(self._architecture(train, target)),
            "recipe": asdict(self.recipe),
            "rejection": asdict(self.rejection),
        }


def best_of(estimator: AmbiguityEstimator) -> dict[str, float]:
    """Validation loss and accuracy of the epoch that counts."""
    return min(estimator.history, key=lambda row: row["validation_loss"]) if estimator.history else {}


def _digest(parts: list[Any]) -> str:
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode("utf-8"), digest_size=6).hexdigest()
