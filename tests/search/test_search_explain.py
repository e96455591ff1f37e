from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from secondguess import Classifier
from secondguess.errors import MissingExtra, UserError
from secondguess.search.explain import Explanation, explain, explain_pair, figure, prototype, superpixels

QUARTERS = np.kron(np.array([[0, 1], [2, 3]]), np.ones((4, 4), dtype=np.int64)).astype(np.int64)


def striped(seed: int = 0) -> np.ndarray:
    """An image 1x8x8 in which no quarter is flat, so that hiding one changes it."""
    return np.random.default_rng(seed).random((1, 8, 8), dtype=np.float32)


def textured(images: np.ndarray) -> np.ndarray:
    """Two classes; the first is as likely as the upper left quarter is rough, less what the lower right one is."""
    rough = images[:, 0, :4, :4].std(axis=(1, 2)) - 0.5 * images[:, 0, 4:, 4:].std(axis=(1, 2))
    first = 0.5 + rough
    return np.stack([first, 1 - first], axis=1)


@pytest.fixture
def classifier() -> Classifier:
    """A black box: a function from images to probabilities."""
    return Classifier(textured, output_kind="probabilities", batch_size=7)


def test_superpixels_cut_the_image_into_parts() -> None:
    image = np.zeros((3, 24, 24), dtype=np.float32)
    image[0, :, 12:] = 1
    parts = superpixels(image, 16, seed=3)
    assert parts.shape == (24, 24)
    assert set(np.unique(parts)) == set(range(parts.max() + 1))
    assert 8 < parts.max() + 1 <= 16
    assert not set(parts[:, :12].ravel()) & set(parts[:, 12:].ravel())  # no part lies on both sides of the edge
    rows, columns = np.mgrid[:24, :24]
    for part in range(parts.max() + 1):  # each lies in one place
        assert np.ptp(rows[parts == part]) < 16 and np.ptp(columns[parts == part]) < 16
    np.testing.assert_array_equal(parts, superpixels(image, 16, seed=3))


def test_small_images_have_fewer_superpixels() -> None:
    assert superpixels(striped(), 40).max() + 1 <= 5
    assert superpixels(np.zeros((1, 2, 2), np.float32)).tolist() == [[0, 0], [0, 0]]
    with pytest.raises(UserError, match="cut into 0 parts"):
        superpixels(striped(), 0)


def test_what_the_classifier_looks_at_is_found(classifier: Classifier) -> None:
    image = striped()
    found = explain(classifier, image, 0, segments=QUARTERS, samples=400)
    left, _, _, right = found.weights
    spread = [image[0, :4, :4].std(), image[0, 4:, 4:].std()]
    # Additive in what is shown, so the truth is known: the roughness that each quarter brings; the ridge shrinks it.
    assert left == pytest.approx(spread[0], rel=0.1)
    assert right == pytest.approx(-0.5 * spread[1], rel=0.1)
    np.testing.assert_allclose(found.weights[1:3], 0, atol=0.02)
    assert found.probability == pytest.approx(textured(image[None])[0, 0])
    other = explain(classifier, image, 1, segments=QUARTERS, samples=400)
    np.testing.assert_allclose(other.weights, -found.weights, atol=1e-5)


