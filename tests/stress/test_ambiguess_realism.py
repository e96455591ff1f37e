from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageFilter
from scipy.ndimage import gaussian_filter
from sklearn.neighbors import NearestNeighbors

from secondguess.images import ImageSet, load
from secondguess.stress.ambiguous import realism
from secondguess.stress.ambiguous.realism import Realism, sharpness


@pytest.fixture(scope="module")
def train() -> ImageSet:
    return load("digits").train


@pytest.fixture(scope="module")
def check(train: ImageSet) -> Realism:
    return Realism(train, seed=0)


def unit(images: np.ndarray) -> np.ndarray:
    flat = images.reshape(len(images), -1)
    return flat / np.linalg.norm(flat, axis=1, keepdims=True)


def test_distances_are_those_of_a_brute_force_search(train, check):
    test = load("digits").test.images[:60]
    for label in (0, 7):
        reference = check._reference[label]
        search = NearestNeighbors(n_neighbors=3, algorithm="brute").fit(reference)
        distances, _ = search.kneighbors(check._pca.transform(unit(test)))
        np.testing.assert_allclose(
            check.distance(test, label) * check.thresholds[label], distances.mean(axis=1), rtol=1e-3, atol=1e-4
        )


def test_distances_do_not_depend_on_the_block(check, monkeypatch):
    test = load("digits").test.images[:50]
    expected = check.distance(test, 3)
    monkeypatch.setattr(realism, "BLOCK", 7)
    np.testing.assert_allclose(check.distance(test, 3), expected, rtol=1e-5)


def test_contrast_does_not_count(check):
    test = load("digits").test.images[:20]
    np.testing.assert_allclose(check.distance(0.3 * test, 3), check.distance(test, 3), rtol=1e-3)


def test_about_ninety_five_of_a_hundred_other_real_images_pass_for_their_own_class(check):
    test = load("digits").test
    shares = [(check.distance(test.images[test.labels == k], k) <= 1).mean() for k in range(10)]
    assert 0.88 <= np.mean(shares) <= 1
    assert set(check.thresholds) == set(range(10))


