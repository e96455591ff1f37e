"""Agreement of the classes of a model with those of the data.

A model has its classes in the order of its outputs, a folder in that of its names. Labels are numbers, so both must
mean the same by a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from secondguess.errors import UserError
from secondguess.model.description_fields import PRESENT

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
    if classifier.description.keep == PRESENT:
        classifier = classifier.keeping(_present(classifier, images))
    names, mapping = classifier.class_names, classifier.description.names
    test = relabelled(_of_kept(classifier, images), names, mapping)
    return classifier, test, None if more is None else relabelled(_of_kept(classifier, more), names, mapping)


def _present(classifier: Classifier, images: ImageSet) -> tuple[str, ...]:
    """The model's classes that some of the images belong to, in the model's order."""
    known = relabelled(images, classifier.description.classes, classifier.description.names)
    return tuple(known.class_names[k] for k in np.unique(known.labels[known.labels >= 0]))


def _of_kept(classifier: Classifier, images: ImageSet) -> ImageSet:
    """The images without those of classes that the model has, but is not to choose from."""
    dropped = set(classifier.description.classes) - set(classifier.class_names)
    own = [classifier.description.names.get(name, name) for name in images.class_names]
    left = np.array([name not in dropped for name in own], dtype=bool)
    if left.all():
        return images
    some = images.take(np.flatnonzero((images.labels < 0) | left[images.labels]))
    labels = np.where(some.labels < 0, -1, (np.cumsum(left) - 1)[some.labels])
    soft = None if some.soft_labels is None else some.soft_labels[:, left]
    names = tuple(name for name, stays in zip(images.class_names, left, strict=True) if stays)
    return replace(some, labels=labels, soft_labels=soft, class_names=names)


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


def in_order(images: ImageSet, names: tuple[str, ...], mapping: Mapping[str, str] | None = None) -> ImageSet:
    """The same images relabelled in the order of `names`, where they have these classes; else as they are.

    Images of other classes can be observed, for example to see how suspicious they are; `Observation.labels` refuses
    to give their labels.
    """
    try:
        return relabelled(images, names, mapping) if names else images
    except UserError:
        return images


def relabelled(images: ImageSet, names: tuple[str, ...], mapping: Mapping[str, str] | None = None) -> ImageSet:
    """The same images with labels that count in the order of `names`.

    Classes that are called "0", "1", ... have no names of their own: their numbers are taken for the model's.

    Args:
        images: with some of these classes.
        names: of the model's classes, in its order.
        mapping: what the model calls classes of the images, where that differs; several may become one.
    """
    if images.class_names == names:
        return images
    own = tuple((mapping or {}).get(name, name) for name in images.class_names)
    if not own:
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
            f"in its model.toml, or say there which one it is ([names] {strange[0]} = ...)."
        )
    return images.among(names, places)
