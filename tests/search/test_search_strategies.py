from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from secondguess.search import Pool, make
from secondguess.search._error_model import ErrorModel, _laplace
from secondguess.search._geometry import Geometry, clusters, elbow
from secondguess.search.adversarial_distance import residuals
from secondguess.search.checks import example_pool


@pytest.fixture(scope="module")
def world():
    return example_pool(200, seed=5)


def one_class(pool: Pool) -> Pool:
    """The pool with its most frequent predicted class only."""
    classes = pool.predictions[pool.eligible]
    return dataclasses.replace(pool, eligible=pool.eligible & (pool.predictions == np.bincount(classes).argmax()))


def searched(search, labels, count):
    """What a search asks for, one image at a time."""
    asked = []
    for _ in range(count):
        index = search.ask(1)
        search.tell(index, labels[index])
        asked.append(int(index[0]))
    return asked


def pairwise(pool: Pool) -> np.ndarray:
    """(n, n) distances, divided by the largest among images that may be asked about."""
    distances = np.linalg.norm(pool.features[:, None] - pool.features, axis=2)
    return distances / distances[np.ix_(pool.rows, pool.rows)].max()


def test_random_is_uniform(world):
    pool, _ = world
    first = np.concatenate([make("random", seed=seed).fit(pool).ask(5) for seed in range(400)])
    counts = np.bincount(first, minlength=len(pool))[pool.rows]
    expected = 2000 / pool.size
    assert np.abs(counts - expected).max() < 5.5 * math.sqrt(expected)


def test_low_confidence_is_in_order(world):
    pool, labels = world
    asked = searched(make("low_confidence").fit(pool), labels, pool.size)
    assert (np.diff(pool.confidence[asked]) >= 0).all()


def test_adversarial_distance_is_the_residual_of_log_mae(world):
    lowess = pytest.importorskip("statsmodels.api").nonparametric.lowess
    pool = one_class(world[0])
    known = pool.rows[~pool.distances.failed[pool.rows]]
    logs = np.log(pool.distances.mae[known])
    assert len(known) >= 40
    span = max(10, int(0.1 * len(known))) / len(known) + 1e-9
    expected = logs - lowess(logs, pool.confidence[known], frac=span, it=3, return_sorted=False)
    assert residuals(pool)[known] == pytest.approx(expected, abs=1e-6)
    order = make("adversarial_distance").fit(pool).ask(len(known))
    assert order.tolist() == known[np.argsort(expected, kind="stable")].tolist()


def test_adversarial_distance_does_not_care_for_the_unit(world):
    pool, _ = world
    larger = dataclasses.replace(pool, distances=dataclasses.replace(pool.distances, mae=255 * pool.distances.mae))
    first, second = (make("adversarial_distance").fit(one).ask(50).tolist() for one in (pool, larger))
    assert first == second


def test_failed_attacks_come_last_and_zero_is_the_smallest(world):
    pool, _ = world
    mae = pool.distances.mae.copy()
    mae[pool.rows[:2]] = 0
    changed = dataclasses.replace(pool, distances=dataclasses.replace(pool.distances, mae=mae))
    order = make("adversarial_distance").fit(changed).ask(pool.size)
    failed = pool.distances.failed[order]
    assert failed.any()
    assert (np.diff(failed.astype(int)) >= 0).all()
    assert np.isfinite(residuals(changed)[pool.rows[:2]]).all()


def test_no_attack_succeeded():
    pool, _ = example_pool(60)
    nothing = dataclasses.replace(
        pool, distances=dataclasses.replace(pool.distances, mae=np.full(60, np.inf), failed=np.ones(60, dtype=bool))
    )
    asked = make("adversarial_distance").fit(nothing).ask(5)
    assert (np.diff(nothing.confidence[asked]) >= 0).all()
    assert make("adversarial_distance").fit(nothing).why(int(asked[0]))["residual"] == "unknown: no attack succeeded"


def test_every_large_class_has_a_curve_of_its_own():
    pool, _ = example_pool(600, seed=1)
    shift = np.where(pool.predictions == 0, 30.0, 1.0)
    moved = dataclasses.replace(pool, distances=dataclasses.replace(pool.distances, mae=shift * pool.distances.mae))
    known = pool.rows[~pool.distances.failed[pool.rows]]
    assert residuals(moved)[known] == pytest.approx(residuals(pool)[known], abs=1e-9)
    pooled = residuals(moved, by_class=False)[known]
    assert np.abs(pooled - residuals(pool, by_class=False)[known]).max() > 1


