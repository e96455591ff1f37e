from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import gaussian_kde, multivariate_normal

from secondguess import Observation, Trace, check_supervisor
from secondguess.errors import UserError
from secondguess.supervisors.surprise import _density, mdsa, mixtures
from secondguess.supervisors.surprise._density import Density, bandwidth_factor
from secondguess.supervisors.surprise._rounding import at_least
from secondguess.supervisors.surprise._whitening import Rows, moments, whiten
from secondguess.supervisors.surprise._workers import parts, workers
from secondguess.supervisors.surprise.lsa import LSA
from secondguess.supervisors.surprise.mdsa import MDSA
from secondguess.supervisors.surprise.mixtures import MMDSA

Traces = NDArray[np.floating]


def observed(traces: Traces, classes: NDArray[np.int64], count: int = 3) -> Observation:
    return Observation(np.eye(count)[classes], traces={Trace(): traces})


def cloud(rows: int, width: int, seed: int = 0, shift: float = 0.0) -> NDArray[np.float32]:
    """Correlated Gaussians, float32."""
    mix = np.random.default_rng(99).normal(size=(width, width)) / np.sqrt(width) + np.eye(width)
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(rows, width)) @ mix + shift).astype(np.float32)


@pytest.fixture
def three() -> tuple[Observation, Observation]:
    """Training and test traces of three classes, eight neurons."""

    def some(rows: int, seed: int) -> Observation:
        classes = np.random.default_rng(seed).integers(0, 3, rows)
        return observed(cloud(rows, 8, seed) + 3 * classes[:, None].astype(np.float32), classes)

    return some(900, 1), some(120, 2)


def by_scipy(train: Observation, test: Observation, columns: slice | NDArray = slice(None)) -> NDArray[np.float64]:
    scores = np.empty(len(test))
    for label in range(train.num_classes):
        density = gaussian_kde(train.trace(Trace())[train.predictions == label][:, columns].T.astype(np.float64))
        rows = test.predictions == label
        scores[rows] = -density.logpdf(test.trace(Trace())[rows][:, columns].T.astype(np.float64))
    return scores


def assert_same(scores: NDArray[np.float64], wanted: NDArray[np.float64]) -> None:
    assert (np.abs(scores - wanted) / np.maximum(1, np.abs(wanted))).max() < 1e-6


@pytest.mark.parametrize("width", [1, 2, 10, 128])
@pytest.mark.parametrize("bandwidth", ["scott", "silverman", 0.05, 0.5, 3.0])
def test_the_log_density_is_scipys(width: int, bandwidth: str | float) -> None:
    train, test = cloud(700, width), cloud(60, width, 1)
    queries = np.concatenate([test, train[:20], 10 * test[:10], 1000 * test[:3]])
    wanted = gaussian_kde(train.T.astype(np.float64), bandwidth).logpdf(queries.T.astype(np.float64))
    assert_same(Density(bandwidth).fit(train).log_density(queries), wanted)


def test_single_precision_alone_would_not_be_enough_on_training_rows() -> None:
    train = cloud(700, 128)
    wanted = gaussian_kde(train.T.astype(np.float64), 0.05).logpdf(train[:50].T.astype(np.float64))
    loose = Density(0.05, tolerance=np.inf).fit(train).log_density(train[:50])
    assert np.abs(loose / wanted - 1).max() > 1e-6
    assert_same(Density(0.05).fit(train).log_density(train[:50]), wanted)


def test_wide_layers_are_whitened_in_mixed_precision() -> None:
    rng = np.random.default_rng(0)
    train, test = ((rng.normal(size=(n, 300)) * np.geomspace(1, 1e-4, 300)).astype(np.float32) for n in (900, 40))
    density = Density().fit(train)
    assert 0 < density._coarse.shape[1] < 300
    wanted = gaussian_kde(train.T.astype(np.float64)).logpdf(test.T.astype(np.float64))
    assert_same(density.log_density(test), wanted)


def test_far_away_the_log_density_is_the_nearest_kernel() -> None:
    train = cloud(400, 6)
    query = np.full((1, 6), 1e4, dtype=np.float32)
    covariance = np.cov(train.T.astype(np.float64)) * bandwidth_factor("scott", 400, 6) ** 2
    kernels = [multivariate_normal(row, covariance).logpdf(query[0]) for row in train.astype(np.float64)]
    assert Density().fit(train).log_density(query)[0] == pytest.approx(max(kernels) - np.log(400), rel=1e-6)


