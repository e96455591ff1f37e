from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secondguess.errors import UserError
from secondguess.supervisors.surprise import sampling
from secondguess.supervisors.surprise.sampling import (
    epsilon_free,
    find_epsilon,
    share_of,
    uniform,
    unsurprising_first,
)


def algorithm_1(traces, classes, epsilon):
    """As published: take the first of what remains, keep it, drop what is closer than epsilon; class by class."""
    traces = traces.astype(np.float64)
    kept = []
    for label in np.unique(classes):
        remaining = list(np.flatnonzero(classes == label))
        while remaining:
            taken = remaining.pop(0)
            kept.append(taken)
            remaining = [x for x in remaining if not np.linalg.norm(traces[x] - traces[taken]) < epsilon]
    return sorted(kept)


@pytest.mark.parametrize("kind", ["plain", "ties", "tight classes", "far from the origin", "duplicates"])
@pytest.mark.parametrize("block", [7, 1024])
def test_epsilon_free_is_algorithm_1(kind, block, monkeypatch):
    monkeypatch.setattr(sampling, "BLOCK", block)
    rng = np.random.default_rng(1)
    traces, classes = rng.normal(size=(300, 4)), rng.integers(3, 7, 300)
    epsilons = [0.0, 0.3, 1.0, 2.5, 100.0]
    if kind == "ties":
        traces, epsilons = traces.round(), [1.0, np.sqrt(2.0), 2.0, 3.0]  # exactly at the boundary
    elif kind == "tight classes":
        traces, epsilons = rng.normal(size=(10, 4))[classes] + 1e-3 * traces, [5e-4, 1e-3, 3e-3]
    elif kind == "far from the origin":
        traces = traces + 500
    elif kind == "duplicates":
        traces = traces[rng.integers(0, 20, 300)]
    traces = traces.astype(np.float32)
    for epsilon in epsilons:
        assert epsilon_free(traces, classes, epsilon).tolist() == algorithm_1(traces, classes, epsilon)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.05, 1.0))
def test_epsilon_at_a_distance_that_occurs(seed, place):
    """Epsilon is the distance of two of the rows, to the last bit: strictly smaller ones are dropped, it is not."""
    rng = np.random.default_rng(seed)
    traces, classes = rng.normal(size=(40, 3)).astype(np.float32), rng.integers(0, 2, 40)
    apart = np.linalg.norm(traces[:, None].astype(np.float64) - traces.astype(np.float64), axis=2)
    epsilon = float(np.sort(apart[apart > 0])[int(place * (apart.size - 41))])
    assert epsilon_free(traces, classes, epsilon).tolist() == algorithm_1(traces, classes, epsilon)


def test_every_dropped_trace_has_a_close_one():
    rng = np.random.default_rng(2)
    traces, classes = rng.normal(size=(3000, 6)).astype(np.float32), rng.integers(0, 3, 3000)
    kept = epsilon_free(traces, classes, 1.5)
    for label in range(3):
        inside = traces[kept[classes[kept] == label]].astype(np.float64)
        apart = np.linalg.norm(inside[:, None] - inside, axis=2) + 10 * np.eye(len(inside))
        assert apart.min() >= 1.5
        dropped = np.setdiff1d(np.flatnonzero(classes == label), kept)
        to_kept = np.linalg.norm(traces[dropped].astype(np.float64)[:, None] - inside, axis=2)
        assert to_kept.min(axis=1).max() < 1.5


@pytest.mark.parametrize("ratio", [0.1, 1 / 3, 0.8, 1.0])
def test_epsilon_is_found_for_a_share(ratio):
    rng = np.random.default_rng(3)
    traces, classes = rng.normal(size=(1500, 8)).astype(np.float32), rng.integers(0, 4, 1500)
    epsilon, kept = find_epsilon(traces, classes, ratio)
    assert len(kept) / 1500 == pytest.approx(ratio, abs=0.005)
    np.testing.assert_array_equal(kept, epsilon_free(traces, classes, epsilon))
    np.testing.assert_array_equal(kept, epsilon_free(traces, classes, target_ratio=ratio))


