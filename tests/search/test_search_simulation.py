from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from secondguess.errors import UserError
from secondguess.metrics import discovery
from secondguess.model.observation import Observation
from secondguess.progress import Lines
from secondguess.search import simulate
from secondguess.search.checks import example_pool
from secondguess.search.simulation import METRICS

CHEAP = ["random", "low_confidence", "adversarial_distance"]


@pytest.fixture(scope="module")
def world():
    return example_pool(500, seed=2)


@pytest.fixture(scope="module")
def study(world):
    return simulate(*world, CHEAP, budget=12, replications=6, subset=150, seed=3)


def test_every_measure_is_that_of_the_metrics(world, study):
    pool, labels = world
    errors = pool.errors(labels)
    seen = study.outcomes["adversarial_distance"]
    assert seen.errors.tolist() == errors[seen.queries].tolist()
    assert seen.confidence.tolist() == pool.confidence[seen.queries].tolist()
    whole = discovery.sdr(errors[pool.rows], pool.confidence[pool.rows])
    assert study.pool_sdr == pytest.approx(whole)
    for r in range(6):
        sdr = discovery.sdr_curve(seen.errors[r], seen.confidence[r])
        assert study.values("adversarial_distance", "sdr")[r] == pytest.approx(sdr)
        assert study.values("adversarial_distance", "lift")[r] == pytest.approx(sdr / whole)
    curve = study.curve("adversarial_distance", "sdr")
    assert curve.pooled == pytest.approx(discovery.pooled_curve(seen.errors, 1 - seen.confidence))
    assert (curve.low <= curve.median).all()
    assert (curve.median <= curve.high).all()
    assert study.curve("random", "errors").mean[-1] == study.outcomes["random"].errors.sum(axis=1).mean()


def test_excess_errors_by_hand():
    """Errors found less those that random looks at the same confidences would find."""
    errors, rates = np.array([True, False, True, True]), np.array([0.1, 0.3, 0.5, 0.02])
    assert discovery.excess_curve(errors, rates) == pytest.approx([0.9, 0.6, 1.1, 2.08])
    both = discovery.excess_curve(np.stack([errors, ~errors]), np.stack([rates, rates]))
    assert both[1] == pytest.approx([-0.1, 0.6, 0.1, 0.08])
    with pytest.raises(UserError, match="one chance for each query"):
        discovery.excess_curve(errors, rates[:3])


def test_a_study_counts_excess_errors_against_the_rate_of_the_pool_at_each_confidence():
    """Two confidences, hence two rates by counting: 10 of 50 predictions at .7 are wrong, 5 of 50 at .9."""
    pool, _ = example_pool(100, seed=1)
    confidence = np.repeat([0.7, 0.9], 50)
    seen = Observation(np.column_stack([confidence, 1 - confidence, np.zeros(100)]))
    wrong = np.isin(np.arange(100), [*range(10), *range(50, 55)])
    pool = dataclasses.replace(pool, observation=seen, eligible=np.ones(100, dtype=bool))
    study = simulate(pool, wrong.astype(np.int64), ["random", "low_confidence"], budget=30, replications=3)
    for method, seen in study.outcomes.items():
        expected = wrong[seen.queries] - np.where(seen.queries < 50, 10 / 50, 5 / 50)
        assert study.values(method, "excess_errors") == pytest.approx(expected.cumsum(axis=1))
    at_seven = study.outcomes["low_confidence"]
    assert (at_seven.queries < 50).all()
    found = study.table(at=[30])[1]["excess_errors"]
    assert found["pooled"] == found["mean"] == pytest.approx(at_seven.errors.sum(axis=1).mean() - 6)


def test_invariants_of_the_curves(study):
    for method in CHEAP:
        assert (np.diff(study.values(method, "spread"), axis=1) <= 1e-12).all()
        assert (np.diff(study.values(method, "utility"), axis=1) >= -1e-9).all()
        assert (np.diff(study.values(method, "errors"), axis=1) >= 0).all()
        assert (study.values(method, "confidence") > 0.65).all()


def test_a_search_asks_within_its_part_and_never_twice(world, study):
    pool, _ = world
    for seen in study.outcomes.values():
        for row in seen.queries:
            assert len(set(row.tolist())) == 12
            assert pool.eligible[row].all()


def test_random_reaches_the_ratio_of_the_pool_and_has_no_matched_lift():
    pool, labels = example_pool(1500, seed=7)
    found = simulate(pool, labels, ["random"], budget=50, replications=150, subset=400)
    assert found.curve("random", "lift").pooled[-1] == pytest.approx(1, abs=0.1)
    assert found.curve("random", "matched_lift").pooled[-1] == pytest.approx(1, abs=0.1)
    errors = found.curve("random", "errors").mean[-1]
    assert found.curve("random", "excess_errors").pooled[-1] == pytest.approx(0, abs=0.1 * errors)


