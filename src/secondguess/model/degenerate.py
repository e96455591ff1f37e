"""A softmax that says nothing: saturated, constant, tied, or in favour of a single class.

Such outputs are legal, and everything that reads them goes on, but no confidence, entropy or calibration error that is
calculated from them means what it usually does. So they are recognised here, once, and said before anything else.

    constant    every image gets the same probabilities
    tied        for most images the two largest probabilities are equal: the prediction is the one that comes first
    one class   every image is predicted as the same class, although the images are of several
    saturated   most confidences are 1 in single precision, and so are those of most mistakes

A good model on easy images has many confidences that round to 1, too; what distinguishes a saturated softmax is that
its mistakes have them as well. Where no mistake is known, nearly all confidences must be 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.errors import UserError

__all__ = ["CERTAIN", "Degenerate", "find_degenerate"]

CERTAIN = 1 - 2.0**-24  # confidences above it are 1 in float32
EQUAL = 1e-6  # probabilities that differ by less are the same answer
MOST, NEARLY_ALL = 0.5, 0.99
FEWEST = 20  # images from which one and the same class for all is no accident

Name = Literal["constant", "tied", "one class", "saturated"]


@dataclass(frozen=True)
class Degenerate:
    """What is wrong with the probabilities of a model.

    Attributes:
        name: which kind it is.
        share: of the images that show it.
        text: what was seen and what follows from it, in two or three sentences.
    """

    name: Name
    share: float
    text: str

    def to_dict(self) -> dict[str, str | float]:
        """The attributes."""
        return {"name": self.name, "share": self.share, "text": self.text}


def find_degenerate(probabilities: ArrayLike, labels: ArrayLike | None = None) -> Degenerate | None:
    """What is wrong with probabilities (n, K) as a whole, or None.

    Args:
        probabilities: rows sum to 1.
        labels: (n,) integers, below 0 where unknown; without them a single class for all images is not judged.
    """
    rows = np.asarray(probabilities, dtype=np.float64)
    if rows.ndim != 2:
        raise UserError(f"Probabilities of shape {rows.shape} were given; (n, K) is needed.")
    if len(rows) < 2:
        return None
    truth = np.full(len(rows), -1) if labels is None else np.asarray(labels)
    return _constant(rows) or _tied(rows) or _one_class(rows, truth) or _saturated(rows, truth)


def _constant(rows: NDArray[np.float64]) -> Degenerate | None:
    if np.ptp(rows, axis=0).max() > EQUAL:
        return None
    text = (
        f"The model gives the same answer to all {len(rows):,} images, with a confidence of {rows.max():.1%}. "
        "Nothing that is read from its outputs can tell one image from another: check the weights and how images are "
        "normalised."
    )
    return Degenerate("constant", 1.0, text)


def _tied(rows: NDArray[np.float64]) -> Degenerate | None:
    top = np.partition(rows, -2, axis=1)[:, -2:]
    share = float((top[:, 1] - top[:, 0] <= EQUAL * top[:, 1]).mean())
    if share < MOST:
        return None
    text = (
        f"For {share:.0%} of the images the two likeliest classes have equal probabilities, and the one that comes "
        "first is taken for the prediction. Check the weights, or let the model return its logits."
    )
    return Degenerate("tied", share, text)


def _one_class(rows: NDArray[np.float64], labels: NDArray[np.int64]) -> Degenerate | None:
    predicted = np.unique(rows.argmax(axis=1))
    if len(predicted) > 1 or len(rows) < FEWEST or len(np.unique(labels[labels >= 0])) < 2:
        return None
    text = (
        f"All {len(rows):,} images are predicted as the same class, although they are of several. Check the weights "
        "and how images are normalised."
    )
    return Degenerate("one class", 1.0, text)


def _saturated(rows: NDArray[np.float64], labels: NDArray[np.int64]) -> Degenerate | None:
    certain = rows.max(axis=1) >= CERTAIN
    share = float(certain.mean())
    wrong = (labels >= 0) & (rows.argmax(axis=1) != labels)
    mistakes, sure = int(wrong.sum()), int((wrong & certain).sum())
    if share < (MOST if mistakes else NEARLY_ALL) or (mistakes and sure < MOST * mistakes):
        return None
    text = f"The softmax is saturated: {share:.0%} of the confidences round to 100%"
    text += f", and {sure} of {mistakes} mistakes were made with 100%. " if mistakes else ". "
    text += (
        "The confidence says nothing here, nor does any score that reads it. Check how images are normalised, let the "
        "model return its logits, or divide these by a temperature."
    )
    return Degenerate("saturated", share, text)
