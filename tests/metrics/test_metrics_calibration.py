from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import brier_score_loss, log_loss
from torchmetrics.functional.classification import multiclass_calibration_error

from secondguess.errors import UserError
from secondguess.metrics import (
    bootstrap,
    brier,
    brier_interval,
    ece,
    ece_interval,
    mce,
    nll,
    nll_interval,
    reliability,
)


def sample(n, classes=5, sharpness=1.0, seed=0):
    """Probabilities with labels drawn from them, then sharpened: calibrated at 1, overconfident above."""
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.full(classes, 0.5), size=n)
    labels = (rng.random((n, 1)) > truth.cumsum(axis=1)).sum(axis=1).clip(max=classes - 1)
    sharp = truth**sharpness
    return sharp / sharp.sum(axis=1, keepdims=True), labels


def binned_by_hand(confidence, hit, edges):
    """Mean confidence, accuracy and count of each right-closed bin, one example at a time."""
    bins = [[] for _ in edges[1:]]
    for c, h in zip(confidence, hit, strict=True):
        bins[next(b for b, edge in enumerate(edges[1:]) if c <= edge)].append((c, h))
    return [(*np.mean(b, axis=0), len(b)) if b else (math.nan, math.nan, 0) for b in bins]


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("bins", [1, 10, 15])
def test_equal_width_errors_equal_torchmetrics(bins, sharpness):
    probabilities, labels = sample(800, sharpness=sharpness)
    # The referee closes its bins on the left: equal as long as no confidence is on an edge.
    tensors = torch.from_numpy(probabilities), torch.from_numpy(labels)

    def referee(norm):
        return float(multiclass_calibration_error(*tensors, num_classes=5, n_bins=bins, norm=norm))

    assert ece(probabilities, labels, bins=bins) == pytest.approx(referee("l1"), abs=2e-6)
    assert ece(probabilities, labels, bins=bins, norm=2) == pytest.approx(referee("l2"), abs=2e-6)
    assert mce(probabilities, labels, bins=bins) == pytest.approx(referee("max"), abs=2e-6)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=40),
    st.integers(1, 12),
    st.sampled_from(["width", "mass"]),
)
def test_bins_equal_sorting_by_hand_with_ties_and_confidences_on_edges(pairs, bins, binning):
    first = np.array([p for p, _ in pairs]) / 20
    probabilities = np.column_stack([first, 1 - first])
    confidence, prediction = probabilities.max(axis=1), probabilities.argmax(axis=1)
    labels = np.where([hit for _, hit in pairs], prediction, 1 - prediction)
    inner = (
        [b / bins for b in range(1, bins)]
        if binning == "width"
        else [sorted(confidence)[math.ceil(len(pairs) * b / bins) - 1] for b in range(1, bins)]
    )
    diagram = reliability(probabilities, labels, bins=bins, binning=binning)
    by_hand = np.array(binned_by_hand(confidence, prediction == labels, [0, *inner, 1])).T
    np.testing.assert_array_equal(diagram.edges, [0, *inner, 1])
    np.testing.assert_allclose([diagram.confidence, diagram.accuracy, diagram.count], by_hand, atol=1e-12)

    gap, share = np.abs(by_hand[0] - by_hand[1]), by_hand[2] / len(pairs)
    assert diagram.ece == pytest.approx(np.nansum(gap * share), abs=1e-12)
    assert diagram.mce == pytest.approx(np.nanmax(gap), abs=1e-12)
    assert diagram.overconfidence == pytest.approx(np.mean(confidence - (prediction == labels)), abs=1e-12)
    assert abs(diagram.overconfidence) <= diagram.ece + 1e-12
    assert diagram.ece <= ece(probabilities, labels, bins=bins, binning=binning, norm=2) + 1e-12


def test_a_confidence_on_an_edge_belongs_to_the_lower_bin():
    diagram = reliability([[0.6, 0.4], [0.8, 0.2], [1.0, 0.0]], [0, 0, 0], bins=5)
    np.testing.assert_array_equal(diagram.count, [0, 0, 1, 1, 1])


