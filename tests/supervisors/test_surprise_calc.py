from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from secondguess import Classifier, ImageSet, Trace
from secondguess.errors import UserError
from secondguess.supervisors.relative_mahalanobis import RelativeMahalanobis
from secondguess.supervisors.softmax import Entropy
from secondguess.supervisors.surprise.calc import calc, calc_arrays, observation_of
from secondguess.supervisors.surprise.dsa import DSA
from secondguess.supervisors.surprise.lsa import LSA
from secondguess.supervisors.surprise.mdsa import MDSA

RNG = np.random.default_rng(0)
TRAIN, TEST = (RNG.random((n, 1, 6, 6), dtype=np.float32) for n in (200, 20))


@pytest.fixture
def classifier(tmp_path: Path) -> Classifier:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.ReLU(), nn.Linear(5, 3))
    return Classifier(model, device="cpu", cache=tmp_path / "cache")


def test_scores_and_predictions_come_together(classifier: Classifier) -> None:
    supervisor = MDSA(per_class=False)
    scores, predictions = calc(supervisor, classifier, TEST, train=TRAIN)
    seen = classifier.observe(TEST, supervisor.needs)
    np.testing.assert_array_equal(predictions, seen.predictions)
    np.testing.assert_array_equal(
        scores, MDSA(per_class=False).fit(classifier.observe(TRAIN, supervisor.needs)).score(seen)
    )


def test_a_fitted_supervisor_is_used_and_never_changed(classifier: Classifier) -> None:
    supervisor = MDSA(per_class=False)
    first, _ = calc(supervisor, classifier, TEST, train=TRAIN)
    assert not supervisor.is_fitted
    supervisor.fit(classifier.observe(TRAIN, supervisor.needs))
    again, _ = calc(supervisor, classifier, TEST)
    np.testing.assert_array_equal(first, again)
    calc(supervisor, classifier, TEST, train=TRAIN[:100])
    calc_arrays(supervisor, np.eye(5), np.arange(5) % 2, np.eye(5), np.arange(5) % 2)
    np.testing.assert_array_equal(calc(supervisor, classifier, TEST)[0], first)
    with pytest.raises(UserError, match="'mdsa' must see training images first; give train=images"):
        calc(MDSA(), classifier, TEST)


def test_labels_of_the_training_images_are_used(classifier: Classifier) -> None:
    labels = np.arange(200) % 3
    supervisor = RelativeMahalanobis()
    scores, _ = calc(supervisor, classifier, TEST, train=ImageSet.from_arrays(TRAIN, labels))
    seen, queries = (classifier.observe(images, supervisor.needs) for images in (TRAIN, TEST))
    np.testing.assert_array_equal(scores, RelativeMahalanobis().fit(seen, labels).score(queries))
    assert not np.allclose(scores, calc(supervisor, classifier, TEST, train=TRAIN)[0])


def test_what_needs_no_training_needs_none(classifier: Classifier) -> None:
    scores, predictions = calc("entropy", classifier, TEST)
    assert scores.shape == predictions.shape == (20,)


def test_another_layer_or_another_set_is_never_served_from_a_stale_cache(classifier: Classifier) -> None:
    """The older packages key their caches by the name of the data set alone."""
    first, _ = calc(MDSA("1", per_class=False), classifier, TEST, train=TRAIN)
    other_layer, _ = calc(MDSA("2", per_class=False), classifier, TEST, train=TRAIN)
    other_train, _ = calc(MDSA("1", per_class=False), classifier, TEST, train=TRAIN[:100])
    other_test, _ = calc(MDSA("1", per_class=False), classifier, TEST[::-1].copy(), train=TRAIN)
    assert not np.allclose(first, other_layer)
    assert not np.allclose(first, other_train)
    np.testing.assert_allclose(first[::-1], other_test, rtol=1e-5)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_arrays_need_no_model(kind: type) -> None:
    train, test = RNG.normal(size=(100, 4)).astype(kind), RNG.normal(size=(10, 4)).astype(kind)
    classes = np.arange(100) % 2
    scores = calc_arrays(MDSA(), train, classes, test, classes[:10])
    for label in range(2):
        own = train[classes == label].astype(np.float64)
        away = test[classes[:10] == label] - own.mean(axis=0)
        wanted = np.sqrt(np.einsum("ij,jk,ik->i", away, np.linalg.inv(np.cov(own.T)), away))
        np.testing.assert_allclose(scores[classes[:10] == label], wanted, rtol=1e-5)
    np.testing.assert_allclose(calc_arrays(MDSA(squared=True), train, classes, test, classes[:10]), scores**2)


@pytest.mark.parametrize("name", ["dsa", "lsa", "mdsa"])
def test_doubles_far_from_zero_keep_their_digits(name: str) -> None:
    train, test = RNG.normal(size=(200, 4)).round(6), RNG.normal(size=(20, 4)).round(6)
    classes = np.arange(200) % 2
    near = calc_arrays(name, train, classes, test, classes[:20])
    far = calc_arrays(name, train + 1e7, classes, test + 1e7, classes[:20])
    np.testing.assert_allclose(far, near, rtol=1e-5, atol=1e-5)


def test_an_observation_of_predictions_holds_no_matrix_of_probabilities() -> None:
    traces, classes = RNG.normal(size=(300, 3)).astype(np.float32), np.arange(300) % 7
    seen = observation_of(traces, classes, 1000, Trace("fc"))
    assert (len(seen), seen.num_classes) == (300, 1000)
    assert seen.probabilities.strides == (0, 0)
    assert seen.trace("fc") is traces
    some = seen.take(np.array([8, 1, 290]))
    assert some.predictions.tolist() == [1, 1, 3]
    np.testing.assert_array_equal(some.trace("fc"), traces[[8, 1, 290]])
    few = observation_of(traces, classes, 7, Trace("fc"))
    np.testing.assert_array_equal(DSA("fc").fit(seen).score(seen), DSA("fc").fit(few).score(few))
    with pytest.raises(UserError, match="from 0 on and below 6"):
        observation_of(traces, classes, 6)


def test_a_label_above_those_of_training_scores_inf() -> None:
    """dnn-tip returns uninitialised memory for it."""
    train = RNG.normal(size=(50, 3)).astype(np.float32)
    with pytest.warns(UserWarning, match=r"belong to a class \(7\)"):
        scores = calc_arrays(LSA(), train, np.arange(50) % 2, train[:2], np.array([0, 7]))
    assert scores[1] == np.inf
    assert np.isfinite(scores[0])


def test_bad_arrays_are_refused() -> None:
    train, classes = np.ones((4, 2), dtype=np.float32), np.zeros(4, dtype=np.int64)
    with pytest.raises(UserError, match=r"one prediction a row, not \(4, 2\) and \(3,\)"):
        calc_arrays(MDSA(), train, classes[:3], train, classes)
    with pytest.raises(UserError, match="whole numbers from 0 on"):
        calc_arrays(MDSA(), train, classes, train, classes - 1)
    with pytest.raises(UserError, match="'entropy' does not read traces; use calc"):
        calc_arrays(Entropy(), train, classes, train, classes)
    with pytest.raises(UserError, match="'mdsa' needs more than the traces of one layer"):
        calc_arrays(MDSA(["a", "b"]), train, classes, train, classes)
