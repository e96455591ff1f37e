from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from secondguess.accuracy import AverageConfidence, RulesAndConfidence
from secondguess.accuracy._set_labels import Channel, fit_channel, probability_right
from secondguess.accuracy.oracles.icos.input_rules import InputRules, Partition
from secondguess.accuracy.rules_and_confidence import allowed_labels
from secondguess.errors import UserError
from secondguess.model.observation import Observation


def exchanged(evidence: Observation, first: int, second: int) -> Observation:
    order = np.arange(6)
    order[[first, second]] = second, first
    return evidence.replace(probabilities=evidence.probabilities[:, order], logits=evidence.logits[:, order])


def test_without_rules_it_is_the_average_confidence(world) -> None:
    validation, operation = world(500, 0, 2.0), world(500, 1, 2.0)
    expected = AverageConfidence().fit(validation).estimate(operation)
    found = RulesAndConfidence().fit(validation).estimate(operation)
    assert found.value == pytest.approx(expected.value)
    assert found.details["certainly_wrong"] == 0


def test_rules_show_that_the_model_exaggerates_now(world, rules) -> None:
    """On validation images the model says what it means; in operation it exaggerates threefold on harder ones."""
    validation, operation = world(3000, 0), world(4000, 1, exaggeration=3.0, spread=1.0)
    truth = operation.correct.mean()
    found = RulesAndConfidence(rules).fit(validation).estimate(operation)
    assert found.value == pytest.approx(truth, abs=0.025)
    assert found.details["temperature"] == pytest.approx(3.0, rel=0.15)
    assert AverageConfidence().fit(validation).estimate(operation).value > truth + 0.2


def test_a_swap_across_partitions_is_seen_and_one_inside_is_not(world, rules) -> None:
    validation, nominal = world(2000, 0), world(3000, 1)
    estimator = RulesAndConfidence(rules).fit(validation)
    across, inside = exchanged(nominal, 1, 4), exchanged(nominal, 0, 1)
    assert estimator.estimate(across).value == pytest.approx(across.correct.mean(), abs=0.02)
    assert estimator.estimate(inside).value == pytest.approx(nominal.correct.mean(), abs=0.02)


def test_the_interval_covers(world, rules) -> None:
    truth, covered = world(100_000, 77, exaggeration=2.0, spread=2.0).correct.mean(), 0
    for seed in range(20):
        operation = world(400, 2 * seed + 1, exaggeration=2.0, spread=2.0)
        found = RulesAndConfidence(rules).fit(world(400, 2 * seed)).estimate(operation)
        covered += found.low <= truth <= found.high
    assert covered >= 15


def test_every_image_has_its_probability(world, rules) -> None:
    operation = world(2000, 1)
    estimator = RulesAndConfidence(rules).fit(world(2000, 0))
    right = estimator.right(operation)
    assert right.mean() == pytest.approx(estimator.estimate(operation).value)
    allowed = allowed_labels(rules, operation)
    violated = ~allowed[np.arange(2000), operation.predictions]
    assert (right[violated] == 0).all() and not operation.correct[violated].any()
    for low, high in ((0.3, 0.6), (0.6, 0.9)):
        bin_ = (right > low) & (right < high)
        assert operation.correct[bin_].mean() == pytest.approx(right[bin_].mean(), abs=0.06)
    with pytest.raises(UserError, match="must see labelled images first"):
        RulesAndConfidence(rules).right(operation)


def test_estimates_at_the_same_time_are_those_made_alone(world, rules) -> None:
    """One estimator in several threads, as in a monitor that many ask; nothing of the images stays behind."""
    estimator = RulesAndConfidence(rules, resamples=2).fit(world(300, 0))
    before = set(vars(estimator))
    seen = [world(300, seed, exaggeration=1 + seed % 4, spread=1 + seed % 3) for seed in range(1, 9)]
    alone = [estimator.estimate(one) for one in seen]
    assert set(vars(estimator)) == before
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            for _ in range(4):
                assert list(pool.map(estimator.estimate, seen)) == alone
    finally:
        sys.setswitchinterval(switching)


def test_em_finds_the_maximum_of_the_posterior(world, rules) -> None:
    operation = exchanged(world(1500, 3, exaggeration=1.5), 2, 5)
    scores = operation.logits.astype(float)
    scores -= scores.max(axis=1, keepdims=True)
    allowed = allowed_labels(rules, operation)

    def loss(x: np.ndarray) -> float:
        log_t, astray = x[0], 1 / (1 + np.exp(-x[1:]))
        p = np.exp(scores / np.exp(log_t))
        p /= p.sum(axis=1, keepdims=True)
        channel = np.diag(1 - astray) + astray[:, None] * (1 - np.eye(6)) / 5
        likelihood = (p @ channel * allowed).sum(axis=1)
        prior = 0.5 * (log_t / 0.5) ** 2 - 2 * np.log1p(-astray).sum()
        return prior - np.log(likelihood).sum()

    best = minimize(loss, np.r_[0.0, np.full(6, -3.0)], method="L-BFGS-B", bounds=[(-2, 2)] + [(-9, 9)] * 6)
    found = fit_channel(scores, allowed, 1.0)
    logit = np.log(np.clip(found.astray, 1e-4, 1 - 1e-4) / (1 - np.clip(found.astray, 1e-4, 1 - 1e-4)))
    assert loss(np.r_[np.log(found.temperature), logit]) == pytest.approx(best.fun, abs=0.3)
    assert found.temperature == pytest.approx(np.exp(best.x[0]), rel=0.02)


def test_rules_that_contradict_each_other_leave_nothing_right(world) -> None:
    operation = world(100, 0)
    images = replace(operation.images, columns={**operation.images.columns, "day": np.array(["mon"] * 50 + ["?"] * 50)})
    both = InputRules([Partition("left", ["a"], column="side"), Partition("mon", ["b"], column="day")])
    evidence = operation.replace(images=images)
    allowed = allowed_labels(both, evidence)
    left = operation.labels < 3
    assert not allowed[:50][left[:50]].any()
    assert allowed[50:][~left[50:]].all()
    right = RulesAndConfidence(both).fit(world(100, 1)).right(evidence)
    assert (right[:50][left[:50]] == 0).all()


def test_probability_right_by_hand() -> None:
    scores = np.log(np.array([[0.6, 0.3, 0.1]]))
    channel = Channel(1.0, np.array([0.5, 0.0, 0.0]))
    truth = np.array([0.3, 0.3 + 0.15, 0.1 + 0.15])
    allowed = np.array([[True, False, True]])
    assert probability_right(scores, allowed, channel) == pytest.approx(truth[0] / (truth[0] + truth[2]))
