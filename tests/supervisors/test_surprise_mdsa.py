from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import mahalanobis
from scipy.stats import spearmanr
from sklearn.covariance import EmpiricalCovariance, LedoitWolf

from secondguess import Observation, Trace, check_supervisor
from secondguess.errors import UserError
from secondguess.supervisors.surprise.mdsa import MDSA, GlobalMDSA


def observed(traces: NDArray[np.floating], classes: NDArray[np.int64], count: int = 3) -> Observation:
    return Observation(np.eye(count)[classes], traces={Trace(): traces})


def some(rows: int, seed: int, width: int = 6) -> Observation:
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 3, rows)
    mix = np.random.default_rng(7).normal(size=(width, width))
    return observed((rng.normal(size=(rows, width)) @ mix + 4 * classes[:, None]).astype(np.float32), classes)


@pytest.fixture
def train() -> Observation:
    return some(600, 1)


@pytest.fixture
def queries() -> Observation:
    return some(90, 2)


def test_the_score_is_the_mahalanobis_distance_to_the_predicted_class(train: Observation, queries: Observation) -> None:
    scores = MDSA().fit(train).score(queries)
    for index in range(len(queries)):
        own = train.trace(Trace())[train.predictions == queries.predictions[index]].astype(np.float64)
        wanted = mahalanobis(queries.trace(Trace())[index], own.mean(axis=0), np.linalg.inv(np.cov(own.T)))
        assert scores[index] == pytest.approx(wanted, rel=1e-9)


def test_one_gaussian_for_all(train: Observation, queries: Observation) -> None:
    matrix, rows = (one.trace(Trace()).astype(np.float64) for one in (train, queries))
    wanted = EmpiricalCovariance().fit(matrix).mahalanobis(rows)
    np.testing.assert_allclose(GlobalMDSA(squared=True, ddof=0).fit(train).score(queries), wanted, rtol=1e-8)
    np.testing.assert_array_equal(
        GlobalMDSA().fit(train).score(queries), MDSA(per_class=False).fit(train).score(queries)
    )


def test_compat_has_the_values_of_dnn_tip_on_double_precision_traces(train: Observation, queries: Observation) -> None:
    """dnn-tip: scikit-learn's covariance by class (divided by n, pseudo-inverse), squared distances."""
    scores = MDSA(compat="dnn-tip").fit(train).score(queries)
    for label in range(3):
        model = EmpiricalCovariance().fit(train.trace(Trace())[train.predictions == label].astype(np.float64))
        rows = queries.predictions == label
        wanted = model.mahalanobis(queries.trace(Trace())[rows].astype(np.float64))
        np.testing.assert_allclose(scores[rows], wanted, rtol=1e-8)


def test_the_mean_square_over_the_training_rows_is_the_rank(train: Observation) -> None:
    """The trace of S^-1 S; with a covariance divided by n the identity is exact."""
    squares = MDSA(squared=True, ddof=0).fit(train).score(train)
    for label in range(3):
        assert squares[train.predictions == label].mean() == pytest.approx(6, rel=1e-9)


