from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import mahalanobis

from secondguess import Observation, Trace, UserError, check_supervisor
from secondguess.supervisors.relative_mahalanobis import RelativeMahalanobis
from secondguess.supervisors.surprise import _whitening

Traces = NDArray[np.float32]
Labels = NDArray[np.int64]
CLASSES = 3


@pytest.fixture
def labels() -> Labels:
    return np.random.default_rng(1).integers(0, CLASSES, 400)


@pytest.fixture
def traces(labels: Labels) -> Traces:
    rng = np.random.default_rng(0)
    mixing = rng.normal(0, 1, (5, 5))
    return (rng.normal(0, 3, (CLASSES, 5))[labels] + rng.normal(0, 1, (400, 5)) @ mixing + 20).astype(np.float32)


@pytest.fixture
def queries() -> Traces:
    return np.random.default_rng(2).normal(20, 6, (60, 5)).astype(np.float32)


def seen(traces: Traces, predictions: Labels | None = None) -> Observation:
    chosen = np.zeros(len(traces), dtype=np.int64) if predictions is None else predictions
    return Observation(np.eye(CLASSES)[chosen], traces={Trace(): traces})


def referee(queries: Traces, traces: Traces, labels: Labels) -> list[float]:
    """Term by term, with SciPy's distance."""
    x = traces.astype(np.float64)
    classes = np.unique(labels)
    means = {k: x[labels == k].mean(axis=0) for k in classes}
    centred = np.stack([row - means[k] for row, k in zip(x, labels, strict=True)])
    within, total = np.linalg.inv(centred.T @ centred / len(x)), np.linalg.inv(np.cov(x.T, bias=True))
    return [
        min(mahalanobis(q, means[k], within) ** 2 for k in classes) - mahalanobis(q, x.mean(axis=0), total) ** 2
        for q in queries.astype(np.float64)
    ]


def test_it_is_the_difference_of_two_scipy_distances(traces: Traces, labels: Labels, queries: Traces) -> None:
    by_label = RelativeMahalanobis().fit(seen(traces), labels)
    np.testing.assert_allclose(by_label.score(seen(queries)), referee(queries, traces, labels), rtol=1e-7)
    by_prediction = RelativeMahalanobis().fit(seen(traces, labels))
    np.testing.assert_allclose(by_prediction.score(seen(queries)), by_label.score(seen(queries)), rtol=1e-9)


def exactly(queries: Traces, traces: Traces, labels: Labels) -> list[float]:
    """The definition in fractions: nothing is rounded before the last line."""

    def exact(rows: Traces) -> list[list[Fraction]]:
        return [[Fraction(float(value)) for value in row] for row in rows]

    def mean(rows: list[list[Fraction]]) -> list[Fraction]:
        return [sum(column, Fraction(0)) / len(rows) for column in zip(*rows, strict=True)]

    def less(row: list[Fraction], other: list[Fraction]) -> list[Fraction]:
        return [a - b for a, b in zip(row, other, strict=True)]

    def covariance(rows: list[list[Fraction]]) -> list[list[Fraction]]:
        columns = list(zip(*rows, strict=True))
        return [
            [sum((p * q for p, q in zip(a, b, strict=True)), Fraction(0)) / len(rows) for b in columns] for a in columns
        ]

    def square(row: list[Fraction], matrix: list[list[Fraction]]) -> Fraction:
        """row' matrix^-1 row, by elimination."""
        system = [[*line, value] for line, value in zip(matrix, row, strict=True)]
        for pivot, line in enumerate(system):
            for other in system[pivot + 1 :]:
                factor = other[pivot] / line[pivot]
                other[:] = [b - factor * a for a, b in zip(line, other, strict=True)]
        total = Fraction(0)
        for pivot, line in enumerate(system):  # L D L': the pivots are D, and the last column L^-1 row
            total += line[-1] ** 2 / line[pivot]
        return total

    every, asked = exact(traces), exact(queries)
    middle = mean(every)
    means = {
        k: mean([row for row, label in zip(every, labels, strict=True) if label == k]) for k in set(labels.tolist())
    }
    within = covariance([less(row, means[k]) for row, k in zip(every, labels.tolist(), strict=True)])
    total = covariance([less(row, middle) for row in every])
    return [
        float(min(square(less(q, m), within) for m in means.values()) - square(less(q, middle), total)) for q in asked
    ]


@pytest.mark.parametrize("tightness", [1.0, 1e-2, 1e-3, 1e-4, 3e-5])
@pytest.mark.parametrize("offset", [0.0, 5.0])
def test_tight_classes_keep_their_digits(tightness: float, offset: float) -> None:
    """At 3e-5, float32 leaves the differences within a class three digits; those are told apart as they are given."""
    rng = np.random.default_rng(3)
    labels = np.arange(90) % CLASSES
    centres = rng.normal(offset, 1, (CLASSES, 4))

    def around(classes: Labels, spread: float) -> Traces:
        return (centres[classes] + spread * rng.normal(0, 1, (len(classes), 4))).astype(np.float32)

    traces = around(labels, tightness)
    queries = np.concatenate([around(labels[:9], tightness), around(labels[:6], 3 * tightness), around(labels[:3], 1)])
    measured = RelativeMahalanobis().fit(seen(traces), labels).score(seen(queries))
    np.testing.assert_allclose(measured, exactly(queries, traces, labels), rtol=1e-8, atol=1e-9)


