"""Whether a model's answer survives a mild change of the image: what tells attacks from other kinds of anomaly.

    mirror   the image seen in a mirror, left and right exchanged

With p the probabilities (K,) that the model gives to an image, and q those for the changed one, a change has two
features,

    moved    max over classes of |q - p|
    entropy  H(q) - H(p), of natural logarithms

An attack is made for exactly these pixels: on photographs nine answers in ten to attacked images change in a mirror,
and three in ten at most to other anomalies. `lab/experiments/photo_consistency.py` tried a slight blur as well: it adds
nothing to the mirror image and gains nothing alone, so that the model is not asked about it. The numbers are in
docs/evidence/guard.md.

A change is only of use where it means nothing to the task: the mirror image of a digit or of a text is another thing.
So the data decide. A change is used if the model gives the same answer to at least `KEPT` of the nominal images that a
guard learns from, wrong answers included, since it is the model that is asked and not the labels. Four networks for
photographs keep .90 to .95 of their answers in a mirror, one for digits .46.

The model must be asked once more for every change, so only images with an alarm are looked at, and those that names
are learnt from. Each image is changed by itself: the batch it came in does not matter. Where the model has no finite
answer to a changed image, the answer counts as moved all the way, and the image gets its verdict all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from secondguess.model.outputs import NotFinite

if TYPE_CHECKING:
    from secondguess.images import ImageSource

__all__ = ["CHANGES", "FINEST", "KEPT", "MEASURED", "Ask", "changes_that_keep", "consistency", "moved"]

Floats = NDArray[np.float64]
Pixels = NDArray[np.float32]
Ask = Callable[[Pixels], Floats]
"""From images (n, C, H, W) in [0, 1] to the model's probabilities (n, K)."""

KEPT = 0.75  # of the answers to nominal images
MEASURED = ("moved", "entropy")  # of each change
FINEST = 0.01  # a smaller spread of the features is rounding: a sure model would be judged by the last digits
NUMBERS = 1 << 23  # of pixels that are changed at a time
LOST = (1.0, 0.0)  # the features where there is no answer to the changed image
TINY = 1e-300  # so that 0 log 0 is 0


def mirrored(images: Pixels) -> Pixels:
    """The images (n, C, H, W), left and right exchanged."""
    return np.ascontiguousarray(images[..., ::-1])


CHANGES: dict[str, Callable[[Pixels], Pixels]] = {"mirror": mirrored}


def moved(before: Floats, after: Floats) -> Floats:
    """The features `MEASURED` (n, 2), from the probabilities (n, K) of images and of the changed ones, NaN for none."""
    found = np.stack([np.abs(after - before).max(axis=1), _entropy(after) - _entropy(before)], axis=1)
    found[~_answered(after)] = LOST
    return found


def consistency(
    images: ImageSource | Pixels, rows: NDArray[np.int64], before: Floats, changes: Sequence[str], ask: Ask
) -> Floats:
    """The features (k, 2 * len(changes)) of the k images at `rows`, change by change.

    Args:
        images: n of them.
        rows: (k,) which of them, one at least.
        before: (k, K) probabilities of these.
        changes: names in `CHANGES`.
        ask: for the probabilities of changed images.
    """
    found = [moved(before, _answers(change, images, rows, before.shape[1], ask)) for change in changes]
    return np.hstack([np.empty((len(rows), 0)), *found])


def changes_that_keep(images: ImageSource | Pixels, before: Floats, ask: Ask) -> dict[str, Floats]:
    """The changes that leave the answers to nominal images as they are, as a rule, and their features (n, 2).

    Args:
        images: n nominal ones.
        before: (n, K) their probabilities.
        ask: for the probabilities of changed images.
    """
    found, answers = {}, before.argmax(axis=1)
    for change in CHANGES:
        after = _answers(change, images, np.arange(len(images)), before.shape[1], ask)
        if (_answered(after) & (after.argmax(axis=1) == answers)).mean() >= KEPT:
            found[change] = moved(before, after)
    return found


def _answers(change: str, images: ImageSource | Pixels, rows: NDArray[np.int64], classes: int, ask: Ask) -> Floats:
    """The probabilities (k, K) of the images at `rows` (k,) after a change; a few are read at a time."""
    step = max(1, NUMBERS // prod(images.shape[-3:]))
    blocks = (images[rows[start : start + step]] for start in range(0, len(rows), step))
    return np.concatenate([_asked(CHANGES[change](block), classes, ask) for block in blocks])


def _asked(images: Pixels, classes: int, ask: Ask) -> Floats:
    """The probabilities (n, K); NaN where the model has no finite answer, which says nothing about the other images."""
    try:
        return np.asarray(ask(images), dtype=np.float64)
    except NotFinite:
        if len(images) == 1:
            return np.full((1, classes), np.nan)
        return np.concatenate([_asked(images[row : row + 1], classes, ask) for row in range(len(images))])


def _answered(probabilities: Floats) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(probabilities).all(axis=1))


def _entropy(probabilities: Floats) -> Floats:
    return -np.asarray((probabilities * np.log(np.maximum(probabilities, TINY))).sum(axis=1))
