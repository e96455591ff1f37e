"""Scores of a few images are the scores, however they are found."""

from __future__ import annotations

import numpy as np
import pytest

from secondguess import Trace
from secondguess.errors import UserError
from secondguess.model.observation import Observation
from secondguess.supervisors import SupervisorSet, make


def observed(rng: np.random.Generator, n: int, width: int) -> Observation:
    """Traces whose variances fall over seven orders of magnitude, of three classes."""
    probabilities = np.eye(3)[np.arange(n) % 3] * 0.7 + 0.1
    scales = np.geomspace(1e2, 1e-5, width)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(width, width)))[0]
    traces = ((rng.normal(size=(n, width)) * scales) @ turn + 3).astype(np.float32)
    return Observation(probabilities, traces={Trace(): traces})


@pytest.mark.parametrize("options", [{}, {"shrinkage": 0.003}, {"per_class": False}, {"squared": True, "shrinkage": 0}])
@pytest.mark.parametrize(("width", "count"), [(8, 300), (96, 150), (96, 2000)])
def test_the_quick_score_is_the_score(options: dict, width: int, count: int) -> None:
    rng = np.random.default_rng(1)
    supervisor = make("mdsa", **options).fit(observed(rng, count, width))
    seen = observed(rng, 90, width)
    quick, expected = supervisor.score_few, supervisor.score(seen)
    single = [quick(seen.take(np.array([row])))[0] for row in range(len(seen))]
    assert single == pytest.approx(expected.tolist(), rel=1e-4)
    assert quick(seen) == pytest.approx(expected, rel=1e-4)


def test_a_second_fit_forgets_what_was_prepared() -> None:
    rng = np.random.default_rng(1)
    supervisor, seen = make("mdsa"), observed(rng, 9, 40)
    for _ in range(2):
        supervisor.fit(observed(rng, 300, 40))
        assert supervisor.score_few(seen) == pytest.approx(supervisor.score(seen), rel=1e-4)


@pytest.mark.parametrize("shrinkage", [0, 0.1])
def test_a_broken_trace_is_infinitely_far_away_and_leaves_the_others_alone(shrinkage: float) -> None:
    rng = np.random.default_rng(1)
    supervisor = make("mdsa", shrinkage=shrinkage).fit(observed(rng, 300, 40))
    seen = observed(rng, 9, 40)
    before = supervisor.score_few(seen)
    seen.traces[Trace()][0, 3], seen.traces[Trace()][4, 0] = np.nan, np.inf
    quick = supervisor.score_few
    assert np.flatnonzero(np.isinf(quick(seen))).tolist() == [0, 4]
    assert np.delete(quick(seen), [0, 4]) == pytest.approx(np.delete(before, [0, 4]), rel=1e-6)
    assert quick(seen.take(np.array([0])))[0] == quick(seen.take(np.array([4])))[0] == np.inf


def test_what_the_quick_score_does_not_know_is_left_to_the_supervisor() -> None:
    rng = np.random.default_rng(1)
    supervisor = make("mdsa").fit(observed(rng, 300, 40).take(np.arange(300)[np.arange(300) % 3 != 2]))
    quick, seen = supervisor.score_few, observed(rng, 3, 40)
    with pytest.warns(UserWarning, match="belong to a class"):
        assert np.isinf(quick(seen)).tolist() == [False, False, True]
    with pytest.raises(UserError, match="traces of 40 neurons, but these have 41"):
        quick(observed(rng, 3, 41))


def test_supervisors_of_one_name_are_told_apart_by_their_layers() -> None:
    jury = SupervisorSet(
        [make("mdsa"), make("mdsa", layers=Trace("25%", "grid")), make("mdsa", layers=["conv", "hidden"])]
    )
    assert jury.labels == ("mdsa", "mdsa@25%", "mdsa@conv+hidden")
    assert jury.needs.traces == {Trace(), Trace("25%", "grid"), Trace("conv"), Trace("hidden")}
