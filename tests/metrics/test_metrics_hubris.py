from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy.integrate import quad

from secondguess import UserError
from secondguess.metrics import (
    absolute_hubris,
    acd,
    acd_interval,
    compare_hubris,
    confusion_distance,
    hubris,
    hubris_ceiling,
    hubris_scores,
    random_divergence,
    relative_hubris,
    smoothed,
    subset_ambiguity,
    vote_shares,
)

Floats = NDArray[np.float64]

LN2 = math.log(2)
Z = LN2 - 0.5
PROBABILITY = st.floats(0, 1)
INSIDE = st.floats(1e-6, 1 - 1e-6)


def bernoulli_kl(p: float, r: float = 0.5) -> float:
    """The referee: SciPy's relative entropy of two coins, in nats."""
    return float(scipy.stats.entropy([p, 1 - p], [r, 1 - r]))


def published(p: Floats, r: Floats) -> float:
    """The published computation, in its own library and precision."""
    torch = pytest.importorskip("torch")

    def one(values: Floats):
        single = torch.tensor(values, dtype=torch.float32)
        return torch.distributions.Categorical(probs=torch.cat([single, 1 - single]))

    def kl(first, second):
        return torch.distributions.kl_divergence(first, second)

    grid = one(torch.linspace(0, 1, len(p)).numpy())
    return float(1 - torch.exp(-kl(one(p), one(r)) / kl(grid, one(r))))


# Predictions, their ACD, mean divergence and index: closed form, and published with 5,000 images.
ANCHORS = [
    (0.5, 0, 0, 0, 0),
    (0.55, 0.05, None, 0.02560, 0.02558),
    (0.6, 0.1, 0.020136, 0.09900, 0.09895),
    (0.7, 0.2, None, 0.34689, 0.34675),
    (0.75, 0.25, 0.130812, 0.49200, 0.49182),
    (0.8, 0.3, None, 0.63135, 0.63116),
    (0.9, 0.4, 0.368064, 0.851269, 0.85112),
    (0.99, 0.49, None, 0.96307, 0.96301),
    (1.0, 0.5, 0.693147, 0.972366, 0.97231),
]


@pytest.mark.parametrize(("p", "distance", "kl", "closed", "compat"), ANCHORS)
def test_constant_predictions(p: float, distance: float, kl: float | None, closed: float, compat: float) -> None:
    predictions = np.full(5000, p)
    found = hubris(predictions, resamples=2)
    assert acd(predictions) == pytest.approx(distance, abs=1e-9)
    assert found.value.value == pytest.approx(1 - math.exp(-bernoulli_kl(p) / Z), abs=1e-9)
    assert found.value.value == pytest.approx(closed, abs=6e-6)
    assert kl is None or found.mean_kl.value == pytest.approx(kl, abs=6e-7)
    assert absolute_hubris(predictions, compat=True) == pytest.approx(compat, abs=6e-6)
    assert absolute_hubris(predictions, compat=True) == pytest.approx(
        published(predictions, 0 * predictions + 0.5), abs=1e-6
    )


def test_complete_ambiguity_is_exactly_zero() -> None:
    assert absolute_hubris(np.full(7, 0.5)) == 0.0
    assert absolute_hubris(np.full((7, 3), 1 / 3)) == 0.0
    assert absolute_hubris(np.full(7, 0.5), compat=True) == 0.0


@pytest.mark.parametrize(
    ("predictions", "distance", "kl", "index"),
    [
        ([0.1, 0.5, 0.9], 0.8 / 3, 0.245376, 0.719284),
        ([0.5, 1.0], 0.25, 0.346574, 0.833764),
        ([0.4, 0.6], 0.1, 0.020136, 1 - math.exp(-bernoulli_kl(0.6) / Z)),
        ([0.0, 1.0], 0.5, LN2, 0.972366),
    ],
)
def test_mixtures(predictions: list[float], distance: float, kl: float, index: float) -> None:
    assert acd(predictions) == pytest.approx(distance, abs=1e-9)
    assert hubris(predictions, resamples=2).mean_kl.value == pytest.approx(kl, abs=6e-7)
    assert absolute_hubris(predictions) == pytest.approx(index, abs=6e-7)
    assert absolute_hubris(predictions) == pytest.approx(
        1 - math.exp(-np.mean([bernoulli_kl(p) for p in predictions]) / Z), abs=1e-9
    )


