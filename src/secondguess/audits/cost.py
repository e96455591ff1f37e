"""What a supervisor costs: to fit, to score an image, and to observe what it needs beyond the probabilities."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Cost"]


@dataclass(frozen=True)
class Cost:
    """The measured cost of a supervisor on this machine.

    Attributes:
        fitting: seconds to learn from the training images, their observation not counted; None if it was not fitted
            here.
        observing: microseconds per image that its needs add to a plain forward pass.
        scoring: microseconds per image, given the observation.
    """

    fitting: float | None
    observing: float
    scoring: float
