"""The plan of an estimate: what learning from labelled images costs here, and how large each part may be.

| part       | size                                               | where there is little time |
|------------|----------------------------------------------------|----------------------------|
| images     | images of unknown accuracy                         | stays                      |
| validation | labelled images that estimators learn from         | stays                      |
| train      | labelled images that rules are learnt from         | shortened last             |
| copies     | validation images that are shifted, for each shift | shortened                  |
| estimators | all of them, with their trials                     | stays                      |
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from secondguess.accuracy.shifted_copies import learnt_shifts, most_copies
from secondguess.images import ImageSet
from secondguess.model.classifier import Classifier
from secondguess.model.passes import CANARIES, NOISE
from secondguess.planning import Pace, Part, Plan, Price, timed
from secondguess.progress import Progress

__all__ = ["FEWEST_COPIES", "plan_estimate", "price_of_copies", "price_of_estimators", "price_of_rules"]

FEWEST_TRAIN, FEWEST_COPIES = 1000, 50  # images
TRIED = 2  # images whose shifting is timed
RULES, MANY = 2e-7, 30  # seconds for a pixel of an image that rules are learnt from, about; classes that double them
MOST_PIXELS = 4096  # beyond which rules look at larger cells instead
FITTING, TRIALS = 2.0, 1.0  # seconds for all estimators, and for trying them, about
OF_IMAGE, OF_CLASS = 2e-4, 8e-3  # and more for each image, and for each class; results/photos/times.json


def plan_estimate(
    classifier: Classifier,
    training: ImageSet,
    counts: tuple[int, int, int],
    minutes: float | None,
    *,
    sizes: Mapping[str, int] | None = None,
    models: int = 1,
    progress: Progress,
) -> Plan:
    """Time the model on a few images and size the parts of an estimate.

    Args:
        classifier: the model in question.
        training: labelled images, some of which are timed.
        counts: of training images to learn rules from, of validation images, and of images of unknown accuracy.
        minutes: that it may take; None for full sizes.
        sizes: of parts, by name, from a plan that is to be repeated.
        models: that look at the images: the one in question and its referees, each taken to be as slow.
        progress: where to report.
    """
    if minutes is None and not sizes:
        return Plan([])
    parts = _parts(Pace(classifier, training), *counts, models)
    return Plan.drawn_up(parts, 5, minutes, sizes=sizes, progress=progress)


def _parts(pace: Pace, training: int, validation: int, images: int, models: int) -> Iterator[Part]:
    observing = models * pace.passing()
    yield Part("images", "observe the images", _all(images, observing))
    yield Part("validation", "observe the validation images", _all(validation, observing))
    rules = price_of_rules(pace, training, essential=True)
    yield Part("train", "learn rules from the training images", rules)
    yield Part("copies", "observe shifted copies", price_of_copies(pace, validation, models))
    yield Part("estimators", "learn and try estimators", price_of_estimators(pace, images, trials=True))


def _all(count: int, each: float) -> Price:
    return Price(each, full=count, least=count, unit="images", essential=True)


def price_of_rules(pace: Pace, count: int, *, essential: bool = False) -> Price:
    """The observation of training images, and the rules that are learnt from them."""
    pixel = RULES * (1 + pace.images.num_classes / MANY)  # at every threshold, a tree counts the images of all classes
    pixels = min(math.prod(pace.images.shape), MOST_PIXELS)
    each = pace.passing() + pixel * pace.slowness * pixels
    return Price(each, full=count, least=FEWEST_TRAIN, unit="images", essential=essential)


def price_of_copies(pace: Pace, validation: int, models: int = 1, *, cached: bool = False) -> Price:
    """The shifted copies of validation images, made and observed; by how many of these are copied for each shift.

    Args:
        pace: of the model.
        validation: labelled images that could be copied.
        models: that look at the copies.
        cached: whether observations are kept, for which the model is asked about some more images at each shift.
    """
    shifts, some = learnt_shifts(pace.images.shape[0]), pace.images.head(TRIED).materialise()
    making = timed(lambda: [one.apply(some, 0) for one in shifts], pace.clock) / len(some)
    full = min(validation, most_copies(pace.images.shape))
    observing = len(shifts) * models * pace.passing()
    fixed = observing * (NOISE + CANARIES) * cached
    return Price(making + observing, fixed, full, FEWEST_COPIES, "copies", required=True)


def price_of_estimators(pace: Pace, images: int, *, trials: bool) -> Price:
    """All estimators of the accuracy on so many images, and their trials if there are any."""
    seconds = FITTING + TRIALS * trials + OF_IMAGE * images + OF_CLASS * pace.images.num_classes
    return Price(fixed=pace.slowness * seconds, essential=True)
