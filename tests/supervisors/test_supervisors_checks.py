from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from secondguess import Needs, Observation, Supervisor, Trace, check_supervisor
from secondguess.contracts.merging import Sums
from secondguess.supervisors import checks, make_all
from secondguess.supervisors.checks import example_observation

Array = NDArray[np.floating[Any]]


class Sound(Supervisor):
    """A supervisor that keeps the contract; the broken ones below change one thing each."""

    name = "sound"

    def __init__(self, power: float = 1.0) -> None:
        self.power = power

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        self.usual_ = observation.confidences.mean()

    def _score(self, observation: Observation) -> Array:
        return self.power * (self.usual_ - observation.confidences)


class Flipped(Sound):
    def _score(self, observation: Observation) -> Array:
        return -super()._score(observation)


class Blind(Sound):
    def _score(self, observation: Observation) -> Array:
        return np.zeros(len(observation))


class Float32(Sound):
    def score(self, observation: Observation) -> Any:  # type: ignore[misc]
        return super().score(observation).astype(np.float32)


class TwoDimensional(Sound):
    def _score(self, observation: Observation) -> Array:
        return super()._score(observation)[:, None]


class NotANumber(Sound):
    def _score(self, observation: Observation) -> Array:
        return np.full(len(observation), np.nan)


class NotANumberWhereItMatters(Sound):
    def _score(self, observation: Observation) -> Array:
        scores = super()._score(observation)
        return np.where(observation.confidences < 0.5, np.nan, scores)


class Remembering(Sound):
    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        self._sum = getattr(self, "_sum", 0.0) + observation.confidences.sum()
        self.usual_ = self._sum


class Last(Sums):
    def merge(self, other: Last) -> Last:  # type: ignore[override]
        return other


class BadlyMerged(Sound):
    _fit = Supervisor._fit

    def _statistics(self, observation: Observation, labels: NDArray[np.int64] | None) -> Last:
        return Last({"usual": float(observation.confidences.mean())})

    def _learn(self, merged: Last) -> bool:
        self.usual_ = merged.values["usual"]
        return False


class RandomScores(Sound):
    def _score(self, observation: Observation) -> Array:
        return super()._score(observation) + np.random.default_rng().random(len(observation))


class RandomFit(Sound):
    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        self.usual_ = float(np.random.default_rng().random())


class Comparing(Sound):
    """Its scores depend on the company they are in."""

    def _score(self, observation: Observation) -> Array:
        scores = super()._score(observation)
        return scores - 0.5 * scores.mean()


class Positional(Sound):
    def _score(self, observation: Observation) -> Array:
        return super()._score(observation) + np.arange(len(observation))


class Unsaveable(Sound):
    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        super()._fit(observation, labels)
        self.helper_ = object()


class UnsaveableArray(Sound):
    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        super()._fit(observation, labels)
        self.helper_ = np.array(["text"])


class Forgetful(Sound):
    """Keeps what it learnt under a name that is not saved."""

    def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
        self._usual = observation.confidences.mean()

    def _score(self, observation: Observation) -> Array:
        return getattr(self, "_usual", 9.0) - observation.confidences


class Mutating(Sound):
    def __init__(self, power: float = 1.0) -> None:
        self.power = 2 * power


class Renaming(Sound):
    def __init__(self, power: float = 1.0) -> None:
        self._power = power

    def _score(self, observation: Observation) -> Array:
        return self._power * (self.usual_ - observation.confidences)


class TuplesBecomeLists(Sound):
    def __init__(self, sizes: tuple[int, ...] = (1, 2)) -> None:
        self.sizes = sizes
        self.power = 1.0


class BadName(Sound):
    name = "Bad Name"


class Anonymous(Supervisor):
    requires_fit = False

    def _score(self, observation: Observation) -> Array:
        return -observation.confidences


class DividesByDoubt(Sound):
    def _score(self, observation: Observation) -> NDArray[np.float64]:
        doubt = 1 - observation.confidences
        return doubt * doubt / doubt


class AcceptsAnything(Sound):
    def _check(self, observation: Observation) -> None:
        pass


class NeedsButDoesNotAsk(AcceptsAnything):
    @property
    def needs(self) -> Needs:
        return Needs(logits=True)

    def _check(self, observation: Observation) -> None:
        if len(observation) == 0:
            super()._check(observation)
            Supervisor._check(self, observation)


