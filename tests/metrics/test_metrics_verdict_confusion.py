from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, f1_score, precision_score, recall_score

from secondguess.errors import UserError
from secondguess.metrics.verdict_confusion import verdict_confusion


@pytest.fixture
def verdicts() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 2, 200), rng.random(200) < 0.8


def test_rates_are_scikit_learns(verdicts) -> None:
    judged, correct = verdicts
    found = verdict_confusion(judged, correct)
    (tn, fp), (fn, tp) = confusion_matrix(~correct, judged)
    counts = (found.true_positives, found.false_positives, found.false_negatives, found.true_negatives)
    assert counts == (tp, fp, fn, tn)
    assert found.f1 == pytest.approx(f1_score(~correct, judged))
    assert found.tpr == pytest.approx(recall_score(~correct, judged))
    assert found.precision == pytest.approx(precision_score(~correct, judged))
    assert found.fpr == pytest.approx(fp / (fp + tn))


def test_the_estimate_is_off_by_misses_minus_false_alarms(verdicts) -> None:
    judged, correct = verdicts
    found = verdict_confusion(judged, correct)
    error = 1 - correct.mean()
    expected = (1 - found.tpr) * error - found.fpr * (1 - error)
    assert found.estimated_accuracy - correct.mean() == pytest.approx(expected)


def test_undecided_predictions_are_no_positives_but_in_the_denominator() -> None:
    found = verdict_confusion([1, 0, -1, -1, 1, 0], np.array([False, False, False, True, True, True]))
    assert (found.true_positives, found.false_positives, found.false_negatives) == (1, 1, 1)
    assert (found.true_negatives, found.undecided, found.n) == (3, 2, 6)
    assert found.fpr == 0.25 and found.tpr == 0.5
    assert found.to_dict()["f1"] == 0.5


def test_nothing_to_find() -> None:
    found = verdict_confusion([0, 0], np.array([True, True]))
    assert (found.tpr, found.fpr, found.f1, found.precision) == (0, 0, 0, 0)


def test_bad_input() -> None:
    with pytest.raises(UserError, match="one boolean each"):
        verdict_confusion([1, 0], [1, 0])
    with pytest.raises(UserError, match="others were given"):
        verdict_confusion([2, 0], np.array([True, True]))
