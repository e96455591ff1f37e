from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from secondguess.errors import UserError
from secondguess.images import ImageSet, load
from secondguess.stress.ambiguous.pairs import choose_pairs, confusion_by_neighbours


def clouds(centres, count=40, noise=0.03, seed=0, unlabelled=0) -> ImageSet:
    """Images 8x8 in clouds: one class around each of the centres, which are seeds of random images."""
    rng = np.random.default_rng(seed)
    bases = [np.random.default_rng(centre).random((1, 8, 8)) for centre in centres]
    images = np.concatenate([base + rng.normal(0, noise, (count, 1, 8, 8)) for base in bases]).clip(0, 1)
    classes = np.repeat(np.arange(len(centres)), count)
    classes[: unlabelled * count] = -1
    names = [f"class {k}" for k in range(len(centres))]
    return ImageSet.from_arrays(images.astype(np.float32), classes, class_names=names, layout="NCHW", name="clouds")


def test_all_pairs_are_in_order():
    digits = load("digits").train
    assert choose_pairs(digits, "all") == list(combinations(range(10), 2))


def test_only_classes_with_images_count():
    assert choose_pairs(clouds([1, 2, 3, 4], unlabelled=1), "all") == [(1, 2), (1, 3), (2, 3)]


def test_the_pair_that_mixes_is_the_confused_one():
    train = clouds([1, 2, 3, 2])  # classes 1 and 3 are the same cloud
    assert (1, 3) in choose_pairs(train, "confused")
    mixing = confusion_by_neighbours(train)
    assert np.unravel_index(np.argmax(mixing - np.diag(np.diag(mixing))), mixing.shape) == (1, 3)
    assert mixing[1, 3] == pytest.approx(0.5, abs=0.1)
    assert mixing[0, 2] == 0
    assert mixing[0, 0] == 1
    np.testing.assert_allclose(mixing, mixing.T)


@pytest.mark.parametrize(("classes", "expected"), [(2, 1), (3, 1), (4, 2), (10, 15), (14, 15)])
def test_a_third_of_the_pairs_and_never_more_than_fifteen(classes, expected):
    chosen = choose_pairs(clouds(range(classes), count=12), "confused")
    assert len(chosen) == expected
    assert chosen == sorted(chosen)
    assert all(a < b for a, b in chosen)


def test_of_three_pairs_the_mixed_one_is_taken():
    assert choose_pairs(clouds([1, 2, 1]), "confused") == [(0, 2)]
    assert choose_pairs(clouds([1, 2, 2]), "confused") == [(1, 2)]


def test_confusion_on_digits_is_what_a_person_expects():
    chosen = choose_pairs(load("digits").train, "confused")
    assert len(chosen) == 15
    assert {(1, 8), (3, 9), (3, 8), (8, 9)} & set(chosen)
    assert (0, 1) not in chosen


def test_a_subsample_is_seeded(monkeypatch):
    from secondguess.stress.ambiguous import pairs

    monkeypatch.setattr(pairs, "MOST_IMAGES", 50)
    train = clouds([1, 2, 3], noise=0.5)
    one, same, other = (confusion_by_neighbours(train, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_few_images_will_do():
    assert choose_pairs(clouds([1, 2], count=1), "confused") == [(0, 1)]


def test_given_pairs_are_put_in_order_and_counted_once():
    train = clouds([1, 2, 3])
    assert choose_pairs(train, [(2, 1), (0, 1), (1, 2)]) == [(0, 1), (1, 2)]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ("some", r"pairs is 'some'; give 'all', 'confused', or a list of pairs such as \[\(3, 8\)\]"),
        ([(1, 1)], r"\(1, 1\) is not a pair of two classes of 'clouds' that have images"),
        ([(0, 1), (0, 9)], r"\(0, 9\) is not a pair of two classes"),
        ([(0, 1, 2)], r"\(0, 1, 2\) is not a pair of two classes"),
        ([(1,)], r"\(1,\) is not a pair of two classes"),
        ([("class 1", "class 2")], r"\('class 1', 'class 2'\) is not a pair of two classes"),
        ([], "The list of pairs is empty"),
    ],
)
def test_pairs_that_are_none(pairs, message):
    with pytest.raises(UserError, match=message):
        choose_pairs(clouds([1, 2, 3]), pairs)


def test_a_class_without_images_is_in_no_pair():
    with pytest.raises(UserError, match=r"\(0, 2\) is not a pair of two classes of 'clouds' that have images"):
        choose_pairs(clouds([1, 2, 3], unlabelled=1), [(0, 2)])


@pytest.mark.parametrize("unlabelled", [1, 2])
def test_two_classes_are_needed(unlabelled):
    with pytest.raises(UserError, match=f"lie between two classes, but 'clouds' has {2 - unlabelled}"):
        choose_pairs(clouds([1, 2], unlabelled=unlabelled), "all")
