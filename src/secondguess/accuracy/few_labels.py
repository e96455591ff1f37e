"""The accuracy from a few labels, at any time, whatever the design: unbiased, with an interval that always holds.

Let y_i be 1 where prediction i of n is wrong, L the images labelled before draw t, i the image drawn, q_i its chance,
g the guesses. Then

    z_t = ( sum_{j in L} y_j + sum_{j not in L} g_j + (y_i - g_i) / q_i ) / n

has the conditional mean sum_j y_j / n, the error of the model, for every design, every guess, and drawing without
replacement. With g = 0 it is the estimator of DeepEST, with q = 1 / remaining too that of simple random sampling;
guesses make it a difference estimator, and the better they are the less z varies. The estimate is the mean of z_1 ...
z_t; the interval is a confidence sequence (see `sequences`), so one may label until it is narrow enough and stop there.
What has been found is certain as well: the error is at least the share of errors seen, and at most that of images not
seen right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy.base import Estimate
from secondguess.accuracy.designs import Design
from secondguess.accuracy.sequences import ConfidenceSequence
from secondguess.errors import UserError

__all__ = ["FewLabels", "LabelPlan", "plan_labels"]

PRIOR = 4.0  # imagined labels of a stratum that agree with what was expected of it
BATCH = 25


@dataclass(frozen=True, eq=False)
class LabelPlan:
    """How many labels are needed, and of which images.

    Attributes:
        design: the name of the design.
        labels: how many labels.
        images: (labels,) positions of the images, in the order in which to label them; `FewLabels` with the same design
            and seed asks for the same.
        halfwidth: of the interval that is expected then.
        accuracy: the accuracy that is expected.
    """

    design: str
    labels: int
    images: NDArray[np.int64]
    halfwidth: float
    accuracy: float


class FewLabels:
    """Ask for images, tell their labels, and read the estimate at any time.

    Args:
        design: how images are chosen.
        predictions: (n,) the predicted classes, against which labels are held.
        level: of the interval.
        seed: of the draws.
    """

    def __init__(self, design: Design, predictions: NDArray[np.int64], *, level: float = 0.95, seed: int = 0) -> None:
        if len(predictions) != len(design):
            raise UserError(f"The design is for {len(design)} images, but {len(predictions)} predictions were given.")
        self.design = design
        self.predictions = np.asarray(predictions)
        self._sequence = ConfidenceSequence(level)
        self._urn = _Urn(design, seed)
        self._guesses = _Guesses(design)
        self._pending: list[tuple[int, float]] = []
        self._values: list[float] = []
        self._errors = 0

    @property
    def labelled(self) -> int:
        """How many labels have been given."""
        return len(self._values)

    def ask(self, n: int) -> NDArray[np.int64]:
        """The next n images to label, (n,) or fewer if there are no more; those asked for before come first."""
        if n < 1:
            raise UserError(f"{n} images were asked for; ask for at least 1.")
        while len(self._pending) < n and self._urn.remaining:
            self._pending.append(self._urn.draw())
        return np.array([index for index, _ in self._pending[:n]], dtype=np.int64)

    def tell(self, indices: NDArray[np.int64], labels: NDArray[np.int64]) -> None:
        """Take in labels (n,) of the images that were asked for, in that order.

        An image may not be left out because it is hard to label: the estimate would be about the easy ones.
        """
        asked = [index for index, _ in self._pending[: len(indices)]]
        if asked != np.asarray(indices).tolist() or len(indices) != len(labels):
            raise UserError(
                f"Labels of {len(indices)} images were given, but not of those that ask() gave, in its order; "
                "label all of them, one label each."
            )
        if (np.asarray(labels) < 0).any():
            raise UserError("A label below 0 means unknown; every image that was asked for needs its label.")
        for index, label in zip(asked, np.asarray(labels).tolist(), strict=True):
            _, chance = self._pending.pop(0)
            self._learn(index, chance, int(self.predictions[index] != label))

    def estimate(self) -> Estimate:
        """The accuracy, from the labels given so far."""
        error = float(np.mean(self._values)) if self._values else float(self.design.expected.mean())
        low, high = self._sequence.low, self._sequence.high
        return Estimate(
            1 - min(max(error, low), high),
            1 - high,
            1 - low,
            self.design.name,
            len(self.design),
            self._sequence.level,
            details={"labels": float(self.labelled), "errors_found": float(self._errors)},
        )

    def _learn(self, index: int, chance: float, wrong: int) -> None:
        n = len(self.design)
        known = (self._errors + self._guesses.total) / n
        lowest, highest = self._guesses.extremes
        value = known + (wrong - self._guesses.of(index)) / (chance * n)
        self._sequence.update(value, known + lowest / n, known + highest / n)
        self._values.append(value)
        self._errors += wrong
        self._guesses.learn(index, wrong)
        self._sequence.confine(self._errors / n, (self._errors + n - self.labelled) / n)


class _Urn:
    """Draws images without replacement, by weight or by chance, in constant time per draw.

    An exponential race, E_i / w_i in ascending order, yields images in the order of successive draws proportional to w;
    what the other way of drawing has taken is passed over.
    """

    def __init__(self, design: Design, seed: int) -> None:
        rng, race = np.random.default_rng(seed).spawn(2)
        self._design, self._rng = design, rng
        with np.errstate(divide="ignore"):
            finish = race.exponential(size=len(design)) / design.weights
        self._by_weight = np.argsort(finish, kind="stable")
        self._by_chance = race.permutation(len(design))
        self._places = [0, 0]
        self._taken = np.zeros(len(design), dtype=bool)
        self._weight = float(design.weights.sum())
        self._heavy = int((design.weights > 0).sum())
        self.remaining = len(design)

    def draw(self) -> tuple[int, float]:
        """An image that was not drawn before, and the chance that it had."""
        share = self._design.share if self._heavy else 0.0
        by_weight = self._rng.random() < share
        index = self._next(0, self._by_weight) if by_weight else self._next(1, self._by_chance)
        weight = float(self._design.weights[index])
        chance = (share * weight / self._weight if weight else 0.0) + (1 - share) / self.remaining
        self._taken[index] = True
        self.remaining -= 1
        self._heavy -= weight > 0
        self._weight -= weight
        if self.remaining % 512 == 0:  # repeated subtraction would accumulate rounding errors
            self._weight = float(self._design.weights[~self._taken].sum())
        return index, min(chance, 1.0)

    def _next(self, way: int, order: NDArray[np.int64]) -> int:
        while self._taken[order[self._places[way]]]:
            self._places[way] += 1
        return int(order[self._places[way]])


class _Guesses:
    """The guessed errors of predictions without a label, fixed or learnt by stratum."""

    def __init__(self, design: Design) -> None:
        strata = design.strata
        self._strata = np.arange(len(design)) if strata is None else strata
        self._adaptive = strata is not None
        self._left = np.bincount(self._strata).astype(np.float64)
        self._guess = np.bincount(self._strata, design.guesses) / self._left
        self._seen = np.full(len(self._left), PRIOR)
        by_weight = design.weights / max(float(design.weights.sum()), 1e-300)
        chance = design.share * by_weight + (1 - design.share) / len(design)
        # The chance of an image only grows while others are taken, so this bounds 1 / q_i from now on.
        self._longest = np.zeros(len(self._left))
        np.maximum.at(self._longest, self._strata, 1 / chance)
        self.total = float(self._left @ self._guess)
        self._bounds = self._extremes()

    @property
    def extremes(self) -> tuple[float, float]:
        """The least and the largest (y_i - g_i) / q_i that can come up."""
        return self._extremes() if self._adaptive else self._bounds

    def of(self, index: int) -> float:
        """G of an image."""
        return float(self._guess[self._strata[index]])

    def learn(self, index: int, wrong: int) -> None:
        """Take an image off the unlabelled ones, and let its stratum know."""
        stratum = self._strata[index]
        before = self._left[stratum] * self._guess[stratum]
        self._left[stratum] -= 1
        if self._adaptive:
            self._seen[stratum] += 1
            self._guess[stratum] += (wrong - self._guess[stratum]) / self._seen[stratum]
        self.total += float(self._left[stratum] * self._guess[stratum] - before)

    def _extremes(self) -> tuple[float, float]:
        return -float((self._guess * self._longest).max()), float(((1 - self._guess) * self._longest).max())


def plan_labels(design: Design, *, target_halfwidth: float = 0.01, level: float = 0.95, seed: int = 0) -> LabelPlan:
    """How many labels the design needs for an interval of at most +- `target_halfwidth`, and of which images.

    The labels are not known yet, so they are drawn: a prediction is wrong with the probability that `design.expected`
    says. If that is far off, so is the number; the interval itself holds all the same.

    Args:
        design: how images are chosen.
        target_halfwidth: half the width of the interval that is wanted.
        level: of the interval.
        seed: of the draws; give `FewLabels` the same.
    """
    if not 0 < target_halfwidth < 0.5:
        raise UserError(f"The target half-width is {target_halfwidth}; give a number between 0 and 0.5, such as 0.01.")
    wrong = np.random.default_rng([seed, 1]).random(len(design)) < design.expected
    labelling = FewLabels(design, np.zeros(len(design), dtype=np.int64), level=level, seed=seed)
    images: list[NDArray[np.int64]] = []
    halfwidth = 0.5
    while halfwidth > target_halfwidth and labelling.labelled < len(design):
        images.append(labelling.ask(BATCH))
        labelling.tell(images[-1], wrong[images[-1]].astype(np.int64))
        found = labelling.estimate()
        halfwidth = (found.high - found.low) / 2
    chosen = np.concatenate(images)
    return LabelPlan(design.name, len(chosen), chosen, halfwidth, 1 - float(design.expected.mean()))
