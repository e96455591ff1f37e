from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import cdist, mahalanobis
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture

from secondguess import Observation, Trace, check_supervisor
from secondguess.errors import UserError
from secondguess.supervisors.surprise.mixtures import MLSA, MMDSA


def observed(traces: NDArray[np.floating], classes: NDArray[np.int64] | None = None, count: int = 3) -> Observation:
    classes = np.zeros(len(traces), dtype=np.int64) if classes is None else classes
    return Observation(np.eye(count)[classes], traces={Trace(): traces})


def modes(rows: int, seed: int, width: int = 4) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Three clouds far apart, and which row belongs to which."""
    rng = np.random.default_rng(seed)
    centres = 20 * np.eye(3, width)
    which = rng.integers(0, 3, rows)
    return (centres[which] + rng.normal(size=(rows, width)) * [1, 2, 0.5, 1][:width]).astype(np.float32), which


def test_one_component_is_the_gaussian_of_the_class() -> None:
    train, _ = modes(400, 0)
    classes = np.arange(400) % 2
    scores = MLSA(components=1).fit(observed(train, classes)).score(observed(train, classes))
    for label in range(2):
        own = train[classes == label].astype(np.float64)
        gaussian = multivariate_normal(own.mean(axis=0), np.cov(own.T, ddof=0))
        np.testing.assert_allclose(scores[classes == label], -gaussian.logpdf(own), rtol=1e-4)


@pytest.mark.parametrize("per_class", [True, False])
def test_the_score_is_the_likelihood_under_scikit_learns_mixture(per_class: bool) -> None:
    train, _ = modes(900, 0)
    test, _ = modes(100, 1)
    supervisor = MLSA(components=3, per_class=per_class).fit(observed(train))
    mixture = GaussianMixture(3, random_state=0, reg_covar=1e-9).fit(train.astype(np.float64))
    np.testing.assert_allclose(supervisor.score(observed(test)), -mixture.score_samples(test), rtol=1e-3, atol=1e-2)


def test_a_mixture_sees_the_hole_between_modes() -> None:
    train, which = modes(900, 0)
    middle = train[which == 0].mean(axis=0) / 2 + train[which == 1].mean(axis=0) / 2
    supervisor = MLSA(components=3).fit(observed(train))
    assert supervisor.score(observed(middle[None]))[0] > supervisor.score(observed(train)).max()
    single = MLSA(components=1).fit(observed(train))
    assert single.score(observed(middle[None]))[0] < np.median(single.score(observed(train)))


FEW = pytest.mark.parametrize(("rows", "width"), [(400, 1600), (30, 50), (5, 3), (2, 3)])


@FEW
def test_few_rows_get_a_mixture_in_few_directions(rows: int, width: int) -> None:
    train = np.random.default_rng(0).normal(size=(rows, width))
    queries = np.concatenate([train[:3], 3 * train[:3]])
    components = {400: 3, 30: 1, 5: 1, 2: 1}[rows]
    referee = PCA({400: 13, 30: 3, 5: 1, 2: 1}[rows], whiten=True, svd_solver="full").fit(train)
    mixture = GaussianMixture(components, random_state=0).fit(referee.transform(train))
    wanted = 0.5 * np.log(referee.explained_variance_).sum() - mixture.score_samples(referee.transform(queries))
    np.testing.assert_allclose(MLSA().fit(observed(train)).score(observed(queries)), wanted, rtol=1e-6)


@FEW
def test_few_rows_are_measured_within_the_span_of_their_cluster(rows: int, width: int) -> None:
    train = np.random.default_rng(0).normal(size=(rows, width))
    queries = np.concatenate([train[:3], 3 * train[:3]])
    supervisor = MMDSA().fit(observed(train))
    near, own = (cdist(values, supervisor.centres_).argmin(axis=1) for values in (queries, train))
    assert len(supervisor.centres_) == (1 if rows == 2 else len(np.unique(own)))
    wanted = np.full(len(queries), np.inf)
    for cluster in np.unique(near):
        members = train[own == cluster]
        if len(members) > 1:
            inverse = np.linalg.pinv(np.cov(members.T), rcond=1e-10, hermitian=True)
            asked = near == cluster
            wanted[asked] = [mahalanobis(query, members.mean(axis=0), inverse) for query in queries[asked]]
    lonely = np.isinf(wanted).any()
    with pytest.warns(UserWarning, match="fewer than two different traces") if lonely else nullcontext():
        scores = supervisor.score(observed(queries))
    np.testing.assert_allclose(scores, wanted, rtol=1e-5)


@pytest.mark.parametrize("kind", [MLSA, MMDSA])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_training_traces_that_are_not_finite_are_refused(kind: type[MLSA] | type[MMDSA], bad: float) -> None:
    train, which = modes(100, 0)
    train[7, 2] = bad
    with pytest.raises(UserError, match="training traces hold NaN or infinity"):
        kind().fit(observed(train, which))


def test_duplicated_rows_and_neurons_are_no_obstacle() -> None:
    train = np.repeat(np.random.default_rng(0).normal(size=(3, 2)), 30, axis=0).astype(np.float32)
    train = np.column_stack([train, train[:, 0], np.ones(90, dtype=np.float32)])
    assert np.isfinite(MLSA(components=5).fit(observed(train)).score(observed(train))).all()


def test_same_seed_same_mixture_and_saved_the_same(tmp_path: Path) -> None:
    train, which = modes(600, 0)
    train_set, test_set = observed(train, which), observed(train[:50] + 1, which[:50])
    for kind in (MLSA, MMDSA):
        first, second = (kind(seed=3, max_rows=200).fit(train_set) for _ in range(2))
        np.testing.assert_array_equal(first.score(test_set), second.score(test_set))
        first.save(tmp_path / "it.safetensors")
        np.testing.assert_array_equal(kind.load(tmp_path / "it.safetensors").score(test_set), first.score(test_set))


def test_clusters_are_found_and_each_has_its_own_distance() -> None:
    train, which = modes(900, 0)
    test, truth = modes(60, 1)
    supervisor = MMDSA().fit(observed(train))
    assert len(supervisor.centres_) == 3
    scores = supervisor.score(observed(test))
    for index in range(60):
        own = train[which == truth[index]].astype(np.float64)
        wanted = mahalanobis(test[index], own.mean(axis=0), np.linalg.inv(np.cov(own.T)))
        assert scores[index] == pytest.approx(wanted, rel=1e-9)
    np.testing.assert_allclose(MMDSA(squared=True).fit(observed(train)).score(observed(test)), scores**2)


def test_the_nearest_cluster_does_not_depend_on_the_prediction() -> None:
    train, which = modes(300, 0)
    np.testing.assert_array_equal(
        MMDSA().fit(observed(train, which)).score(observed(train, which)),
        MMDSA().fit(observed(train)).score(observed(train)),
    )


def test_unseen_classes_and_constant_traces_score_inf_with_a_warning() -> None:
    train, _ = modes(100, 0)
    with pytest.warns(UserWarning, match=r"1 images belong to a class \(2\).*their mlsa score is inf"):
        scores = MLSA().fit(observed(train)).score(observed(train[:2], np.array([0, 2])))
    assert np.isfinite(scores[0])
    assert scores[1] == np.inf
    constant = observed(np.ones((20, 3), dtype=np.float32))
    for kind, group in ((MLSA, "class"), (MMDSA, "cluster")):
        with pytest.warns(UserWarning, match=f"belong to a {group}"):
            assert (kind().fit(constant).score(constant) == np.inf).all()


def test_a_query_that_is_not_finite_scores_inf() -> None:
    train, _ = modes(100, 0)
    broken = train[:3].copy()
    broken[1, 1], broken[2, 0] = np.nan, np.inf
    for kind in (MLSA, MMDSA):
        scores = kind().fit(observed(train)).score(observed(broken))
        assert np.isfinite(scores[0])
        assert (scores[1:] == np.inf).all()


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(UserError, match="number of components is 0; it must be a whole number of at least 1"):
        MLSA(components=0)
    for kind in (MLSA, MMDSA):
        with pytest.raises(UserError, match=r"traces to learn from \(max_rows\) is 0; .* at least 2"):
            kind(max_rows=0)
    with pytest.raises(UserError, match="chosen from 5 to 2; give a smallest number of at least 1"):
        MMDSA(min_clusters=5, max_clusters=2)


@pytest.mark.parametrize("supervisor", [MLSA(), MMDSA(), MLSA(per_class=False, components=4)], ids=repr)
def test_the_contract_is_kept(supervisor: MLSA | MMDSA) -> None:
    assert "check_batch_size" in check_supervisor(supervisor)