def test_equal_mass_bins_hold_equally_many_and_never_split_ties():
    probabilities, labels = sample(150)
    np.testing.assert_array_equal(reliability(probabilities, labels, binning="mass").count, np.full(15, 10))
    tied = np.repeat([[0.7, 0.3], [0.9, 0.1]], [30, 10], axis=0)
    np.testing.assert_array_equal(reliability(tied, np.zeros(40, int), bins=4, binning="mass").count, [30, 0, 0, 10])


def test_diagram_of_a_known_case():
    probabilities = [[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.4, 0.6]]
    labels = [0, 0, 0, 1, 1]
    diagram = reliability(probabilities, labels, bins=2)
    np.testing.assert_array_equal(diagram.count, [0, 5])
    np.testing.assert_allclose(diagram.confidence, [np.nan, 0.84])
    np.testing.assert_allclose(diagram.accuracy, [np.nan, 0.8])
    assert ece(probabilities, labels, bins=2) == pytest.approx(0.04)
    assert ece(probabilities, labels, bins=10) == pytest.approx(0.8 * 0.15 + 0.2 * 0.4)
    assert mce(probabilities, labels, bins=10) == pytest.approx(0.4)


def test_brier_equals_sklearn_for_two_classes_up_to_its_factor_and_the_definition_for_more():
    probabilities, labels = sample(300, classes=2)
    assert brier(probabilities, labels) == pytest.approx(2 * brier_score_loss(labels, probabilities[:, 1]))
    probabilities, labels = sample(300, classes=7)
    assert brier(probabilities, labels) == pytest.approx(((probabilities - np.eye(7)[labels]) ** 2).sum(1).mean())
    assert brier([[1, 0], [0, 1]], [1, 0]) == 2
    assert brier([[1, 0], [0, 1]], [0, 1]) == 0


def test_nll_equals_sklearn_and_stays_finite():
    probabilities, labels = sample(300, classes=7)
    assert nll(probabilities, labels) == pytest.approx(log_loss(labels, probabilities, labels=range(7)))
    assert nll([[1.0, 0.0]], [1]) == pytest.approx(-math.log(2.2250738585072014e-308))
    assert nll([[1.0, 0.0]], [0]) == 0


def test_soft_labels_generalise_hard_ones():
    probabilities, labels = sample(200)
    hard = np.eye(5)[labels]
    assert brier(probabilities, hard) == pytest.approx(brier(probabilities, labels))
    assert nll(probabilities, hard) == pytest.approx(nll(probabilities, labels))
    soft = np.random.default_rng(1).dirichlet(np.ones(5), size=200)
    entropy = stats.entropy(soft, axis=1) + stats.entropy(soft, probabilities, axis=1)
    assert nll(probabilities, soft) == pytest.approx(entropy.mean())
    assert brier(soft, soft) == 0
    assert nll(soft, soft) < nll(probabilities, soft)


@pytest.mark.parametrize("metric", [ece, mce, brier, nll])
def test_unknown_labels_are_left_out_and_order_does_not_matter(metric):
    probabilities, labels = sample(200)
    hidden = np.where(np.arange(200) % 4 == 0, -1, labels)
    seen = hidden >= 0
    assert metric(probabilities, hidden) == pytest.approx(metric(probabilities[seen], labels[seen]))
    order = np.random.default_rng(0).permutation(200)
    assert metric(probabilities[order], labels[order]) == pytest.approx(metric(probabilities, labels))


def test_overconfidence_has_the_sign_of_the_distortion():
    assert reliability(*sample(2000, sharpness=3)).overconfidence > 0.05
    assert reliability(*sample(2000, sharpness=0.4)).overconfidence < -0.05
    assert abs(reliability(*sample(20000)).overconfidence) < 0.01


def test_ece_of_a_calibrated_model_is_biased_upwards_in_small_samples():
    small = np.mean([ece(*sample(100, seed=i)) for i in range(20)])
    large = np.mean([ece(*sample(10000, seed=i)) for i in range(5)])
    assert small > 5 * large > 0


