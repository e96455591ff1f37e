"""The contract of an estimator of accuracy: a number with an interval, from images without labels.

An estimator learns from labelled validation images and is then applied to images of operation. A subclass implements
three pure steps: `_see` takes from an observation what it uses, as arrays with one row per image; `_learn` learns from
such rows of the validation images and their labels; `_value` turns rows seen in operation into an accuracy. The public
`fit` and `estimate` are final; they own the checks and the interval, which is a percentile bootstrap of both sets
together: for every resample `_learn` and `_value` run on rows drawn with replacement. A bootstrap has no spread where
all it can draw is alike, which proves nothing. Among validation images without a single failure, or without a single
success, the interval reaches as far beyond the value as the score interval (Wilson) of the validation accuracy does;
where images of operation are all alike to the method, as a single one is, or no resample changes the value, at least
as far as the score interval of such a share of so many images.

The interval says what the number of images leaves open. It cannot say whether the estimator's assumption holds in
operation: that is what `trust` is for, filled in by `secondguess.accuracy.try_estimators`.

Parameters live in `__init__` and are stored untouched under their own names; an estimator with parameters of its own
passes `**settings` on to this base. Saved are the rows that `_see` took from the validation images; what follows from
them is learnt again when a file is loaded.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypedDict, final

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.learner import Learner
from secondguess.contracts.saving import Writable
from secondguess.errors import UserError
from secondguess.metrics import Interval, wilson
from secondguess.model.observation import Observation
from secondguess.model.observer import Observer

if TYPE_CHECKING:
    from secondguess.accuracy.shifted_copies import ShiftedCopies

__all__ = ["Estimate", "Estimator", "EstimatorSettings", "NothingKnown", "Rows", "Trial"]

Rows = tuple[NDArray[Any], ...]

TOLERANCE = 0.02
SAME = 1e-12  # bounds that are no farther apart are one number, but for rounding


class NothingKnown(UserError):
    """An estimator has nothing to go by on these very images; on others of their kind it may have."""


class EstimatorSettings(TypedDict, total=False):
    """The keyword arguments of every estimator."""

    resamples: int
    level: float
    seed: int


@dataclass(frozen=True)
class Trial:
    """The errors of an estimator on artificially shifted sets, of which the truth is known.

    Attributes:
        shift: in which way the images were changed: none, classes, appearance or both.
        error: the mean absolute difference between estimate and truth over the repetitions.
        bias: the mean of estimate minus truth: positive where the estimator is too optimistic.
        truth: the mean true accuracy.
        repetitions: how many sets were made.
    """

    shift: str
    error: float
    bias: float
    truth: float
    repetitions: int

    def passed(self, tolerance: float = TOLERANCE) -> bool:
        """Whether the estimates were off by no more than `tolerance` on average."""
        return self.error <= tolerance


@dataclass(frozen=True)
class Estimate:
    """The accuracy in operation, estimated by one method.

    Attributes:
        value: the estimated share of right predictions.
        low: lower bound of the interval.
        high: upper bound of the interval.
        method: the name of the estimator.
        n: how many images of operation it rests on.
        level: nominal coverage of the interval.
        trust: the trials of the method under artificial shifts; empty if there were none.
        details: what else the method found out, by name.
        withheld: why the number must not be reported; empty where it may be.
    """

    value: float
    low: float
    high: float
    method: str
    n: int
    level: float = 0.95
    trust: tuple[Trial, ...] = ()
    details: Mapping[str, float] = field(default_factory=dict)
    withheld: str = ""

    @property
    def interval(self) -> Interval:
        """Value and bounds as the metrics have them."""
        return Interval(self.value, self.low, self.high, self.n, self.level)

    @property
    def trusted(self) -> tuple[str, ...]:
        """The kinds of shift under which the method was within two points of the truth."""
        return tuple(trial.shift for trial in self.trust if trial.passed())

    @property
    def failed(self) -> tuple[str, ...]:
        """The kinds of shift under which it was not."""
        return tuple(trial.shift for trial in self.trust if not trial.passed())

    def with_trust(self, trust: tuple[Trial, ...]) -> Estimate:
        """The same estimate, with the record of `try_estimators`."""
        return replace(self, trust=trust)

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON can hold them."""
        return asdict(self) | {"trusted": list(self.trusted), "failed": list(self.failed)}

    def __str__(self) -> str:
        return f"{self.method}: {self.interval}"