def test_low_confidence_finds_errors_but_none_that_were_not_announced():
    rng = np.random.default_rng(0)
    pool, _ = example_pool(1500, seed=8)
    wrong = rng.random(1500) < 1 - pool.confidence
    labels = np.where(wrong, (pool.predictions + 1) % 3, pool.predictions)
    found = simulate(pool, labels, ["random", "low_confidence"], budget=50, replications=40, subset=400)
    assert found.curve("low_confidence", "errors").mean[-1] > 1.5 * found.curve("random", "errors").mean[-1]
    assert found.curve("low_confidence", "matched_lift").pooled[-1] == pytest.approx(1, abs=0.15)
    errors = found.curve("low_confidence", "errors").mean[-1]
    assert found.curve("low_confidence", "excess_errors").pooled[-1] == pytest.approx(0, abs=0.15 * errors)


def test_the_same_seed_gives_the_same_study_whatever_the_methods_beside(world, study):
    again = simulate(*world, ["adversarial_distance", "random"], budget=12, replications=6, subset=150, seed=3)
    for method in again.outcomes:
        assert again.outcomes[method].queries.tolist() == study.outcomes[method].queries.tolist()
    other = simulate(*world, ["random"], budget=12, replications=6, subset=150, seed=4)
    assert other.outcomes["random"].queries.tolist() != study.outcomes["random"].queries.tolist()


def test_processes_change_nothing(world, study):
    again = simulate(*world, CHEAP, budget=12, replications=6, subset=150, seed=3, jobs=2)
    for method in CHEAP:
        assert again.outcomes[method].queries.tolist() == study.outcomes[method].queries.tolist()


def test_variants_have_labels_of_their_own(world):
    methods = {"raw": ("adversarial_distance", {"log": False}), "random": ("random", {})}
    found = simulate(*world, methods, budget=3, replications=2, subset=100)
    assert found.titles == {"raw": "Adversarial distance: raw", "random": "Random"}


def test_all_methods_unless_the_pool_lacks_distances(world):
    pool, labels = world
    bare = dataclasses.replace(pool, distances=None)
    found = simulate(bare, labels, budget=2, replications=1, subset=60)
    assert not {"adversarial_distance", "adaptive"} & found.outcomes.keys()
    assert {"low_confidence", "bandit", "coverage", "facility", "random"} <= found.outcomes.keys()
    named = simulate(bare, labels, ["adaptive"], budget=2, replications=1, subset=60)
    assert list(named.outcomes) == ["adaptive"]  # it can do without, unprimed


def test_the_record_is_json(study):
    record = json.loads(json.dumps(study.to_dict(), allow_nan=False))
    assert [row["queries"] for row in record["table"] if row["method"] == "random"] == [10, 12]
    assert set(record["curves"]["random"]) == set(METRICS)
    assert len(record["curves"]["random"]["sdr"]["pooled"]) == 12
    assert "curves" not in study.to_dict(curves=False)


def test_a_small_pool_is_searched_to_its_end(world):
    pool, labels = world
    few = pool.only(pool.rows[:40])
    found = simulate(few, labels, ["random"], budget=100, replications=2)
    assert found.budget == 40
    assert found.values("random", "errors")[:, -1].tolist() == [found.pool_errors] * 2
    assert found.curve("random", "lift").pooled[-1] == pytest.approx(1)


def test_progress_is_reported(world, capsys):
    simulate(*world, ["random"], budget=2, replications=3, subset=50, progress=Lines())
    assert "Trying searches" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": 0}, "budget=0"),
        ({"names": []}, "No search was named"),
        ({"names": ["nothing"]}, "There is no search 'nothing'"),
    ],
)
def test_bad_input(world, change, message):
    with pytest.raises(UserError, match=message):
        simulate(*world, **{"names": ["random"], "replications": 1} | change)


def test_a_pool_without_errors_and_measures_that_do_not_exist(world, study):
    pool, _ = world
    with pytest.raises(UserError, match="nothing can be found"):
        simulate(pool, pool.predictions, ["random"])
    with pytest.raises(UserError, match="None of the 500 images may be asked about"):
        simulate(pool.only(pool.rows[:0]), pool.predictions, ["random"])
    with pytest.raises(UserError, match="There is no 'speed' of 'random'"):
        study.values("random", "speed")
