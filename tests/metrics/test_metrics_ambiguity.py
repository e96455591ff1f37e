from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.spatial.distance
import scipy.stats
from numpy.typing import NDArray
from sklearn.metrics import top_k_accuracy_score

from secondguess import UserError, metrics
from secondguess.metrics import (
    attainable_accuracy,
    has_pairs,
    jensen_shannon,
    kl_divergence,
    mean_entropy,
    soft_ece,
    soft_ece_interval,
    soft_reliability,
    top_k_accuracy,
    top_k_accuracy_interval,
    top_pair_accuracy,
    top_pair_accuracy_interval,
    total_variation,
)

Floats = NDArray[np.float64]

# Table 3 of Weiss et al. 2023: seven samples, five classes, five matching pairs.
PAPER_LABELS = [
    [0, 0.4, 0, 0.6, 0],
    [0.45, 0, 0.55, 0, 0],
    [0, 0.3, 0, 0.7, 0],
    [0.35, 0, 0, 0.65, 0],
    [0, 0, 0.5, 0, 0.5],
    [0.2, 0, 0, 0.8, 0],
    [0, 0.4, 0, 0, 0.6],
]
PAPER_PREDICTIONS = [
    [0.1, 0.45, 0.05, 0.25, 0.15],
    [0.4, 0.45, 0.1, 0.02, 0.03],
    [0.03, 0.6, 0.2, 0.1, 0.07],
    [0.45, 0.05, 0.1, 0.35, 0.05],
    [0.06, 0.07, 0.3, 0.2, 0.37],
    [0.3, 0.03, 0.02, 0.6, 0.05],
    [0.1, 0.35, 0.06, 0.04, 0.45],
]


def distributions(n: int = 200, classes: int = 5, seed: int = 0, zeros: bool = True) -> Floats:
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(classes, 0.4), size=n)
    if zeros:
        rows[rows < 0.05] = 0
        rows /= rows.sum(axis=1, keepdims=True)
    return rows


def pairs(n: int = 200, classes: int = 5, seed: int = 1) -> Floats:
    """Soft labels of exactly two classes."""
    rng = np.random.default_rng(seed)
    soft = np.zeros((n, classes))
    for row in soft:
        a, b = rng.choice(classes, 2, replace=False)
        row[a] = rng.uniform(0.01, 0.99)
        row[b] = 1 - row[a]
    return soft


def test_top_pair_of_the_papers_example() -> None:
    result = top_pair_accuracy_interval(PAPER_PREDICTIONS, PAPER_LABELS)
    assert top_pair_accuracy(PAPER_PREDICTIONS, PAPER_LABELS) == result.value == 5 / 7
    assert f"{result.value:.3f}" == "0.714"
    assert result.n == 7
    assert result.low < 5 / 7 < result.high


def test_top_pair_by_brute_force() -> None:
    predicted, soft = distributions(zeros=False), pairs()
    matches = 0
    for p, q in zip(predicted.tolist(), soft.tolist(), strict=True):
        best = max(itertools.combinations(range(5), 2), key=lambda pair: p[pair[0]] + p[pair[1]])
        matches += set(best) == {k for k, value in enumerate(q) if value > 0}
    result = top_pair_accuracy_interval(predicted, soft)
    assert result == metrics.wilson(matches, len(soft))
    assert 0 < matches < len(soft)


def test_top_pair_of_labels_with_more_than_two_possible_classes() -> None:
    """Appendix A: two classes strictly above the rest are enough."""
    predicted, soft = distributions(zeros=False), distributions(seed=7, zeros=False)
    assert has_pairs(soft)
    hits = [set(p.argsort()[-2:]) == set(q.argsort()[-2:]) for p, q in zip(predicted, soft, strict=True)]
    assert 0 < sum(hits) < len(hits)
    assert top_pair_accuracy(predicted, soft) == np.mean(hits)


def test_a_little_mass_beyond_the_pair_changes_nothing() -> None:
    """Where exactly two classes are possible, the definition of the authors' code and that of Appendix A agree."""
    predicted, soft = distributions(zeros=False), pairs()
    spread = 0.999 * soft + 0.001 / soft.shape[1]
    assert (np.count_nonzero(soft, axis=1) == 2).all()
    assert (np.count_nonzero(spread, axis=1) == 5).all()
    assert top_pair_accuracy(predicted, soft) == top_pair_accuracy(predicted, spread)


@pytest.mark.parametrize(
    ("soft", "others"),
    [([[0.5, 0.5, 0], [1, 0, 0]], 1), ([[0.5, 0.4, 0.1], [0.4, 0.3, 0.3]], 1), ([[0, 1, 0], [0, 0, 1]], 2)],
)
def test_top_pair_is_not_calculable_without_two_classes_above_the_rest(soft: list[list[float]], others: int) -> None:
    assert not has_pairs(soft)
    with pytest.raises(UserError, match=rf"two classes strictly above the rest; {others} of 2 have not\.$"):
        top_pair_accuracy([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]], soft)


