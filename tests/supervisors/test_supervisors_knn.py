from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize

from secondguess import Observation, Trace, UserError, check_supervisor
from secondguess.supervisors import knn
from secondguess.supervisors.knn import KNN, kth_distances

Traces = NDArray[np.float32]


def draw(rows: int, columns: int = 6, seed: int = 0) -> Traces:
    return np.random.default_rng(seed).normal(1, 2, (rows, columns)).astype(np.float32)


def seen(traces: Traces, layer: str = "penultimate") -> Observation:
    return Observation(np.full((len(traces), 2), 0.5), traces={Trace(layer): traces})


def referee(queries: Traces, traces: Traces, k: int) -> NDArray[np.float64]:
    a, b = normalize(traces.astype(np.float64)), normalize(queries.astype(np.float64))
    found = NearestNeighbors(n_neighbors=min(k, len(a)), algorithm="brute").fit(a).kneighbors(b)[0]
    return np.asarray(found[:, -1])


@pytest.mark.parametrize("k", [1, 2, 50, 200, 1000])
@pytest.mark.parametrize("cells", [2**23, 2**12, 1])
def test_distances_agree_with_scikit_learn_whatever_the_tile(
    k: int, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knn, "_CELLS", cells)
    monkeypatch.setattr(knn, "_PANEL", 40)
    monkeypatch.setattr(knn, "_TILE_ROWS", 17)
    queries, traces = draw(60, seed=1), draw(1500)
    np.testing.assert_allclose(kth_distances(queries, traces, k), referee(queries, traces, k), rtol=1e-9)


def test_the_best_of_the_best_strips_are_the_best() -> None:
    import torch

    values = torch.from_numpy(draw(5, 50 * knn.STRIP + 3))
    (values, columns), referee = knn._top(values, 7), values.topk(7, dim=1)
    assert values.equal(referee.values) and columns.equal(referee.indices)


def test_traces_that_nearly_coincide_keep_their_digits() -> None:
    """In float32 the product of two such unit vectors is 1, and their distance would be 0."""
    traces = np.array([[1000, 1], [1, 1000]], dtype=np.float32)
    queries = np.array([[1000, 1.001]], dtype=np.float32)
    angles = np.arctan2(1.0, 1000.0) - np.arctan2(float(queries[0, 1]), 1000.0)
    assert kth_distances(queries, traces, 1)[0] == pytest.approx(2 * abs(np.sin(angles / 2)), rel=1e-7)


def test_only_the_direction_counts() -> None:
    queries, traces = draw(30, seed=1), draw(100)
    lengths = np.random.default_rng(2).uniform(0.1, 50, (100, 1)).astype(np.float32)
    np.testing.assert_allclose(
        kth_distances(3 * queries, traces * lengths, 5), kth_distances(queries, traces, 5), rtol=1e-5
    )


def test_a_trace_of_zeros_is_at_distance_one_from_all_others_and_none_from_its_like() -> None:
    zero, east, west = np.zeros(2), np.array([2.0, 0]), np.array([-5.0, 0])
    traces, queries = np.array([zero, east, west], np.float32), np.array([zero, east], np.float32)
    assert kth_distances(queries, traces, 1).tolist() == [0, 0]
    assert kth_distances(queries, traces, 2).tolist() == [1, 1]
    assert kth_distances(queries, traces, 3).tolist() == [1, 2]


def test_training_images_are_their_own_neighbours() -> None:
    traces = draw(80)
    assert KNN(k=1).fit(seen(traces)).score(seen(traces)).max() == 0
    assert KNN(k=2).fit(seen(traces)).score(seen(traces)).min() > 0


def test_a_later_neighbour_is_never_closer() -> None:
    queries, traces = draw(30, seed=1), draw(100)
    by_k = np.stack([kth_distances(queries, traces, k) for k in (1, 2, 5, 20, 100)])
    assert (np.diff(by_k, axis=0) >= 0).all()
    assert by_k.max() <= 2 + 1e-12


def test_k_is_cut_to_the_number_of_traces() -> None:
    queries, traces = draw(30, seed=1), draw(10)
    expected = KNN(k=10).fit(seen(traces)).score(seen(queries))
    np.testing.assert_array_equal(KNN(k=50).fit(seen(traces)).score(seen(queries)), expected)


def test_a_number_of_numpy_will_do_for_k() -> None:
    queries, traces = draw(30, seed=1), draw(100)
    expected = KNN(k=7).fit(seen(traces)).score(seen(queries))
    chosen = KNN(k=np.int64(7))  # type: ignore[arg-type]
    np.testing.assert_array_equal(chosen.fit(seen(traces)).score(seen(queries)), expected)


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_traces_of_another_type_keep_it(kind: type[np.floating]) -> None:  # type: ignore[type-arg]
    traces = np.random.default_rng(0).normal(1e3, 2, (80, 6)).astype(kind)
    fitted = KNN(k=1).fit(seen(traces))  # type: ignore[arg-type]
    assert fitted.traces_.dtype == kind
    assert fitted.score(seen(traces)).max() == 0  # type: ignore[arg-type]


def test_a_share_of_the_traces_is_drawn_by_its_seed() -> None:
    traces = draw(200)
    kept = KNN(share=0.25, seed=3).fit(seen(traces)).traces_
    assert len(kept) == 50
    assert {tuple(row) for row in kept} <= {tuple(row) for row in traces}
    np.testing.assert_array_equal(KNN(share=0.25, seed=3).fit(seen(traces)).traces_, kept)
    assert not np.array_equal(KNN(share=0.25, seed=4).fit(seen(traces)).traces_, kept)
    assert len(KNN(share=1e-9).fit(seen(traces)).traces_) == 1


def test_what_is_learnt_does_not_change_with_the_array_it_was_learnt_from() -> None:
    traces, queries = draw(80), draw(5, seed=1)
    supervisor = KNN(k=3).fit(seen(traces))
    before = supervisor.score(seen(queries))
    traces[:] = 1
    np.testing.assert_array_equal(supervisor.score(seen(queries)), before)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"k": 0}, "number 0; k must be a whole number from 1 on"),
        ({"k": 5.0}, r"number 5\.0; k must be a whole number from 1 on"),
        ({"share": 0}, "to keep is 0; it must be above 0 and at most 1"),
        ({"share": 1.5}, "to keep is 1.5; it must be above 0 and at most 1"),
        ({"layers": []}, "No layer was chosen"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(params: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        KNN(**params)  # type: ignore[arg-type]


@pytest.mark.parametrize("supervisor", [KNN(), KNN(k=1), KNN(layers=["a", Trace("b", "mean")], k=7, share=0.5, seed=9)])
def test_the_contract_is_kept(supervisor: KNN) -> None:
    assert "check_save_and_load" in check_supervisor(supervisor)