@pytest.mark.parametrize(("interval", "metric"), [(ece_interval, ece), (brier_interval, brier), (nll_interval, nll)])
def test_intervals_equal_the_paired_bootstrap_of_the_metric(interval, metric):
    probabilities, labels = sample(120)
    fast = interval(probabilities, labels, resamples=40, level=0.8, seed=3)
    plain = bootstrap(metric, (probabilities, labels), resamples=40, level=0.8, seed=3)
    assert fast.to_dict() == pytest.approx(plain.to_dict())
    labels[:20] = -1
    assert interval(probabilities, labels, resamples=5).n == 100


def test_ece_interval_passes_its_options_on():
    probabilities, labels = sample(120)
    fast = ece_interval(probabilities, labels, bins=7, binning="mass", norm=2, resamples=20)
    plain = bootstrap(lambda p, y: ece(p, y, bins=7, binning="mass", norm=2), (probabilities, labels), resamples=20)
    assert fast.to_dict() == pytest.approx(plain.to_dict())


def test_brier_interval_covers_the_truth_about_as_often_as_it_says():
    truth = brier(*sample(200_000, seed=999))
    intervals = [brier_interval(*sample(100, seed=i), resamples=150) for i in range(200)]
    assert 0.88 < np.mean([i.low <= truth <= i.high for i in intervals]) < 0.99


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_probabilities_are_accepted(dtype):
    logits = 3 * torch.randn(500, 20, generator=torch.Generator().manual_seed(0))
    labels = logits.argmax(dim=1).numpy()
    half = logits.to(dtype).softmax(dim=1).double().numpy()
    assert brier(half, labels) == pytest.approx(brier(logits.softmax(dim=1).numpy(), labels), abs=0.01)


def test_probabilities_a_hair_outside_the_range_are_clipped():
    assert nll([[1 + 5e-7, -5e-7]], [0]) == 0


GOOD = [[0.5, 0.5], [0.2, 0.8]]


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        ([0.5, 0.5], [0, 1], r"The probabilities have shape \(2,\); give one row"),
        (np.empty((0, 3)), np.empty(0, int), r"have shape \(0, 3\)"),
        ([[np.nan, 1.0]], [0], "NaN or infinite values"),
        ([[-2.0, 3.0]], [0], r"run from -2 to 3, outside \[0, 1\]; if these are logits, apply softmax first"),
        ([[0.5, 0.4]], [0], "A row of the probabilities sums to 0.9, not to 1"),
        ([["a", "b"]], [0], "are not an array of numbers"),
        (GOOD, [0], "There are 2 probabilities but 1 labels"),
        (GOOD, [0, 2], "The labels hold class 2, but there are 2 classes; give numbers from 0 to 1"),
        (GOOD, [0.0, 1.0], "The labels have dtype float64"),
        (GOOD, [-1, -1], "None of the 2 labels is known"),
    ],
)
@pytest.mark.parametrize("metric", [ece, mce, brier, nll, reliability, ece_interval, brier_interval, nll_interval])
def test_bad_input_is_explained(metric, probabilities, labels, message):
    with pytest.raises(UserError, match=message):
        metric(probabilities, labels)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ece(GOOD, [0, 1], bins=0), "bins is 0; give a whole number of at least 1"),
        (lambda: ece(GOOD, [0, 1], norm=3), "norm is 3; give 1 or 2"),
        (lambda: ece(GOOD, [0, 1], binning="equal"), 'binning is \'equal\'; give "width" or "mass"'),
        (lambda: ece(GOOD, GOOD), r"The labels have dtype float64 and shape \(2, 2\)"),
        (lambda: brier(GOOD, [[1.0, 0.0]]), r"shape \(2, 2\) but the soft labels \(1, 2\)"),
        (lambda: nll(GOOD, [[1.0, 0.0], [0.0, 0.0]]), "A row of the soft labels sums to 0"),
    ],
)
def test_bad_options_and_soft_labels_are_explained(call, message):
    with pytest.raises(UserError, match=message):
        call()
