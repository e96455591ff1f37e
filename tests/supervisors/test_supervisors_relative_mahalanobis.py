from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import mahalanobis

from secondguess import Observation, Trace, UserError, check_supervisor
from secondguess.supervisors import _moments
from secondguess.supervisors._moments import mean_and_covariance, varying
from secondguess.supervisors.relative_mahalanobis import RelativeMahalanobis

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


def test_small_blocks_change_nothing(
    traces: Traces, labels: Labels, queries: Traces, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = RelativeMahalanobis().fit(seen(traces), labels).score(seen(queries))
    monkeypatch.setattr(_moments, "_BLOCK_CELLS", 37)
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


def test_a_label_beyond_the_classes_is_refused(traces: Traces, labels: Labels) -> None:
    with pytest.raises(UserError, match="A label is 5, but the model has 3 classes; labels go from 0 to 2"):
        RelativeMahalanobis().fit(seen(traces), labels + 3)


def test_the_contract_is_kept() -> None:
    assert "check_save_and_load" in check_supervisor(RelativeMahalanobis)
    check_supervisor(RelativeMahalanobis(layers=["a", "b"]))


def test_moments_agree_with_numpy_whatever_the_block(traces: Traces, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_moments, "_BLOCK_CELLS", 23)
    other = traces[:, :2] ** 2
    mean, covariance = mean_and_covariance(traces + np.float32(1000), other)
    joint = np.concatenate([traces + np.float32(1000), other], axis=1).astype(np.float64)
    np.testing.assert_allclose(mean, joint.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(covariance, np.cov(joint.T, bias=True), rtol=1e-9, atol=1e-9)


def test_only_directions_beyond_rounding_vary() -> None:
    turn = np.linalg.qr(np.random.default_rng(0).normal(0, 1, (4, 4)))[0]
    covariance = turn @ np.diag([4.0, 1e-3, 1e-12, 0]) @ turn.T
    variances, directions = varying(covariance)
    np.testing.assert_allclose(variances, [4, 1e-3], rtol=1e-9)
    np.testing.assert_allclose(abs(directions.T @ turn[:, :2]), np.eye(2), atol=1e-6)
    assert len(varying(covariance, scale=1e9)[0]) == 1
    assert len(varying(np.zeros((3, 3)))[0]) == 0
