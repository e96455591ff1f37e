"""What fitting a supervisor costs, from fitting it on a few images."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.planning import Pace, Part, Price, paced, timed
from secondguess.supervisors.base import Supervisor

if TYPE_CHECKING:
    from secondguess.images import ImageSet

__all__ = ["parts_of_fits"]

TRIED, SHARE = (80, 400), 20  # images on which a fit is timed, and at most one of so many
SECONDS = 4.0  # that observing them may take, about
FIRST, LONG = 16, 1.0  # images of a first epoch; seconds beyond which a fit is long, and not repeated


def parts_of_fits(supervisors: Sequence[Supervisor], needs: Needs, train: ImageSet, pace: Pace) -> Iterator[Part]:
    """One part, `supervisor.NAME`, for every supervisor that has still to learn; in a plan with a part `train`.

    Args:
        supervisors: of which some learn.
        needs: what they need together of the training images.
        train: the training images.
        pace: of the classifier.
    """
    most = SECONDS / max(pace.observing(needs), 1e-9)
    few, some = (max(2, min(size, len(train) // SHARE, round(most * size / TRIED[-1]))) for size in TRIED)
    tried = train.head(some, seed=0)
    seen = pace.classifier.observe(tried, needs)
    # Of many classes a few images show a few; what is fitted class by class then costs an image more and more.
    growth = len(np.unique(train.labels)) / len(np.unique(tried.labels))
    for one in supervisors:
        yield Part(f"supervisor.{one.name}", f"fit {one.name}", _fitting(one, seen, few, pace, growth))


def _fitting(one: Supervisor, seen: Observation, few: int, pace: Pace, growth: float) -> Price:
    """The price of a fit, by the supervisor's dial and the training images; nothing where it cannot be fitted."""
    full = getattr(one, one.dial) if one.dial else 1
    short = one.clone(**{one.dial: 1}) if one.dial else one

    def fit(count: int) -> None:
        short.clone().fit(seen.take(slice(0, count)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if one.dial:  # something is trained, image by image: a slow training shows soon how slow it is
                each = paced(fit, min(FIRST, len(seen)), len(seen), pace.clock)
                return Price(each, 0.0, full, one.least, one.dial, per="train")
            began = pace.clock()
            fit(few)
            first = pace.clock() - began
            # What is imported or compiled first must not count, where it would count for much.
            seconds = [first if first > LONG else timed(partial(fit, few), pace.clock)]
            seconds.append(timed(partial(fit, len(seen)), pace.clock))
        except Exception:  # the reason is given when it is fitted on all images
            return Price(full=full, least=one.least, unit=one.dial)
    line = Price.line([few, len(seen)], seconds)
    return Price(growth * line.each, line.fixed, per="train")