@pytest.mark.parametrize("quantile", [0.5, 0.95])
def test_the_threshold_is_that_quantile_of_held_out_images(train, quantile):
    check = Realism(train, quantile=quantile, seed=1)
    rows = np.random.default_rng(1).permutation(np.flatnonzero(train.labels == 0))  # class 0 is split first
    held_out = train.images[rows[: len(rows) // 5]]
    assert (check.distance(held_out, 0) <= 1 + 1e-6).mean() == pytest.approx(quantile, abs=0.04)
    reference = {one.tobytes() for one in check._reference[0]}
    assert not reference & {one.tobytes() for one in check._pca.transform(unit(held_out))}


def two_bars(count: int = 200, seed: int = 0) -> ImageSet:
    """Class 0: a bar that stands upright, give or take 9 degrees; class 1: one that leans by 28, give or take 9."""
    rng = np.random.default_rng(seed)
    angles = np.concatenate([rng.normal(0, 9, count), rng.normal(28, 9, count)])
    images = np.stack([bar(angle) for angle in angles])
    return ImageSet.from_arrays(images, np.repeat([0, 1], count), layout="NCHW")


def bar(angle: float) -> np.ndarray:
    canvas = Image.new("L", (16, 16))
    canvas.paste(255, (7, 1, 9, 15))
    turned = canvas.rotate(angle, Image.Resampling.BICUBIC).filter(ImageFilter.GaussianBlur(1))
    return np.asarray(turned, dtype=np.float32)[None] / 255


def test_what_lies_between_two_classes_is_plausible_and_what_is_one_of_them_is_not():
    check = Realism(two_bars())
    between = np.stack([bar(angle) for angle in (13, 13.5, 14)])
    plain = np.stack([bar(angle) for angle in (-8, 0, 4, 30, 40)])
    neither = np.stack([bar(angle) for angle in (80, 95)])
    assert check.plausible(between, (0, 1)).all()
    assert not check.plausible(plain, (0, 1)).any()
    assert not check.plausible(neither, (0, 1)).any()


def test_a_plausible_image_is_close_to_both_and_plainly_neither(check, train):
    some = train.images[:300]
    three, eight = check.distance(some, 3), check.distance(some, 8)
    low, high = check.bounds((3, 8))
    expected = (three <= 1) & (eight <= 1) & (np.log(three / eight) >= low) & (np.log(three / eight) <= high)
    np.testing.assert_array_equal(check.plausible(some, (3, 8)), expected)
    np.testing.assert_array_equal(check.plausible(some, (8, 3)), expected)


def test_nine_of_ten_held_out_images_of_a_class_are_plainly_this_class(train):
    check = Realism(train, plain=0.9, seed=0)
    low, high = check.bounds((3, 8))
    assert low < 0 < high
    sides = [
        np.log(check._distance(3, own) / check.thresholds[3]) - np.log(check._distance(8, own) / check.thresholds[8])
        for own in (check._held_out[3], check._held_out[8])
    ]
    np.testing.assert_allclose((sides[0] < low).mean(), 0.9, atol=1 / len(sides[0]))
    np.testing.assert_allclose((sides[1] > high).mean(), 0.9, atol=1 / len(sides[1]))


def test_classes_that_cannot_be_told_apart_have_no_plain_images():
    noise = np.random.default_rng(0).random((200, 1, 8, 8)).astype(np.float32)
    check = Realism(ImageSet.from_arrays(noise, np.tile([0, 1], 100), layout="NCHW"))
    assert check.bounds((0, 1)) == (-np.inf, np.inf)


def test_plain_digits_are_rejected(check):
    test = load("digits").test
    for pair in ((0, 1), (4, 9), (3, 8)):
        one_class = test.images[np.isin(test.labels, pair)]
        assert check.plausible(one_class, pair).mean() < 0.1


def test_a_class_of_a_single_image(train):
    rows = np.concatenate([np.flatnonzero(train.labels == 0), np.flatnonzero(train.labels == 1)[:1]])
    check = Realism(train.take(rows))
    only = train.images[rows[-1:]]
    assert check.distance(only, 1)[0] == pytest.approx(0, abs=1e3)
    assert np.isfinite(check.distance(train.images[:30], 1)).all()
    assert not check.plausible(train.images[:30], (0, 1))[train.labels[:30] > 1].any()


def test_unlabelled_images_play_no_part(train):
    labels = np.where(np.arange(len(train)) < 700, train.labels, -1)
    partly = ImageSet.from_arrays(train.materialise(), labels, class_names=train.class_names)
    first = Realism(partly).thresholds
    second = Realism(train.take(np.arange(700))).thresholds
    assert set(first) == set(range(10))
    assert first == pytest.approx(second)


def test_the_seed_decides(train):
    one, same, other = (Realism(train, seed=seed).thresholds for seed in (1, 1, 2))
    assert one == same != other


def test_blur_lowers_sharpness_and_contrast_does_not():
    images = load("mnist5k").test.images[:50]
    sharp = sharpness(images)
    previous = sharp
    for sigma in (0.5, 1, 2):
        blurred = sharpness(np.stack([gaussian_filter(one, (0, sigma, sigma)) for one in images]))
        assert (blurred < previous).all()
        previous = blurred
    np.testing.assert_allclose(sharpness(0.2 * images), sharp, rtol=1e-4)


def test_sharpness_in_closed_form():
    dot = np.zeros((1, 1, 5, 5), dtype=np.float32)
    dot[0, 0, 2, 2] = 0.5
    assert sharpness(dot)[0] == pytest.approx(2)  # four differences of 0.5 around one pixel of 0.5
    assert sharpness(np.ones((1, 3, 4, 4), dtype=np.float32))[0] == 0
    assert sharpness(np.zeros((1, 1, 4, 4), dtype=np.float32))[0] == 0
    np.testing.assert_allclose(sharpness(np.repeat(dot, 3, axis=1)), 2)
