"""What pixels say about an image, and how far that is from what is usual."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage, signal, stats
from sklearn.covariance import EmpiricalCovariance

from secondguess import ImageSet, Observation, UserError, check_supervisor
from secondguess.supervisors import make
from secondguess.supervisors.appearance import Appearance
from secondguess.supervisors.graph import tensors_of
from secondguess.supervisors.pixel_features import FEATURES, features_of, pixel_features

PLACE = {name: number for number, name in enumerate(FEATURES)}


@pytest.fixture(scope="module")
def images():
    """Smooth colour images, as 8 bits hold them."""
    rng = np.random.default_rng(0)
    smooth = ndimage.gaussian_filter(rng.random((12, 3, 24, 20)), (0, 0.5, 1.5, 1.5))
    return (np.rint(np.clip(4 * (smooth - 0.5) + 0.5, 0, 1) * 255) / 255).astype(np.float32)


def of(images, name):
    return pixel_features(images)[:, PLACE[name]]


def test_features_are_what_their_table_says(images):
    """Each against a direct computation, one image at a time."""
    seen = pixel_features(images)
    assert seen.shape == (12, len(FEATURES)) and np.isfinite(seen).all()
    for image, row in zip(images.astype(np.float64), seen, strict=True):
        grey = image.mean(axis=0)
        steps = [np.diff(grey, axis=1), np.diff(grey, axis=0)]
        laplacian = ndimage.convolve(grey, np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]]))[1:-1, 1:-1]
        second = signal.correlate2d(image[0] - image[2], np.array([[1, -1], [-1, 1]]), mode="valid")
        power = np.abs(np.fft.fft2(grey - grey.mean())) ** 2
        radius = np.hypot(np.fft.fftfreq(24)[:, None], np.fft.fftfreq(20)) / 0.5
        wanted = {
            "brightness": grey.mean(),
            "contrast": np.log(grey.std() + 1 / 255),
            "clipped": np.mean((image == 0) | (image == 1)),
            "colour": image.std(axis=0).mean(),
            "tint": image.mean(axis=(1, 2)).std(),
            "edges": np.log(np.mean([np.abs(one).mean() for one in steps]) + 1 / 255),
            "sharpness": np.log(laplacian.std() + 1 / 255),
            "spikes": np.log(stats.moment(laplacian.ravel(), 4, center=0) / laplacian.std() ** 4 + 1),
            "colour_noise": np.log(np.median(np.abs(second)) + 1 / 255),
            "direction": abs(np.log((steps[0] ** 2).mean() / (steps[1] ** 2).mean())),
            "band_1": np.log(power[radius < 0.2].sum() / power.sum()),
        }
        found = {name: row[PLACE[name]] for name in wanted}
        loose = {"direction": 0.02, "band_1": 0.02}  # what rounding leaves is added to both sides of a ratio
        for name, value in wanted.items():
            assert found[name] == pytest.approx(value, abs=loose.get(name, 1e-3)), name


def test_an_image_looks_the_same_in_every_batch_and_as_a_file(images):
    whole = pixel_features(images)
    assert pixel_features(images[3:4]) == pytest.approx(whole[3:4], abs=1e-5)
    below = images + np.random.default_rng(1).uniform(-0.4, 0.4, images.shape).astype(np.float32) / 255
    assert pixel_features(below) == pytest.approx(whole, abs=1e-5)
    kept = ImageSet.from_arrays(images, np.zeros(12, dtype=np.int64), layout="NCHW")
    assert features_of(kept.images) == pytest.approx(whole, abs=1e-5)


def test_features_move_as_their_table_says(images):
    rng = np.random.default_rng(2)
    noisy = np.clip(images + rng.normal(0, 0.1, images.shape), 0, 1)
    blurred = ndimage.gaussian_filter(images, (0, 0, 1.5, 1.5))
    blocks = np.clip(images + np.kron(rng.normal(0, 0.3, (12, 1, 3, 3)), np.ones((8, 8)))[..., :20], 0, 1)
    grey = np.repeat(images.mean(axis=1, keepdims=True), 3, axis=1)
    for name, changed, sign in (
        ("noise", noisy, 1), ("colour_noise", noisy, 1), ("band_5", noisy, 1), ("sharpness", blurred, -1),
        ("edges", blurred, -1), ("blocks", blocks, 1), ("colour", grey, -1), ("brightness", images / 2, -1),
        ("contrast", images / 2, -1), ("clipped", np.rint(images), 1), ("flat", np.rint(images), 1),
    ):  # fmt: skip
        assert (sign * (of(changed, name) - of(images, name))).mean() > 0.01, name


@pytest.mark.parametrize("shape", [(1, 1, 8, 8), (2, 1, 28, 28), (1, 4, 3, 5)])
def test_any_image_can_be_looked_at(shape):
    for value in (0.0, 1.0):
        assert np.isfinite(pixel_features(np.full(shape, value, dtype=np.float32))).all()


def seen(pixels):
    """An observation that holds these images (n, C, H, W) and nothing of interest about the model."""
    kept = ImageSet.from_arrays(pixels.astype(np.float32), layout="NCHW").images
    return Observation(probabilities=np.full((len(pixels), 2), 0.5), images=kept)


def usual(rng, count, shape):
    """Images that differ in brightness, contrast and sharpness."""
    rough = rng.random((count, *shape))
    soft = ndimage.gaussian_filter(rough, (0, 0, 1, 1))
    share, height = rng.random((2, count, 1, 1, 1))
    mixed = (0.2 * share * rough + (1 - 0.2 * share) * soft) * (0.5 + 1.5 * height)
    return np.rint(np.clip(mixed, 0, 1) * 255) / 255


def test_the_contract():
    check_supervisor(Appearance())


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 30), (3, 64, 64)])
def test_the_distance_is_that_of_scikit_learn_and_the_graph_agrees(shape):
    rng = np.random.default_rng(0)
    train, strange = usual(rng, 120, shape), usual(rng, 9, shape) / 2
    fitted = Appearance().fit(seen(train))
    found = fitted.score(seen(strange))
    known, new = (pixel_features(one.astype(np.float32)) for one in (train, strange))
    varied = known.std(axis=0) > 1e-6  # the colours of grey images do not vary
    assert varied.sum() == (18 if shape[0] == 3 else 15)
    referee = EmpiricalCovariance().fit(known[:, varied])
    squares = referee.mahalanobis(new[:, varied]) * (len(train) - 1) / len(train)  # it divides by n
    assert found == pytest.approx(np.sqrt(squares), rel=1e-5)
    with torch.inference_mode():
        assert fitted.graph()(tensors_of(seen(strange))).numpy() == pytest.approx(found, rel=1e-4)


def test_what_is_spoilt_is_suspicious_and_what_the_model_says_does_not_matter():
    rng = np.random.default_rng(1)
    shape = (3, 24, 20)
    fitted = Appearance().fit(seen(usual(rng, 200, shape)))
    nominal = usual(rng, 50, shape)
    score = fitted.score(seen(nominal))
    for spoilt in (
        np.clip(nominal + rng.normal(0, 0.2, nominal.shape), 0, 1),
        ndimage.gaussian_filter(nominal, (0, 0, 3, 3)),
        np.rint(nominal),
        nominal[:, ::-1] * np.array([0.2, 1, 0.2])[:, None, None],
    ):
        assert np.median(fitted.score(seen(spoilt))) > np.quantile(score, 0.9)
    other = Observation(probabilities=np.tile([0.9, 0.1], (50, 1)), images=seen(nominal).pixels)
    assert fitted.score(other).tolist() == score.tolist()


def test_what_cannot_be_measured_is_said():
    rng = np.random.default_rng(2)
    fitted = Appearance().fit(seen(usual(rng, 40, (3, 16, 16))))
    with pytest.raises(UserError, match=r"of shape \(3, 16, 16\) was learnt, but these are \(1, 16, 16\)"):
        fitted.score(seen(usual(rng, 4, (1, 16, 16))))
    with pytest.raises(UserError, match="3x3 pixels at least; these have 2x9"):
        make("appearance").fit(seen(usual(rng, 4, (1, 2, 9))))
    with pytest.warns(UserWarning, match="all look the same"):
        same = Appearance().fit(seen(np.full((5, 1, 8, 8), 0.5)))
    assert same.score(seen(usual(rng, 4, (1, 8, 8)))).tolist() == [0] * 4