class LooksAtImagesUnasked(Sound):
    def _score(self, observation: Observation) -> Array:
        assert observation.images is not None, "no images"
        return super()._score(observation)


class WritesIntoItsInput(Sound):
    def _score(self, observation: Observation) -> Array:
        observation.probabilities[:] = 0
        return super()._score(observation)


class QuickAndWrong(Sound):
    def _score_few(self, observation: Observation) -> Array:
        return 1.01 * super()._score(observation)


class QuickInAnotherOrder(Sound):
    def _score_few(self, observation: Observation) -> Array:
        return np.sort(super()._score(observation))


class OtherGraph(Sound):
    def _graph(self) -> Any:
        return lambda seen: -seen.probabilities.amax(1)


class SingleGraph(Sound):
    def _graph(self) -> Any:
        usual = float(self.usual_)
        return lambda seen: (usual - seen.probabilities.amax(1)).float()


class ColumnGraph(Sound):
    def _graph(self) -> Any:
        usual = float(self.usual_)
        return lambda seen: usual - seen.probabilities.amax(1, True)


class FailingGraph(Sound):
    def _graph(self) -> Any:
        return lambda seen: seen.embeddings


class ListGraph(Sound):
    def _graph(self) -> Any:
        return lambda seen: seen.probabilities.amax(1).tolist()


BROKEN = [
    (FailingGraph(), "check_graph", "the graph failed on 1 image with AttributeError: .*embeddings"),
    (ListGraph(), "check_graph", "the graph returned a list, not a tensor"),
    (BadName(), "check_name", "lower case letters, digits and underscores, not 'Bad Name'"),
    (Anonymous(), "check_name", "not None"),
    (Mutating(), "check_parameters", "store them untouched"),
    (Renaming(), "check_parameters", "under its own name"),
    (Float32(), "check_shape_and_type", r"returned float32 of shape \(240,\), not float64"),
    (TwoDimensional(), "check_shape_and_type", r"shape \(240, 1\) for 240 images"),
    (NotANumber(), "check_shape_and_type", "NaN for 240 images"),
    (WritesIntoItsInput(), "check_shape_and_type", "read-only"),
    (LooksAtImagesUnasked(), "check_shape_and_type", "no images"),
    (Flipped(), "check_sign", "0% of pairs: is the sign flipped"),
    (Blind(), "check_sign", "50% of pairs"),
    (NotANumberWhereItMatters(), "check_sign", "NaN for 240 images"),
    (RandomScores(), "check_determinism", "scoring twice gave different scores"),
    (RandomFit(), "check_determinism", "fitting twice gave different scores: take a seed"),
    (Comparing(), "check_batch_size", "batches of 1 differ"),
    (Positional(), "check_batch_size", "batches of 1 differ"),
    (QuickAndWrong(), "check_score_few", r"differs from score\(\) on 1 images"),
    (QuickInAnotherOrder(), "check_score_few", r"differs from score\(\) on 7 images"),
    (OtherGraph(), "check_graph", r"the graph differs from score\(\) on 1 image: it gives .* where score\(\) gives"),
    (SingleGraph(), "check_graph", r"returned torch.float32; return float64"),
    (ColumnGraph(), "check_graph", r"returned the shape \(1, 1\) for 1 image; return one score per image, \(1,\)"),
    (Remembering(), "check_refit", "state of an earlier fit was kept"),
    (BadlyMerged(), "check_parts", "fitted from parts it scores differently"),
    (Unsaveable(), "check_save_and_load", "type object cannot be saved"),
    (UnsaveableArray(), "check_save_and_load", "cannot be saved"),
    (Forgetful(), "check_save_and_load", "the loaded one scores differently"),
    (TuplesBecomeLists(), "check_save_and_load", "a parameter changed on the way"),
    (DividesByDoubt(), "check_degenerate", "probabilities that are saturated cannot be scored: .* returned NaN"),
    (AcceptsAnything(), "check_bad_input", "an empty observation was accepted"),
]


