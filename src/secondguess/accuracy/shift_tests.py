"""Do these images look like the validation images? If not: other classes, another appearance, or both?

Appearance is compared with the validation images *as if they had the class frequencies of operation*, so that other
classes alone do not count as another appearance. These frequencies q come from expectation maximisation
(`label_shift`), and validation images of class y get the weight q_y / pi_y. Then for each of a few measures of an
image (brightness, contrast, sharpness, colour, the model's confidence) the two distributions are compared by the test
of Kolmogorov and Smirnov, its number of images the effective one, (sum w)^2 / sum w^2; p is the smallest times the
number of measures (Bonferroni).

Classes are compared by the classes that the model predicts. p is that of the chi-squared statistic of both sets of
counts among those of random divisions of the same images into two sets as large (a permutation test): the chi-squared
distribution holds for many images of every class only, and would be off tenfold for models with hundreds of classes.
There chance alone moves the counts far, too. Independent deviations add in squares, so the distance is the root of what
the squared total variation exceeds its mean over these divisions by.

Where the appearance has changed, wrong predictions alone move the counts. They are then held against synthetic sets of
about the estimated accuracy whose class frequencies are unchanged: p is the share of these that moved as far. A set is
thinned to as many images as there are in operation, and chance is taken off in the same way. Where p is not small
nothing can be said about the classes.

"Changed" means that p is below .01 (.05 beside synthetic sets, of which there are few) and the distance at least .1:
among many images every difference is significant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy._scaling import log_scores, softened
from secondguess.accuracy.label_shift import class_frequencies_em
from secondguess.model.observation import Observation

__all__ = ["Change", "ShiftReport", "ShiftTests", "compare_counts", "measures", "total_variation", "weighted_ks"]

Floats = NDArray[np.float64]
Way = Literal["none", "classes", "appearance", "both"]
SMALL, SMALL_BESIDE_SETS, FAR = 0.01, 0.05, 0.1
MOST = 2000  # images whose pixels are measured
BLOCK = 1 << 20  # numbers that are read or drawn at a time
DIVISIONS = 1999  # at random; 18 of them may be as far apart where p is below .01
FEW_OF_CLASS = 10  # images of a class, below which they are drawn one by one
CHANCES = 200  # sets that say how far chance alone moves one
FEWEST_SETS = 10
WORDS = {
    "brightness": ("darker", "brighter"),
    "contrast": ("of less contrast", "of more contrast"),
    "sharpness": ("smoother", "sharper or noisier"),
    "colour": ("paler", "more colourful"),
    "confidence": ("less certain to the model", "more certain to the model"),
}


@dataclass(frozen=True)
class Change:
    """The outcome of one test.

    Attributes:
        changed: whether there is a change; None where that cannot be said.
        test: what was computed.
        distance: between the two distributions, from 0 to 1; of classes, what chance alone gives is taken off.
        p: how probable one as large is without a change.
        what: the measure that changed most, and in which direction; empty for classes.
    """

    changed: bool | None
    test: str
    distance: float
    p: float
    what: str = ""


@dataclass(frozen=True)
class ShiftReport:
    """Whether images differ from the validation images, and in which way."""

    classes: Change
    appearance: Change

    @property
    def way(self) -> Way:
        """The kind of change, as far as it is certain."""
        if self.appearance.changed:
            return "both" if self.classes.changed else "appearance"
        return "classes" if self.classes.changed else "none"

    def finding(self) -> str:
        """In which way the images differ, for a person."""
        found = {
            "none": "The images look like the validation images",
            "classes": "The images look shifted in their classes, not in appearance",
            "appearance": "The images look shifted in appearance",
            "both": "The images look shifted in appearance and in their classes",
        }[self.way]
        unsure = ", and whether their classes differ too cannot be told" if self.classes.changed is None else ""
        what = f", most are {self.appearance.what}" if self.appearance.changed else ""
        return f"{found}{what}{unsure}"

    def sentence(self) -> str:
        """The finding with its tests."""
        return (
            f"{self.finding()} (appearance: distance {self.appearance.distance:.2f}, {_shown(self.appearance.p)}; "
            f"predicted classes: distance {self.classes.distance:.2f}, {_shown(self.classes.p)})."
        )

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        return {"way": self.way, "classes": asdict(self.classes), "appearance": asdict(self.appearance)}


@dataclass(frozen=True, eq=False)
class ShiftTests:
    """What is known of the validation images, for other images to be compared with. Made by `of`.

    Attributes:
        temperature: that calibrates the model.
        scaled: (K,), the mean of the calibrated probabilities.
        counts: (K,), how often each class is predicted.
        labels: (m,), of the images that were measured.
        measured: (m,) each, by the name of the measure.
    """

    temperature: float
    scaled: Floats
    counts: NDArray[np.int64]
    labels: NDArray[np.int64]
    measured: Mapping[str, Floats]

    @classmethod
    def of(cls, validation: Observation, temperature: float) -> ShiftTests:
        """Measure the validation images."""
        some = _some(validation)
        return cls(
            temperature,
            softened(log_scores(validation), temperature).mean(axis=0),
            np.bincount(validation.predictions, minlength=validation.num_classes),
            some.require_labels("Comparing images"),
            measures(some),
        )

    def report(self, operation: Observation, alike: NDArray[np.integer[Any]]) -> ShiftReport:
        """Compare images with the validation images.

        Args:
            operation: of the images in question.
            alike: (s, K), how often each class is predicted in synthetic sets of such an accuracy that were drawn from
                the validation images with their class frequencies unchanged.
        """
        appearance = self.appearance(operation)
        counts = np.bincount(operation.predictions, minlength=operation.num_classes)
        return ShiftReport(self._classes(counts, alike, bool(appearance.changed)), appearance)

    def appearance(self, operation: Observation) -> Change:
        """Compare the appearance of images with that of the validation images, class frequencies made alike."""
        some = _some(operation)
        measured, weights = measures(some), self._weights(some)
        common = [name for name in self.measured if name in measured]
        found = {name: weighted_ks(measured[name], self.measured[name], weights) for name in common}
        most = max(found, key=lambda name: found[name][0])
        distance, p = found[most][0], min(1.0, len(found) * min(p for _, p in found.values()))
        usual = np.average(self.measured[most], weights=weights)
        what = WORDS[most][int(measured[most].mean() > usual)]
        test = f"Kolmogorov-Smirnov, {most}, the largest of {len(found)} measures"
        return Change(p < SMALL and distance >= FAR, test, distance, p, what)

    def _weights(self, operation: Observation) -> Floats:
        """Of the validation images, with which their classes are as frequent as in operation, (m,)."""
        now = class_frequencies_em(softened(log_scores(operation), self.temperature), self.scaled)
        before = np.bincount(self.labels, minlength=len(now)) / len(self.labels)
        weights = np.divide(now, before, out=np.zeros_like(now), where=before > 0)[self.labels]
        return weights if weights.any() else np.ones(len(self.labels))  # only classes that no validation image has

    def _classes(self, counts: NDArray[np.int64], alike: NDArray[np.integer[Any]], appearance: bool) -> Change:
        distance, p = compare_counts(counts, self.counts)
        if not appearance:
            test = "permutation test of chi-squared, predicted classes"
            return Change(p < SMALL and distance >= FAR, test, distance, p)
        moved = int((self._moved(alike, int(counts.sum())) >= distance).sum())
        p = (moved + 1) / (len(alike) + 1)
        test = f"{moved} of {len(alike)} synthetic sets of such an accuracy, classes unchanged, moved as far"
        if distance < FAR:
            return Change(False, test, distance, p)
        return Change(True if p < SMALL_BESIDE_SETS and len(alike) >= FEWEST_SETS else None, test, distance, p)

    def _moved(self, sets: NDArray[np.integer[Any]], images: int) -> Floats:
        """How far synthetic sets of at most so many images lie from the validation images, beyond chance, (s,)."""
        if not len(sets):
            return np.zeros(0)
        rng = np.random.default_rng(0)
        size, usual = min(images, int(sets[0].sum())), self.counts / self.counts.sum()
        thinned = np.stack([rng.multivariate_hypergeometric(one, size, method="marginals") for one in sets])
        chance = [
            total_variation(rng.multinomial(size, usual, rows) / size, usual) for rows in _blocks(CHANCES, len(usual))
        ]
        return _beyond(total_variation(thinned / size, usual), np.concatenate(chance))


def compare_counts(first: NDArray[np.int64], second: NDArray[np.int64]) -> tuple[float, float]:
    """How far two sets of counts (K,) are apart beyond chance, and the p-value of the permutation test.

    The statistic is chi-squared; random divisions of the same images, always the same ones, take the place of its
    distribution.
    """
    seen = first + second > 0
    ours, both = first[seen], (first + second)[seen]
    images, total = int(ours.sum()), int(both.sum())

    def against(counts: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Chi-squared but for a factor, and the total variation between both parts, of divisions (r, K)."""
        squares = (counts - both * (images / total)) ** 2 / both
        return squares.sum(axis=1), total_variation(counts / images, (both - counts) / (total - images))

    rng = np.random.default_rng(0)
    # Drawing images one by one is faster than drawing the counts of all classes where there are few images.
    few = total <= BLOCK and min(images, total - images) < FEW_OF_CLASS * len(both)
    how: Any = {"method": "count" if few else "marginals"}
    blocks = _blocks(DIVISIONS, len(both))
    draws = (rng.multivariate_hypergeometric(both, images, size=rows, **how) for rows in blocks)
    squares, chance = (np.concatenate(parts) for parts in zip(*map(against, draws), strict=True))
    (found,), apart = against(ours[None])
    as_far = int((squares >= found * (1 - 1e-9)).sum())  # equal ones may differ by rounding
    return float(_beyond(apart, chance)[0]), (as_far + 1) / (DIVISIONS + 1)


