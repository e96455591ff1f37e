"""What pixels say about a kind of anomaly, and how kinds are told apart."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage, signal, stats

from secondguess.guard.appearance import FEATURES, appearance, appearance_of
from secondguess.guard.naming import Examined, Naming, fit_naming, learn_names
from secondguess.guard.protect import Answers
from secondguess.images import ImageSet

PLACE = {name: number for number, name in enumerate(FEATURES)}


@pytest.fixture(scope="module")
def images():
    """Smooth colour images, as 8 bits hold them."""
    rng = np.random.default_rng(0)
    smooth = ndimage.gaussian_filter(rng.random((12, 3, 24, 20)), (0, 0.5, 1.5, 1.5))
    return (np.rint(np.clip(4 * (smooth - 0.5) + 0.5, 0, 1) * 255) / 255).astype(np.float32)


def of(images, name):
    return appearance(images)[:, PLACE[name]]


def test_features_are_what_their_table_says(images):
    """Each against a direct computation, one image at a time."""
    seen = appearance(images)
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
    whole = appearance(images)
    assert appearance(images[3:4]) == pytest.approx(whole[3:4], abs=1e-5)
    below = images + np.random.default_rng(1).uniform(-0.4, 0.4, images.shape).astype(np.float32) / 255
    assert appearance(below) == pytest.approx(whole, abs=1e-5)
    kept = ImageSet.from_arrays(images, np.zeros(12, dtype=np.int64), layout="NCHW")
    assert appearance_of(kept) == pytest.approx(whole, abs=1e-5)


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
        assert np.isfinite(appearance(np.full(shape, value, dtype=np.float32))).all()


def kinds(rng, n, shift=0.0):
    """Scores and looks of two kinds; the second is too large or too small in the last look."""
    scores = rng.normal(size=(2, n, 3)) + 3
    looks = rng.normal(size=(2, n, len(FEATURES)))
    looks[1, :, -1] += np.where(rng.random(n) < 0.5, -4, 4) + shift
    sorts = np.resize(["a", "b", "c"], n)
    return {
        "adversarial": Examined(scores[0], looks[0], sorts),
        "out-of-distribution": Examined(scores[1], looks[1], sorts),
    }


def test_kinds_are_told_apart_on_either_side_of_the_usual():
    rng = np.random.default_rng(3)
    nominal = Examined(rng.normal(size=(200, 3)), rng.normal(size=(200, len(FEATURES))))
    naming = fit_naming(nominal, kinds(rng, 150))
    assert naming is not None and fit_naming(nominal, {"invalid": nominal}) is None
    for place, one in enumerate(kinds(rng, 100).values()):
        chances = naming.chances_of(one.values)
        assert chances.sum(axis=1) == pytest.approx(1)
        assert (chances.argmax(axis=1) == place).mean() > 0.9
    read = Naming.restored(naming.card(), naming.arrays())
    assert read.chances_of(one.values).tolist() == chances.tolist()


def test_the_temperature_is_what_sorts_that_were_not_met_teach():
    """A sort that looks like the other kind, once it is left out, makes the naming less sure."""
    rng = np.random.default_rng(4)
    nominal = Examined(rng.normal(size=(200, 3)), rng.normal(size=(200, len(FEATURES))))
    plain = kinds(rng, 150)
    strange = dict(plain)
    one = plain["out-of-distribution"]
    looks = one.looks.copy()
    looks[one.sorts == "a", -1] = rng.normal(size=int((one.sorts == "a").sum()))
    looks[one.sorts == "a", 0] += 6
    strange["out-of-distribution"] = Examined(one.scores, looks, one.sorts)
    first, second = fit_naming(nominal, plain), fit_naming(nominal, strange)
    assert first is not None and second is not None and second.temperature > 1.5 * first.temperature


def test_names_are_learnt_of_the_kinds_that_the_panel_knows():
    rng = np.random.default_rng(5)
    nominal = Examined(rng.normal(size=(200, 3)), rng.normal(size=(200, len(FEATURES))))
    wrong = np.arange(200) < 40
    answers, made = Answers(~wrong, wrong), kinds(rng, 60)
    stress = {"adversarial": made["adversarial"], "corrupted": made["out-of-distribution"]}
    naming = learn_names(("adversarial", "mistaken"), nominal, answers, stress)
    assert naming is not None and naming.anomalies == ("adversarial", "mistaken")
    assert learn_names(("suspicious",), nominal, answers, stress) is None
    assert learn_names(("adversarial", "mistaken"), nominal, answers, {}) is None