@pytest.mark.parametrize(
    ("shape", "distance", "index"), [(5, 0.123, 0.218), (2, 0.1875, 0.434), (0.5, 0.318, 0.795), (0.1, 0.442, 0.945)]
)
def test_beta_distributed_predictions(shape: float, distance: float, index: float) -> None:
    middles = (np.arange(200_000) + 0.5) / 200_000
    predictions = scipy.stats.beta(shape, shape).ppf(middles)
    assert acd(predictions) == pytest.approx(distance, abs=1e-3)
    assert absolute_hubris(predictions) == pytest.approx(index, abs=1e-3)


@pytest.mark.parametrize("n", [2, 3, 10, 128, 5000])
def test_an_even_grid_scores_one_minus_one_over_e(n: int) -> None:
    assert absolute_hubris(np.linspace(0, 1, n), compat=True) == pytest.approx(1 - 1 / math.e, abs=1e-6)
    middles = (np.arange(400_000) + 0.5) / 400_000
    assert absolute_hubris(middles) == pytest.approx(1 - 1 / math.e, abs=1e-9)


def test_the_published_value_depends_on_the_number_of_images_and_ours_does_not() -> None:
    for n, expected in {2: 0.632121, 10: 0.936, 128: 0.970, 5000: 0.9723}.items():
        assert absolute_hubris(np.ones(n), compat=True) == pytest.approx(expected, abs=6e-4)
        assert absolute_hubris(np.ones(n)) == pytest.approx(hubris_ceiling(2), abs=1e-12)


@pytest.mark.parametrize(
    ("n", "normaliser"),
    [
        (2, 0.693147), (3, 0.462098), (5, 0.329584), (11, 0.246614), (101, 0.198223), (128, 0.197134),
        (2048, 0.193392), (5000, 0.193247),
    ],
)  # fmt: skip
def test_the_published_normaliser(n: int, normaliser: float) -> None:
    index = absolute_hubris(np.ones(n), compat=True)
    assert -LN2 / math.log1p(-index) == pytest.approx(normaliser, abs=1e-6)


@pytest.mark.parametrize(
    ("p", "r", "index"),
    [
        (1, 0.6, 0.90855), (1, 0.7, 0.71983), (1, 0.9, 0.13900), (0, 0.9, 0.96203), (0.9, 0.6, 0.65341),
        (0.5, 0.6, 0.09115), (0.5, 0.9, 0.51598), (0.3, 0.3, 0),
    ],
)  # fmt: skip
def test_relative_anchors(p: float, r: float, index: float) -> None:
    random, _ = quad(lambda u: bernoulli_kl(u, r), 0, 1)
    assert relative_hubris(np.full(5, p), r) == pytest.approx(1 - math.exp(-bernoulli_kl(p, r) / random), abs=1e-7)
    assert relative_hubris(np.full(5, p), np.full(5, r)) == pytest.approx(index, abs=6e-6)


@pytest.mark.parametrize(("r", "value"), [(0.5, Z), (0.6, 0.21356), (0.7, 0.28032), (0.9, 0.70397)])
def test_the_relative_normaliser(r: float, value: float) -> None:
    assert random_divergence([r])[0] == pytest.approx(-0.5 - 0.5 * math.log(r * (1 - r)), abs=1e-12)
    assert random_divergence([r])[0] == pytest.approx(value, abs=6e-6)


@pytest.mark.parametrize(
    ("classes", "normaliser", "ceiling"),
    [
        (2, 0.193147, 0.972366), (3, 0.265279, 0.984099), (4, 0.302961, 0.989702), (5, 0.326105, 0.992812),
        (10, 0.373617, 0.997894),
    ],
)  # fmt: skip
def test_many_classes(classes: int, normaliser: float, ceiling: float) -> None:
    uniform = np.full((1, classes), 1 / classes)
    assert random_divergence(uniform)[0] == pytest.approx(normaliser, abs=6e-7)
    assert hubris_ceiling(classes) == pytest.approx(ceiling, abs=6e-7)
    assert absolute_hubris(np.eye(classes)) == pytest.approx(hubris_ceiling(classes), abs=1e-12)


def test_the_normaliser_tends_to_one_minus_eulers_constant() -> None:
    assert random_divergence(np.full((1, 10**6), 1e-6))[0] == pytest.approx(1 - np.euler_gamma, abs=1e-6)


def test_many_classes_against_draws_from_the_simplex() -> None:
    rng = np.random.default_rng(0)
    reference = rng.dirichlet(np.full(4, 3.0), 3)
    draws = rng.dirichlet(np.ones(4), 200_000)
    for row, value in zip(reference, random_divergence(reference), strict=True):
        sampled = scipy.stats.entropy(draws, row, axis=1)
        assert value == pytest.approx(sampled.mean(), abs=4 * sampled.std() / math.sqrt(len(draws)))