class Estimator(Observer):
    """Estimates the accuracy in operation.

    Args:
        resamples: of the bootstrap.
        level: nominal coverage of the interval.
        seed: of the bootstrap, and of everything else that is random.

    Attributes:
        name: by which it is known in the registry; an object may extend it to be unique in tables.
    """

    noun: ClassVar[str] = "estimator"

    def __init__(self, *, resamples: int = 100, level: float = 0.95, seed: int = 0) -> None:
        if resamples < 1 or not 0 < level < 1:
            raise UserError(
                f"resamples={resamples} and level={level} were given; at least one resample and a level between 0 and "
                "1 are needed."
            )
        self.resamples, self.level, self.seed = resamples, level, seed

    @property
    def other_models(self) -> bool:
        """Whether models other than the one in question take part, such as referees; not by default."""
        return False

    @property
    def own_trials(self) -> tuple[Trial, ...]:
        """Trials that were part of fitting it; none by default."""
        return ()

    @property
    def recorded(self) -> bool:
        """Whether it reads predictions that were recorded with the images, which new images lack; not by default."""
        return False

    @final
    def fit(
        self, validation: Observation, training: Observation | None = None, shifted: ShiftedCopies | None = None
    ) -> Self:
        """Learn from images whose labels are known.

        Args:
            validation: of images on which the model was not trained.
            training: of those on which it was, for the few estimators that use them, such as those with an oracle.
            shifted: copies of validation images, shifted in known ways, for estimators that learn from them.
        """
        labels = validation.require_labels(f"Fitting the estimator {self.name!r}")
        self._prepare(validation, training, shifted)
        self._classes = validation.num_classes
        self._seen, self._labels = self._see_labelled(validation), labels
        self._right = int(validation.correct.sum())
        self._learnt = self._learn(self._seen, self._labels)
        return self

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` has been called."""
        return hasattr(self, "_learnt")

    @final
    def estimate(self, operation: Observation) -> Estimate:
        """The accuracy on the images of operation; labels that happen to be known are ignored."""
        if not self.is_fitted:
            raise UserError(f"The estimator {self.name!r} must see labelled images first; call fit(validation).")
        operation.check_classes()
        if operation.num_classes != self._classes:
            raise UserError(
                f"The estimator {self.name!r} was fitted on {self._classes} classes, but this observation has "
                f"{operation.num_classes}."
            )
        seen = self._see(operation)
        self._check_rows(seen)
        learnt = self._adapted(self._learnt, seen)
        value = float(np.clip(self._value(learnt, seen), 0, 1))
        low, high = self._bounds(learnt, value, seen)
        return Estimate(
            value,
            max(0.0, min(low, value)),
            min(1.0, max(high, value)),
            self.name,
            len(operation),
            self.level,
            details=self._details(learnt, seen),
            withheld=self._withheld(learnt, seen),
        )

    def tried(self, validation: Observation, training: Observation | None) -> Self:
        """A copy, fitted on these images only, to be tried on others; cheaper than a fit where that is possible."""
        return self.clone(resamples=1).fit(validation, training)

    def state(self) -> dict[str, Any]:
        """The rows taken from the validation images and their labels, from which everything else follows."""
        if not self.is_fitted:
            return {}
        seen = {str(place): rows for place, rows in enumerate(self._seen)}
        return {"classes_": self._classes, "labels_": self._labels, "right_": self._right, "seen_": seen}

    def _restore(self, state: Mapping[str, Any]) -> None:
        if state:
            self._seen = tuple(state["seen_"][str(place)] for place in range(len(state["seen_"])))
            self._classes, self._labels, self._right = int(state["classes_"]), state["labels_"], int(state["right_"])
            self._learnt = self._learn(self._seen, self._labels)

    def _prepare(self, validation: Observation, training: Observation | None, shifted: ShiftedCopies | None) -> None:
        """Prepare before the validation images are used; nothing to do by default."""

    @abstractmethod
    def _see(self, seen: Observation) -> Rows:
        """What is used of each image: arrays with n rows."""

    def _see_labelled(self, validation: Observation) -> Rows:
        """What is used of each validation image; the same as of those in operation by default."""
        return self._see(validation)

    @abstractmethod
    def _learn(self, seen: Rows, labels: NDArray[np.int64]) -> Any:
        """What can be learnt from rows whose labels (n,) are known."""

    @abstractmethod
    def _value(self, learnt: Any, seen: Rows) -> float:
        """The accuracy on rows whose labels are not known; clipped to [0, 1] by the caller."""

    def _check_rows(self, seen: Rows) -> None:
        """Raise `NothingKnown` where nothing can be said about these rows of operation; something can be by default."""

    def _rests_on(self, seen: Rows) -> int:
        """How many of these rows of operation the value rests on; all by default."""
        return len(seen[0])

    def _adapted(self, learnt: Any, seen: Rows) -> Any:
        """What was learnt, with what rows of operation as a whole add to it; nothing by default.

        Value, interval and details get it as what was learnt, so that it is worked out once for all of them.
        """
        return learnt

    def _details(self, learnt: Any, seen: Rows) -> dict[str, float]:
        """Further results to report; none by default."""
        return {}

    def _withheld(self, learnt: Any, seen: Rows) -> str:
        """Why the number must not be reported for these rows; it always may be by default."""
        return ""

    def _bounds(self, learnt: Any, value: float, seen: Rows) -> tuple[float, float]:
        """Lower and upper bound of the interval around the value; the caller keeps them within [0, 1]."""
        replicates = np.clip(self._replicates(learnt, seen), 0, 1)
        low, high = (float(q) for q in np.quantile(replicates, [(1 - self.level) / 2, (1 + self.level) / 2]))
        if high - low <= SAME or all((rows == rows[:1]).all() for rows in seen):
            count = self._rests_on(seen)
            right = round(value * count, 6)  # not always a whole number, and not to be made one by rounding errors
            low = min(low, wilson(math.floor(right), count, self.level).low)
            high = max(high, wilson(math.ceil(right), count, self.level).high)
        known = wilson(self._right, len(self._labels), self.level)
        if self._right == len(self._labels):
            low = min(low, value - (known.high - known.low))
        elif self._right == 0:
            high = max(high, value + (known.high - known.low))
        return low, high

    def _replicates(self, learnt: Any, seen: Rows) -> NDArray[np.float64]:
        """The value on resamples of the validation and the operation rows, (resamples,)."""
        ours, theirs = np.random.default_rng(self.seed).spawn(2)
        values = np.empty(self.resamples)
        for i in range(self.resamples):
            known = ours.integers(len(self._labels), size=len(self._labels))
            unknown = theirs.integers(len(seen[0]), size=len(seen[0]))
            rows = tuple(array[unknown] for array in seen)
            anew = self._learn(tuple(array[known] for array in self._seen), self._labels[known])
            values[i] = self._value(self._adapted(anew, rows), rows)
        return values

    @classmethod
    def _registered(cls, name: str) -> type[Learner]:
        from secondguess.accuracy.registry import get

        return get(name)

    @classmethod
    def _writable(cls) -> Mapping[str, Writable]:
        from secondguess.accuracy.oracles.base import ORACLE, input_rules

        return {**super()._writable(), "input_rules": input_rules(), "an_oracle": ORACLE}