@pytest.mark.parametrize("variant", ["expected_gain", "bw_published"])
def test_coverage_by_brute_force(world, variant):
    pool, labels = world
    search = make("coverage", variant=variant, sigma=0.05).fit(pool)
    rows, confidence = pool.rows, pool.confidence
    similar = np.exp(-(pairwise(pool) ** 2) / 0.05)
    group = clusters(pool)
    errors = labels != pool.predictions
    found: list[int] = []
    asked: list[int] = []
    for _ in range(15):
        value = {}
        for q in set(rows.tolist()) - set(asked):
            mine = [a for a in asked if group[a] == group[q]]
            phi = (2 * (1 - confidence[q]) + errors[mine].sum()) / (2 + len(mine))
            utility = confidence[rows] @ similar[rows][:, [*found, q]].max(axis=1)
            now = confidence[rows] @ similar[rows][:, found].max(axis=1) if found else 0.0
            value[q] = phi * (utility - now if variant == "expected_gain" else utility)
        index = search.ask(1)
        assert value[int(index[0])] == pytest.approx(max(value.values()), rel=1e-4)
        search.tell(index, labels[index])
        asked.append(int(index[0]))
        found += [int(index[0])] if errors[index[0]] else []


@pytest.mark.parametrize("variant", ["lakkaraju", "published"])
def test_the_bandit_by_brute_force(world, variant):
    pool, labels = world
    search = make("bandit", variant=variant, sigma=0.05).fit(pool)
    arms, errors = clusters(pool), labels != pool.predictions
    similar = np.exp(-(pairwise(pool) ** 2) / 0.05)
    sizes = np.bincount(arms[arms >= 0])
    history: list[tuple[int, float]] = []
    found: list[int] = []
    for t in range(30):
        bounds = np.full(len(sizes), np.inf)
        for arm in {arm for arm, _ in history}:
            pulls = [worth for a, worth in history if a == arm]
            weights = np.array([(sizes[arm] - len(pulls)) / (sizes[arm] - j) for j in range(len(pulls))])
            if weights.sum() > 0:
                mean = weights @ np.array(pulls) / weights.sum()
                bounds[arm] = mean + math.sqrt(2 * math.log(t + 1) / weights.sum())
        index = int(search.ask(1)[0])
        open_arms = [a for a in range(len(sizes)) if sum(h == a for h, _ in history) < sizes[a]]
        assert bounds[arms[index]] == pytest.approx(max(bounds[a] for a in open_arms))
        before = pool.confidence[pool.rows] @ similar[pool.rows][:, found].max(axis=1) if found else 0.0
        search.tell([index], labels[[index]])
        found += [index] if errors[index] else []
        after = pool.confidence[pool.rows] @ similar[pool.rows][:, found].max(axis=1) if found else 0.0
        history.append(
            (int(arms[index]), float(errors[index]) if variant == "lakkaraju" else float(after - before > 0.01))
        )


def test_facility_by_brute_force(world):
    from sklearn.linear_model import LogisticRegression

    pool, labels = world
    search = make("facility", alpha=0.3).fit(pool)
    rows, confidence = pool.rows, pool.confidence
    distance, errors = pairwise(pool), labels != pool.predictions
    columns = np.column_stack([pool.features, confidence])
    columns = (columns - columns[rows].mean(axis=0)) / columns[rows].std(axis=0)

    def utility(found):
        near = np.minimum(distance[rows][:, found].min(axis=1), 1) if found else np.ones(len(rows))
        return 0.3 * -np.log(1 - confidence[found]).sum() - 0.7 * near.mean()

    asked: list[int] = []
    for _ in range(16):
        found = [a for a in asked if errors[a]]
        left = [q for q in rows.tolist() if q not in asked]
        phi = 1 - confidence[left]
        if len(asked) > 5 and 0 < len(found) < len(asked):
            model = LogisticRegression(C=100, max_iter=1000).fit(columns[asked], errors[asked])
            phi = model.predict_proba(columns[left])[:, 1]
        expected = [p * utility([*found, q]) + (1 - p) * utility(found) for p, q in zip(phi, left, strict=True)]
        index = search.ask(1)
        assert expected[left.index(int(index[0]))] == pytest.approx(max(expected), abs=1e-6)
        search.tell(index, labels[index])
        asked.append(int(index[0]))