def test_it_is_the_weighted_ridge_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against scikit-learn, on the images that the classifier was really shown."""
    image, asked = striped(2), []

    def answer(images: np.ndarray) -> np.ndarray:
        asked.append(images.copy())
        return textured(images)

    found = explain(Classifier(answer, output_kind="probabilities"), image, 0, segments=QUARTERS, samples=60, seed=5)
    shown = np.concatenate(asked)[-60:]
    z = np.stack([[(one[0] == image[0])[s == QUARTERS].all() for s in range(4)] for one in shown]).astype(float)
    assert 0.3 < z.mean() < 0.7
    hidden = shown[z[:, 0] == 0][0, 0, :4, :4]
    np.testing.assert_allclose(hidden, image[0, :4, :4].mean(), rtol=1e-5)
    distance = 1 - np.sqrt(z.mean(axis=1))
    weights = np.sqrt(np.exp(-(distance**2) / 0.25**2))
    referee = Ridge(alpha=1.0).fit(z, textured(shown)[:, 0], sample_weight=weights)
    np.testing.assert_allclose(found.weights, referee.coef_, atol=1e-5)


def test_same_seed_same_explanation_whatever_the_batch_size() -> None:
    image = striped(1)
    found = [
        explain(Classifier(textured, output_kind="probabilities", batch_size=size), image, samples=50, seed=4).weights
        for size in (1, 7, 256)
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    np.testing.assert_allclose(found[0], found[2], atol=1e-6)
    other = explain(Classifier(textured, output_kind="probabilities"), image, samples=50, seed=5)
    assert other.weights.shape != found[0].shape or not np.allclose(other.weights, found[0])


def test_the_predicted_class_is_explained_unless_told_otherwise(classifier: Classifier) -> None:
    image = striped()
    assert explain(classifier, image, samples=20).target == int(textured(image[None])[0].argmax())
    with pytest.raises(UserError, match=r"Class 5 is to be explained, but the classes are numbered 0\.\.1"):
        explain(classifier, image, 5)
    with pytest.raises(UserError, match="0 samples were asked for"):
        explain(classifier, image, samples=0)


def test_counterexamples_are_explained_on_the_same_parts(classifier: Classifier) -> None:
    image, counterexample = striped(), np.full((1, 8, 8), 0.5, np.float32)
    counterexample[0, 4:, ::2] = 0.9
    first, second = explain_pair(classifier, image, counterexample, samples=30)
    assert second.segments is first.segments
    assert first.target == 0 and second.target == 1
    np.testing.assert_array_equal(second.image, counterexample)


def test_the_overlay_tells_for_from_against() -> None:
    image = np.full((1, 8, 8), 0.5, np.float32)
    one = Explanation(image, QUARTERS, np.array([1.0, 0, 0, -0.5]), 0, 0.9)
    red, green, blue = one.overlay()
    assert (green[:4, :4] > red[:4, :4]).all()  # teal: for
    assert (red[4:, 4:] > blue[4:, 4:]).all()  # orange: against
    np.testing.assert_allclose(red[:4, 4:], 0.5)
    assert one.overlay().dtype == np.float32
    flat = Explanation(image, QUARTERS, np.zeros(4), 0, 0.9)
    np.testing.assert_allclose(flat.overlay(), 0.5)
    colourful = Explanation(np.random.default_rng(0).random((3, 8, 8), np.float32), QUARTERS, np.ones(4), 0, 0.9)
    assert colourful.overlay().shape == (3, 8, 8)


def test_prototype_is_the_one_farthest_from_another_decision() -> None:
    predictions = np.array([0, 1, 0, 1, 0])
    distances = np.array([0.1, 0.9, 0.3, 0.2, np.inf])
    assert prototype(predictions, distances, 0) == 2
    assert prototype(predictions, distances, 1) == 1
    assert prototype(predictions, distances, 2) is None


def test_the_figure_is_an_svg_with_its_titles() -> None:
    one = Explanation(striped(), QUARTERS, np.array([1.0, 0, 0, -0.5]), 0, 0.9)
    drawn = figure([one, one], ["the image", "its counterexample"], "An image and its counterexample")
    assert drawn.startswith("<svg") and 'aria-label="An image and its counterexample"' in drawn
    assert drawn.count("<image") == 4
    assert "the image" in drawn and "its counterexample" in drawn
    with pytest.raises(UserError, match="1 explanations and 0 titles"):
        figure([one], [], "nothing")


def test_without_captum_it_says_what_to_install(classifier: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    with pytest.raises(MissingExtra, match=r"pip install \"secondguess\[explain\]\""):
        explain(classifier, striped())
