"""Accuracy from look-alikes: sets of shifted validation images, of known accuracy, that look like those of operation.

Sets are drawn from labelled validation images and their shifted copies (`ShiftedCopies`): one kind of shift each, on
all images or on half of them, with the class frequencies as they are or drawn from a flat Dirichlet distribution. A
set is described by five numbers, all of them read off the model's outputs:

    mean confidence c and mean entropy h after temperature scaling on the validation images,
    the share of images with c, and with -h, above the threshold of average thresholded confidence (`confidence`),
    the entropy of the predicted classes (with the correction of Miller and Madow for few images).

A forest of extremely randomised trees (Geurts, Ernst and Wehenkel, Machine Learning 2006) regresses accuracy on them.
It is a weighted mean over sets that fall into the same leaves: sum_i w_i(x) a_i, with the variance v(x) = sum_i w_i(x)
(a_i - mean)^2.

The interval is a conformal one over the sets, with errors scaled locally (Lei et al., JASA 2018). The error of each
set is that of a forest that has not seen its kind of shift (nor one or two others), divided by sqrt(v + a (1 - a) / n)
for n images; q is the quantile of these at the level of the interval, and the interval is a +- q sqrt(v + a (1 - a) (1
/ n + 1 / m)), where m is the number of validation images that were copied. It is about the accuracy on these very
images. It is valid as far as the shift in operation is to the kinds learnt from as these are to each other.

Departures from the literature on learning accuracy from shifted sets (Deng and Zheng, CVPR 2021; Guillory et al., ICCV
2021): class frequencies vary as well, a forest takes the place of a linear regression, and the result has an interval.

Where the appearance of the images has not changed (`shift_tests`), only sets with unchanged appearance are
look-alikes; of fewer than 100 images, among which a change may go unnoticed, only if the five numbers are like those of
such sets.

The estimate is withheld where the five numbers are farther from those of all sets than a set is from other kinds.
Without shifted copies only class frequencies vary, and most changes of appearance lie outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy._forest import Forest
from secondguess.accuracy._scaling import log_scores, softened
from secondguess.accuracy._synthetic_sets import NOMINAL, SIZE, Copies, draw_sets
from secondguess.accuracy.base import Estimate, Estimator, EstimatorSettings, Rows, Trial
from secondguess.accuracy.registry import register
from secondguess.accuracy.shift_tests import ShiftReport, ShiftTests
from secondguess.accuracy.shifted_copies import ShiftedCopies
from secondguess.errors import UserError
from secondguess.metrics import wilson
from secondguess.model.observation import Observation

__all__ = ["SyntheticShifts"]

LEAF = 3  # sets at least, in every leaf of a tree
FOLDS = 9  # of the kinds of shift
NEAREST, FARTHEST = 5, 0.99  # the distance to the fifth set; the quantile of these between sets of different kinds
ENOUGH = 100  # images, among which a change of appearance that matters does not go unnoticed
Floats = NDArray[np.float64]


class Thresholds(NamedTuple):
    """Those of average thresholded confidence, for confidence and for negative entropy."""

    confidence: float
    certainty: float


class Regression(NamedTuple):
    """A forest that regresses accuracy on what describes a set, and how wrong such forests are.

    Attributes:
        forest: on all sets.
        quantile: of the scaled absolute errors, at the level of the interval.
        farthest: the distance beyond which a set looks like none of these.
    """

    forest: Forest
    quantile: float
    farthest: float


class Learnt(NamedTuple):
    """The sets, regressions on them, and how wrong these were where they did not know the kind of shift.

    Attributes:
        thresholds: with which a set is described.
        ways: (m,), in which way each set differs from the validation images: none, classes, appearance or both.
        truths: (m,), the accuracy of each set.
        predicted: (m, K), how often each class is predicted in it.
        errors: (m,), estimate minus truth.
        every: of all sets.
        calm: of the sets whose appearance is unchanged.
    """

    thresholds: Thresholds
    ways: NDArray[np.str_]
    truths: Floats
    predicted: NDArray[np.int32]
    errors: Floats
    every: Regression
    calm: Regression


@register
class SyntheticShifts(Estimator):
    """The accuracy of artificially shifted validation sets that look alike to the model.

    Args:
        trees: of each forest.
        settings: `level`, the nominal coverage of the interval, and `seed`, of the sets and the forest; `resamples` is
            not used, since the interval is a conformal one.
    """

    name = "synthetic_shifts"

    def __init__(self, *, trees: int = 100, **settings: Unpack[EstimatorSettings]) -> None:
        super().__init__(**settings)
        if trees < 1:
            raise UserError(f"trees={trees} was given; a forest needs at least one.")
        self.trees = trees

    @property
    def own_trials(self) -> tuple[Trial, ...]:
        """Its errors on sets of kinds of shift that it did not know, by the way in which they differ."""
        found = []
        for way in dict.fromkeys(self._learnt.ways.tolist()):
            mine = self._learnt.ways == way
            errors, truth = self._learnt.errors[mine], float(self._learnt.truths[mine].mean())
            found.append(Trial(way, float(np.abs(errors).mean()), float(errors.mean()), truth, len(errors)))
        return tuple(found)

    def shift(self, operation: Observation, estimate: Estimate) -> ShiftReport:
        """Whether images differ from the validation images, and in which way.

        Args:
            operation: of the images in question.
            estimate: of their accuracy, by this estimator.
        """
        learnt = self._learnt
        alike = (learnt.ways == "appearance") & (learnt.truths >= estimate.low) & (learnt.truths <= estimate.high)
        return self._tests.report(operation, learnt.predicted[alike])

    def state(self) -> dict[str, Any]:
        """As of every estimator, with the temperature and what was seen of the copies."""
        if not self.is_fitted:
            return {}
        copies = {str(place): rows for place, rows in enumerate(self._copies.rows)}
        copies |= {name: getattr(self._copies, name) for name in ("labels", "kinds", "sets")}
        tests = asdict(self._tests)
        measured = {"measured_": tests.pop("measured"), "temperature_": tests.pop("temperature"), "known_": tests}
        return super().state() | measured | {"copied_": self._copied, "copies_": copies}

    def _restore(self, state: Mapping[str, Any]) -> None:
        if state:
            temperature, self._copied = float(state["temperature_"]), int(state["copied_"])
            self._tests = ShiftTests(temperature, measured=state["measured_"], **state["known_"])
            kept = dict(state["copies_"])
            rows = tuple(kept.pop(str(place)) for place in range(3))
            self._copies = Copies(rows, **kept)
        super()._restore(state)

    def _prepare(self, validation: Observation, training: Observation | None, shifted: ShiftedCopies | None) -> None:
        from secondguess.training import fit_temperature

        temperature = fit_temperature(log_scores(validation), validation.require_labels("A temperature"))
        self._tests = ShiftTests.of(validation, temperature)
        self._copied = len(validation) if shifted is None else len(shifted.images)
        self._copies = self._seen_of(shifted)

    def _seen_of(self, shifted: ShiftedCopies | None) -> Copies:
        if shifted is None:
            none = np.zeros(0, dtype=np.int64)
            return Copies((np.zeros(0), np.zeros(0), none), none, none, none)
        numbers = {kind: place for place, kind in enumerate(dict.fromkeys(one.kind for one in shifted.shifts))}
        sizes = [len(one) for one in shifted.seen]
        return Copies(
            tuple(np.concatenate(arrays) for arrays in zip(*map(self._outputs, shifted.seen), strict=True)),
            np.concatenate([one.require_labels("A shifted copy") for one in shifted.seen]),
            np.repeat([numbers[one.kind] for one in shifted.shifts], sizes),
            np.repeat(np.arange(len(sizes)), sizes),
        )

    def _see(self, seen: Observation) -> Rows:
        """Confidence, negative entropy and predicted class of each image, and whether the appearance has changed."""
        changed = bool(self._tests.appearance(seen).changed)
        return *self._outputs(seen), np.full(len(seen), changed)

    def _see_labelled(self, validation: Observation) -> Rows:
        return self._outputs(validation)

    def _outputs(self, seen: Observation) -> Rows:
        inside = softened(log_scores(seen), self._tests.temperature)
        certainty = (inside * np.log(np.maximum(inside, np.finfo(float).tiny))).sum(axis=1)
        return inside.max(axis=1), certainty, seen.predictions

    def _learn(self, seen: Rows, labels: NDArray[np.int64]) -> Learnt:
        from scipy.stats import norm

        wrong = int((seen[2] != labels).sum())
        # As many validation images lie below the thresholds as the model has errors among them.
        least = [float(np.sort(scores)[wrong]) if wrong < len(scores) else np.inf for scores in seen[:2]]
        thresholds = Thresholds(least[0], least[1])
        sets = list(draw_sets(seen, labels, self._copies, self.seed))
        looks = np.array([self._look(one.rows, thresholds) for one in sets])
        truths = np.array([(one.rows[2] == one.labels).mean() for one in sets])
        kinds = np.array([one.kind for one in sets])
        fold = np.where(kinds == NOMINAL, np.arange(len(sets)), kinds) % FOLDS
        same = kinds == NOMINAL
        every, errors = self._regression(looks, truths, fold)
        calm, errors[same] = self._regression(looks[same], truths[same], fold[same])
        # Sets of the same images are more alike than new images are: no less than chance alone.
        calm = calm._replace(quantile=max(calm.quantile, float(norm.ppf((1 + self.level) / 2))))
        return Learnt(
            thresholds,
            np.array([one.way for one in sets]),
            truths,
            np.stack([np.bincount(one.rows[2], minlength=self._classes) for one in sets]).astype(np.int32),
            errors,
            every,
            calm,
        )

    def _regression(self, looks: Floats, truths: Floats, fold: NDArray[np.int64]) -> tuple[Regression, Floats]:
        """A forest on all sets, and the errors (m,) of forests on the sets of other folds."""
        means, scales, distances = np.empty((3, len(truths)))
        for k in np.unique(fold):
            mine = fold == k
            other = self._forest(looks[~mine], truths[~mine])
            means[mine], variances = other.predict(looks[mine])
            scales[mine] = np.sqrt(variances + _binomial(means[mine], SIZE))
            distances[mine] = other.distance(looks[mine], NEAREST)
        errors = means - truths
        quantile = float(np.quantile(np.abs(errors) / scales, self.level))
        return Regression(self._forest(looks, truths), quantile, float(np.quantile(distances, FARTHEST))), errors

    def _forest(self, looks: Floats, truths: Floats) -> Forest:
        return Forest.fit(looks, truths, trees=self.trees, leaf=LEAF, seed=self.seed)

    def _look(self, seen: Rows, thresholds: Thresholds) -> Floats:
        """The five numbers."""
        confidences, certainties, predictions = seen[:3]
        shares = np.bincount(predictions) / max(len(predictions), 1)
        shares = shares[shares > 0]
        spread = -(shares * np.log(shares)).sum() + (len(shares) - 1) / (2 * len(predictions))
        above = (confidences >= thresholds.confidence).mean(), (certainties >= thresholds.certainty).mean()
        return np.array([confidences.mean(), certainties.mean(), *above, spread])

    def _chosen(self, learnt: Learnt, seen: Rows) -> tuple[Regression, Floats]:
        """The regression to use, and what describes these rows, (1, 5)."""
        look = self._look(seen, learnt.thresholds)[None]
        near = learnt.calm.forest.distance(look, NEAREST)[0] <= learnt.calm.farthest
        calm = not seen[3].any() and (near or len(seen[0]) >= ENOUGH)
        return learnt.calm if calm else learnt.every, look

    def _value(self, learnt: Learnt, seen: Rows) -> float:
        chosen, look = self._chosen(learnt, seen)
        return float(chosen.forest.predict(look)[0][0])

    def _bounds(self, learnt: Learnt, value: float, seen: Rows) -> tuple[float, float]:
        chosen, look = self._chosen(learnt, seen)
        mean, variance = chosen.forest.predict(look)
        known_of = len(self._labels) if chosen is learnt.calm else self._copied
        sampling = _binomial(mean, len(seen[0])) + _binomial(mean, known_of)
        half = chosen.quantile * float(np.sqrt(variance + sampling)[0])
        known = wilson(self._right, len(self._labels), self.level)
        if self._right in (0, len(self._labels)):  # without a failure, or a success, all sets are alike
            half = max(half, known.high - known.low)
        return value - half, value + half

    def _withheld(self, learnt: Learnt, seen: Rows) -> str:
        chosen, look = self._chosen(learnt, seen)
        if chosen is learnt.calm or chosen.forest.distance(look, NEAREST)[0] <= chosen.farthest:
            return ""
        if not len(self._copies.labels):
            return "they look changed, and there were no shifted copies of the validation images to compare them with"
        return "the model's outputs on them are like those on none of the shifted validation images"

    def _details(self, learnt: Learnt, seen: Rows) -> dict[str, float]:
        chosen, look = self._chosen(learnt, seen)
        distance = float(chosen.forest.distance(look, NEAREST)[0])
        return {"distance": distance, "farthest": chosen.farthest, "sets": float(len(chosen.forest.values))}


def _binomial(share: Floats, n: int) -> Floats:
    """The variance of a share of n images, kept above zero as if there were one success and one failure more."""
    kept = (share * n + 1) / (n + 2)
    return np.asarray(kept * (1 - kept) / n)
