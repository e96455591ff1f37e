from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.typing import NDArray

from secondguess.accuracy.oracles import Oracle, Verdicts, check_oracle
from secondguess.accuracy.oracles.checks import CHECKS, labelled_observation
from secondguess.accuracy.oracles.cross_reference import CrossReference
from secondguess.accuracy.oracles.icos import CRITERIA, Icos, InputRules, Partition
from secondguess.errors import UserError
from secondguess.model.needs import Needs, Trace
from secondguess.model.observation import Observation

HALVES = InputRules(
    [Partition("low", [0, 1], column="partition"), Partition("high", ["2", "3"], column="partition")],
)


@pytest.mark.parametrize(
    "oracle",
    [
        CrossReference(),
        Icos(trees=10),
        Icos(HALVES, trees=10),
        Icos(HALVES, trees=10, features=Trace(), **CRITERIA[3]),
        Icos(features=4, balanced=True, trees=10, **CRITERIA[2]),
    ],
    ids=lambda oracle: f"{oracle.name}-{len(repr(oracle))}",
)
def test_our_oracles_keep_the_contract(oracle: Oracle) -> None:
    assert check_oracle(oracle) == [check.__name__ for check in CHECKS]


def test_own_evidence_can_be_used(digits: tuple[Observation, Observation, Observation]) -> None:
    check_oracle(Icos(trees=10), digits)


class Sound(Oracle):
    """An oracle that keeps the contract; the broken ones below change one thing each."""

    name = "sound"

    def __init__(self, share: float = 0.1) -> None:
        self.share = share

    @property
    def needs(self) -> Needs:
        return Needs(logits=True)

    def _fit(self, training: Observation, validation: Observation) -> None:
        self.least_ = float(np.quantile(validation.confidences[validation.correct], self.share))

    def _wrong(self, operation: Observation) -> NDArray[np.bool_]:
        return np.asarray(operation.confidences < self.least_)

    def _judge(self, operation: Observation) -> Verdicts:
        wrong = self._wrong(operation)
        return Verdicts.make(wrong, np.where(wrong, "not confident", "").astype(object))


class BadName(Sound):
    name = "Bad Name"


class Meddling(Sound):
    def __init__(self, share: float = 0.1) -> None:
        self.share = share + 0.1


class Silent(Sound):
    def _judge(self, operation: Observation) -> Verdicts:
        return Verdicts.make(self._wrong(operation))


class WideTypes(Sound):
    def _judge(self, operation: Observation) -> Verdicts:
        made = super()._judge(operation)
        return Verdicts(made.wrong.astype(np.int64), made.reasons, made.advice)  # type: ignore[arg-type]


class Maybe(Sound):
    def _judge(self, operation: Observation) -> Verdicts:
        made = super()._judge(operation)
        return Verdicts.make(made.wrong * 2, made.reasons)


class OddAdvice(Sound):
    def _judge(self, operation: Observation) -> Verdicts:
        made = super()._judge(operation)
        return Verdicts.make(made.wrong, made.reasons, np.full(len(operation), 17))


class UpsideDown(Sound):
    def _wrong(self, operation: Observation) -> NDArray[np.bool_]:
        return ~super()._wrong(operation)


class Undecided(Sound):
    def _judge(self, operation: Observation) -> Verdicts:
        return Verdicts.make(np.full(len(operation), -1))


class Cheating(Sound):
    def _wrong(self, operation: Observation) -> NDArray[np.bool_]:
        return np.asarray(operation.predictions != operation.labels)


class Dicing(Sound):
    def _wrong(self, operation: Observation) -> NDArray[np.bool_]:
        return super()._wrong(operation) | (np.random.default_rng().random(len(operation)) < 0.1)


class Relative(Sound):
    def _wrong(self, operation: Observation) -> NDArray[np.bool_]:
        confidences = operation.confidences
        return np.asarray(confidences <= np.quantile(confidences, 0.3))


class Positional(Sound):
    def _wrong(self, operation: Observation) -> NDArray[np.bool_]:
        wrong = super()._wrong(operation).copy()
        wrong[20:25] = True
        return wrong


class Remembering(Sound):
    def _fit(self, training: Observation, validation: Observation) -> None:
        self._times = getattr(self, "_times", 0) + 1
        self.least_ = 0.9 + 0.2 * (self._times - 1)


class Forgetful(Sound):
    def save(self, path: object) -> None:
        self.clone(share=0.9).fit(labelled_observation(self.needs, 40), labelled_observation(self.needs, 40))
        kept, self.least_ = self.least_, 2.0
        super().save(path)  # type: ignore[arg-type]
        self.least_ = kept


class Careless(Sound):
    requires_fit = False

    def _ready(self, operation: Observation) -> None:
        """Judge whatever comes."""


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (BadName, "check_name failed for BadName: the class attribute `name` must be"),
        (Meddling, "check_parameters failed for Meddling: clone.. has .* store them untouched"),
        (Silent, "check_verdicts failed for Silent: a prediction was judged wrong without a reason"),
        (WideTypes, "check_verdicts .* not int8 and int64"),
        (Maybe, "check_verdicts .* not -1, 0 and 1"),
        (OddAdvice, "check_verdicts .* an advice is neither a class nor -1"),
        (UpsideDown, "check_use .* is it upside down"),
        (Undecided, "check_use .* hardly anything was decided"),
        (Cheating, "check_labels_unseen .* without the labels"),
        (Dicing, "check_(labels_unseen|determinism) "),
        (Relative, "check_batch_size .* get other verdicts than among all"),
        (Positional, "check_permutation .* shuffling"),
        (Remembering, "check_refit .* state of an earlier fit was kept"),
        (Forgetful, "check_save_and_load .* judges differently"),
        (Careless, "check_bad_input .* two other classes was accepted"),
    ],
)
def test_the_kit_finds_what_is_broken(broken: type[Oracle], complaint: str) -> None:
    check_oracle(Sound)
    with pytest.raises(AssertionError, match=complaint):
        check_oracle(broken)


def test_an_exception_inside_is_told_with_the_check() -> None:
    class Crashing(Sound):
        def _judge(self, operation: Observation) -> Verdicts:
            raise KeyError("oops")

    with pytest.raises(AssertionError, match="check_verdicts failed for Crashing: it raised KeyError: 'oops'"):
        check_oracle(Crashing())
    with pytest.raises(AssertionError, match="is not a secondguess Oracle"):
        check_oracle(3)  # type: ignore[arg-type]


def test_an_oracle_that_cannot_be_saved_must_say_so() -> None:
    class Unsaved(Sound):
        def save(self, path: object) -> None:
            raise UserError("It cannot be saved.")

    check_oracle(Unsaved())


def test_the_example_is_what_it_says() -> None:
    needs = Needs(logits=True, traces=frozenset({Trace()}), samples=3)
    seen = labelled_observation(needs, 400, seed=3)
    assert 0.1 < 1 - seen.correct.mean() < 0.3
    observation = seen
    assert observation.logits is not None
    assert np.array_equal(observation.logits.argmax(axis=1), observation.predictions)
    assert observation.confidences[~seen.correct].mean() < observation.confidences[seen.correct].mean()
    assert HALVES.coverage(seen.images) == 1
    assert (HALVES.violated(seen) >= 0)[seen.correct].sum() == 0
    assert labelled_observation(Needs(), 8).logits is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(labelled_observation(needs, 400, seed=3).predictions, seen.predictions)
