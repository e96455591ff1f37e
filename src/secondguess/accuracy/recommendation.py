"""Which estimate to report, or why none.

`rules_and_confidence` leads where rules were given and say something about at least half of the images: they are the
only knowledge that comes from outside the model. Else `synthetic_shifts` leads, the one method that has been tried on
kinds of shift that it did not learn from and knows its errors there. No other method ever does: each is far off under
some shift.

A number is not given where the leading method withholds it, or where its interval is wider than `widest`, 35 points by
default: it would exclude too little to act on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from secondguess.accuracy.base import Estimate
from secondguess.errors import UserError

__all__ = ["LEADING", "WIDEST", "WITH_RULES", "check_widest", "recommend"]

LEADING, WITH_RULES = "synthetic_shifts", "rules_and_confidence"
WIDEST = 0.35
COVERED = 0.5  # of the images, from which on rules lead


def recommend(estimates: Mapping[str, Estimate], *, covered: float = 0.0, widest: float = WIDEST) -> Estimate:
    """The estimate to report; `withheld` says why its number must not be.

    Args:
        estimates: by the name of the method; that of `synthetic_shifts` is among them.
        covered: the share of the images about which rules say something.
        widest: the widest interval with which a number is given.
    """
    best = estimates[WITH_RULES if covered >= COVERED and WITH_RULES in estimates else LEADING]
    if best.withheld or best.high - best.low <= widest:
        return best
    reason = (
        f"anything from {best.low:.0%} to {best.high:.0%} is plausible, and more than {100 * widest:.0f} points "
        "are too wide to be of use"
    )
    return replace(best, withheld=reason)


def check_widest(widest: float) -> float:
    """The same number; a `UserError` unless it is a width."""
    if not 0 < widest <= 1:
        raise UserError(
            f"The widest interval is {widest}; give a share above 0 and up to 1, such as 0.35 for 35 points."
        )
    return widest
