"""What fitting a supervisor costs, from fitting it on a few images."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.planning import Pace, Part, Price, timed
from secondguess.supervisors.base import Supervisor

if TYPE_CHECKING:
    from secondguess.images import ImageSet

__all__ = ["parts_of_fits"]

TRIED, SHARE = (80, 240), 20  # images on which a fit is timed, and at most one of so many
SECONDS = 4.0  # that observing them may take, about


def parts_of_fits(supervisors: Sequence[Supervisor], needs: Needs, train: ImageSet, pace: Pace) -> Iterator[Part]:
    """One part, `supervisor.NAME`, for every supervisor that has still to learn; in a plan with a part `train`.

    Args:
        supervisors: of which some learn.
        needs: what they need together of the training images.
        train: the training images.
        pace: of the classifier.
    """
    most = SECONDS / max(pace.observing(needs), 1e-9)
    few = [max(2, min(size, len(train) // SHARE, round(most * size / sum(TRIED)))) for size in TRIED]
    tried = [train.head(size, seed=0) for size in few]
    seen = [pace.classifier.observe(images, needs) for images in tried]
    # Of many classes a few images show a few; what is fitted class by class then costs an image more and more.
    growth = len(np.unique(train.labels)) / len(np.unique(tried[-1].labels))
    for one in supervisors:
        yield Part(f"supervisor.{one.name}", f"fit {one.name}", _fitting(one, seen, pace, growth))


def _fitting(one: Supervisor, seen: Sequence[Observation], pace: Pace, growth: float) -> Price:
    """The price of a fit, by the supervisor's dial and the training images; nothing where it cannot be fitted."""
    full = getattr(one, one.dial) if one.dial else 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            short = one.clone(**{one.dial: 1}) if one.dial else one
            short.clone().fit(seen[0])  # what is imported or compiled first must not count
            seconds = [timed(partial(short.clone().fit, part), pace.clock) for part in seen]
        except Exception:  # the reason is given when it is fitted on all images
            return Price(full=full, least=one.least, unit=one.dial)
    line = Price.line([len(part) for part in seen], seconds)
    if one.dial:
        return Price(line.each, line.fixed, full, one.least, one.dial, per="train")
    return Price(growth * line.each, line.fixed, per="train")
