"""Agreement of the classes of a model with those of the data.

A model has its classes in the order of its outputs, a folder in that of its names. Labels are numbers, so both must
mean the same by a number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from secondguess.errors import UserError

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier

__all__ = ["agree", "in_order", "relabelled", "with_names_of"]


def agree(
    classifier: Classifier, images: ImageSet, more: ImageSet | None = None
) -> tuple[Classifier, ImageSet, ImageSet | None]:
    """Bring a classifier and one or two sets of images to the same classes in the same order.

    Args:
        classifier: one without class names takes over those of the images.
        images: with the model's classes in any order, or some of them.
        more: another set, such as the training images.

    Returns:
        The classifier, a copy if it was given names, and the sets with labels in the model's order.
    """
    classifier = with_names_of(classifier, images, more)
    names = classifier.class_names
    return classifier, relabelled(images, names), None if more is None else relabelled(more, names)


def with_names_of(classifier: Classifier, *sets: ImageSet | None) -> Classifier:
    """The classifier, with the class names of the first set that has some if it has none itself.

    Classes that are called "0", "1", ... were counted in the labels, where the last ones may be missing: the model says
    how many there are.
    """
    known = next((one for one in sets if one is not None and one.class_names), None)
    if classifier.class_names or known is None:
        return classifier
    names = known.class_names
    if names == _numbers(len(names)):
        names = _numbers(max(len(names), _count_classes(classifier, known)))
    return classifier.with_classes(names)


def _count_classes(classifier: Classifier, images: ImageSet) -> int:
    """How many classes the model gives, asked about one image."""
    raw, _ = classifier.backend.forward(classifier.normalised(classifier.source(images)[:1]))
    return raw.shape[1] if raw.ndim > 1 and raw.shape[1] > 1 else 2  # one score is that of the second of two classes


def _numbers(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))


def in_order(images: ImageSet, names: tuple[str, ...]) -> ImageSet:
    """The same images relabelled in the order of `names`, where they have these classes; else as they are.

    Images of other classes can be observed, for example to see how suspicious they are; `Observation.labels` refuses
    to give their labels.
    """
    try:
        return relabelled(images, names) if names else images
    except UserError:
        return images


def relabelled(images: ImageSet, names: tuple[str, ...]) -> ImageSet:
    """The same images with labels that count in the order of `names`.

    Classes that are called "0", "1", ... have no names of their own: their numbers are taken for the model's.
    """
    own = images.class_names
    if not own or own == names:
        return images
    if own == _numbers(len(own)) and len(own) <= len(names) and not set(own) <= set(names):
        places = np.arange(len(own))
    elif set(own) <= set(names):
        places = np.array([names.index(name) for name in own])
    else:
        strange = sorted(set(own) - set(names))
        raise UserError(
            f"{images.name} has the class {strange[0]!r}, which the model has not; its classes are "
            f"{', '.join(names[:10])}{' ...' if len(names) > 10 else ''}: name them as in the data, with --classes or "
            "in its model.toml."
        )
    soft = None
    if images.soft_labels is not None:
        soft = np.zeros((len(images), len(names)))
        soft[:, places] = images.soft_labels
    labels = np.where(images.labels < 0, -1, places[images.labels])
    return replace(images, labels=labels, soft_labels=soft, class_names=names)
