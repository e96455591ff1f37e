"""What a stress set costs to make: what it says itself, or what making a few images took."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from secondguess.errors import UserError
from secondguess.planning import Pace, Price, timed
from secondguess.progress import Silent
from secondguess.stress.base import Given, StressSet

__all__ = ["price_of_set"]

MADE, SHARE = (8, 24), 20  # images whose making is timed, and at most one of so many


def price_of_set(one: StressSet, pace: Pace, given: Given, observing: float, of: str = "") -> Price:
    """The price of making a set and of observing its images; one that cannot be made costs nothing.

    Args:
        one: the stress set.
        pace: how fast the classifier answers here.
        given: what it will be made of.
        observing: seconds for each image that is observed afterwards.
        of: the part of the plan that decides how many images there are to make it of; "" where that is settled.
    """
    try:
        price = one.price(pace, given) or _tried(one, pace, given)
    except UserError as error:
        return Price(full=len(given.nominal), unit="images", hindrance=str(error))
    except Exception:  # the reason is given when the set is made
        return Price(full=len(given.nominal), unit="images")
    if price.unit == "images":
        return replace(price, each=price.each + observing, within=of)
    if of:
        return replace(price, beside={of: observing})
    return replace(price, fixed=price.fixed + observing * len(given.nominal))


def _tried(one: StressSet, pace: Pace, given: Given) -> Price:
    count = len(given.nominal)
    few = [max(2, min(size, count // SHARE)) for size in MADE]
    some = [replace(given, nominal=given.nominal.head(size), progress=Silent(), folder=None) for size in few]
    one.make(**vars(some[0]))  # what is imported first must not count
    seconds = [timed(partial(_made, one, part), pace.clock) for part in some]
    return Price.line(few, seconds, full=count, least=one.least, unit="images")


def _made(one: StressSet, given: Given) -> None:
    one.make(**vars(given)).materialise()
