"""Stress sets made of the user's own images: some to fit a guard on, and others, of other sorts, to test it on.

| kind        | to learn from                          | to be tested on                                         |
|-------------|----------------------------------------|---------------------------------------------------------|
| ambiguous   | every other pair of classes            | the pairs between                                       |
| corrupted   | every other corruption                 | the corruptions between                                 |
| adversarial | fgsm, pgd                              | bim, deepfool                                           |
| invalid     | photos, textures, shuffled images, and | the same sorts, made of other images with another seed  |
|             | `foreign_objects` for every other image    |                                                         |

What is reported of a guard is thus its behaviour on sorts of anomaly that it was not fitted on, as far as they can be
made.

Only attacks that changed the image and the answer count: an image that was misclassified as it is, or that withstood,
is as nominal as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from secondguess.devices import pick_device
from secondguess.errors import MissingExtra, UserError
from secondguess.guard.foreign_objects import foreign_objects
from secondguess.guard.unfinished import Unfinished
from secondguess.guard.verdicts import OF_STRESS
from secondguess.planning import OutOfTime, Pace, Plan, Price
from secondguess.progress import Progress, Silent
from secondguess.stress import CORRUPTIONS, Adversarial, Corrupted, Given, Invalid, StressSet
from secondguess.stress.base import GENERATOR
from secondguess.stress.generated import alternate
from secondguess.stress.pricing import price_of_set

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier
    from secondguess.stress.ambiguous.base import AmbiguousGenerator

__all__ = [
    "StressMaker",
    "StressSplit",
    "held_out_corruptions",
    "invalid_images",
    "learnt_corruptions",
    "make_stress_split",
]

LEARNT_ATTACKS, HELD_OUT_ATTACKS = ("fgsm", "pgd"), ("bim", "deepfool")
AUTOENCODER_IMAGES = 6000  # training images of the autoencoders behind ambiguous images, where there is no GPU
FEWEST = 10  # images of a kind, from which something can be learnt
LEAST = 2  # without which nothing can be fitted


@dataclass(frozen=True)
class StressSplit:
    """Stress sets by kind: `ambiguous`, `corrupted`, `adversarial`, `invalid`.

    Attributes:
        learn: to learn from.
        test: of other sorts, to be tested on; may lack kinds, about which nothing is then reported.
        notes: what could not be made, and why, one sentence each.
    """

    learn: Mapping[str, ImageSet]
    test: Mapping[str, ImageSet] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if unknown := sorted({*self.learn, *self.test} - OF_STRESS.keys()):
            raise UserError(f"A StressSplit has no kind {unknown[0]!r}; its kinds are {', '.join(OF_STRESS)}.")
        if few := [kind for kind, images in self.learn.items() if len(images) < LEAST]:
            raise UserError(
                f"A StressSplit has {len(self.learn[few[0]])} {few[0]} images to learn from; give {LEAST} or more, "
                "better hundreds: a panel learns from some and is checked on others."
            )


def learnt_corruptions() -> tuple[str, ...]:
    """Every other corruption; they are listed by family, so that there are some of each."""
    return tuple(name for name in CORRUPTIONS if name != "identity")[0::2]


def held_out_corruptions() -> tuple[str, ...]:
    """The corruptions that no guard learns from."""
    return tuple(name for name in CORRUPTIONS if name != "identity")[1::2]


def make_stress_split(
    classifier: Classifier,
    train: ImageSet,
    learn: ImageSet,
    test: ImageSet,
    *,
    ambiguous: str = "auto",
    attacked: int = 500,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
) -> StressSplit:
    """Make the stress sets of a guard.

    Args:
        classifier: is attacked.
        train: labelled images, between whose classes ambiguous ones are made.
        learn: nominal images, of which those to learn from are made.
        test: other nominal images, of which those to be tested on are made.
        ambiguous: the generator: `"auto"`, `"ambiguess"`, `"flow"`, `"blend"` or `"none"`; blends cost nothing, but
            these double exposures teach little about true ambiguity.
        attacked: the most images that are attacked for each of the two.
        seed: of everything random.
        device: where generators compute.
        progress: where to report.
    """
    how: Any = {"ambiguous": ambiguous, "attacked": attacked, "seed": seed, "device": device}
    return StressMaker(classifier, train, learn, test, **how).make(progress=progress)


@dataclass
class StressMaker:
    """What the stress sets of a guard are made of; the attributes are the arguments of `make_stress_split`."""

    classifier: Classifier
    train: ImageSet
    learn: ImageSet
    test: ImageSet
    ambiguous: str = "auto"
    attacked: int = 500
    seed: int = 0
    device: str = "auto"
    folder: Path | None = None
    _surrogate: Classifier | None = field(default=None, init=False, repr=False)  # of a classifier without gradients

    def __post_init__(self) -> None:
        from secondguess.stress.ambiguous.choosing import choose_generator  # needs torch, as only fitting does

        where: Any = {"device": self.device, "folder": self.folder and self.folder / GENERATOR}
        self.generator, self.note = choose_generator(self.ambiguous, self.train, **where)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of stress sets, in the order in which they are made."""
        return (*(() if self.generator is None else ("ambiguous",)), "corrupted", "adversarial", "invalid")

    def price(self, kind: str, pace: Pace, observing: float) -> Price:
        """What both sets of a kind cost: those to learn from, and those to be tested on."""
        full = len(self.learn) + len(self.test)
        if kind == "ambiguous" and self.generator is not None:
            where: Any = {"device": self.device, "folder": self.folder}
            given = Given(self.learn, self._autoencoded, self.classifier, self.seed, **where)
            price = price_of_set(self.generator, pace, given, observing)
            return replace(price, full=full) if price.unit == "images" else price
        given = Given(self.learn, self.train, self.classifier, self.seed)
        if kind == "adversarial":  # both sets have one surrogate, as one set of all their images would
            full = min(len(self.learn), self.attacked) + min(len(self.test), self.attacked)
            given = replace(given, nominal=self.learn.take(np.arange(full) % len(self.learn)))
            price = price_of_set(Adversarial(limit=full), pace, given, observing)
            return replace(price, least=min(full, 2 * Adversarial.least))
        one = _SAMPLES[kind]
        price = price_of_set(one, pace, given, observing)
        # A part has two sets.
        return replace(price, fixed=2 * price.fixed, full=full, least=min(full, 2 * one.least))

    def make(
        self, plan: Plan | None = None, unfinished: Unfinished | None = None, progress: Progress | None = None
    ) -> StressSplit:
        """All sets, as large as a plan allows; those that are kept of an interrupted fit are not made again."""
        from secondguess.stress.ambiguous import PixelBlend
        from secondguess.stress.ambiguous.choosing import BLENDS, cheaper_generator

        plan, progress = plan or Plan([]), progress or Silent()
        unfinished = unfinished or Unfinished(None, None)
        made: dict[str, tuple[ImageSet, ImageSet]] = {}
        notes = [self.note] if self.note else []
        # What costs next to nothing comes first: a guard has it, whatever becomes of the others.
        for kind in sorted(self.kinds, key=("corrupted", "invalid", "ambiguous", "adversarial").index):
            try:
                with plan.doing(f"stress.{kind}"):
                    made[kind] = self._both(kind, plan.reduced(f"stress.{kind}"), unfinished, progress)
            except (MissingExtra, OutOfTime) as error:
                cheaper = cheaper_generator(self.generator) if kind == "ambiguous" else None
                if cheaper is None:
                    notes.append(f"No {kind} images were made: {error}")
                    continue
                notes.append(f"{BLENDS}: {error}")
                made[kind] = self._generated(cheaper, progress)
            except _TooFew as error:
                notes.append(f"No {kind} images to learn from: {error}")
            except UserError as error:
                if kind != "ambiguous" or isinstance(self.generator, PixelBlend):
                    raise
                notes.append(f"{BLENDS}: {error}")
                made[kind] = self._generated(PixelBlend(), progress)
        known = [kind for kind in self.kinds if kind in made]
        learn, test = ({kind: made[kind][which] for kind in known} for which in (0, 1))
        return StressSplit(learn, test, tuple(notes))

    def _generated(self, generator: AmbiguousGenerator, progress: Progress) -> tuple[ImageSet, ImageSet]:
        """Both sets by a generator that takes the place of the one that was meant."""
        return _parted(generator.generate(self.train, self._count, seed=self.seed, progress=progress).images)

    @property
    def _count(self) -> int:
        return len(self.learn) + len(self.test)

    @cached_property
    def _autoencoded(self) -> ImageSet:
        """The training images of a generator."""
        from secondguess.stress.ambiguous import AmbiGuess

        if not isinstance(self.generator, AmbiGuess) or pick_device(self.device).type == "cuda":
            return self.train
        return self.train.head(AUTOENCODER_IMAGES, seed=self.seed)

    def _both(
        self, kind: str, size: int | None, unfinished: Unfinished, progress: Progress
    ) -> tuple[ImageSet, ImageSet]:
        """The set to learn from and the set to be tested on, of `size` together; as large as usual if left out."""

        def kept(name: str, make: Callable[[], ImageSet]) -> ImageSet:
            return unfinished.images(name, [size, self.ambiguous, self.attacked], make)

        if kind == "ambiguous":
            both = kept(kind, lambda: self._ambiguous(size, progress))
            return _parted(both)
        makers = (self._learnt, self._held_out)
        first, second = (
            kept(f"{kind}/{number}", partial(make, kind, None if size is None else max(1, size // 2), progress))
            for number, make in enumerate(makers)
        )
        return first, second

    def _learnt(self, kind: str, size: int | None, progress: Progress) -> ImageSet:
        if kind == "adversarial":
            return self._fooled(LEARNT_ATTACKS, self.learn, size, self.seed, progress)
        nominal = self.learn.head(size or len(self.learn), seed=self.seed)
        if kind == "corrupted":
            return Corrupted(learnt_corruptions()).make(nominal, seed=self.seed)
        return invalid_images(nominal, seed=self.seed)

    def _held_out(self, kind: str, size: int | None, progress: Progress) -> ImageSet:
        if kind == "adversarial":
            return self._fooled(HELD_OUT_ATTACKS, self.test, size, self.seed + 1, progress)
        nominal = self.test.head(size or len(self.test), seed=self.seed)
        if kind == "corrupted":
            return Corrupted(held_out_corruptions()).make(nominal, seed=self.seed + 1)
        return invalid_images(nominal, seed=self.seed + 1)

    def _fooled(
        self, attacks: tuple[str, ...], nominal: ImageSet, size: int | None, seed: int, progress: Progress
    ) -> ImageSet:
        """The images that an attack has changed together with the prediction."""
        attack = Adversarial(attacks, limit=self.attacked).turned(size)
        # One surrogate serves both halves: it learns from training images and the model's answers to them, so that it
        # has seen no image of either half, and attacks on one cannot tell a guard anything about the other. What the
        # halves share is the model that is attacked in place of the user's, as they share the user's where it has
        # gradients; the attacks differ.
        if self._surrogate is None:
            given = Given(nominal, self.train, self.classifier, self.seed, progress)
            self._surrogate = attack.prepared(given).surrogate
        attack = attack.clone(surrogate=self._surrogate)
        images = attack.make(nominal, train=self.train, classifier=self.classifier, seed=seed, progress=progress)
        fooled = images.columns["success"] & (images.columns["epsilon"] > 0)
        if fooled.sum() < FEWEST:
            raise _TooFew(f"only {int(fooled.sum())} of {len(images)} attacks fooled the classifier.")
        return images.take(fooled)

    def _ambiguous(self, size: int | None, progress: Progress) -> ImageSet:
        """Ambiguous images, `size` of them or of as many pairs of classes, whatever the generator counts."""
        assert self.generator is not None
        one = self.generator.turned(size) if self.generator.dial else self.generator
        count = self._count if self.generator.dial or size is None else size
        nominal = self.learn.take(np.arange(count) % len(self.learn))  # as many as are wanted; a generator counts them
        where: Any = {"seed": self.seed, "progress": progress, "device": self.device, "folder": self.folder}
        return one.make(nominal, train=self._autoencoded, classifier=self.classifier, **where)


def invalid_images(nominal: ImageSet, *, seed: int) -> ImageSet:
    """Images of no class: `foreign_objects`, and the mix of `secondguess.stress.Invalid`, in turns."""
    from secondguess.images import ImageSet

    count = len(nominal)
    mixed = Invalid().make(nominal, seed=seed)
    parts = (foreign_objects(nominal, seed=seed), mixed.take(np.arange(count) % len(mixed)))
    rows = np.arange(count) // 2
    sources = np.where(np.arange(count) % 2, parts[1].columns["source"][rows], parts[0].columns["source"][rows])
    return ImageSet.from_source(
        alternate([part.images for part in parts], count),
        np.full(count, -1, dtype=np.int64),
        class_names=nominal.class_names,
        columns={"source": sources},
        name=f"invalid {nominal.name}",
    )


class _TooFew(Exception):
    """Too few images of a kind of anomaly could be made."""


def _parted(images: ImageSet) -> tuple[ImageSet, ImageSet]:
    """Ambiguous images between every other pair of classes, and between the others."""
    pairs = images.columns["class_1"] * images.num_classes + images.columns["class_2"]
    found, place = np.unique(pairs, return_inverse=True)
    # Of a single pair, every other image.
    turn = place % 2 if len(found) > 1 else np.arange(len(images)) % 2
    return images.take(turn == 0), images.take(turn == 1)


_SAMPLES: dict[str, StressSet] = {"corrupted": Corrupted(), "invalid": Invalid()}  # what their making costs, about
