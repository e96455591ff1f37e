from __future__ import annotations

import numpy as np
import pytest

from compare_house import answers
from secondguess import UserError
from secondguess.audits.predictions import NOMINAL, Predictions
from secondguess.comparison.pairing import match

NAMES = tuple("abcd")
RNG = np.random.default_rng(0)


def matched(before, after, first=NAMES, second=NAMES):
    names, pairs = match(Predictions(first, {NOMINAL: before}), Predictions(second, {NOMINAL: after}))
    return names, pairs[NOMINAL]


def test_the_same_images_are_found_in_any_order():
    order = RNG.permutation(50)
    _, pair = matched(answers(order % 3 > 0, images=order), answers(np.arange(50) % 3 > 0))
    assert pair.paired and pair.sizes == (50, 50)
    assert np.array_equal(pair.before.digests, pair.after.digests)
    assert np.array_equal(pair.before.right, pair.after.right)
    assert np.array_equal(*pair.identities())


def test_an_image_that_is_there_twice_is_matched_twice():
    _, pair = matched(answers([1, 0, 1], images=[5, 5, 7]), answers([0, 1, 1], images=[5, 7, 5]))
    assert pair.paired and len(pair.before) == 3
    _, pair = matched(answers([1, 0, 1], images=[5, 5, 7]), answers([0, 1], images=[5, 7]))
    assert pair.paired and len(pair.before) == 2


def test_what_only_one_has_seen_is_left_out():
    _, pair = matched(answers(np.ones(60)), answers(np.ones(40), images=np.arange(30, 70)))
    assert pair.paired and len(pair.before) == len(pair.after) == 30 and pair.sizes == (60, 40)


def test_different_images_are_not_paired():
    _, pair = matched(answers(np.ones(60)), answers(np.ones(40), images=np.arange(50, 90)))
    assert not pair.paired and (len(pair.before), len(pair.after)) == (60, 40)
    assert not set(pair.identities(7)[0]) & set(pair.identities(7)[1])


def test_images_with_another_label_are_left_out():
    labels = np.arange(20) % 4
    changed = np.where(np.arange(20) < 3, 3 - labels, labels)
    _, pair = matched(answers(np.ones(20), labels=labels), answers(np.ones(20), labels=changed))
    assert pair.relabelled == 3 and len(pair.after) == 17


def test_models_that_take_other_sizes_are_matched_by_name():
    names = np.array([f"{one}.png" for one in range(20)])
    before = answers(np.ones(20), ids=names)
    after = answers(np.ones(20)[::-1], images=np.arange(119, 99, -1), ids=names[::-1], labels=before.labels[::-1])
    _, pair = matched(before, after)
    assert pair.paired and np.array_equal(pair.before.ids, pair.after.ids)
    twice = answers(np.ones(20), images=np.arange(100, 120), ids=np.full(20, "a.png"))
    assert not matched(before, twice)[1].paired


def test_classes_are_the_same_by_name():
    before = answers(np.ones(8), labels=[0, 1, 2, 3] * 2)
    after = answers(np.ones(8), labels=[3, 2, 1, 0] * 2)
    names, pair = matched(before, after, NAMES, NAMES[::-1])
    assert names == NAMES[::-1] and pair.relabelled == 0
    assert np.array_equal(pair.before.predicted, pair.after.predicted)
    names, pair = matched(before, before, NAMES, ("a", "b", "x", "y"))
    assert names == ("a", "b", "x", "y", "c", "d") and pair.relabelled == 4


@pytest.mark.parametrize("swap", [False, True])
def test_numbers_stand_for_the_names_of_the_other(swap):
    """Classes without names are called by their numbers; the other audit says what they are."""
    labels, right = np.arange(8) % 4, np.arange(8) % 3 > 0
    numbers, sides = tuple("0123"), (answers(right, labels=labels), answers(~right, labels=labels))
    names, pair = matched(*sides, *((numbers, NAMES) if swap else (NAMES, numbers)))
    assert names == NAMES and pair.relabelled == 0 and len(pair.after) == 8
    assert np.array_equal(pair.before.labels, labels) and np.array_equal(pair.before.predicted, sides[0].predicted)


def test_numbers_that_the_other_has_as_well_are_names():
    before = answers(np.ones(8), labels=[0, 1] * 4)
    names, pair = matched(before, answers(np.ones(8), labels=[1, 0] * 4), ("0", "1"), ("1", "0"))
    assert names == ("1", "0") and pair.relabelled == 0
    names, pair = matched(before, before, ("0", "1", "2"), ("0", "b", "1"))
    assert names == ("0", "b", "1", "2") and pair.relabelled == 4


@pytest.mark.parametrize(
    ("first", "second", "classes"),
    [
        (("0", "1", "2", "3"), (*"abcde",), r"\(0, 1, 2, 3; 4 in all\) before and \(a, b, c, d, e; 5 in all\) now"),
        (NAMES, tuple("wxyz"), r"\(a, b, c, d; 4 in all\) before and \(w, x, y, z; 4 in all\) now"),
    ],
)
def test_the_same_images_without_a_common_label_are_refused(first, second, classes):
    side = answers(np.ones(12))
    with pytest.raises(UserError, match=rf"None of the 12 test images .* the classes are {classes}; audit both with"):
        matched(side, side, first, second)


def test_of_the_same_pixels_the_same_kind_and_label_go_together():
    """A picture that is black in fog and in snow, and one that is there under two labels."""
    kinds, labels = np.array(["fog", "fog", "snow", "fog", "fog"]), np.array([0, 1, 1, 2, 3])
    before = answers([1, 0, 1, 1, 0], images=[1, 2, 2, 3, 3], labels=labels, kinds=kinds)
    order = np.array([2, 4, 0])
    _, pair = matched(before, before.take(order))
    assert pair.paired and pair.relabelled == 0 and len(pair.after) == 3
    for name in ("kinds", "labels", "right", "digests"):
        assert np.array_equal(getattr(pair.before, name), getattr(pair.after, name))
    assert pair.before.kinds.tolist() == ["fog", "snow", "fog"], "in the order of the first"


def test_the_same_pixels_of_another_kind_are_the_same_image():
    kinds = np.array(["fog", "snow"] * 10)
    before, after = answers(np.ones(20), kinds=kinds), answers(np.ones(20), kinds=np.roll(kinds, 1))
    _, pair = matched(before, after)
    assert pair.paired and len(pair.after) == 20 and np.array_equal(pair.before.digests, pair.after.digests)
