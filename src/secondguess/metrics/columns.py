"""The comparisons by which a suspicion score is judged: mistakes, every stress set, and mistakes within it.

| column         | must stay quiet                 | must speak up                        |
|----------------|---------------------------------|--------------------------------------|
| mistakes       | nominal images, answered rightly | nominal images, answered wrongly     |
| NAME           | nominal images                  | the stress set NAME                  |
| NAME.mistakes  | the stress set, answered rightly | the stress set, answered wrongly     |

The last kind separates two things that the plain column mixes: noticing that an image is strange, and knowing that the
answer to it is wrong. Where there are fewer than two images on a side, there is no such column.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

__all__ = ["MISTAKES", "detection_columns"]

MISTAKES = "mistakes"
FEWEST = 2  # images on either side

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def detection_columns(
    nominal: Floats,
    stress: Mapping[str, Floats],
    answers: Mapping[str, tuple[Bools, Bools]],
) -> dict[str, tuple[Floats, Floats]]:
    """Return for each column the scores that must stay quiet and those that must speak up.

    Args:
        nominal: (n,) scores of nominal images.
        stress: (k,) scores of each stress set, by name.
        answers: which answers are right and which wrong, (n,) each, under `nominal` and under the name of a stress set;
            answers of which neither is known are false in both. Sets may be missing.
    """
    sets = {"nominal": nominal, **stress}
    found: dict[str, tuple[Floats, Floats]] = {}
    for name, scores in sets.items():
        if name != "nominal":
            found[name] = nominal, scores
        if name in answers:
            right, wrong = answers[name]
            if min(right.sum(), wrong.sum()) >= FEWEST:
                found[MISTAKES if name == "nominal" else f"{name}.{MISTAKES}"] = scores[right], scores[wrong]
    return found
