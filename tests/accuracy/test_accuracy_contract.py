from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from secondguess.accuracy import (
    AverageConfidence,
    Estimate,
    Estimator,
    OraclePasses,
    RulesAndConfidence,
    SyntheticShifts,
    Trial,
    ValidationAccuracy,
    check_estimator,
    make,
    make_all,
    names,
    standard_estimators,
)
from secondguess.accuracy.oracles import Oracle, Verdicts
from secondguess.accuracy.oracles.cross_reference import CrossReference
from secondguess.accuracy.oracles.icos import InputRules, Partition
from secondguess.errors import UserError
from secondguess.metrics import wilson
from secondguess.model.observation import Observation
from secondguess.model.outputs import softmax


class Doubter(Oracle):
    """Doubts predictions with less confidence than a half."""

    name = "doubter"
    requires_fit = False

    def _judge(self, operation: Observation) -> Verdicts:
        return Verdicts.make(operation.confidences < 0.5)


ALL = [
    *standard_estimators(oracles=[Doubter()]),
    AverageConfidence("isotonic"),
    AverageConfidence(None),
    SyntheticShifts(trees=10),
]


@pytest.fixture(params=ALL, ids=lambda one: one.name)
def estimator(request: pytest.FixtureRequest) -> Estimator:
    copy: Estimator = request.param.clone(resamples=20)
    return copy


def test_without_shift_every_estimator_is_close(estimator: Estimator, world) -> None:
    operation = world(3000, 1)
    found = estimator.fit(world(3000, 0)).estimate(operation)
    tolerance = 0.35 if estimator.name == "doubter" else 0.035
    assert abs(found.value - operation.correct.mean()) < tolerance
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert (found.method, found.n) == (estimator.name, 3000)


def test_labels_of_operation_are_not_looked_at(estimator: Estimator, world) -> None:
    operation = world(400, 1)
    blind = operation.replace(images=replace(operation.images, labels=np.full(400, -1)))
    estimator.fit(world(400, 0))
    assert estimator.estimate(operation) == estimator.estimate(blind)


def test_a_refit_forgets(estimator: Estimator, world) -> None:
    operation = world(300, 2)
    first = estimator.fit(world(300, 0)).estimate(operation)
    estimator.fit(world(200, 1)).estimate(world(100, 3))
    assert estimator.fit(world(300, 0)).estimate(operation) == first
    assert estimator.clone().params() == estimator.params()


def test_what_cannot_be_estimated_says_so(estimator: Estimator, world) -> None:
    validation = world(50, 0)
    with pytest.raises(UserError, match=r"must see labelled images first; call fit\(validation\)"):
        estimator.clone().estimate(validation)
    unknown = validation.replace(images=replace(validation.images, labels=np.full(50, -1)))
    with pytest.raises(UserError, match="50 of the 50 in 'images' are unknown"):
        estimator.fit(unknown)
    fewer = Observation(
        softmax(np.log(validation.probabilities[:, :4])),
        images=replace(validation.images, labels=validation.labels % 4, class_names=tuple("0123")),
    )
    with pytest.raises(UserError, match="fitted on 6 classes, but this observation has 4"):
        estimator.fit(validation).estimate(fewer)


def test_logits_and_their_probabilities_are_the_same_to_every_estimator(estimator: Estimator, world) -> None:
    validation, operation = world(300, 0), world(300, 1)

    def bare(evidence: Observation) -> Observation:
        return evidence.replace(logits=None)

    with_logits = estimator.fit(validation).estimate(operation)
    without = estimator.fit(bare(validation)).estimate(bare(operation))
    assert without.value == pytest.approx(with_logits.value, abs=1e-5)


@pytest.mark.parametrize(
    "template",
    [ValidationAccuracy(), AverageConfidence(), OraclePasses(Doubter(), corrected=True)],
    ids=lambda one: one.name,
)
def test_intervals_cover(template: Estimator, world) -> None:
    """The truth is the accuracy of the population that validation and operation are drawn from."""
    truth, covered = world(200_000, 99).correct.mean(), 0
    for seed in range(60):
        estimator = template.clone(resamples=60)
        found = estimator.fit(world(300, 2 * seed)).estimate(world(300, 2 * seed + 1))
        covered += found.low <= truth <= found.high
    assert covered >= 50  # of 57 expected; fewer than 50 has a probability of about 1 in 1,000


@pytest.mark.parametrize("n", [5, 20, 60])
def test_intervals_cover_where_failures_are_few_or_none(n: int, see) -> None:
    """Models of any accuracy from 0.8 to 1; among so few images many have no failure, which proves no perfection."""
    intervals = [
        ValidationAccuracy().fit(see(*_outcomes(np.arange(n) < right))).estimate(see(*_outcomes(np.ones(1))))
        for right in range(n + 1)
    ]
    rng, covered = np.random.default_rng(n), []
    for accuracy in rng.uniform(0.8, 1.0, size=2000):
        found = intervals[rng.binomial(n, accuracy)]
        covered.append(found.low <= accuracy <= found.high)
    assert np.mean(covered) > 0.92


def test_nobody_is_sure_after_a_few_images_without_failure_or_success(estimator: Estimator, see) -> None:
    for right in (True, False):
        validation = see(*_outcomes(np.full(20, right)))
        found = estimator.fit(validation).estimate(validation)
        known = wilson(20 * right, 20)
        if right:
            assert found.value - found.low >= min(found.value, known.high - known.low) - 1e-12
        else:
            assert found.high - found.value >= min(1 - found.value, known.high - known.low) - 1e-12


