"""Where a classifier changes its mind, held against images that are known to be ambiguous or clear.

Between the images of two classes lie truly ambiguous ones, to which either answer is right. A decision boundary that
runs through these harms nobody. Where it runs beside them, what lies between the two is clear and misclassified, and
belongs into the training set; ambiguous images do not. This is the decision-boundary oracle of Weiss, Garcia Gomez and
Tonella (Empirical Software Engineering, 2023, section 4.3 and Figure 2), which the paper describes and does not
measure. Soft labels q must be known without the classifier, from a generator or from people; its predictions are p.

An image is clear if one class has more than 1 - `SHARE` of its soft label, else ambiguous between the two largest.

*The frontier* are the images whose two likeliest classes are near: p_(1) - p_(2) is at most `WIDTH`. All ambiguous
images should lie there. A frontier image is excused if it is ambiguous, a fault if it is clear and answered wrongly,
and close to one if it is clear and answered rightly.

*A pair* of classes a < b divides images by the sign of p_a - p_b. Of the ambiguous images between a and b the share on
the side of a, less the share whose soft label has more of a,

    lean = mean [p_a > p_b] - mean [q_a > q_b],

says which class the boundary has moved into: if it is positive, into that of b, and then clear images of b should be
taken for a more often than the other way round. (Equality counts half.) The boundary runs through the ambiguous images
if at least `SHARE` of them lie on either side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from secondguess.errors import UserError
from secondguess.metrics import checks
from secondguess.metrics.checks import Floats
from secondguess.metrics.interval import Interval, wilson
from secondguess.metrics.prioritisation import SHARE, avoidable_faults

__all__ = ["Frontier", "PairBoundary", "frontier", "pair_boundaries"]

WIDTH = 0.5  # of two classes, three to one; the soft labels of generated images differ by .25 (AmbiGuess) or .4 (flow)

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Frontier:
    """Which of n images lie next to a decision boundary, and what they are.

    Attributes:
        width: the largest difference between the two largest probabilities of an image at the frontier.
        near: (n,) whether the image lies there.
        ambiguous: (n,) whether its soft label leaves several answers.
        wrong: (n,) whether the prediction is no possible answer.
    """

    width: float
    near: Bools
    ambiguous: Bools
    wrong: Bools

    @property
    def faults(self) -> Bools:
        """Clear images at the frontier that are answered wrongly, (n,)."""
        return self.near & ~self.ambiguous & self.wrong

    def share_wrong(self, *, near: bool) -> Interval:
        """How many of the clear images at the frontier are answered wrongly; or of those away from it."""
        chosen = ~self.ambiguous & (self.near if near else ~self.near)
        if not chosen.any():
            raise UserError(f"No clear image lies {'at' if near else 'away from'} the frontier.")
        return wilson(int(self.wrong[chosen].sum()), int(chosen.sum()))

    def share_near(self, *, ambiguous: bool) -> Interval:
        """How many of the ambiguous images lie at the frontier; or of the clear ones."""
        chosen = self.ambiguous if ambiguous else ~self.ambiguous
        if not chosen.any():
            raise UserError(f"No image is {'ambiguous' if ambiguous else 'clear'}.")
        return wilson(int(self.near[chosen].sum()), int(chosen.sum()))


@dataclass(frozen=True)
class PairBoundary:
    """The decision boundary between two classes a < b.

    Attributes:
        pair: a and b.
        on_a: of the ambiguous images between them, the share on the side of a.
        lean: that share less the one that soft labels have.
        a_for_b: of the clear images of b, the share on the side of a; None where there are none.
        b_for_a: of the clear images of a, the share on the side of b.
    """

    pair: tuple[int, int]
    on_a: Interval
    lean: float
    a_for_b: Interval | None
    b_for_a: Interval | None

    @property
    def through(self) -> bool:
        """Whether the boundary runs through the ambiguous images."""
        return SHARE <= self.on_a.value <= 1 - SHARE

    @property
    def excess(self) -> float | None:
        """How much more often clear images of b are on the wrong side than those of a; None where that is unknown."""
        return None if self.a_for_b is None or self.b_for_a is None else self.a_for_b.value - self.b_for_a.value


def frontier(probabilities: ArrayLike, soft_labels: ArrayLike, width: float = WIDTH) -> Frontier:
    """Return which images lie at the frontier and what they are.

    Args:
        probabilities: (n, K), rows sum to 1.
        soft_labels: (n, K) of the same images, known without the classifier; one-hot where the image is clear.
        width: the largest difference between the two largest probabilities of an image at the frontier.
    """
    guessed, soft = _rows(probabilities, soft_labels)
    largest = np.sort(guessed, axis=1)
    margin = largest[:, -1] - largest[:, -2]
    wrong = avoidable_faults(guessed.argmax(axis=1), soft)
    return Frontier(float(width), margin <= width, _ambiguous(soft), wrong)


def pair_boundaries(probabilities: ArrayLike, soft_labels: ArrayLike, fewest: int = 10) -> list[PairBoundary]:
    """Return the boundary of every pair of classes between which there are ambiguous images.

    Args:
        probabilities: (n, K), rows sum to 1.
        soft_labels: (n, K) of the same images, known without the classifier; one-hot where the image is clear.
        fewest: ambiguous images of a pair, below which it is left out.
    """
    guessed, soft = _rows(probabilities, soft_labels)
    ambiguous, first = _ambiguous(soft), soft.argmax(axis=1)
    pairs = np.sort(np.argsort(-soft, axis=1, kind="stable")[:, :2], axis=1)
    found = []
    for a, b in np.unique(pairs[ambiguous], axis=0):
        between = ambiguous & (pairs == (a, b)).all(axis=1)
        if between.sum() < fewest:
            continue
        sides = np.heaviside(guessed[:, a] - guessed[:, b], 0.5)
        meant = np.heaviside(soft[between, a] - soft[between, b], 0.5)
        of_a, of_b = (~ambiguous & (first == one) for one in (a, b))
        found.append(
            PairBoundary(
                (int(a), int(b)),
                _share(sides[between]),
                float(sides[between].mean() - meant.mean()),
                _share(sides[of_b]) if of_b.any() else None,
                _share(1 - sides[of_a]) if of_a.any() else None,
            )
        )
    return found


def _rows(probabilities: ArrayLike, soft_labels: ArrayLike) -> tuple[Floats, Floats]:
    guessed, soft = checks.distributions(probabilities), checks.distributions(soft_labels, "soft labels")
    if guessed.shape != soft.shape:
        raise UserError(
            f"The probabilities have shape {guessed.shape} and the soft labels {soft.shape}; give both for the same "
            "images and classes."
        )
    if guessed.shape[1] < 2:
        raise UserError("There is one class only, and no boundary; give probabilities of at least two classes.")
    return guessed, soft


def _ambiguous(soft: Floats) -> Bools:
    return np.asarray(soft.max(axis=1) <= 1 - SHARE)


def _share(marks: Floats) -> Interval:
    """The mean of marks of 0, 1/2 and 1, with the Wilson interval of the nearest count."""
    near = wilson(round(float(marks.sum())), len(marks))
    value = float(marks.mean())
    return Interval(value, min(near.low, value), max(near.high, value), near.n, near.level)