def test_far_away_the_difference_of_two_huge_distances_is_exact(traces: Traces, labels: Labels) -> None:
    few, of_few = traces[:60, :3], labels[:60]
    far = np.random.default_rng(4).normal(0, 1e6, (5, 3)).astype(np.float32)
    measured = RelativeMahalanobis().fit(seen(few), of_few).score(seen(far))
    np.testing.assert_allclose(measured, exactly(far, few, of_few), rtol=1e-9)


def test_small_blocks_change_nothing(
    traces: Traces, labels: Labels, queries: Traces, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = RelativeMahalanobis().fit(seen(traces), labels).score(seen(queries))
    monkeypatch.setattr(_whitening, "BLOCK", 37)
    np.testing.assert_allclose(
        RelativeMahalanobis().fit(seen(traces), labels).score(seen(queries)), expected, rtol=1e-9
    )


def test_unknown_labels_are_left_out(traces: Traces, labels: Labels, queries: Traces) -> None:
    some = labels.copy()
    some[::3] = -1
    measured = RelativeMahalanobis().fit(seen(traces), some).score(seen(queries))
    np.testing.assert_allclose(measured, referee(queries, traces[some >= 0], some[some >= 0]), rtol=1e-7)


def test_labels_that_are_all_unknown_make_way_for_predictions(traces: Traces, labels: Labels, queries: Traces) -> None:
    measured = RelativeMahalanobis().fit(seen(traces, labels), np.full(400, -1)).score(seen(queries))
    np.testing.assert_allclose(measured, referee(queries, traces, labels), rtol=1e-7)


def test_a_class_without_images_plays_no_part(traces: Traces, labels: Labels, queries: Traces) -> None:
    two = np.where(labels == 1, 2, labels)
    measured = RelativeMahalanobis().fit(seen(traces), two).score(seen(queries))
    np.testing.assert_allclose(measured, referee(queries, traces, two), rtol=1e-7)


def test_one_class_only_is_never_suspicious(traces: Traces, queries: Traces) -> None:
    measured = RelativeMahalanobis().fit(seen(traces)).score(seen(queries))
    np.testing.assert_allclose(measured, 0, atol=1e-8)


def test_an_invertible_linear_map_of_the_traces_changes_nothing(
    traces: Traces, labels: Labels, queries: Traces
) -> None:
    turn = np.random.default_rng(5).normal(0, 1, (5, 5))
    expected = RelativeMahalanobis().fit(seen(traces), labels).score(seen(queries))
    mapped = RelativeMahalanobis().fit(seen((traces @ turn).astype(np.float32)), labels)
    np.testing.assert_allclose(mapped.score(seen((queries @ turn).astype(np.float32))), expected, rtol=1e-3, atol=1e-3)


def test_dead_and_duplicated_neurons_change_nothing(traces: Traces, labels: Labels, queries: Traces) -> None:
    def widened(rows: Traces) -> Traces:
        return np.concatenate([rows, np.full((len(rows), 2), 7, np.float32), rows[:, :3]], axis=1)

    expected = RelativeMahalanobis().fit(seen(traces), labels).score(seen(queries))
    measured = RelativeMahalanobis().fit(seen(widened(traces)), labels)
    np.testing.assert_allclose(measured.score(seen(widened(queries))), expected, rtol=1e-6, atol=1e-6)


def test_a_direction_that_only_parts_the_classes_cannot_lower_the_score(
    traces: Traces, labels: Labels, queries: Traces
) -> None:
    """Collapsed in training: constant within a class. Far along it is not a reason for trust."""
    collapsed = np.concatenate([traces, labels[:, None].astype(np.float32)], axis=1)
    far = np.concatenate([queries, np.full((len(queries), 1), 1e4, np.float32)], axis=1)
    plain = RelativeMahalanobis().fit(seen(traces), labels).score(seen(queries))
    np.testing.assert_allclose(
        RelativeMahalanobis().fit(seen(collapsed), labels).score(seen(far)), plain, rtol=1e-6, atol=1e-6
    )


def test_traces_without_any_spread_give_zero_and_a_warning(queries: Traces) -> None:
    with pytest.warns(UserWarning, match="do not vary within the classes, so .* is 0 for every image"):
        supervisor = RelativeMahalanobis().fit(seen(np.ones((10, 5), np.float32)))
    assert supervisor.score(seen(queries)).tolist() == [0] * len(queries)


def test_classes_that_differ_by_float32_rounding_do_not_vary(labels: Labels, queries: Traces) -> None:
    """Constant within a class but for the last digit."""
    constant = np.random.default_rng(0).normal(20, 3, (CLASSES, 5)).astype(np.float32)[labels]
    constant[::2] = np.nextafter(constant[::2], np.float32(np.inf))
    with pytest.warns(UserWarning, match="do not vary within the classes"):
        supervisor = RelativeMahalanobis().fit(seen(constant), labels)
    assert supervisor.score(seen(queries)).tolist() == [0] * len(queries)


def test_a_label_beyond_the_classes_is_refused(traces: Traces, labels: Labels) -> None:
    with pytest.raises(UserError, match="A label is 5, but the model has 3 classes; labels go from 0 to 2"):
        RelativeMahalanobis().fit(seen(traces), labels + 3)


def test_the_contract_is_kept() -> None:
    assert "check_save_and_load" in check_supervisor(RelativeMahalanobis)
    check_supervisor(RelativeMahalanobis(layers=["a", "b"]))