def test_references_below_the_float32_clip() -> None:
    predictions, reference = np.full(5000, 0.9), np.full(5000, 1e-6)
    assert relative_hubris(predictions, reference, compat=True) == pytest.approx(0.8618, abs=6e-5)
    assert relative_hubris(predictions, reference) == pytest.approx(0.8489, abs=6e-5)


@pytest.mark.parametrize("seed", range(4))
def test_compat_against_the_published_computation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6000))
    predictions = np.concatenate([rng.beta(0.3, 0.3, n), [0, 1]])
    reference = np.clip(rng.normal(0.5, 0.15, n + 2), 1e-5, 1 - 1e-5)
    for r in (reference, np.sort(reference), np.full(n + 2, 0.5)):
        assert relative_hubris(predictions, r, compat=True) == pytest.approx(published(predictions, r), abs=1e-6)


def test_the_published_value_depends_on_the_order_and_ours_does_not() -> None:
    rng = np.random.default_rng(1)
    reference = np.clip(rng.normal(0.5, 0.15, 5000), 0.01, 0.99)
    predictions = rng.beta(0.6, 0.6, 5000)
    up = np.argsort(reference)
    orders = [up, up[::-1], rng.permutation(5000)]
    ours = [relative_hubris(predictions[order], reference[order]) for order in orders]
    theirs = [relative_hubris(predictions[order], reference[order], compat=True) for order in orders]
    assert ours == pytest.approx([ours[0]] * 3, abs=1e-12)
    assert theirs[0] > theirs[2] + 0.1 and theirs[1] < theirs[2] - 0.1


PAPERS_TABLE = [(0.49, 0.97), (0.41, 0.92), (0.48, 0.97), (0.39, 0.89), (0.48, 0.96), (0.33, 0.80), (0.49, 0.97)]


@pytest.mark.parametrize(("distance", "index"), PAPERS_TABLE)
def test_the_papers_table_lies_within_the_bounds_of_its_acd(distance: float, index: float) -> None:
    def bounds(a: float) -> tuple[float, float]:
        least = absolute_hubris([0.5 + a])
        most = 1 - math.exp(-2 * a * LN2 / Z)
        return least, most

    assert bounds(distance - 0.005)[0] - 0.005 <= index <= bounds(distance + 0.005)[1] + 0.005


@given(hnp.arrays(np.float64, st.integers(1, 30), elements=PROBABILITY))
def test_bounds_given_the_acd(predictions: Floats) -> None:
    a = acd(predictions)
    index = absolute_hubris(predictions)
    assert absolute_hubris([min(0.5 + a, 1)]) - 1e-9 <= index <= 1 - math.exp(-2 * a * LN2 / Z) + 1e-9


@given(st.data())
def test_symmetries(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 20))
    p = data.draw(hnp.arrays(np.float64, n, elements=PROBABILITY))
    r = data.draw(hnp.arrays(np.float64, n, elements=INSIDE))
    order = np.random.default_rng(n).permutation(n)
    value = relative_hubris(p, r)
    assert relative_hubris(1 - p, 1 - r) == pytest.approx(value, abs=1e-9)
    assert relative_hubris(p[order], r[order]) == pytest.approx(value, abs=1e-9)
    assert relative_hubris(np.tile(p, 3), np.tile(r, 3)) == pytest.approx(value, abs=1e-9)
    assert relative_hubris(np.stack([1 - p, p], 1), np.stack([1 - r, r], 1)) == pytest.approx(value, abs=1e-9)
    assert relative_hubris(p[:, None], r) == value
    assert relative_hubris(p, 0.5) == pytest.approx(absolute_hubris(p), abs=1e-12)
    assert relative_hubris(r, r) == 0.0
    assert 0 <= value <= 1


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 8), st.integers(2, 5)), elements=st.floats(-5, 5)))
def test_sharper_logits_never_lower_it(logits: Floats) -> None:
    def softened(temperature: float) -> Floats:
        weights = np.exp((logits - logits.max(axis=1, keepdims=True)) / temperature)
        return weights / weights.sum(axis=1, keepdims=True)

    values = [absolute_hubris(softened(t)) for t in (0.3, 1.0, 3.0, 1e9)]
    assert values == sorted(values, reverse=True) or np.allclose(np.diff(values).clip(min=0), 0, atol=1e-12)
    assert values[-1] == pytest.approx(0, abs=1e-9)


