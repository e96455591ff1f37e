"""The contract of an oracle: which predictions are wrong, judged without their labels.

An oracle learns from training and validation images whose labels are known and then judges predictions in operation,
where they are not. It implements `_fit` and `_judge`; the public `fit` and `judge` are final and own the checks.
Parameters live in `__init__` and are stored untouched under their own names; what `fit` learns ends in an underscore.
That is all `save` and `load` need: one safetensors file, never a pickle.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, final

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.learner import Learner
from secondguess.contracts.saving import Writable
from secondguess.errors import UserError
from secondguess.images.image_set import ImageSet
from secondguess.model.observation import Needs, Observation
from secondguess.model.observer import Observer

if TYPE_CHECKING:
    from secondguess.model.classifier import Classifier

__all__ = ["Evidence", "Oracle", "Verdicts"]

RIGHT, WRONG, UNDECIDED = 0, 1, -1


@dataclass(frozen=True, eq=False)
class Evidence:
    """What an oracle sees: n images, what is known about them, and what a classifier made of them.

    Attributes:
        observation: of the n images.
        images: the same n images, with labels where they are known (-1 elsewhere), metadata columns and ids.
    """

    observation: Observation
    images: ImageSet

    def __post_init__(self) -> None:
        seen, given = len(self.observation), len(self.images)
        if seen != given:
            raise UserError(
                f"{seen} images were observed, but the set {self.images.name!r} has {given}; "
                "give the observation of exactly these images."
            )
        ours, theirs = self.observation.class_names, self.images.class_names
        if theirs and theirs != ours and (len(theirs) != len(ours) or not _are_numbers(ours)):
            raise UserError(
                f"The classifier knows the classes {_shown(ours)}, but the set {self.images.name!r} has "
                f"{_shown(theirs)}; the model and the data must agree on the classes and their order."
            )

    @classmethod
    def of(cls, classifier: Classifier, images: ImageSet, needs: Needs | None = None, *, seed: int = 0) -> Evidence:
        """Let a classifier look at images; `needs` are those of the oracles that will judge."""
        return cls(classifier.observe(images, needs, seed=seed), images)

    def __len__(self) -> int:
        """The number of images n."""
        return len(self.observation)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The K names: the data's own where it has some, else the classifier's."""
        return self.images.class_names or self.observation.class_names

    @property
    def predictions(self) -> NDArray[np.int64]:
        """The predicted class of each image, (n,)."""
        return self.observation.predictions

    @property
    def labels(self) -> NDArray[np.int64]:
        """The true class of each image, (n,); -1 where unknown."""
        return self.images.labels

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether each prediction is right, (n,); an error where a label is unknown."""
        self.require_labels("This")
        return np.asarray(self.predictions == self.labels)

    def take(self, indices: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Evidence:
        """The evidence on some of the images, by positions, mask or slice."""
        rows = np.arange(len(self))[indices]
        return Evidence(self.observation.take(rows), self.images.take(rows))

    def require_labels(self, who: str) -> None:
        """Raise a `UserError` if a label is unknown."""
        if unknown := int((self.labels < 0).sum()):
            raise UserError(
                f"{who} needs the label of every image, but {unknown} of the {len(self)} in {self.images.name!r} are "
                "unknown; leave those images out with images.take(images.labels >= 0)."
            )


@dataclass(frozen=True, eq=False)
class Verdicts:
    """What an oracle says about n predictions.

    Attributes:
        wrong: int8 (n,): 1 = judged wrong, 0 = judged right, -1 = no decision.
        reasons: texts (n,), the rule that fired; "" where none did.
        advice: int64 (n,), a label to use instead of the prediction, or -1.
    """

    wrong: NDArray[np.int8]
    reasons: NDArray[np.object_]
    advice: NDArray[np.int64]

    @classmethod
    def make(
        cls,
        wrong: NDArray[Any],
        reasons: NDArray[np.object_] | None = None,
        advice: NDArray[np.int64] | None = None,
    ) -> Verdicts:
        """Verdicts of the right types; no reasons and no advice where none are given."""
        n = len(wrong)
        return cls(
            np.asarray(wrong).astype(np.int8),
            np.full(n, "", dtype=object) if reasons is None else np.asarray(reasons, dtype=object),
            np.full(n, -1, dtype=np.int64) if advice is None else np.asarray(advice, dtype=np.int64),
        )

    def __len__(self) -> int:
        """The number of predictions n."""
        return len(self.wrong)

    @property
    def judged_wrong(self) -> NDArray[np.bool_]:
        """The predictions judged wrong, (n,)."""
        return self.wrong == WRONG

    @property
    def undecided(self) -> int:
        """How many predictions the oracle could not decide about."""
        return int((self.wrong == UNDECIDED).sum())

    def share_passed(self, undecided: Literal["pass", "fail", "exclude"] = "pass") -> float:
        """The share of predictions judged right: the oracle's own estimate of the accuracy.

        Args:
            undecided: whether predictions without a decision count as passed (as in the papers), as failed, or not at
                all.
        """
        if undecided not in ("pass", "fail", "exclude"):
            raise UserError(f"Undecided predictions can 'pass', 'fail' or be left out ('exclude'), not {undecided!r}.")
        right, wrong, open_ = (int((self.wrong == verdict).sum()) for verdict in (RIGHT, WRONG, UNDECIDED))
        if undecided == "pass":
            right += open_
        elif undecided == "fail":
            wrong += open_
        if right + wrong == 0:
            raise UserError("No prediction was decided, so there is no share of passed ones; count them as 'fail'.")
        return right / (right + wrong)

    def take(self, indices: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Verdicts:
        """The verdicts on some of the predictions."""
        return Verdicts(self.wrong[indices], self.reasons[indices], self.advice[indices])


class Oracle(Observer):
    """Judges predictions without their labels.

    Attributes:
        name: by which it is known in the registry and in reports; lower case with underscores.
        requires_fit: whether `fit` must be called before `judge`.
    """

    noun: ClassVar[str] = "oracle"

    @final
    def fit(self, training: Evidence, validation: Evidence) -> Self:
        """Learn from images whose labels are known.

        Args:
            training: on the images that the classifier was trained on.
            validation: on other images of the same kind.
        """
        for evidence in (training, validation):
            self._check(evidence)
            evidence.require_labels(f"Fitting the oracle {self.name!r}")
        self._agree(training.class_names, validation.class_names, "training", "validation")
        self._forget()
        self._fit(training, validation)
        self.class_names_ = list(training.class_names)
        return self

    @final
    def judge(self, operation: Evidence) -> Verdicts:
        """Judge n predictions; labels that happen to be known are not looked at."""
        self._ready(operation)
        verdicts = self._judge(operation)
        for part in (verdicts.wrong, verdicts.reasons, verdicts.advice):
            if part.shape != (len(operation),):
                raise ValueError(f"{self.name}: _judge returned shape {part.shape} for {len(operation)} images")
        return verdicts

    def _ready(self, operation: Evidence) -> None:
        """Raise a `UserError` unless these predictions can be judged."""
        if self.requires_fit and not self.is_fitted:
            raise UserError(f"The oracle {self.name!r} must see labelled images first; call fit(training, validation).")
        self._check(operation)
        if self.is_fitted:
            self._agree(tuple(self.class_names_), operation.class_names, "training", "operation")

    def _fit(self, training: Evidence, validation: Evidence) -> None:
        """Learn; store what was learnt in attributes that end in an underscore. Nothing to do by default."""

    @abstractmethod
    def _judge(self, operation: Evidence) -> Verdicts:
        """The verdicts on evidence that is known to hold what `needs` says."""

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` has been called."""
        return hasattr(self, "class_names_")

    def _check(self, evidence: Evidence) -> None:
        """Raise a `UserError` unless there are images and all that is needed was observed."""
        if len(evidence) == 0:
            raise UserError(f"The oracle {self.name!r} was given no images; at least one is needed.")
        self._check_needs(replace(self.needs, images=False), evidence.observation)  # evidence has its images anyway

    def _agree(self, first: tuple[str, ...], second: tuple[str, ...], one: str, other: str) -> None:
        if first != second and (len(first) != len(second) or not (_are_numbers(first) or _are_numbers(second))):
            raise UserError(
                f"The {one} images have the classes {_shown(first)}, but the {other} images have {_shown(second)}; "
                f"the oracle {self.name!r} needs the same classes in the same order."
            )

    @classmethod
    def _registered(cls, name: str) -> type[Learner]:
        from secondguess.accuracy.oracles.registry import get

        return get(name)

    @classmethod
    def _writable(cls) -> Mapping[str, Writable]:
        from secondguess.accuracy.oracles.icos.input_rules import InputRules

        rules = Writable(InputRules, InputRules.as_dict, InputRules.from_dict)
        return {**super()._writable(), "input_rules": rules}

    @classmethod
    def _refusal(cls, value: Any) -> str:
        return (
            f"A {type(value).__name__} cannot be saved with an oracle; parameters are numbers, texts, lists, traces "
            "and rules, and what is learnt may be arrays and dictionaries of arrays too."
        )


def _are_numbers(names: tuple[str, ...]) -> bool:
    """Whether these are the names of classes that nobody has named."""
    return names == tuple(str(k) for k in range(len(names)))


def _shown(names: tuple[str, ...], most: int = 5) -> str:
    dots = ", ..." if len(names) > most else ""
    return f"({', '.join(names[:most])}{dots}; {len(names)} in all)"