def test_a_large_pool_is_measured_on_witnesses(world, monkeypatch):
    from secondguess.search import _geometry

    pool, _ = world
    exact = Geometry(pool, 0.05)
    full = exact.total("similarity", lambda tile: tile.mean(axis=1))
    monkeypatch.setattr(_geometry, "KEPT", 10)
    monkeypatch.setattr(_geometry, "TILE", 7)
    assert Geometry(pool, 0.05).total("similarity", lambda tile: tile.mean(axis=1)) == pytest.approx(full, rel=1e-5)
    monkeypatch.setattr(_geometry, "WITNESSES", 60)
    few = Geometry(pool, 0.05)
    assert len(few.witnesses) == 60
    assert np.corrcoef(few.total("similarity", lambda tile: tile.mean(axis=1)), full)[0, 1] > 0.9


def test_the_elbow_finds_the_clusters_there_are():
    rng = np.random.default_rng(0)
    for k in (2, 3, 4, 5):
        centres = 100 * np.stack([np.cos(np.arange(k) * 2.4), np.sin(np.arange(k) * 2.4), np.arange(k) % 2], axis=1)
        truth = np.repeat(np.arange(k), 40)
        found = elbow(centres[truth] + rng.normal(size=(40 * k, 3)))
        assert len(np.unique(found)) == k
        assert len({(a, b) for a, b in zip(truth, found, strict=True)}) == k


def test_the_published_elbow_knows_three_and_four_only():
    rng = np.random.default_rng(1)
    counts = {len(np.unique(elbow(rng.normal(size=(60, 2)) * rng.uniform(1, 9, 2), "published"))) for _ in range(12)}
    assert counts <= {3, 4}


def test_clusters_divide_confidence_first(world):
    pool, _ = world
    found = clusters(pool)
    assert (found[~pool.eligible] == -1).all()
    assert set(found[pool.eligible]) == set(range(found.max() + 1))
    assert 4 <= found.max() + 1 <= 25


def test_the_error_model_is_the_classifier_of_scikit_learn():
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    rng = np.random.default_rng(2)
    places, told = rng.normal(size=(80, 3)), np.arange(30)
    errors = places[:30, 0] + 0.5 * rng.normal(size=30) > 0
    flat, one = np.zeros((1, 80)), np.ones(1)
    model = ErrorModel(flat, one, np.zeros((80, 1)), places, np.zeros(80, dtype=np.int64), 1.5, 0.8, 0.0)
    believed = model.posterior(told, errors)
    kernel = ConstantKernel(1.5**2) * RBF(0.8)
    referee = GaussianProcessClassifier(kernel, optimizer=None).fit(places[:30], errors)
    mean, variance = referee.base_estimator_.latent_mean_and_variance(places)
    assert believed.mean[0] == pytest.approx(mean, abs=1e-5)
    assert believed.variance[0] == pytest.approx(variance, abs=1e-5)
    assert believed.chance() == pytest.approx(referee.predict_proba(places)[:, 1], abs=0.02)
    assert (believed.chance(1.0) > believed.chance()).all()


def test_the_error_model_with_columns_is_penalised_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(3)
    columns, told = rng.normal(size=(60, 2)), np.arange(40)
    errors = columns[:40, 0] - columns[:40, 1] + rng.normal(size=40) > 0
    model = ErrorModel(np.zeros((1, 60)), np.ones(1), columns, np.zeros((60, 1)), np.arange(60), 0.0, 1.0, 0.0)
    referee = LogisticRegression(C=1, fit_intercept=False, tol=1e-10).fit(columns[:40], errors)
    assert model.posterior(told, errors).mean[0] == pytest.approx(referee.decision_function(columns), abs=1e-4)


