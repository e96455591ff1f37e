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

__all__ = ["agree", "relabelled"]


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
    names = classifier.class_names or images.class_names or (() if more is None else more.class_names)
    if names and not classifier.class_names:
        classifier = classifier.with_classes(names)
    return classifier, relabelled(images, names), None if more is None else relabelled(more, names)


def relabelled(images: ImageSet, names: tuple[str, ...]) -> ImageSet:
    """The same images with labels that count in the order of `names`.

    Classes that are called "0", "1", ... have no names of their own: their numbers are taken for the model's.
    """
    own = images.class_names
    if not own or own == names:
        return images
    if own == tuple(map(str, range(len(own)))) and len(own) <= len(names) and not set(own) <= set(names):
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