def test_single_precision_is_enough_on_near_singular_layers() -> None:
    """Softmax traces sum to one up to rounding; dnn-tip's ranks on them are garbage (Spearman .14) in float32."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3000, 10)) * 2
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    zeros = np.zeros(2000, dtype=np.int64)
    single, double = (MDSA().fit(observed(softmax[:2000].astype(kind), zeros)) for kind in (np.float32, np.float64))
    assert single.ranks() == double.ranks() == {0: 9}
    a = single.score(observed(softmax[2000:].astype(np.float32), zeros[:1000]))
    b = double.score(observed(softmax[2000:], zeros[:1000]))
    np.testing.assert_allclose(a, b, rtol=1e-4)
    nine = MDSA().fit(observed(softmax[:2000, :9], zeros)).score(observed(softmax[2000:, :9], zeros[:1000]))
    np.testing.assert_allclose(b, nine, rtol=1e-6)
    assert spearmanr(a, nine).statistic > 0.9999


def test_wide_layers_are_computed_in_mixed_precision() -> None:
    rng = np.random.default_rng(0)
    zeros = np.zeros(900, dtype=np.int64)
    traces = (rng.normal(size=(1000, 100)) * np.geomspace(1, 0.01, 100) @ rng.normal(size=(100, 100)) + 50).astype("f4")
    queries, own = traces[900:].astype(np.float64), traces[:900].astype(np.float64)
    inverse = np.linalg.inv(np.cov(own.T))
    wanted = [mahalanobis(query, own.mean(axis=0), inverse) for query in queries]
    scores = MDSA().fit(observed(traces[:900], zeros)).score(observed(traces[900:], zeros[:100]))
    np.testing.assert_allclose(scores, wanted, rtol=1e-5)


def test_a_large_offset_does_not_hurt(train: Observation, queries: Observation) -> None:
    shifted = [observed(one.trace(Trace()).astype(np.float64) + 1e6, one.predictions) for one in (train, queries)]
    np.testing.assert_allclose(MDSA().fit(shifted[0]).score(shifted[1]), MDSA().fit(train).score(queries), rtol=1e-6)


def test_dead_and_duplicated_neurons_change_nothing(train: Observation, queries: Observation) -> None:
    def spoilt(observation: Observation) -> Observation:
        trace = observation.trace(Trace())
        return observed(np.column_stack([trace, trace[:, 1], np.full(len(trace), 0.1)]), observation.predictions)

    supervisor = MDSA().fit(spoilt(train))
    assert set(supervisor.ranks().values()) == {6}
    np.testing.assert_allclose(supervisor.score(spoilt(queries)), MDSA().fit(train).score(queries), rtol=1e-6)


def test_few_traces_are_shrunk_as_ledoit_and_wolf_do() -> None:
    rng = np.random.default_rng(0)
    traces, queries = rng.normal(size=(30, 50)) * np.linspace(1, 5, 50), 3 * rng.normal(size=(8, 50))
    zeros = np.zeros(30, dtype=np.int64)
    supervisor = MDSA(squared=True, ddof=0).fit(observed(traces, zeros))
    referee = LedoitWolf().fit(traces)
    assert supervisor.shrinkages_.tolist() == pytest.approx([referee.shrinkage_])
    np.testing.assert_allclose(supervisor.score(observed(queries, zeros[:8])), referee.mahalanobis(queries), rtol=1e-9)


def test_shrunk_distances_grow_off_the_subspace_of_few_traces() -> None:
    """At a right angle to all traces, S has no variance and the identity its share a l: 10^2 / (a l) more."""
    traces = np.random.default_rng(0).normal(size=(30, 50)) * np.linspace(1, 5, 50)
    zeros = np.zeros(30, dtype=np.int64)
    supervisor = MDSA(squared=True, ddof=0).fit(observed(traces, zeros))
    off = np.linalg.svd(traces - traces.mean(axis=0))[2][-1]
    grown = supervisor.score(observed(traces + 10 * off, zeros)) - supervisor.score(observed(traces, zeros))
    assert (grown > 0).all()
    np.testing.assert_allclose(grown, 100 / (LedoitWolf().fit(traces).shrinkage_ * traces.var(axis=0).mean()))


def test_a_given_share_is_taken_and_many_traces_are_left_alone(train: Observation, queries: Observation) -> None:
    assert MDSA().fit(train).shrinkages_.tolist() == [0, 0, 0]
    scores = MDSA(shrinkage=0.3).fit(train).score(queries)
    for index in range(10):
        own = train.trace(Trace())[train.predictions == queries.predictions[index]].astype(np.float64)
        spread = np.cov(own.T)
        shrunk = 0.7 * spread + 0.3 * np.trace(spread) / 6 * np.eye(6)
        wanted = mahalanobis(queries.trace(Trace())[index], own.mean(axis=0), np.linalg.inv(shrunk))
        assert scores[index] == pytest.approx(wanted, rel=1e-9)
    with pytest.raises(UserError, match="a share from 0 to 1, not 2"):
        MDSA(shrinkage=2)


def test_what_lies_off_the_subspace_is_not_scored_but_measured() -> None:
    rng = np.random.default_rng(0)
    flat = np.column_stack([rng.normal(size=(200, 2)), np.zeros(200)])
    zeros = np.zeros(200, dtype=np.int64)
    supervisor = MDSA().fit(observed(flat, zeros))
    lifted = flat + np.array([0, 0, 100.0])
    np.testing.assert_allclose(supervisor.score(observed(lifted, zeros)), supervisor.score(observed(flat, zeros)))
    np.testing.assert_allclose(supervisor.residuals(observed(flat, zeros)), 0, atol=1e-12)
    np.testing.assert_allclose(supervisor.residuals(observed(lifted, zeros)), 100, rtol=1e-12)


def test_fewer_rows_than_neurons() -> None:
    rng = np.random.default_rng(0)
    traces = rng.normal(size=(40, 100)).astype(np.float32)
    supervisor = MDSA(shrinkage=0.0).fit(observed(traces, np.arange(40) % 2))
    assert supervisor.ranks() == {0: 19, 1: 19}
    # n points in general position are all equally far from their mean: (n - 1) / sqrt(n)
    np.testing.assert_allclose(supervisor.score(observed(traces, np.arange(40) % 2)), 19 / np.sqrt(20), rtol=1e-6)


def test_unseen_classes_and_single_rows_score_inf_with_a_warning(train: Observation) -> None:
    classes = np.zeros(600, dtype=np.int64)
    classes[5] = 1
    supervisor = MDSA().fit(observed(train.trace(Trace()), classes, 4))
    with pytest.warns(UserWarning, match=r"2 images belong to a class \(1, 3\)"):
        scores = supervisor.score(observed(train.trace(Trace())[:3], np.array([0, 1, 3]), 4))
    assert scores.tolist()[1:] == [np.inf, np.inf]
    assert np.isfinite(scores[0])


def test_a_query_that_is_not_finite_scores_inf(train: Observation, queries: Observation) -> None:
    broken = queries.trace(Trace()).copy()
    broken[3, 1], broken[4, 0] = np.nan, np.inf
    scores = MDSA().fit(train).score(observed(broken, queries.predictions))
    assert (scores[[3, 4]] == np.inf).all()
    assert np.isfinite(np.delete(scores, [3, 4])).all()


def test_memory_maps_and_permutations_change_nothing(tmp_path: Path, train: Observation, queries: Observation) -> None:
    np.save(tmp_path / "train.npy", train.trace(Trace()))
    mapped = observed(np.load(tmp_path / "train.npy", mmap_mode="r"), train.predictions)
    shuffled = train.take(np.random.default_rng(0).permutation(len(train)))
    wanted = MDSA().fit(train).score(queries)
    np.testing.assert_array_equal(MDSA().fit(mapped).score(queries), wanted)
    np.testing.assert_allclose(MDSA().fit(shuffled).score(queries), wanted, rtol=1e-9)


def test_ragged_ranks_survive_saving(tmp_path: Path, train: Observation, queries: Observation) -> None:
    traces = train.trace(Trace()).copy()
    traces[train.predictions == 1, 2:4] = 0.5
    traces[train.predictions == 2] = 1.0
    supervisor = MDSA().fit(observed(traces, train.predictions))
    assert supervisor.ranks() == {0: 6, 1: 4, 2: 0}
    supervisor.save(tmp_path / "mdsa.safetensors")
    loaded = MDSA.load(tmp_path / "mdsa.safetensors")
    assert loaded.ranks() == supervisor.ranks()
    some = queries.take(np.flatnonzero(queries.predictions < 2))
    np.testing.assert_array_equal(loaded.score(some), supervisor.score(some))


def test_bad_input_is_refused(train: Observation, queries: Observation) -> None:
    with pytest.raises(UserError, match="compat must be one of None, 'dnn-tip', not 'sadl'"):
        MDSA(compat="sadl")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="ddof must be one of 0, 1, not 2"):
        MDSA(ddof=2)
    with pytest.raises(UserError, match="fitted on traces of 6 neurons, but these have 2"):
        MDSA().fit(train).score(observed(queries.trace(Trace())[:, :2], queries.predictions))


@pytest.mark.parametrize("kind", [MDSA, GlobalMDSA])
def test_the_contract_is_kept(kind: type[MDSA]) -> None:
    assert "check_sign" in check_supervisor(kind)
