from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from secondguess import Dataset, UserError, load
from secondguess.images import ImageSet
from secondguess.stress.ambiguous import PixelBlend, RealismReference, features, measure_realism, train_extractor
from secondguess.stress.ambiguous import realism_reference as module
from secondguess.stress.ambiguous.realism_reference import kept_out, some_rows

Maker = Callable[[int], np.ndarray]


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("digits")


@pytest.fixture(scope="module")
def blends(digits: Dataset) -> ImageSet:
    return PixelBlend(pairs=[(9, 8), (3, 8), (1, 7)], delta_max=0.9).generate(digits.train, 300).images


@pytest.fixture
def draw() -> Maker:
    rng = np.random.default_rng(3)
    return lambda n: rng.normal(size=(n, 4))


def of_classes(images: ImageSet, *classes: int) -> ImageSet:
    return images.take(np.isin(images.labels, classes))


def test_measures_are_those_of_their_definitions(draw: Maker) -> None:
    real, generated = draw(80), 0.5 * draw(60) + 1
    told = measure_realism(real, generated)
    apart = real.mean(axis=0) - generated.mean(axis=0)
    first, second = np.cov(real.T), np.cov(generated.T)
    root = np.sqrt(np.linalg.eigvals(first @ second).real).sum()
    assert told["frechet"] == pytest.approx(apart @ apart + np.trace(first) + np.trace(second) - 2 * root)
    k = told["neighbours"]
    radii = NearestNeighbors(n_neighbors=k + 1).fit(real).kneighbors(real)[0][:, k]
    inside = np.linalg.norm(generated[:, None] - real[None], axis=2) <= radii
    assert told["precision"] == pytest.approx(inside.any(axis=1).mean())
    assert told["coverage"] == pytest.approx(inside.any(axis=0).mean())
    assert told["density"] == pytest.approx(inside.sum(axis=1).mean() / k)
    value, low, high = told["kernel"]
    assert 0 < low < value < high


def test_only_so_many_are_compared_pair_by_pair(draw: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    real, generated = draw(90), draw(70)
    whole = measure_realism(real, generated)
    monkeypatch.setattr(module, "COMPARED", 50)
    some = some_rows(real)
    assert some.shape == (50, 4) and len(np.unique(some, axis=0)) == 50
    assert np.array_equal(some, some_rows(real))
    part = measure_realism(real, generated)
    assert part["frechet"] == whole["frechet"]
    assert part["kernel"] == pytest.approx(measure_realism(some, generated[:50])["kernel"])
    assert part["kernel"] != pytest.approx(whole["kernel"])


def test_classes_are_kept_out_where_two_others_remain(digits: Dataset) -> None:
    assert kept_out(digits.train, (3, 8)) == (3, 8)
    assert kept_out(of_classes(digits.train, 3, 8, 1), (3, 8)) == ()
    assert kept_out(of_classes(digits.train, 3, 8, 1, 2), (3, 8)) == (3, 8)


def test_real_images_are_more_real_than_blends_and_blends_than_noise(digits: Dataset, blends: ImageSet) -> None:
    torch.set_num_threads(1)
    reference = RealismReference.of(digits, (3, 8))
    between = blends.take(np.isin(blends.columns["class_1"], (3, 8)) & np.isin(blends.columns["class_2"], (3, 8)))
    pixels = np.random.default_rng(0).random((100, 1, 8, 8), dtype=np.float32)
    noise = ImageSet.from_arrays(pixels, layout="NCHW")
    blended, noisy = (reference.measure(one, device="cpu") for one in (between, noise))
    assert blended["held_out"] == noisy["held_out"]
    distances = [one["frechet"] for one in (blended["held_out"], blended["generated"], noisy["generated"])]
    assert distances == sorted(distances)
    assert blended["giqa"]["quality"][0] > noisy["giqa"]["quality"][0]
    assert noisy["generated"]["coverage"] < blended["generated"]["coverage"]
    assert noisy["images"]["generated"] == 100
    assert blended == reference.measure(between, device="cpu")
    json.dumps(blended, allow_nan=False)


def test_a_data_set_in_one_piece_is_split_and_two_classes_are_both_learnt(digits: Dataset) -> None:
    whole = of_classes(digits.train, 3, 8)
    reference = RealismReference.of(Dataset("pair", None, whole), (8, 3), seed=1)
    assert len(reference.train) + len(reference.held_out) == len(whole)
    assert len(reference.held_out) == round(0.2 * len(whole))
    told = reference.measure(reference.train, seed=1, device="cpu")
    assert told["features"]["classes"] == ["3", "8"]
    assert told["generated"]["frechet"] == pytest.approx(0, abs=1e-6)
    assert told["generated"]["precision"] == told["generated"]["coverage"] == 1
    extractor = train_extractor(reference.train, seed=1, device="cpu")
    expected = measure_realism(*(features(one, extractor) for one in (reference.train, reference.held_out)))
    assert told["held_out"] == expected


def test_too_few_images(digits: Dataset) -> None:
    with pytest.raises(UserError, match=r"6 held-out images of .* are of the classes in question, but at least 7"):
        RealismReference(digits.train, of_classes(digits.test, 3).head(6), (3, 8))
    with pytest.raises(UserError, match="has 6 images; at least 7 are needed to measure how real they are"):
        RealismReference.of(digits, (3, 8)).measure(digits.test.head(6))
