from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from secondguess.errors import UserError
from secondguess.metrics import accuracy, accuracy_interval, confusion, most_confused, per_class, wilson


@pytest.fixture
def predictions_and_labels():
    rng = np.random.default_rng(0)
    labels = rng.integers(6, size=500)
    predictions = np.where(rng.random(500) < 0.7, labels, rng.integers(6, size=500))
    return predictions, labels


def test_accuracy_equals_sklearn_with_the_wilson_interval(predictions_and_labels):
    predictions, labels = predictions_and_labels
    interval = accuracy_interval(predictions, labels)
    assert accuracy(predictions, labels) == interval.value
    assert interval.value == sklearn_metrics.accuracy_score(labels, predictions)
    assert interval == wilson(int((predictions == labels).sum()), 500)
    assert accuracy_interval(predictions, labels, level=0.5).level == 0.5


def test_unknown_labels_are_left_out(predictions_and_labels):
    predictions, labels = predictions_and_labels
    hidden = labels.copy()
    hidden[::3] = -1
    seen = hidden >= 0
    assert accuracy_interval(predictions, hidden) == accuracy_interval(predictions[seen], labels[seen])
    np.testing.assert_array_equal(confusion(predictions, hidden, 6), confusion(predictions[seen], labels[seen], 6))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
def test_confusion_and_its_rates_equal_sklearn(pairs):
    predictions, labels = np.array(pairs).T
    matrix = confusion(predictions, labels, 4)
    assert matrix.dtype == np.int64
    np.testing.assert_array_equal(matrix, sklearn_metrics.confusion_matrix(labels, predictions, labels=range(4)))
    rates = per_class(matrix)
    precision, recall, _, support = sklearn_metrics.precision_recall_fscore_support(
        labels, predictions, labels=range(4), zero_division=np.nan
    )
    np.testing.assert_allclose(rates.precision, precision)
    np.testing.assert_allclose(rates.recall, recall)
    np.testing.assert_array_equal(rates.support, support)


def test_rates_without_examples_are_nan():
    rates = per_class([[3, 1, 0], [0, 0, 0], [2, 2, 0]])
    np.testing.assert_array_equal(rates.recall, [0.75, np.nan, 0])
    np.testing.assert_array_equal(rates.precision, [0.6, 0, np.nan])
    np.testing.assert_array_equal(rates.support, [4, 0, 4])


def test_most_confused_lists_mistakes_by_frequency_then_class():
    matrix = np.array([[90, 2, 0], [2, 80, 7], [1, 0, 70]])
    assert most_confused(matrix) == [(1, 2, 7), (0, 1, 2), (1, 0, 2), (2, 0, 1)]
    assert most_confused(matrix, top=2) == [(1, 2, 7), (0, 1, 2)]
    assert most_confused(np.diag([5, 6])) == []
    assert matrix[0, 0] == 90


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: accuracy([0, 1], [-1, -1]), "None of the 2 labels is known"),
        (lambda: accuracy(np.array([], int), np.array([], int)), "None of the 0 labels is known"),
        (lambda: accuracy([0, 1], [0]), "There are 2 predictions but 1 labels"),
        (lambda: accuracy([0, 1], [0.0, 1.0]), "The labels have dtype float64 and shape"),
        (lambda: accuracy([[0.2, 0.8]], [1]), r"The predictions have dtype float64 and shape \(1, 2\)"),
        (lambda: accuracy([-1, 1], [0, 1]), "The predictions hold -1; give class numbers from 0 on"),
        (lambda: confusion([0, 3], [0, 1], 3), "The predictions hold class 3, but there are 3 classes"),
        (lambda: confusion([0, 1], [0, 3], 3), "The labels hold class 3, but there are 3 classes"),
        (lambda: confusion([0], [0], 0), "num_classes is 0"),
        (lambda: per_class([[1, 2, 3]]), r"has shape \(1, 3\); give a square matrix"),
        (lambda: per_class([[0.5]]), "does not hold counts"),
        (lambda: most_confused([[-1]]), "does not hold counts"),
        (lambda: most_confused([[1]], top=0), "top is 0"),
    ],
)
def test_bad_input_is_explained(call, message):
    with pytest.raises(UserError, match=message):
        call()