def test_one_kernel_wide_enough_is_a_gaussian() -> None:
    """With a bandwidth far above the data, all kernels coincide at the mean."""
    train = cloud(500, 4)
    h = 1e4
    covariance = np.cov(train.T.astype(np.float64)) * h**2
    gaussian = multivariate_normal(train.mean(axis=0, dtype=np.float64), covariance)
    np.testing.assert_allclose(Density(h).fit(train).log_density(train[:9]), gaussian.logpdf(train[:9]), rtol=1e-6)


def test_tiles_rows_that_are_not_held_and_memory_maps_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, test = cloud(500, 12), cloud(130, 12, 1)
    wanted = Density(device="cpu").fit(train).log_density(test)
    np.save(tmp_path / "train.npy", train)
    mapped = np.load(tmp_path / "train.npy", mmap_mode="r")
    monkeypatch.setitem(_density.TILE, "cpu", (16, 33))
    monkeypatch.setattr(_density, "QUERIES", 12 * 50)
    for hold in (True, False):
        np.testing.assert_allclose(
            Density(device="cpu").fit(mapped, hold=hold).log_density(test), wanted, rtol=1e-6, atol=1e-6
        )


def test_a_loose_matrix_precision_of_the_caller_is_not_used_and_given_back() -> None:
    train, test = cloud(300, 20), cloud(30, 20, 1)
    wanted = Density().fit(train).log_density(test)
    torch.set_float32_matmul_precision("medium")
    try:
        np.testing.assert_allclose(Density().fit(train).log_density(test), wanted, rtol=1e-6)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_threads_change_nothing_and_are_given_back() -> None:
    train, test = cloud(500, 12), cloud(130, 12, 1)
    before, answers = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            answers.append(Density(device="cpu").fit(train).log_density(test))
            assert torch.get_num_threads() == count
        with pytest.raises(RuntimeError), workers():
            raise RuntimeError
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    for answer in answers[1:]:
        np.testing.assert_allclose(answer, answers[0], rtol=1e-6, atol=1e-6)