def test_a_certain_label_of_two_classes_is_no_pair() -> None:
    assert not has_pairs([[0.5, 0.5], [1, 0]])


def test_of_two_classes_the_pair_is_always_right() -> None:
    assert has_pairs([[0.5, 0.5], [0.2, 0.8]])
    assert top_pair_accuracy([[0.9, 0.1], [0.5, 0.5]], [[0.5, 0.5], [0.2, 0.8]]) == 1


@pytest.mark.parametrize("k", [1, 2, 3])
def test_top_k_agrees_with_sklearn(k: int) -> None:
    rows = distributions(300, 6, seed=3, zeros=False)
    labels = np.random.default_rng(4).integers(0, 6, 300)
    result = top_k_accuracy_interval(rows, labels, k)
    assert top_k_accuracy(rows, labels, k) == result.value
    assert result.value == pytest.approx(top_k_accuracy_score(labels, rows, k=k))
    assert result == metrics.wilson(round(result.value * 300), 300)


def test_top_1_is_the_accuracy_of_the_first_largest() -> None:
    rows = np.round(distributions(300, 4, seed=5), 1)
    rows /= rows.sum(axis=1, keepdims=True)
    labels = np.random.default_rng(6).integers(-1, 4, 300)
    assert top_k_accuracy_interval(rows, labels, 1) == metrics.accuracy_interval(rows.argmax(axis=1), labels)


def test_of_equal_probabilities_the_lower_class_counts() -> None:
    rows = [[0.4, 0.3, 0.3]] * 3
    assert [top_k_accuracy(rows[:1], [label]) for label in range(3)] == [1, 1, 0]
    assert [top_k_accuracy([[0.25] * 4], [label], 2) for label in range(4)] == [1, 1, 0, 0]
    assert top_k_accuracy([[0.25] * 4], [3], 9) == 1


def test_top_k_leaves_out_unknown_labels() -> None:
    assert top_k_accuracy_interval([[0.7, 0.3], [0.7, 0.3]], [-1, 1], 1).n == 1
    with pytest.raises(UserError, match="None of the 1 labels is known"):
        top_k_accuracy([[0.7, 0.3]], [-1])
    with pytest.raises(UserError, match="k is 0; give a whole number of at least 1"):
        top_k_accuracy([[0.7, 0.3]], [1], 0)


@pytest.mark.parametrize("k", [1, 2])
def test_attainable_accuracy_is_what_an_oracle_reaches(k: int) -> None:
    soft = pairs(4000) if k == 1 else distributions(4000)
    rng = np.random.default_rng(0)
    labels = np.array([rng.choice(5, p=row) for row in soft])
    reached = top_k_accuracy_interval(soft, labels, k, level=0.999)
    assert reached.low <= attainable_accuracy(soft, k) <= reached.high
    assert attainable_accuracy([[0.625, 0.375, 0]]) == 0.625
    assert attainable_accuracy([[0.625, 0.375, 0]], 2) == 1


@pytest.mark.parametrize(
    ("row", "bits"),
    [
        ([0.1, 0.8, 0.08, 0.02], 0.994121),
        ([0.2, 0.09, 0.7, 0.01], 1.203679),
        ([0.1, 0.8, 0.05, 0.05], 1.021928),
        ([0.4, 0.4, 0.1, 0.1], 1.721928),
        ([1, 0, 0, 0], 0),
        ([0.25] * 4, 2),
        ([0.1] * 10, np.log2(10)),
    ],
)
def test_entropy_of_known_rows(row: list[float], bits: float) -> None:
    value = mean_entropy([row])
    assert value == pytest.approx(bits, abs=5e-7)
    assert not np.signbit(value)


def test_entropy_agrees_with_scipy() -> None:
    rows = distributions()
    assert (rows == 0).any()
    assert mean_entropy(rows) == pytest.approx(scipy.stats.entropy(rows, base=2, axis=1).mean())


def test_total_variation_is_the_largest_difference_on_any_set_of_classes() -> None:
    predicted, soft = distributions(20), pairs(20)
    sets = [list(chosen) for size in range(6) for chosen in itertools.combinations(range(5), size)]
    worst = [max(p[chosen].sum() - q[chosen].sum() for chosen in sets) for p, q in zip(predicted, soft, strict=True)]
    assert total_variation(predicted, soft) == pytest.approx(np.mean(worst))


def test_jensen_shannon_is_the_square_of_scipys_distance() -> None:
    predicted, soft = distributions(), pairs()
    distance = scipy.spatial.distance.jensenshannon(predicted, soft, base=2, axis=1)
    assert jensen_shannon(predicted, soft) == pytest.approx((distance**2).mean())
    assert jensen_shannon(predicted, soft) == pytest.approx(jensen_shannon(soft, predicted))