def test_the_search_for_epsilon_ends_where_no_share_fits():
    traces, classes = np.repeat(np.arange(3, dtype=np.float32), 10)[:, None], np.zeros(30, np.int64)
    epsilon, kept = find_epsilon(traces, classes, 0.3)
    assert len(kept) == 3
    assert epsilon <= 1
    assert len(find_epsilon(traces, classes, 0.001)[1]) == 1
    assert len(find_epsilon(np.zeros((30, 1), np.float32), classes, 0.5)[1]) in (1, 30)


def test_uniform_is_a_seeded_share_that_keeps_every_class():
    classes = np.r_[np.zeros(1000, np.int64), np.ones(500, np.int64), [2]]
    kept = uniform(classes, 0.1, seed=4)
    np.testing.assert_array_equal(kept, uniform(classes, 0.1, seed=4))
    assert not np.array_equal(kept, uniform(classes, 0.1, seed=5))
    assert (np.diff(kept) > 0).all()
    assert len(kept) in (150, 151)
    assert 1500 in kept
    np.testing.assert_array_equal(uniform(classes, 1.0), np.arange(1501))


@pytest.mark.parametrize("stratified", [False, True])
def test_a_rare_class_keeps_as_many_rows_as_are_asked_for(stratified):
    classes = np.r_[np.zeros(1000, np.int64), np.full(7, 1), [2]]
    for seed in range(10):
        kept = uniform(classes, 0.01, seed=seed, stratified=stratified, fewest=3)
        counts = np.bincount(classes[kept])
        assert counts[1:].tolist() == [3, 1]
        assert counts[0] in (9, 10)


def test_a_share_can_be_given_as_a_number_of_rows():
    assert share_of(0.25, 400) == share_of(np.float32(0.25), 400) == 0.25
    assert share_of(100, 400) == share_of(np.int64(100), 400) == 0.25
    assert share_of(1000, 400) == share_of(1.0, 400) == 1.0
    for wrong in (1, 0, True, 0.0, 1.5, -2, float("nan"), "0.5", None):
        with pytest.raises(UserError, match=f"a share up to 1.0 or a number of traces from 2 on, not {wrong!r}"):
            share_of(wrong, 400)


def test_stratified_keeps_the_share_of_each_class():
    classes = np.r_[np.full(1000, 7), np.full(500, 1), [3]]
    kept = uniform(classes, 0.1, stratified=True)
    assert np.bincount(classes[kept], minlength=8)[[7, 1, 3]].tolist() == [100, 50, 1]


def test_unsurprising_first_takes_the_lowest_scores_of_each_class():
    classes = np.array([0, 1, 0, 1, 0, 1, 2])
    scores = [3.0, 1.0, 1.0, 2.0, np.inf, 1.0, 9.0]
    assert unsurprising_first(scores, classes, 0.67).tolist() == [0, 1, 2, 5, 6]
    assert unsurprising_first(scores, classes, 0.01).tolist() == [1, 2, 6]


@pytest.mark.parametrize("share", [0, -0.5, 1.5, float("nan")])
def test_a_share_is_a_share(share):
    for call in (
        lambda: uniform(np.zeros(3, np.int64), share),
        lambda: unsurprising_first([1, 2, 3], np.zeros(3, np.int64), share),
        lambda: find_epsilon(np.zeros((3, 1), np.float32), np.zeros(3, np.int64), share),
    ):
        with pytest.raises(UserError, match="must be above 0 and at most 1"):
            call()


def test_other_mistakes_are_named():
    traces, classes = np.zeros((3, 1), np.float32), np.zeros(3, np.int64)
    with pytest.raises(UserError, match="either epsilon or target_ratio"):
        epsilon_free(traces, classes)
    with pytest.raises(UserError, match="either epsilon or target_ratio"):
        epsilon_free(traces, classes, 1.0, target_ratio=0.5)
    with pytest.raises(UserError, match=r"epsilon is -1.0; it is a distance"):
        epsilon_free(traces, classes, -1.0)
    with pytest.raises(UserError, match="2 scores were given for 3 training traces"):
        unsurprising_first([1.0, 2.0], classes, 0.5)
    with pytest.raises(UserError, match="must not be NaN"):
        unsurprising_first([1.0, 2.0, np.nan], classes, 0.5)
