"""The contract of an oracle: which predictions are wrong, judged without their labels.

An oracle learns from training and validation images whose labels are known and then judges predictions in operation,
where they are not. It implements `_fit` and `_judge`; the public `fit` and `judge` are final and own the checks.
Parameters live in `__init__` and are stored untouched under their own names; what `fit` learns ends in an underscore.
That is all `save` and `load` need: one safetensors file, never a pickle.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, final, get_args
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.learner import Learner
from secondguess.contracts.saving import Writable
from secondguess.errors import UserError
from secondguess.model.observation import Observation, are_numbers, shown_classes
from secondguess.model.observer import Observer

__all__ = ["Oracle", "Undecided", "Verdicts", "check_undecided", "counted"]

RIGHT, WRONG, UNDECIDED = 0, 1, -1
Undecided = Literal["pass", "fail", "exclude"]

# What was inspected elsewhere, by the oracle and the observation, for as long as both are there.
_REMEMBERED: WeakKeyDictionary[Oracle, WeakKeyDictionary[Observation, NDArray[np.int64]]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Verdicts:
    """The verdicts of an oracle on n predictions.

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

    def share_passed(self, undecided: Undecided = "pass") -> float:
        """The share of predictions judged right: the oracle's own estimate of the accuracy.

        Args:
            undecided: whether predictions without a decision count as passed (as in the papers), as failed, or not at
                all.
        """
        failed, counts = counted(self.wrong, undecided)
        if not counts.any():
            raise UserError("No prediction was decided, so there is no share of passed ones; count them as 'fail'.")
        return float((~failed[counts]).mean())

    def take(self, indices: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Verdicts:
        """The verdicts on some of the predictions."""
        return Verdicts(self.wrong[indices], self.reasons[indices], self.advice[indices])


def check_undecided(undecided: str) -> None:
    """Raise a `UserError` unless predictions without a decision can be counted so."""
    if undecided not in get_args(Undecided):
        raise UserError(f"Undecided predictions can 'pass', 'fail' or be left out ('exclude'), not {undecided!r}.")


def counted(wrong: NDArray[np.int8], undecided: Undecided) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which predictions count as wrong, and which count at all, (n,) each.

    Args:
        wrong: (n,) verdicts, as in `Verdicts`.
        undecided: whether predictions without a decision count as right, as wrong, or not at all.
    """
    check_undecided(undecided)
    failed = wrong != RIGHT if undecided == "fail" else wrong == WRONG
    return failed, wrong != UNDECIDED if undecided == "exclude" else np.ones(len(wrong), dtype=bool)


class Oracle(Observer):
    """Judges predictions without their labels.

    Attributes:
        name: by which it is known in the registry and in reports; lower case with underscores.
        requires_fit: whether `fit` must be called before `judge`.
    """

    noun: ClassVar[str] = "oracle"

    @final
    def fit(self, training: Observation, validation: Observation) -> Self:
        """Learn from images whose labels are known.

        Args:
            training: of the images that the classifier was trained on.
            validation: of other images of the same kind.
        """
        for seen in (training, validation):
            self._check(seen)
            seen.require_labels(f"Fitting the oracle {self.name!r}")
        self._agree(training.class_names, validation.class_names, "training", "validation")
        self._forget()
        _REMEMBERED.pop(self, None)
        self._fit(training, validation)
        self.class_names_ = list(training.class_names)
        return self

    @final
    def judge(self, operation: Observation) -> Verdicts:
        """Judge n predictions; labels that happen to be known are ignored."""
        self._ready(operation)
        verdicts = self._judge(operation)
        for part in (verdicts.wrong, verdicts.reasons, verdicts.advice):
            if part.shape != (len(operation),):
                raise ValueError(f"{self.name}: _judge returned shape {part.shape} for {len(operation)} images")
        return verdicts

    def inspect(self, seen: Observation) -> NDArray[np.int64]:
        """What it takes of the pixels or traces of each image, (n, m), whatever the other images are.

        It is most of the work of some oracles, and does not need all images in one place: these say here what they
        take, and workers of an engine can do it for them. Others take nothing.
        """
        return np.zeros((len(seen), 0), dtype=np.int64)

    @property
    def inspects(self) -> bool:
        """Whether it takes anything."""
        return type(self).inspect is not Oracle.inspect

    def remember(self, seen: Observation, inspected: NDArray[np.int64]) -> None:
        """Take what `inspect` gave elsewhere, (n, m), for what it would give for this observation."""
        _REMEMBERED.setdefault(self, WeakKeyDictionary())[seen] = inspected

    def _inspected(self, seen: Observation) -> NDArray[np.int64]:
        return _REMEMBERED[self][seen] if self._remembers(seen) else self.inspect(seen)

    def _remembers(self, seen: Observation) -> bool:
        return self in _REMEMBERED and seen in _REMEMBERED[self]

    def _ready(self, operation: Observation) -> None:
        """Raise a `UserError` unless these predictions can be judged."""
        if self.requires_fit and not self.is_fitted:
            raise UserError(f"The oracle {self.name!r} must see labelled images first; call fit(training, validation).")
        self._check(operation)
        if self.is_fitted:
            self._agree(tuple(self.class_names_), operation.class_names, "training", "operation")

    def _fit(self, training: Observation, validation: Observation) -> None:
        """Learn; store what was learnt in attributes that end in an underscore. Nothing to do by default."""

    @abstractmethod
    def _judge(self, operation: Observation) -> Verdicts:
        """The verdicts on an observation that is known to hold what `needs` says."""

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` has been called."""
        return hasattr(self, "class_names_")

    def _check(self, seen: Observation) -> None:
        """Raise a `UserError` unless there are images and all that is needed was observed."""
        if len(seen) == 0:
            raise UserError(f"The oracle {self.name!r} was given no images; at least one is needed.")
        if not self._remembers(seen):
            self._check_needs(self.needs, seen)
        seen.check_classes()

    def _agree(self, first: tuple[str, ...], second: tuple[str, ...], one: str, other: str) -> None:
        if first != second and (len(first) != len(second) or not (are_numbers(first) or are_numbers(second))):
            raise UserError(
                f"The {one} images have the classes {shown_classes(first)}, but the {other} images have "
                f"{shown_classes(second)}; the oracle {self.name!r} needs the same classes in the same order."
            )

    @classmethod
    def _registered(cls, name: str) -> type[Learner]:
        from secondguess.accuracy.oracles.registry import get

        return get(name)

    @classmethod
    def _writable(cls) -> Mapping[str, Writable]:
        return {**super()._writable(), "input_rules": input_rules()}

    @classmethod
    def _refusal(cls, value: Any) -> str:
        return (
            f"A {type(value).__name__} cannot be saved with an oracle; parameters are numbers, texts, lists, traces "
            "and rules, and what is learnt may be arrays and dictionaries of arrays too."
        )


def input_rules() -> Writable:
    """How rules of the domain are written into a file."""
    from secondguess.accuracy.oracles.icos.input_rules import InputRules

    return Writable(InputRules, InputRules.as_dict, InputRules.from_dict)


def _made_again(card: Mapping[str, Any]) -> Oracle:
    from secondguess.accuracy.oracles.registry import make

    return make(card["name"], **card["params"])


# What an oracle has learnt is not part of it: a learner with an oracle as a parameter saves that as its own state.
ORACLE = Writable(Oracle, lambda oracle: {"name": oracle.name, "params": oracle.params()}, _made_again)