@pytest.fixture
def loose_settings() -> Iterator[None]:
    """Two threads and products that may be inexact, as a training script would set them."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(2)
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)


@pytest.mark.parametrize("kind", [LSA, MDSA, MMDSA])
@pytest.mark.usefixtures("loose_settings")
def test_scoring_in_several_threads_at_once_leaves_no_trace(
    kind: type[LSA] | type[MDSA] | type[MMDSA], three: tuple[Observation, Observation], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mdsa, "SMALL", 0)
    monkeypatch.setattr(mixtures, "SMALL", 0)
    train, test = three
    supervisor = kind().fit(train)
    wanted = supervisor.score(test)

    def score(_: int) -> tuple[NDArray[np.float64], int]:
        return supervisor.score(test), torch.get_num_threads()

    with ThreadPoolExecutor(3) as pool:
        for scores, threads in pool.map(score, range(30)):
            np.testing.assert_allclose(scores, wanted, rtol=1e-6)
            assert threads == 2
    with ThreadPoolExecutor(1) as fresh:
        assert fresh.submit(torch.get_num_threads).result() == 2
    assert torch.get_num_threads() == 2
    assert torch.get_float32_matmul_precision() == "medium"


@pytest.mark.usefixtures("loose_settings")
def test_the_best_precision_that_somebody_holds_applies_until_the_last_has_left() -> None:
    first, second, third = at_least("high"), at_least("highest"), at_least("high")
    steps = [first.__enter__, second.__enter__, third.__enter__]
    steps += [lambda one=one: one.__exit__(None, None, None) for one in (first, second, third)]
    seen = []
    for step in steps:
        step()
        seen.append(torch.get_float32_matmul_precision())
    assert seen == ["high", "highest", "highest", "highest", "high", "medium"]


@pytest.mark.usefixtures("loose_settings")
def test_torch_is_single_threaded_within_a_crew_only() -> None:
    with workers() as crew:
        assert crew.count == 2
        assert list(crew.run(lambda _: torch.get_num_threads(), range(8))) == [1] * 8
        assert torch.get_num_threads() == 2
    with workers(1) as crew:
        assert list(crew.run(lambda _: threading.get_ident(), range(2))) == [threading.get_ident()] * 2


@pytest.mark.parametrize(
    ("length", "largest", "count"), [(0, 5, 2), (1, 5, 2), (10, 5, 2), (655, 512, 2), (1025, 512, 3)]
)
def test_rows_are_cut_into_equal_parts(length: int, largest: int, count: int) -> None:
    sizes = [part.stop - part.start for part in parts(length, largest, count)]
    assert sum(sizes) == length
    assert max(sizes, default=0) <= largest
    assert len(sizes) <= 1 or max(sizes) - min(sizes[:-1]) == 0
    assert len(sizes) in (0, length) or len(sizes) % count == 0


def test_queries_that_are_not_finite_have_no_density() -> None:
    train = cloud(300, 3)
    queries = train[:4].copy()
    queries[1, 0], queries[3, 2] = np.nan, np.inf
    answer = Density().fit(train).log_density(queries)
    assert np.isfinite(answer[[0, 2]]).all()
    assert (answer[[1, 3]] == -np.inf).all()


@pytest.mark.parametrize("width", [3, 300])
def test_queries_beyond_single_precision_are_scored_all_the_same(width: int) -> None:
    train = cloud(600, width)
    far = np.full((1, width), 1e30, dtype=np.float32)
    answer = Density().fit(train).log_density(np.concatenate([far, train[:1]]))
    away = far[0].astype(np.float64) - train.mean(axis=0, dtype=np.float64)
    square = away @ np.linalg.solve(np.cov(train.T.astype(np.float64)), away)
    h = bandwidth_factor("scott", 600, width)
    assert answer[0] == pytest.approx(-square / h**2 / 2, rel=1e-4)
    assert np.isfinite(answer[1])


def test_the_covariance_is_numpys_whatever_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    from secondguess.supervisors.surprise import _whitening

    values = cloud(200, 5, shift=1000.0)
    rows, columns = np.arange(0, 200, 2), np.array([0, 2, 3])
    part = values[::2][:, columns].astype(np.float64)
    monkeypatch.setattr(_whitening, "BLOCK", 20)
    source = Rows(values, rows, columns)
    for ddof in (0, 1):
        found = whiten(source, ddof=ddof)
        np.testing.assert_allclose(found.mean, part.mean(axis=0), rtol=1e-14)
        inverse = np.linalg.inv(np.cov(part.T, ddof=ddof))
        np.testing.assert_allclose(found.factor @ found.factor.T, inverse, rtol=1e-8)
        assert found.log_det == pytest.approx(np.linalg.slogdet(np.cov(part.T, ddof=ddof))[1])
    np.testing.assert_allclose(moments(source)[1], part.var(axis=0), rtol=1e-9)


def test_fewer_rows_than_neurons_give_the_pseudoinverse_of_the_covariance() -> None:
    values = cloud(30, 50).astype(np.float64)
    found = whiten(Rows(values))
    assert found.rank == 29
    wanted = np.linalg.pinv(np.cov(values.T), rcond=1e-10, hermitian=True)
    np.testing.assert_allclose(found.factor @ found.factor.T, wanted, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(np.cov(found.apply(values).T), np.eye(29), atol=1e-8)


def test_the_score_is_scipys_by_class(three: tuple[Observation, Observation]) -> None:
    train, test = three
    assert_same(LSA().fit(train).score(test), by_scipy(train, test))
    assert_same(LSA(compat="scipy").fit(train).score(test), by_scipy(train, test))


def test_without_classes_there_is_one_density(three: tuple[Observation, Observation]) -> None:
    train, test = three
    supervisor = LSA(per_class=False, bandwidth=0.3).fit(train)
    density = gaussian_kde(train.trace(Trace()).T.astype(np.float64), 0.3)
    assert_same(supervisor.score(test), -density.logpdf(test.trace(Trace()).T.astype(np.float64)))
    assert supervisor.ranks() == {0: 8}


def test_several_layers_are_put_side_by_side(three: tuple[Observation, Observation]) -> None:
    train, test = three

    def split(observation: Observation) -> Observation:
        trace = observation.trace(Trace())
        return Observation(observation.probabilities, traces={Trace("a"): trace[:, :5], Trace("b"): trace[:, 5:]})

    supervisor = LSA(["a", "b"]).fit(split(train))
    np.testing.assert_allclose(supervisor.score(split(test)), LSA().fit(train).score(test), rtol=1e-6)


def test_the_underflow_of_a_linear_density_does_not_happen() -> None:
    """dnn-tip returns inf for 99 of 200 such inputs."""
    train, test = np.random.default_rng(0).normal(size=(2, 1000, 128)).astype(np.float32)
    classes = np.zeros(1000, dtype=np.int64)
    scores = LSA().fit(observed(train, classes)).score(observed(3 * test[:200], classes[:200]))
    assert np.isfinite(scores).all()
    assert scores.max() > 745


@pytest.mark.parametrize("trouble", ["dead", "duplicated", "combination", "constant"])
def test_neurons_that_add_nothing_change_nothing(trouble: str, three: tuple[Observation, Observation]) -> None:
    """Each of these makes SciPy raise; here the density is that of the other neurons, up to a change of variables."""
    train, test = three

    def spoilt(observation: Observation) -> Observation:
        trace = observation.trace(Trace())
        extra = {
            "dead": np.zeros(len(trace)),
            "constant": np.full(len(trace), 0.1),
            "duplicated": trace[:, 0],
            "combination": trace[:, 0] - 2 * trace[:, 1].astype(np.float64),
        }[trouble]
        return observed(np.column_stack([trace, extra]).astype(np.float32), observation.predictions)

    clean = LSA().fit(train)
    for features in ("union", "per_class", "all"):
        supervisor = LSA(features=features).fit(spoilt(train))
        assert set(supervisor.ranks().values()) == {8}
        shift = supervisor.score(spoilt(test)) - clean.score(test)
        for label in range(3):
            assert np.ptp(shift[test.predictions == label]) < 1e-3
    if trouble != "combination":  # whose rounding noise in float32 may pass for a dimension, as it does with SciPy
        with pytest.raises(UserError, match="has rank 8, not 9"):
            LSA(features="all", compat="scipy").fit(spoilt(train))


def test_softmax_traces_that_sum_to_one_lose_exactly_one_dimension() -> None:
    rng = np.random.default_rng(0)
    train, test = (rng.dirichlet(np.full(10, 5.0), size=n).astype(np.float32) for n in (800, 100))
    zeros = np.zeros(800, dtype=np.int64)
    supervisor = LSA().fit(observed(train, zeros))
    assert supervisor.ranks() == {0: 9}
    nine = gaussian_kde(train[:, :9].T.astype(np.float64)).logpdf(test[:, :9].T.astype(np.float64))
    scores = supervisor.score(observed(test, zeros[:100]))
    np.testing.assert_allclose(
        np.diff(scores + nine), 0, atol=1e-4
    )  # the volumes of the two bases differ by a constant


def test_float32_and_float64_traces_agree(three: tuple[Observation, Observation]) -> None:
    train, test = three
    double = [observed(one.trace(Trace()).astype(np.float64), one.predictions) for one in three]
    np.testing.assert_allclose(LSA().fit(train).score(test), LSA().fit(double[0]).score(double[1]), rtol=1e-6)


def test_the_order_of_the_training_rows_does_not_matter(three: tuple[Observation, Observation]) -> None:
    train, test = three
    shuffled = train.take(np.random.default_rng(0).permutation(len(train)))
    np.testing.assert_allclose(LSA().fit(shuffled).score(test), LSA().fit(train).score(test), rtol=1e-6)


def test_unseen_classes_and_classes_without_variance_score_inf_with_a_warning() -> None:
    train = cloud(60, 4)
    classes = np.zeros(60, dtype=np.int64)
    classes[0] = 1  # a class of a single row: its variance of 0 must not remove every neuron of the others
    supervisor = LSA().fit(observed(train, classes, 4))
    assert supervisor.ranks() == {0: 4, 1: 0}
    with pytest.warns(UserWarning, match=r"2 images belong to a class \(1, 3\) with fewer than two different traces"):
        scores = supervisor.score(observed(train[:4], np.array([0, 1, 0, 3]), 4))
    assert np.isfinite(scores[[0, 2]]).all()
    assert (scores[[1, 3]] == np.inf).all()


@pytest.mark.parametrize("features", ["union", "per_class", "top", "all"])
def test_where_nothing_varies_the_only_warning_is_ours(features: str) -> None:
    constant = observed(np.ones((30, 4), dtype=np.float32), np.arange(30) % 3)
    alone = observed(cloud(3, 4), np.arange(3))
    for train in (constant, alone):
        supervisor = LSA(features=features).fit(train)  # type: ignore[arg-type]
        assert supervisor.kept_.all()
        with pytest.warns(UserWarning, match=r"a class \(0, 1, 2\) with fewer than two different traces"):
            assert (supervisor.score(train) == np.inf).all()


def test_fewer_rows_than_neurons_are_no_obstacle() -> None:
    train = cloud(40, 160)
    classes = np.arange(40) % 2
    supervisor = LSA().fit(observed(train, classes))
    assert set(supervisor.ranks().values()) == {19}
    scores = supervisor.score(observed(np.concatenate([train, 5 * train]), np.tile(classes, 2)))
    assert np.isfinite(scores).all()
    assert scores[40:].mean() > scores[:40].mean()


def quiet_neurons() -> Observation:
    """Neuron 0 is loud everywhere, 1 quiet in class 0, 2 quiet in class 1, 3 a little less loud than 0."""
    rng = np.random.default_rng(3)
    classes = np.arange(400) % 2
    traces = rng.normal(size=(400, 4)) * np.array([3, 1, 1, 2])
    traces[classes == 0, 1] *= 1e-3
    traces[classes == 1, 2] *= 1e-3
    return observed(traces.astype(np.float32), classes, 2)


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        ({"features": "union"}, [[1, 0, 0, 1], [1, 0, 0, 1]]),
        ({"features": "per_class"}, [[1, 0, 1, 1], [1, 1, 0, 1]]),
        ({"features": "all"}, [[1, 1, 1, 1], [1, 1, 1, 1]]),
        ({"features": "top"}, [[1, 1, 1, 1], [1, 1, 1, 1]]),
        ({"features": "top", "max_features": 3}, [[1, 0, 1, 1], [1, 1, 0, 1]]),
        ({"features": "union", "max_features": 1}, [[1, 0, 0, 0], [1, 0, 0, 0]]),
        ({"features": "per_class", "var_threshold": 5.0}, [[1, 0, 0, 0], [1, 0, 0, 0]]),
    ],
)
def test_neurons_are_removed_by_the_rule_that_was_chosen(params: dict[str, object], kept: list[list[int]]) -> None:
    train = quiet_neurons()
    supervisor = LSA(**params).fit(train)
    assert supervisor.kept_.astype(int).tolist() == kept
    columns = [np.flatnonzero(row) for row in kept]
    for label in range(2):
        rows = train.take(np.flatnonzero(train.predictions == label))
        matrix = rows.trace(Trace())[:, columns[label]].T.astype(np.float64)
        assert_same(supervisor.score(rows), -gaussian_kde(matrix).logpdf(matrix))


def test_where_no_neuron_is_left_each_class_keeps_its_own() -> None:
    train = quiet_neurons()
    pair = observed(train.trace(Trace())[:, [1, 2]], train.predictions, 2)
    with pytest.warns(UserWarning, match="No neuron has a variance of 1e-05 in every class"):
        supervisor = LSA().fit(pair)
    assert supervisor.kept_.astype(int).tolist() == [[0, 1], [1, 0]]
    tiny = observed(train.trace(Trace()) * np.float32(1e-6), train.predictions, 2)
    assert LSA(features="per_class").fit(tiny).kept_.all()


def test_subsampling_is_seeded_and_saved_without_the_rest(
    tmp_path: Path, three: tuple[Observation, Observation]
) -> None:
    train, test = three
    some, same, other = (LSA(subsampling=0.5, seed=seed).fit(train) for seed in (1, 1, 2))
    np.testing.assert_array_equal(some.score(test), same.score(test))
    assert not np.allclose(some.score(test), other.score(test))
    assert (some.classes_ >= 0).sum() == 450 == len(some.state()["traces_"])
    assert (LSA(subsampling=100).fit(train).classes_ >= 0).sum() == 100
    used = train.take(np.flatnonzero(some.classes_ >= 0))
    np.testing.assert_allclose(some.score(test), LSA().fit(used).score(test), rtol=1e-6)
    some.save(tmp_path / "lsa.safetensors")
    np.testing.assert_allclose(LSA.load(tmp_path / "lsa.safetensors").score(test), some.score(test), rtol=1e-6)


def test_rare_classes_survive_subsampling() -> None:
    traces, classes = cloud(1000, 5), np.zeros(1000, dtype=np.int64)
    classes[:3] = 1
    rare = observed(traces[:3], classes[:3])
    for seed in range(10):
        supervisor = LSA(subsampling=0.1, seed=seed).fit(observed(traces, classes))
        assert np.bincount(supervisor.classes_[supervisor.classes_ >= 0])[1] >= 2
        assert np.isfinite(supervisor.score(rare)).all()


def test_numbers_of_numpy_are_numbers(tmp_path: Path, three: tuple[Observation, Observation]) -> None:
    train, test = three
    supervisor = LSA(subsampling=np.int64(100), max_features=np.int64(3)).fit(train)  # type: ignore[arg-type]
    wanted = LSA(subsampling=100, max_features=3).fit(train).score(test)
    np.testing.assert_array_equal(supervisor.score(test), wanted)
    supervisor.save(tmp_path / "lsa.safetensors")
    np.testing.assert_allclose(LSA.load(tmp_path / "lsa.safetensors").score(test), wanted, rtol=1e-6)


@pytest.mark.parametrize("limit", [0, 3000, 20_000])
def test_what_does_not_fit_into_the_limit_is_made_again(limit: int, three: tuple[Observation, Observation]) -> None:
    train, test = three
    supervisor = LSA(memory_limit=limit).fit(train)
    assert supervisor._densities is not None
    assert sum(one.nbytes + 36 * one.count * (one._held is not None) for one in supervisor._densities.values()) <= limit
    np.testing.assert_allclose(supervisor.score(test), LSA().fit(train).score(test), rtol=1e-6)


def test_the_contract_is_kept() -> None:
    for supervisor in (LSA(), LSA(per_class=False, bandwidth="silverman"), LSA(features="top", subsampling=0.5)):
        assert "check_save_and_load" in check_supervisor(supervisor)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"bandwidth": "wide"}, "bandwidth must be 'scott', 'silverman' or a positive number, not 'wide'"),
        ({"bandwidth": 0.0}, "positive number, not 0.0"),
        ({"features": "best"}, "features must be one of 'union', 'per_class', 'top', 'all', not 'best'"),
        ({"compat": "sadl"}, "compat must be one of None, 'scipy', not 'sadl'"),
        ({"max_features": 0.5}, "max_features must be a whole number of neurons or None, not 0.5"),
        ({"subsampling": 1}, "a share up to 1.0 or a number of traces from 2 on, not 1"),
        ({"subsampling": 1.5}, "not 1.5"),
    ],
)
def test_bad_parameters_are_refused(params: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        LSA(**params)


def test_bad_traces_are_refused(three: tuple[Observation, Observation]) -> None:
    train, test = three
    narrow = observed(test.trace(Trace())[:, :5], test.predictions)
    with pytest.raises(UserError, match="fitted on traces of 8 neurons, but these have 5"):
        LSA().fit(train).score(narrow)
    broken = train.trace(Trace()).copy()
    broken[7, 2] = np.nan
    with pytest.raises(UserError, match="training traces hold NaN or infinity"):
        LSA().fit(observed(broken, train.predictions))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("width", [3, 128, 300])
def test_cuda_gives_the_scores_of_the_processor(width: int) -> None:
    train, test = cloud(3000, width), np.concatenate([cloud(400, width, 1), cloud(20, width, 2) * 50])
    for bandwidth in ("scott", 0.1):
        cpu, cuda = (Density(bandwidth, device=device).fit(train) for device in ("cpu", "cuda"))
        assert_same(cuda.log_density(test), cpu.log_density(test))