@pytest.mark.parametrize(
    ("supervisor", "check", "words"), BROKEN, ids=[type(supervisor).__name__ for supervisor, _, _ in BROKEN]
)
def test_each_fault_is_caught_by_the_check_that_is_made_for_it(supervisor: Supervisor, check: str, words: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_supervisor(supervisor)
    message = str(caught.value)
    assert message.startswith(f"{check} failed for {type(supervisor).__name__}")
    assert re.search(words, message), message


def test_every_check_catches_something() -> None:
    caught = {check for _, check, _ in BROKEN}
    assert {check.__name__ for check in checks.CHECKS} - caught == {"check_permutation"}  # see the next test


def test_position_dependence_is_caught_by_the_permutation_check_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "CHECKS", (checks.check_permutation,))
    with pytest.raises(AssertionError, match="shuffling the images changed their scores"):
        check_supervisor(Positional())


def test_missing_needs_that_go_unnoticed_are_caught() -> None:
    with pytest.raises(AssertionError, match="an observation without what it needs was accepted"):
        check_supervisor(NeedsButDoesNotAsk())


def test_something_else_than_a_supervisor_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"is not a secondguess\.Supervisor"):
        check_supervisor(dict)  # type: ignore[arg-type]


def test_faults_are_caught_without_assert_statements_too() -> None:
    code = "import test_supervisors_checks as t; t.check_supervisor(t.Flipped())"
    done = subprocess.run(
        [sys.executable, "-O", "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "AssertionError: check_sign failed for Flipped" in done.stderr


@pytest.mark.parametrize("supervisor", [Sound, Sound(), Sound(0.5)])
def test_a_sound_supervisor_passes_as_class_and_as_instance(supervisor: Supervisor | type[Supervisor]) -> None:
    passed = check_supervisor(supervisor)
    assert passed == [check.__name__ for check in checks.CHECKS]


@pytest.mark.parametrize("seed", range(3))
def test_the_verdict_does_not_hang_on_the_seed_or_the_size(seed: int) -> None:
    check_supervisor(Sound, images=50 + seed, seed=seed)
    with pytest.raises(AssertionError, match="check_sign"):
        check_supervisor(Flipped, images=50 + seed, seed=seed)


def test_a_supervisor_that_needs_everything_passes(class_mean_distance: type[Supervisor]) -> None:
    check_supervisor(class_mean_distance)
    check_supervisor(class_mean_distance(trace=Trace("conv", "mean"), samples=9))  # type: ignore[call-arg]


def test_the_given_instance_is_not_touched() -> None:
    given = Sound(2.0)
    check_supervisor(given)
    assert not given.is_fitted
    assert vars(given) == {"power": 2.0}


def test_a_supervisor_of_twenty_lines_passes() -> None:
    class DistanceToClassMean(Supervisor):
        """Suspicious = the features lie far from the mean of the predicted class."""

        name = "distance_to_class_mean"

        def __init__(self, layer: str = "penultimate") -> None:
            self.layer = layer

        @property
        def needs(self) -> Needs:
            return Needs(traces=frozenset({Trace(self.layer)}))

        def _fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> None:
            features, classes = observation.trace(self.layer), range(observation.num_classes)
            self.means_ = np.stack([features[observation.predictions == k].mean(axis=0) for k in classes])

        def _score(self, observation: Observation) -> Array:
            return np.linalg.norm(observation.trace(self.layer) - self.means_[observation.predictions], axis=1)

    assert len(check_supervisor(DistanceToClassMean())) == len(checks.CHECKS)


def test_examples_hold_what_is_needed_and_nothing_can_be_written() -> None:
    needs = Needs(logits=True, traces=frozenset({Trace("a"), Trace("b", "mean")}), samples=5, images=True)
    for suspicious in (False, True):
        seen = example_observation(needs, 20, suspicious=suspicious)
        assert len(seen) == 20
        assert set(seen.traces) == needs.traces
        assert seen.samples is not None and seen.samples.shape == (20, 5, 4)
        assert seen.images is not None and len(seen.images) == 20
        np.testing.assert_allclose(seen.probabilities.sum(axis=1), 1)
        np.testing.assert_allclose(seen.samples.sum(axis=2), 1, atol=1e-6)
        for array in (seen.probabilities, seen.logits, seen.samples, *seen.traces.values()):
            assert array is not None
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0


def test_suspicious_examples_are_more_suspicious_to_every_supervisor_of_ours() -> None:
    for one in make_all("all"):
        if not one.requires_fit:
            ordinary, odd = (example_observation(one.needs, 100, seed=4, suspicious=flag) for flag in (False, True))
            assert one.score(odd).min() > one.score(ordinary).max(), one.name