def test_two_sets_together_have_the_weighted_mean_divergence() -> None:
    rng = np.random.default_rng(3)
    first, second = rng.random(30), rng.random(70)
    means = [hubris(part, resamples=2).mean_kl.value for part in (first, second)]
    whole = hubris(np.concatenate([first, second]), resamples=2).mean_kl.value
    assert whole == pytest.approx(0.3 * means[0] + 0.7 * means[1], abs=1e-12)


def test_rescaled_reaches_exactly_one() -> None:
    assert hubris(np.array([0.0, 1, 1]), resamples=2).rescaled.value == 1.0
    assert hubris(np.eye(5), resamples=2).rescaled.value == pytest.approx(1, abs=1e-15)
    reference = np.array([0.2, 0.7, 0.6])
    worst = hubris(np.array([1.0, 0, 0]), reference, resamples=2)
    assert worst.rescaled.value == pytest.approx(1, abs=1e-15)
    assert worst.ceiling == pytest.approx(worst.value.value, abs=1e-15)
    milder = hubris(np.array([0.9, 0, 0]), reference, resamples=2)
    assert (
        milder.rescaled.value == pytest.approx(milder.value.value / worst.ceiling, abs=1e-15)
        and milder.rescaled.value < 1
    )


def test_humility_is_told_from_overconfidence() -> None:
    modest = hubris(np.full(4, 0.5), 0.9, resamples=2)
    assert (modest.over, modest.under) == (0, pytest.approx(bernoulli_kl(0.5, 0.9)))
    proud = hubris(np.full(4, 0.99), 0.9, resamples=2)
    assert (proud.over, proud.under) == (pytest.approx(bernoulli_kl(0.99, 0.9)), 0)
    as_sure_but_wrong = hubris(np.full(4, 0.1), 0.9, resamples=2)
    assert as_sure_but_wrong.under == 0 and as_sure_but_wrong.over > 0
    rng = np.random.default_rng(0)
    p, r = rng.random((50, 3)), rng.random((50, 3)) + 0.1
    mixed = hubris(p / p.sum(1, keepdims=True), r / r.sum(1, keepdims=True), resamples=2)
    assert mixed.over > 0 and mixed.under > 0
    assert mixed.over + mixed.under == pytest.approx(mixed.mean_kl.value, abs=1e-12)


def test_scores_are_the_divergences_with_a_sign() -> None:
    p, r = np.array([0.5, 0.99, 0.3]), np.array([0.9, 0.9, 0.3])
    expected = [-bernoulli_kl(0.5, 0.9), bernoulli_kl(0.99, 0.9), 0]
    assert hubris_scores(p, r) == pytest.approx(expected, abs=1e-12)
    assert hubris(p, r, resamples=2).scores == pytest.approx(expected, abs=1e-12)
    assert hubris_scores(p) == pytest.approx([bernoulli_kl(x) for x in p], abs=1e-12)


def test_intervals_cover_and_repeat() -> None:
    rng = np.random.default_rng(4)
    truth = absolute_hubris((np.arange(100_000) + 0.5) / 100_000)
    hits = 0
    for trial in range(60):
        found = hubris(rng.random(200), resamples=200, seed=trial)
        hits += found.value.low <= truth <= found.value.high
    assert 0.85 <= hits / 60 <= 1
    p = rng.random(50)
    assert hubris(p, seed=3).value == hubris(p, seed=3).value != hubris(p, seed=4).value
    assert acd_interval(p).value == acd(p)
    assert acd_interval(p).low < acd(p) < acd_interval(p).high


def test_two_models_on_the_same_images() -> None:
    rng = np.random.default_rng(5)
    logits = rng.normal(size=400)
    sharp, soft = 1 / (1 + np.exp(-3 * logits)), 1 / (1 + np.exp(-2.7 * logits))
    found = compare_hubris(sharp, soft)
    alone = hubris(sharp).value
    assert found.difference.value == pytest.approx(absolute_hubris(sharp) - absolute_hubris(soft), abs=1e-12)
    assert 0 < found.difference.low < found.difference.high
    assert found.difference.high - found.difference.low < (alone.high - alone.low) / 3, "paired draws are narrower"
    assert found.mean_kl.value == pytest.approx(hubris(sharp).mean_kl.value - hubris(soft).mean_kl.value, abs=1e-12)
    assert found.surer == 1.0
    backwards = compare_hubris(soft, sharp)
    assert backwards.difference.value == pytest.approx(-found.difference.value) and backwards.surer == 0
    assert compare_hubris(sharp, sharp, 0.4).difference.high == 0