def test_kl_agrees_with_scipy_and_is_cross_entropy_minus_entropy() -> None:
    predicted, soft = distributions(zeros=False), pairs()
    expected = scipy.stats.entropy(soft, predicted, base=2, axis=1).mean()
    assert kl_divergence(predicted, soft) == pytest.approx(expected)
    assert kl_divergence(predicted, soft) == pytest.approx(
        metrics.nll(predicted, soft) / np.log(2) - mean_entropy(soft)
    )


def test_kl_stays_finite_where_the_truth_was_called_impossible() -> None:
    assert kl_divergence([[1.0, 0.0]], [[0.5, 0.5]]) == pytest.approx(0.5 * 1022 - 1)
    assert kl_divergence([[1.0, 0.0]], [[1.0, 0.0]]) == 0


@pytest.mark.parametrize("distance", [total_variation, jensen_shannon, kl_divergence])
def test_distances_are_zero_for_equal_and_positive_for_other_rows(distance) -> None:
    rows = distributions()
    assert distance(rows, rows) == 0
    assert distance(rows, rows[::-1]) > 0
    certain = [[1.0, 0.0]], [[0.0, 1.0]]
    assert distance(*certain) == (pytest.approx(1022) if distance is kl_divergence else 1)


def test_soft_calibration_against_certain_labels_is_the_ordinary_one() -> None:
    rows = distributions(500, seed=8)
    labels = np.random.default_rng(9).integers(0, 5, 500)
    one_hot = np.eye(5)[labels]
    for binning in ("width", "mass"):
        assert soft_ece(rows, one_hot, binning=binning) == metrics.ece(rows, labels, binning=binning)
    ordinary, soft = metrics.reliability(rows, labels), soft_reliability(rows, one_hot)
    np.testing.assert_array_equal(ordinary.accuracy, soft.accuracy)
    interval, other = soft_ece_interval(rows, one_hot, seed=2), metrics.ece_interval(rows, labels, seed=2)
    assert interval == other


def test_soft_calibration_by_hand() -> None:
    rows = [[0.61, 0.39], [0.63, 0.37], [0.1, 0.9]]
    soft = [[0.5, 0.5], [0.4, 0.6], [0.0, 1.0]]
    # two in the bin from .6 to .8: confidence .62, right .45; one alone: .9 against 1
    assert soft_ece(rows, soft, bins=5) == pytest.approx(2 / 3 * 0.17 + 1 / 3 * 0.1)
    assert soft_ece(rows, soft, bins=1) == pytest.approx(abs(np.mean([0.61, 0.63, 0.9]) - np.mean([0.5, 0.4, 1.0])))
    assert soft_ece(rows, rows) == 0


@pytest.mark.parametrize("name", ["mean_entropy", "total_variation", "jensen_shannon", "kl_divergence", "soft_ece"])
def test_intervals_surround_their_value_and_repeat(name: str) -> None:
    arguments = (distributions(),) if name == "mean_entropy" else (distributions(zeros=False), pairs())
    interval = getattr(metrics, f"{name}_interval")
    first = interval(*arguments, resamples=200, seed=7)
    assert first.value == pytest.approx(getattr(metrics, name)(*arguments))
    assert first.low < first.high
    assert first.n == 200
    assert first == interval(*arguments, resamples=200, seed=7)
    assert first != interval(*arguments, resamples=200, seed=8)


def test_the_interval_of_a_mean_has_the_width_of_its_standard_error() -> None:
    rows = distributions(1000)
    entropies = scipy.stats.entropy(rows, base=2, axis=1)
    interval = metrics.mean_entropy_interval(rows, resamples=2000)
    expected = 2 * 1.96 * entropies.std() / np.sqrt(len(entropies))
    assert interval.high - interval.low == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(
    "measure", [total_variation, jensen_shannon, kl_divergence, soft_ece, soft_reliability, top_pair_accuracy]
)
def test_bad_input_is_named(measure) -> None:
    with pytest.raises(UserError, match=r"shape \(1, 2\) but the soft labels \(1, 3\)"):
        measure([[0.5, 0.5]], [[0.5, 0.3, 0.2]])
    with pytest.raises(UserError, match=r"soft labels sums to 0\.7"):
        measure([[0.5, 0.5]], [[0.5, 0.2]])
    with pytest.raises(UserError, match="if these are logits"):
        measure([[3.0, -2.0]], [[0.5, 0.5]])
    with pytest.raises(UserError, match="give one row for each example"):
        measure([0.5, 0.5], [0.5, 0.5])


def test_entropy_refuses_what_is_no_distribution() -> None:
    with pytest.raises(UserError, match="not to 1"):
        mean_entropy([[0.5, 0.2]])
    with pytest.raises(UserError, match="NaN"):
        mean_entropy([[np.nan, 1.0]])
