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

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import MissingExtra, UserError
from secondguess.guard.foreign_objects import foreign_objects
from secondguess.progress import Progress, Silent
from secondguess.stress import CORRUPTIONS, Adversarial, Corrupted, Invalid, StressSet
from secondguess.stress.generated import alternate

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier

__all__ = [
    "StressSplit",
    "held_out_corruptions",
    "invalid_images",
    "learnt_corruptions",
    "leave_one_sort_out",
    "make_stress_split",
]

Ambiguity = Literal["ambiguess", "blend"]
LEARNT_ATTACKS, HELD_OUT_ATTACKS = ("fgsm", "pgd"), ("bim", "deepfool")
AUTOENCODER_IMAGES = 6000  # training images of the autoencoders behind ambiguous images, where there is no GPU
FEWEST = 10  # images of a kind, from which something can be learnt


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


def learnt_corruptions() -> tuple[str, ...]:
    """Every other corruption; they are listed by family, so that there are some of each."""
    return tuple(name for name in CORRUPTIONS if name != "identity")[0::2]


def held_out_corruptions() -> tuple[str, ...]:
    """The corruptions that no guard learns from."""
    return tuple(name for name in CORRUPTIONS if name != "identity")[1::2]


def leave_one_sort_out(sorts: NDArray[Any]) -> Iterator[tuple[str, NDArray[np.int64], NDArray[np.int64]]]:
    """Every sort of a stress set in turn, the images of all others to learn from, and its own to be tested on.

    Args:
        sorts: (n,) of which sort each image is, such as the column `corruption`.
    """
    for sort in np.unique(sorts):
        yield str(sort), np.flatnonzero(sorts != sort), np.flatnonzero(sorts == sort)


def make_stress_split(
    classifier: Classifier,
    train: ImageSet,
    learn: ImageSet,
    test: ImageSet,
    *,
    ambiguous: Ambiguity = "ambiguess",
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
        ambiguous: the generator; `"blend"` costs nothing, but its double exposures teach little about true ambiguity.
        attacked: the most images that are attacked for each of the two.
        seed: of everything random.
        device: where generators compute.
        progress: where to report.
    """
    makers: dict[str, Callable[[], tuple[ImageSet, ImageSet]]] = {
        "ambiguous": lambda: _ambiguous(train, len(learn) + len(test), ambiguous, seed, device, progress or Silent()),
        "corrupted": lambda: (
            Corrupted(learnt_corruptions()).make(learn, seed=seed),
            Corrupted(held_out_corruptions()).make(test, seed=seed + 1),
        ),
        "adversarial": lambda: (
            _fooled(Adversarial(LEARNT_ATTACKS, limit=attacked), learn, train, classifier, seed, progress),
            _fooled(Adversarial(HELD_OUT_ATTACKS, limit=attacked), test, train, classifier, seed + 1, progress),
        ),
        "invalid": lambda: (invalid_images(learn, seed=seed), invalid_images(test, seed=seed + 1)),
    }
    made: dict[str, tuple[ImageSet, ImageSet]] = {}
    notes: list[str] = []
    for kind, make in makers.items():
        try:
            made[kind] = make()
        except MissingExtra as error:
            notes.append(f"No {kind} images were made: {error}")
        except _TooFew as error:
            notes.append(f"No {kind} images to learn from: {error}")
        except UserError as error:
            if kind != "ambiguous" or ambiguous == "blend":
                raise
            notes.append(f"Ambiguous images are plain blends, which teach little about true ambiguity: {error}")
            made[kind] = _ambiguous(train, len(learn) + len(test), "blend", seed, device, progress or Silent())
    return StressSplit(
        {kind: two[0] for kind, two in made.items()}, {kind: two[1] for kind, two in made.items()}, tuple(notes)
    )


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


def _fooled(
    attack: StressSet, nominal: ImageSet, train: ImageSet, classifier: Classifier, seed: int, progress: Progress | None
) -> ImageSet:
    """The images that an attack has changed together with the prediction."""
    images = attack.make(nominal, train=train, classifier=classifier, seed=seed, progress=progress)
    fooled = images.columns["success"] & (images.columns["epsilon"] > 0)
    if fooled.sum() < FEWEST:
        raise _TooFew(f"only {int(fooled.sum())} of {len(images)} attacks fooled the classifier.")
    return images.take(fooled)


def _ambiguous(
    train: ImageSet, count: int, generator: Ambiguity, seed: int, device: str, progress: Progress
) -> tuple[ImageSet, ImageSet]:
    """Ambiguous images between every other pair of classes, and between the others."""
    from secondguess.devices import pick_device
    from secondguess.stress.ambiguous import AmbiGuess, PixelBlend

    if generator == "blend":
        images = PixelBlend().generate(train, count, seed=seed, progress=progress).images
    else:
        some = train if pick_device(device).type == "cuda" else train.head(AUTOENCODER_IMAGES, seed=seed)
        images = AmbiGuess(autoencoders=1, device=device).generate(some, count, seed=seed, progress=progress).images
    pairs = images.columns["class_1"] * train.num_classes + images.columns["class_2"]
    found, place = np.unique(pairs, return_inverse=True)
    # Of a single pair, every other image.
    turn = place % 2 if len(found) > 1 else np.arange(len(images)) % 2
    return images.take(turn == 0), images.take(turn == 1)