def test_votes_become_shares() -> None:
    shares = vote_shares([[3, 0], [1, 1]])
    assert shares == pytest.approx(np.array([[3.5 / 4, 0.5 / 4], [0.5, 0.5]]))
    assert vote_shares([[9, 0, 0]], 1) == pytest.approx(np.array([[10, 1, 1]]) / 12)
    people = vote_shares([[5, 5], [10, 0], [0, 10]])
    assert relative_hubris(people, people) == 0
    assert absolute_hubris(people) > 0.4, "people are sure of clear images, which absolute hubris cannot know"


def test_smoothing_lifts_zeros() -> None:
    assert smoothed([0.0, 1.0], 0.1) == pytest.approx(np.array([[0.95, 0.05], [0.05, 0.95]]))
    assert smoothed(np.eye(4), 0.2).min() == pytest.approx(0.05)
    assert smoothed(np.eye(4)).sum(axis=1) == pytest.approx(np.ones(4))


def test_confusion_distance_of_many_classes_is_a_total_variation() -> None:
    rng = np.random.default_rng(6)
    rows = rng.dirichlet(np.ones(5), 20)
    worst = [max(abs(row[list(s)].sum() - len(s) / 5) for s in subsets(5)) for row in rows]
    assert confusion_distance(rows) == pytest.approx(worst, abs=1e-12)
    assert acd(np.eye(4)) == pytest.approx(0.75)


def subsets(k: int) -> list[tuple[int, ...]]:
    return [tuple(i for i in range(k) if mask >> i & 1) for mask in range(1, 2**k)]


def test_subset_ambiguity_is_balance_plus_mass() -> None:
    rng = np.random.default_rng(7)
    rows = rng.dirichlet(np.ones(6), 40)
    found = subset_ambiguity(rows, [4, 1, 3])
    inside = rows[:, [1, 3, 4]]
    assert found.total == pytest.approx(-math.log(3) - np.log(inside).mean(axis=1), abs=1e-12)
    restricted = inside / inside.sum(axis=1, keepdims=True)
    assert found.balance == pytest.approx(scipy.stats.entropy(np.full(3, 1 / 3), restricted, axis=1), abs=1e-12)
    assert found.mass == pytest.approx(-np.log(inside.sum(axis=1)), abs=1e-12)
    assert found.valid.tolist() == [set(np.argsort(-row)[:3]) == {1, 3, 4} for row in rows]
    exact = subset_ambiguity([[0.5, 0.5, 0]], [0, 1])
    assert exact.total[0] == 0 and exact.valid[0]
    assert np.isfinite(subset_ambiguity([[1.0, 0, 0]], [1, 2]).total).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: absolute_hubris([0.2, np.nan]), "NaN or infinite"),
        (lambda: absolute_hubris([1.2]), "outside"),
        (lambda: absolute_hubris([]), "shape"),
        (lambda: absolute_hubris([[0.2, 0.3]]), "sums to 0.5"),
        (lambda: absolute_hubris(np.eye(3), compat=True), "two classes, not 3"),
        (lambda: relative_hubris([0.2, 0.3], [0.0, 0.5]), "1 of 2 references call a class impossible"),
        (lambda: relative_hubris([0.2, 0.3], [1.0, 0.5], compat=True), "smooth them first"),
        (lambda: relative_hubris([0.2, 0.3], [0.5] * 3), "one reference for each prediction"),
        (lambda: relative_hubris(np.eye(3), 0.5), "one reference for each prediction"),
        (lambda: compare_hubris([0.2], [0.2, 0.3]), "the same images and classes"),
        (lambda: hubris([0.2], resamples=0), "resamples is 0"),
        (lambda: hubris_ceiling(1), "at least 2"),
        (lambda: vote_shares([1, 2]), r"\(n, classes\)"),
        (lambda: vote_shares([[0, 0]]), "without votes"),
        (lambda: vote_shares([[1, 2]], 0), "above 0"),
        (lambda: smoothed([0.5], 1), "between 0 and 1"),
        (lambda: subset_ambiguity(np.eye(3), [0, 0]), "two different numbers from 0 to 2"),
        (lambda: subset_ambiguity(np.eye(3), [0, 3]), "two different numbers from 0 to 2"),
    ],
)  # fmt: skip
def test_mistakes_are_explained(call, words: str) -> None:
    with pytest.raises(UserError, match=words):
        call()