def _blocks(rows: int, columns: int) -> Iterator[int]:
    """So many rows in parts that do not fill the memory."""
    step = max(1, BLOCK // columns)
    yield from (min(step, rows - start) for start in range(0, rows, step))


def _beyond(distances: Floats, chance: Floats) -> Floats:
    """Distances without what chance alone, as in these others, adds to them."""
    return np.sqrt(np.maximum(distances**2 - np.mean(chance**2), 0))


def total_variation(first: Floats, second: Floats) -> Floats:
    """Half the sum of the differences between distributions (..., K)."""
    return np.asarray(np.abs(first - second).sum(axis=-1) / 2)


def measures(seen: Observation) -> dict[str, Floats]:
    """What is measured of each image, by name, (n,) each; the confidence alone where there are no pixels."""
    found = {"confidence": seen.confidences}
    if seen.pixels is None:
        return found
    step = max(1, BLOCK // math.prod(seen.pixels.shape))
    parts = [_measured(seen.pixels[start : start + step]) for start in range(0, len(seen), step)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} | found


def _measured(images: NDArray[np.float32]) -> dict[str, Floats]:
    """Of images (n, C, H, W): mean, standard deviation, logarithm of the mean gradient, spread between channels."""
    axes = (1, 2, 3)
    gradient = sum(np.abs(np.diff(images, axis=axis)).mean(axis=axes) for axis in (2, 3) if images.shape[axis] > 1)
    found = {
        "brightness": images.mean(axis=axes),
        "contrast": images.std(axis=axes),
        "sharpness": np.log(np.asarray(gradient) + 1e-3) + np.zeros(len(images)),
    }
    if images.shape[1] > 1:
        found["colour"] = (images.max(axis=1) - images.min(axis=1)).mean(axis=(1, 2))
    return {name: np.asarray(values, dtype=np.float64) for name, values in found.items()}


def weighted_ks(values: Floats, reference: Floats, weights: Floats) -> tuple[float, float]:
    """The largest distance between the distributions of values (n,) and of weighted ones (m,), and its p-value."""
    from scipy.special import kolmogorov

    order = np.argsort(reference, kind="stable")
    ours, theirs = np.sort(values), reference[order]
    summed = np.concatenate([[0.0], np.cumsum(weights[order]) / weights.sum()])
    places = np.concatenate([ours, theirs])
    first = np.searchsorted(ours, places, side="right") / len(ours)
    distance = float(np.abs(first - summed[np.searchsorted(theirs, places, side="right")]).max())
    effective = weights.sum() ** 2 / (weights**2).sum()
    return distance, float(kolmogorov(distance * np.sqrt(len(ours) * effective / (len(ours) + effective))))


def _some(seen: Observation) -> Observation:
    """All images, or as many as are measured, spread evenly."""
    return seen if len(seen) <= MOST else seen.take(np.arange(MOST) * len(seen) // MOST)


def _shown(p: float) -> str:
    return "p < .001" if p < 0.001 else f"p = {p:.3f}".replace("0.", ".", 1)
