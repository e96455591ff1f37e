"""The labelled images that estimators learn from, brought into the form in which they learn.

Rules about the images of a class are learnt from training images, everything else from validation images,
which the model must not have been trained on. Where there are none, a part of the training images is held out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from secondguess.accuracy.oracles.icos import InputRules
from secondguess.accuracy.recommendation import WITH_RULES
from secondguess.errors import UserError
from secondguess.images import Dataset, ImageSet, load

__all__ = ["LabelledData", "LearntFrom", "labelled_images"]

HELD_OUT = 0.2  # of the training images, where there are no validation images
NO_RULES = f"No rules were given, so {WITH_RULES} is the average confidence after temperature scaling."
FEWEST = 10  # labelled validation images


@dataclass(frozen=True)
class LearntFrom:
    """What is remembered of images that something was learnt from.

    Attributes:
        name: of the set.
        images: how many.
        shape: (C, H, W).
        class_names: of the labels.
        fingerprint: of pixels, labels and class names.
        content_fingerprint: of the pixels alone.
    """

    name: str
    images: int
    shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    fingerprint: str
    content_fingerprint: str

    @classmethod
    def of(cls, images: ImageSet) -> LearntFrom:
        """What there is to remember of a set."""
        channels, height, width = images.shape
        prints = images.fingerprint, images.content_fingerprint
        return cls(images.name, len(images), (channels, height, width), images.class_names, *prints)

    def card(self) -> dict[str, Any]:
        """For reports."""
        return {
            "name": self.name,
            "images": self.images,
            "shape": list(self.shape),
            "fingerprint": self.fingerprint,
        }


@dataclass(frozen=True, eq=False)
class LabelledData:
    """The labelled images to learn from.

    Attributes:
        training: images the model was trained on.
        validation: images it was not trained on, at least ten.
        held_out: whether the validation images were taken from the training images.
        notes: what the user should know, one sentence each.
    """

    training: ImageSet
    validation: ImageSet
    held_out: bool
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls, training: ImageSet, validation: ImageSet | None, *, max_train: int, seed: int, limit: str = "max_train"
    ) -> LabelledData:
        """Hold validation images out where there are none, and limit the number of training images.

        Args:
            training: images the model was trained on.
            validation: images it was not trained on, if there are any.
            max_train: the largest number of training images.
            seed: of the choice.
            limit: the argument that sets this number, for the note.
        """
        notes: tuple[str, ...] = ()
        held_out = validation is None
        if validation is None:
            images = training
            validation, training = images.split(HELD_OUT, seed=seed)
            validation = replace(validation, name=f"{images.name}, held out")
            notes = (
                f"No validation images were given, so {len(validation):,} of the {len(images):,} training images were "
                "held out: if the model was trained on these too, every estimate flatters it.",
            )
        elif validation.content_fingerprint == training.content_fingerprint:
            raise UserError(
                f"The training images {training.name} and the validation images {validation.name} are the same images; "
                "a model that was trained on the validation images seems better than it is."
            )
        if len(validation) < FEWEST:
            raise UserError(f"There are {len(validation)} labelled validation images; at least {FEWEST} are needed.")
        if len(training) > max_train:
            notes += (
                f"Rules were learnt from {max_train:,} of {len(training):,} training images; `{limit}` changes that.",
            )
            training = training.head(max_train, seed=seed)
        return cls(training, validation, held_out, notes)

    def with_columns_of(self, rules: InputRules | None) -> LabelledData:
        """Empty entries for columns that rules use and validation images lack: rules then do not apply to them."""
        if rules is None:
            return replace(self, notes=(*self.notes, NO_RULES))
        filled = rules.filled(self.validation)
        if rules.coverage(filled) > 0:
            return replace(self, validation=filled)
        note = (
            "No validation image is in a partition of the rules, so they could not be tried: whether to trust "
            f"{WITH_RULES} is said as if there were none."
        )
        return replace(self, validation=filled, notes=(*self.notes, note))


def labelled_images(what: Any, role: str, loading: Mapping[str, Any]) -> ImageSet:
    """The images of a set, a data set or a path that have a label.

    Args:
        what: an `ImageSet`; a data set, or something to load as one: for the role "training" its training images, for
            the role "validation" its validation images; its test images where there are no such.
        role: "training" or "validation".
        loading: the arguments of `load`.
    """
    if isinstance(what, (str, Path)):
        loaded = load(what, **loading)
        what = replace(_part(loaded, role), name=str(what))
    images = _part(what, role) if isinstance(what, Dataset) else what
    if not isinstance(images, ImageSet):
        raise UserError(f"The {role} images are a {type(images).__name__}; give an ImageSet, or a path to load.")
    if not images.is_labelled:
        raise UserError(f"The {role} images {images.name} have no labels; labelled ones are needed to learn from.")
    return images if (images.labels >= 0).all() else images.take(images.labels >= 0)


def _part(data: Dataset, role: str) -> ImageSet:
    part = data.train if role == "training" else data.validation
    return data.test if part is None else part
