"""The discovery ratio over the labels, as the page draws it: few enough points that each can have an exact interval."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from secondguess.metrics.discovery import discovery_ratio_interval

__all__ = ["curve"]

POINTS = 24  # at most, besides the latest


def curve(errors: NDArray[np.bool_], confidence: NDArray[np.float64]) -> dict[str, list[float]]:
    """Errors found over errors that the confidences predict, after each of some numbers of labels.

    Args:
        errors: (t,) which labelled predictions are wrong, in the order of the labels.
        confidence: (t,) of these predictions.

    Returns:
        Columns `labels`, `value`, `low` and `high` (95 %), equally long; empty without a label.
    """
    count = len(errors)
    step = 1
    while count // step > POINTS:  # powers of two, so that most points are those of the last time
        step *= 2
    places = sorted({*range(step, count + 1, step), count} - {0})
    found = [_interval(errors[:place].tobytes(), confidence[:place].tobytes()) for place in places]
    value, low, high = ([one[part] for one in found] for part in range(3))
    return {"labels": list(places), "value": value, "low": low, "high": high}


@lru_cache(maxsize=1024)
def _interval(errors: bytes, confidence: bytes) -> tuple[float, float, float]:
    found = discovery_ratio_interval(np.frombuffer(errors, bool), 1 - np.frombuffer(confidence, np.float64))
    return found.value, found.low, found.high
