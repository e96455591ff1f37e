"""What nominal images that nothing was fitted on settle: p-values, and the limit of a promised risk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.guard.pipeline import Settings
from secondguess.guard.protect import Answers
from secondguess.guard.risk import RiskControl, RiskPromise
from secondguess.guard.thresholds import Calibration, smallest_sample
from secondguess.metrics import wilson

__all__ = ["Calibrated", "calibrate", "check_enough", "check_labels", "check_right"]

Floats = NDArray[np.float64]
FEWEST = 2  # images that a panel can learn from


@dataclass(frozen=True, eq=False)
class Calibrated:
    """What nominal images have settled.

    Attributes:
        calibration: of the statistics of those on which an alarm would be false.
        limit: above which a statistic is an alarm, where a risk is promised.
        promise: of the risk.
        quiet: (n,) on which images an alarm would be false.
    """

    calibration: Calibration
    limit: float | None
    promise: RiskPromise | None
    quiet: NDArray[np.bool_]

    def report(self, settings: Settings, statistics: Floats) -> dict[str, Any]:
        """What a report says of nominal images, from the statistics (n,) of them."""
        quiet = statistics[self.quiet]
        if self.limit is None:
            rate = self.calibration.realised(settings.false_alarms)
        else:
            rate = wilson(int((quiet > self.limit).sum()), len(quiet))
        return {"protect": settings.protect, "false_alarms": rate, "calibrated_on": len(quiet), "promise": self.promise}


def calibrate(
    statistics: Floats,
    classes: NDArray[np.int64],
    answers: Answers,
    settings: Settings,
    control: RiskControl | None,
) -> Calibrated:
    """Calibrate on nominal images.

    Args:
        statistics: (n,) of the images.
        classes: (n,) predicted.
        answers: which of these are right.
        settings: of the guard.
        control: of the risk, where one is to be promised.
    """
    check_labels(answers, settings)
    quiet, limit, promise = answers.quiet(settings.protect), None, None
    if not quiet.any():
        raise UserError("All nominal images are answered wrongly, so there is no false alarm; check their labels.")
    minimum = 1
    if control is not None:
        limit, promise = control.promise(statistics[answers.known], answers.wrong[answers.known])
    else:
        minimum = smallest_sample(settings.false_alarms)
        check_enough(answers, settings)
    found = Calibration.of(statistics[quiet], classes[quiet] if settings.per_class else None, minimum=minimum)
    return Calibrated(found, limit, promise, quiet)


def check_labels(answers: Answers, settings: Settings) -> None:
    """Raise a `UserError` where labels are needed and there are none."""
    if answers.known.any() or (settings.risk is None and settings.protect != "errors"):
        return
    what = "protect against errors" if settings.risk is None else "promise a risk"
    raise UserError(f"The nominal images have no labels, without which a guard cannot {what}; give labelled ones.")


def check_enough(answers: Answers, settings: Settings) -> None:
    """Raise a `UserError` where there are images enough for the rate of false alarms, but too few right answers."""
    needed = 0 if settings.risk is not None else smallest_sample(settings.false_alarms)
    if needed <= len(answers.known):
        check_right(answers, settings, fewest=max(FEWEST, needed))


def check_right(answers: Answers, settings: Settings, *, fewest: int = FEWEST) -> None:
    """Raise a `UserError` where next to nothing is answered rightly, so that nobody knows what should be quiet."""
    quiet = int(answers.quiet(settings.protect).sum())
    if quiet < min(fewest, len(answers.known)):
        raise UserError(
            f"The model answers {quiet} of {len(answers.known)} nominal images rightly, and {fewest} such are needed "
            "to learn what should raise no alarm; check the order of its classes and its normalisation (`secondguess "
            "model check`), or protect against novelty alone (--protect novelty)."
        )
