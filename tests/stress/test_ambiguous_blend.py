from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import entropy

from secondguess.errors import UserError
from secondguess.images import ImageSet, load
from secondguess.stress.ambiguous.blend import PixelBlend
from secondguess.stress.ambiguous.comparison import likeliest_pair, realism_share
from secondguess.stress.ambiguous.realism import Realism


@pytest.fixture(scope="module")
def train() -> ImageSet:
    return load("digits").train


@pytest.fixture(scope="module")
def blends(train):
    return PixelBlend(pairs=[(3, 8), (5, 9), (1, 7)], delta_max=0.3).generate(train, 100, seed=4)


def test_a_blend_is_the_weighted_sum_of_its_two_sources(train, blends):
    columns = blends.images.columns
    share = columns["lambda"][:, None, None, None]
    expected = share * train.images[columns["source_1"]] + (1 - share) * train.images[columns["source_2"]]
    assert np.abs(blends.images.materialise() - expected).max() <= 0.5001 / 255


def test_the_soft_label_is_the_weight_of_each_class(train, blends):
    images = blends.images
    rows = np.arange(len(images))
    first, second = (train.labels[images.columns[f"source_{n}"]] for n in (1, 2))
    np.testing.assert_array_equal(first, images.columns["class_1"])
    np.testing.assert_array_equal(second, images.columns["class_2"])
    np.testing.assert_array_equal(images.soft_labels[rows, first], images.columns["lambda"])
    np.testing.assert_allclose(images.soft_labels.sum(axis=1), 1)
    assert ((images.soft_labels > 0).sum(axis=1) == 2).all()
    assert (np.abs(images.soft_labels[rows, first] - images.soft_labels[rows, second]) < 0.3).all()
    assert (images.soft_labels[rows, images.labels] > 0).all()
    assert images.is_ambiguous.all()


def test_weights_fill_the_allowed_interval(train):
    weights = PixelBlend(delta_max=0.4).generate(train, 2000).images.columns["lambda"]
    assert 0.3 <= weights.min() < 0.301
    assert 0.699 < weights.max() <= 0.7
    assert abs(weights.mean() - 0.5) < 0.01


def test_pairs_contribute_equally(blends):
    assert sorted(each["images"] for each in blends.card["pairs"]) == [33, 33, 34]
    assert [each["pair"] for each in blends.card["pairs"]] == [["1", "7"], ["3", "8"], ["5", "9"]]


def test_the_seed_decides(train):
    one, same, other = (PixelBlend().generate(train, 20, seed=seed).images for seed in (1, 1, 2))
    assert one.fingerprint == same.fingerprint != other.fingerprint


def test_unlabelled_images_are_no_sources(train):
    labels = np.where(np.arange(len(train)) % 2 == 0, train.labels, -1)
    partly = ImageSet.from_arrays(train.materialise(), labels, class_names=train.class_names)
    columns = PixelBlend(pairs="all").generate(partly, 90).images.columns
    assert not (np.concatenate([columns["source_1"], columns["source_2"]]) % 2).any()


def test_colour_images_keep_their_shape():
    rng = np.random.default_rng(0)
    colour = ImageSet.from_arrays(rng.random((20, 6, 5, 3), dtype=np.float32), np.arange(20) % 2)
    assert PixelBlend(pairs="all").generate(colour, 7).images.shape == (3, 6, 5)


def test_the_card(train, blends, tmp_path):
    card = blends.card
    assert card["generator"] == "PixelBlend"
    assert card["settings"] == {"pairs": [(3, 8), (5, 9), (1, 7)], "delta_max": 0.3, "seed": 4}
    assert card["train"] == train.describe()
    assert card["images"] == 100
    assert card["label_entropy_bits"] == pytest.approx(entropy(blends.images.soft_labels, base=2, axis=1).mean())
    assert card["realism_share"] == realism_share(blends.images, Realism(train, seed=4))
    blends.save(tmp_path)
    assert json.loads((tmp_path / "card.json").read_text("utf-8"))["images"] == 100
    assert (tmp_path / "sheet.png").stat().st_size > 0


@pytest.mark.parametrize("delta", [0, -0.1, 1.5])
def test_impossible_delta(delta):
    with pytest.raises(UserError, match=r"delta_max is .*; \|p1 - p2\| lies between 0 and 1"):
        PixelBlend(delta_max=delta)


def test_impossible_requests(train):
    with pytest.raises(UserError, match="0 ambiguous images were asked for"):
        PixelBlend().generate(train, 0)
    with pytest.raises(UserError, match=r"lie between two classes, but .* has 1"):
        PixelBlend().generate(train.take(train.labels == 3), 5)
    with pytest.raises(UserError, match=r"lie between two classes, but .* has 0"):
        PixelBlend().generate(ImageSet.from_arrays(train.materialise()), 5)


def test_realism_share_is_the_mean_over_single_images(train, blends):
    check = Realism(train)
    images = blends.images.take(np.arange(30))
    alone = []
    for row in range(30):
        first, second = np.flatnonzero(images.soft_labels[row])
        alone.append(check.plausible(images.images[row : row + 1], (first, second))[0])
    assert realism_share(images, check) == np.mean(alone)


def test_a_class_without_real_images_is_not_plausible(train, blends):
    check = Realism(train.take(np.isin(train.labels, [1, 7])))
    only = blends.images.take(blends.images.columns["class_1"] == 1)
    assert realism_share(blends.images, check) == pytest.approx(realism_share(only, check) * len(only) / 100)


def test_realism_share_needs_soft_labels(train):
    with pytest.raises(UserError, match="has no soft labels"):
        realism_share(train, Realism(train))


def test_the_likeliest_pair_prefers_the_first_of_equal_classes():
    soft = np.array([[0.1, 0.6, 0.3], [0.25, 0.25, 0.5], [1, 0, 0]])
    assert likeliest_pair(soft).tolist() == [[1, 2], [2, 0], [0, 1]]
