from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from secondguess import Observation, check_supervisor
from secondguess.supervisors import get
from secondguess.supervisors.softmax import deep_gini, entropy, max_softmax, pcs

Score = Callable[[NDArray[np.float64]], NDArray[np.float64]]
NAMES = {"max_softmax": max_softmax, "pcs": pcs, "entropy": entropy, "deep_gini": deep_gini}
SMALLEST = {"max_softmax": -1.0, "pcs": -1.0, "entropy": 0.0, "deep_gini": 0.0}
LARGEST: dict[str, Callable[[int], float]] = {
    "max_softmax": lambda k: -1 / k,
    "pcs": lambda k: 0.0,
    "entropy": lambda k: np.log2(k),
    "deep_gini": lambda k: 1 - 1 / k,
}


@pytest.fixture
def softmax(request: pytest.FixtureRequest) -> NDArray[np.float64]:
    return np.random.default_rng(3).dirichlet(np.full(7, 0.4), size=200)


def probabilities() -> st.SearchStrategy[NDArray[np.float64]]:
    """Rows (n, K) that sum to one, exact zeros among them."""
    shapes = hnp.array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=12)
    weights = hnp.arrays(np.float64, shapes, elements=st.one_of(st.just(0.0), st.floats(1e-12, 1.0)))
    return weights.map(lambda w: np.where(w.sum(axis=1, keepdims=True) > 0, w, 1.0)).map(
        lambda w: w / w.sum(axis=1, keepdims=True)
    )


@pytest.mark.parametrize(
    ("row", "bits"),
    [
        ((0.1, 0.8, 0.08, 0.02), 0.994121),
        ((0.2, 0.09, 0.7, 0.01), 1.203679),
        ((0.1, 0.8, 0.05, 0.05), 1.021928),
        ((0.4, 0.4, 0.1, 0.1), 1.721928),
    ],
)
def test_entropy_agrees_with_published_fixtures(row: tuple[float, ...], bits: float) -> None:
    assert entropy(np.array([row])) == pytest.approx([bits], abs=1e-6)


@pytest.mark.parametrize(
    ("row", "gini"), [((0.1, 0.2, 0.3, 0.4), 0.7), ((0.5, 0.1, 0.1, 0.3), 0.64), ((0.25,) * 4, 0.75)]
)
def test_deep_gini_agrees_with_published_fixtures(row: tuple[float, ...], gini: float) -> None:
    assert deep_gini(np.array([row])) == pytest.approx([gini], abs=1e-12)


@pytest.mark.parametrize(("row", "margin"), [((0.1, 0.8, 0.08, 0.02), 0.7), ((0.2, 0.09, 0.7, 0.01), 0.5)])
def test_pcs_agrees_with_published_fixtures_with_the_sign_of_suspicion(row: tuple[float, ...], margin: float) -> None:
    assert pcs(np.array([row])) == pytest.approx([-margin], abs=1e-12)


def test_entropy_agrees_with_scipy(softmax: NDArray[np.float64]) -> None:
    np.testing.assert_allclose(entropy(softmax), scipy.stats.entropy(softmax, base=2, axis=1), atol=1e-12)


def test_all_agree_with_brute_force(softmax: NDArray[np.float64]) -> None:
    for index, row in enumerate(softmax[:50].tolist()):
        ordered = sorted(row, reverse=True)
        alone = softmax[index : index + 1]
        assert max_softmax(alone)[0] == -ordered[0]
        assert pcs(alone)[0] == pytest.approx(-(ordered[0] - ordered[1]), abs=1e-15)
        disagree = sum(p * q for i, p in enumerate(row) for j, q in enumerate(row) if i != j)
        assert deep_gini(alone)[0] == pytest.approx(disagree, abs=1e-12)


def test_zero_probabilities_contribute_no_entropy_and_no_warning() -> None:
    assert entropy(np.array([[0.0, 1.0, 0.0]])).tolist() == [0.0]
    assert not np.signbit(entropy(np.array([[0.0, 1.0, 0.0]])))[0]


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=60)
@given(rows=probabilities())
def test_scores_stay_within_their_range(name: str, rows: NDArray[np.float64]) -> None:
    scores = NAMES[name](rows)
    assert scores.shape == (len(rows),)
    assert scores.dtype == np.float64
    assert (scores >= SMALLEST[name] - 1e-12).all()
    assert (scores <= LARGEST[name](rows.shape[1]) + 1e-12).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [2, 3, 10, 1000])
def test_one_hot_is_least_and_uniform_most_suspicious(name: str, k: int) -> None:
    assert NAMES[name](np.eye(k)[:1]) == pytest.approx([SMALLEST[name]], abs=1e-12)
    assert NAMES[name](np.full((1, k), 1 / k)) == pytest.approx([LARGEST[name](k)], abs=1e-9)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=60)
@given(rows=probabilities(), seed=st.integers(0, 2**16))
def test_the_order_of_the_classes_does_not_matter(name: str, rows: NDArray[np.float64], seed: int) -> None:
    order = np.random.default_rng(seed).permutation(rows.shape[1])
    np.testing.assert_allclose(NAMES[name](rows[:, order]), NAMES[name](rows), atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=60)
@given(rows=probabilities(), share=st.floats(0.01, 0.99))
def test_mixing_with_the_uniform_distribution_never_lowers_suspicion(
    name: str, rows: NDArray[np.float64], share: float
) -> None:
    mixed = (1 - share) * rows + share / rows.shape[1]
    assert (NAMES[name](mixed) >= NAMES[name](rows) - 1e-12).all()


@pytest.mark.parametrize("name", NAMES)
def test_float32_probabilities_are_scored_in_double_precision(name: str, softmax: NDArray[np.float64]) -> None:
    scores = NAMES[name](softmax.astype(np.float32))
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, NAMES[name](softmax), atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_the_supervisor_is_its_function_and_keeps_the_contract(name: str, softmax: NDArray[np.float64]) -> None:
    supervisor = get(name)()
    assert not supervisor.requires_fit
    np.testing.assert_array_equal(supervisor.score(Observation(softmax)), NAMES[name](softmax))
    assert "check_sign" in check_supervisor(get(name))