def test_prior_means_are_weighed_by_their_evidence():
    """Against the marginal likelihood of scikit-learn, for means of 0 and for a mean that is plainly wrong."""
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    rng = np.random.default_rng(6)
    places, told = rng.normal(size=(40, 2)), np.arange(25)
    errors = places[:25, 0] > 0

    def evidence(length):
        kernel = ConstantKernel(4.0) * RBF(length)
        return GaussianProcessClassifier(kernel, optimizer=None).fit(places[:25], errors).log_marginal_likelihood()

    for length in (0.5, 2.0):
        kernel = 4 * np.exp(-((places[:25, None] - places[:25]) ** 2).sum(axis=2) / (2 * length**2))
        assert _laplace(kernel, errors.astype(float), np.zeros(25)).evidence == pytest.approx(
            evidence(length), abs=1e-6
        )
    means = np.stack([np.zeros(40), -4 * np.sign(places[:, 0])])
    model = ErrorModel(means, np.array([0.5, 0.5]), np.zeros((40, 1)), places, np.arange(40), 1.0, 0.7, 0.0)
    assert model.posterior(told, errors).weights[1] < 1e-6


def test_before_any_answer_adaptive_search_follows_the_residual(world):
    pool, _ = world
    search = make("adaptive").fit(pool)
    phi, announced = search.chances()
    at = np.argsort(np.argsort(pool.rows))
    residual = residuals(pool)[pool.rows]
    confidence = pool.confidence[pool.rows]
    close = np.abs(confidence[:, None] - confidence) < 0.01
    sooner = (residual[:, None] < residual - 0.5) & close & np.isfinite(residual[:, None] + residual)
    assert (phi[at][:, None] > phi[at])[sooner].mean() > 0.97
    assert announced.mean() == pytest.approx(phi.mean(), rel=0.1)


def test_adaptive_search_learns_where_the_errors_are():
    """Errors in one corner that neither confidence nor distance tells of: the others find them at the pool's rate."""
    found = {"adaptive": 0, "random": 0, "adversarial_distance": 0}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        pool, _ = example_pool(900, seed=seed)
        errors = rng.random(900) < np.where(pool.features[:, 0] > 0.8, 0.8, 0.03)
        silent = dataclasses.replace(pool.distances, mae=np.exp(rng.normal(size=900)) / 50)
        pool = dataclasses.replace(pool, distances=silent, scores={})
        labels = np.where(errors, (pool.predictions + 1) % 3, pool.predictions)
        for name in found:
            found[name] += int(errors[searched(make(name, seed=seed).fit(pool), labels, 50)].sum())
    assert found["adaptive"] > 1.8 * max(found["random"], found["adversarial_distance"])


def test_adaptive_search_gives_up_a_residual_that_misleads():
    """Where errors give way last, the primed order finds none; the answers lead back to at least the pool's rate."""
    later, primed, rate = [], [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        pool, _ = example_pool(900, seed=seed)
        errors = rng.random(900) < 0.25
        misleading = np.exp(np.where(errors, 0.5, -0.5) + 0.5 * rng.normal(size=900)) / 50
        pool = dataclasses.replace(pool, distances=dataclasses.replace(pool.distances, mae=misleading), scores={})
        labels = np.where(errors, (pool.predictions + 1) % 3, pool.predictions)
        later.append(errors[searched(make("adaptive").fit(pool), labels, 100)][50:].mean())
        primed.append(errors[searched(make("adversarial_distance").fit(pool), labels, 100)][50:].mean())
        rate.append(errors[pool.rows].mean())
    assert np.mean(primed) < 0.5 * np.mean(rate)
    assert np.mean(later) > np.mean(rate)


def test_adaptive_search_uses_the_scores_of_supervisors():
    rng = np.random.default_rng(5)
    pool, _ = example_pool(900, seed=6)
    errors = rng.random(900) < 0.2
    silent = dataclasses.replace(pool.distances, mae=np.exp(rng.normal(size=900)) / 50)
    telling = {"telling": errors + 0.3 * rng.normal(size=900)}
    labels = np.where(errors, (pool.predictions + 1) % 3, pool.predictions)
    found = [
        errors[searched(make("adaptive").fit(dataclasses.replace(pool, distances=silent, scores=s)), labels, 50)].sum()
        for s in ({}, telling)
    ]
    assert found[1] > 1.5 * found[0]