@pytest.mark.filterwarnings("ignore:The nuclear norm of . images")
def test_one_image_proves_nothing(estimator: Estimator, see) -> None:
    """Where resampling changes nothing, the interval is at least the score interval of so many images."""
    validation = see(*_outcomes(np.arange(60) % 5 > 0))
    estimator.fit(validation)
    for count in (1, 2):
        found = estimator.estimate(see(*_outcomes(np.ones(count))))
        baseline = estimator.name == "validation_accuracy"  # which does not look at these images
        assert found.high - found.low >= (0.15 if baseline or count > 1 else 0.5), found
        assert 0 <= found.low <= found.value <= found.high <= 1
    alike = estimator.estimate(see(*_outcomes(np.zeros(50))))  # of each class the same image, again and again
    assert alike.high - alike.low >= 0.05, alike


def test_a_share_that_no_resample_changes_has_the_score_interval(see) -> None:
    class Half(Estimator):
        """Says .5, whatever it sees."""

        name = "half"

        def _see(self, seen: Observation) -> tuple[np.ndarray, ...]:
            return seen.confidences, seen.predictions

        def _learn(self, seen: tuple[np.ndarray, ...], labels: np.ndarray) -> None:
            return None

        def _value(self, learnt: None, seen: tuple[np.ndarray, ...]) -> float:
            return 0.5

    fitted = Half().fit(see(*_outcomes(np.arange(60) % 5 > 0)))
    for count, low, high in ((1, 0, 1), (10, 5, 5), (31, 15, 16)):  # a share of .5 of 31 is 15 or 16
        found = fitted.estimate(see(*_outcomes(np.ones(count))))
        assert (found.low, found.high) == (wilson(low, count).low, wilson(high, count).high)


def _outcomes(right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of predictions that are right or wrong as given."""
    predicted = np.arange(len(right)) % 6
    return 4.0 * np.eye(6)[predicted], np.where(right, predicted, (predicted + 1) % 6)


def test_an_estimate_tells_where_it_may_be_trusted() -> None:
    trials = (Trial("none", 0.01, 0.0, 0.9, 5), Trial("appearance", 0.2, 0.2, 0.6, 5))
    found = Estimate(0.9, 0.85, 0.95, "method", 100).with_trust(trials)
    assert (found.trusted, found.failed) == (("none",), ("appearance",))
    assert json.loads(json.dumps(found.to_dict()))["trust"][1]["bias"] == 0.2
    assert str(found) == "method: 0.900 (0.850 to 0.950)"


@pytest.mark.parametrize("name", [name for name in names() if name != "ensemble_agreement"])
def test_every_estimator_keeps_the_contract(name: str) -> None:
    fewer = {"trees": 10} if name == "synthetic_shifts" else {}
    assert "check_saving" in check_estimator(make(name, **fewer))


@pytest.mark.parametrize(
    "one",
    [
        *make_all(["average-confidence:isotonic", "average-confidence:raw", "label-shift:bbse", "oracle-passes:icos"]),
        make("thresholded_confidence:entropy:level=0.9"),
        OraclePasses(CrossReference(), corrected=True, undecided="fail"),
        OraclePasses("icos", corrected=True, folds=2),
    ],
    ids=lambda one: one.name,
)
def test_every_variant_keeps_the_contract(one: Estimator) -> None:
    assert "check_refit" in check_estimator(one)


class Lucky(Estimator):
    """Draws what it says."""

    name = "lucky"

    def _see(self, seen: Observation) -> tuple[np.ndarray, ...]:
        return (seen.predictions,)

    def _learn(self, seen: tuple[np.ndarray, ...], labels: np.ndarray) -> None:
        return None

    def _value(self, learnt: None, seen: tuple[np.ndarray, ...]) -> float:
        return float(np.random.default_rng().random())


def test_the_kit_finds_what_is_wrong() -> None:
    with pytest.raises(AssertionError, match="check_labels failed for Lucky: without the labels of operation"):
        check_estimator(Lucky())
    with pytest.raises(AssertionError, match=r"is not a secondguess\.accuracy\.Estimator"):
        check_estimator(dict)


def test_estimators_by_name() -> None:
    assert names()[:2] == ["validation_accuracy", "average_confidence"]
    assert make("average-confidence:isotonic", seed=3).params() == {
        "calibration": "isotonic",
        "resamples": 100,
        "level": 0.95,
        "seed": 3,
    }
    assert make("rules_and_confidence").params()["resamples"] == 40
    assert [one.name for one in make_all("standard")][-2:] == ["rules_and_confidence", "synthetic_shifts"]
    with pytest.raises(UserError, match="There is no estimator 'nuclear_nrm'; did you mean 'nuclear_norm'"):
        make("nuclear_nrm")
    with pytest.raises(UserError, match=r"its parameters are: method, resamples, level, seed\."):
        make("label_shift", sed=3)
    with pytest.raises(UserError, match="at least one resample"):
        make("nuclear_norm:resamples=0")


def test_an_estimator_is_loaded_by_its_name(tmp_path, world) -> None:
    rules = InputRules([Partition("low", [0, 1, 2], ids=["a*"])])
    one = RulesAndConfidence(rules, level=0.8).fit(world(300, 0))
    one.save(tmp_path / "estimator.safetensors")
    loaded = Estimator.load(tmp_path / "estimator.safetensors")
    assert isinstance(loaded, RulesAndConfidence)
    assert (loaded.level, loaded.rules.as_dict()) == (0.8, rules.as_dict())
    assert repr(loaded).startswith("RulesAndConfidence[fitted](rules=")
