from __future__ import annotations

import numpy as np
import pytest

from secondguess.errors import UserError
from secondguess.metrics.boundary import frontier, pair_boundaries
from secondguess.metrics.prioritisation import SHARE

RNG = np.random.default_rng(0)


def on_a_line(boundary: float, n: int = 4000):
    """Figure 2 of the paper: positions on a line, ambiguous from -1 to 1, and a classifier with its boundary somewhere.

    What lies between the boundary and the ambiguous space is misclassified, in closed form: the length between them.
    """
    x = RNG.uniform(-3, 3, n)
    q = np.clip((x + 1) / 2, 0, 1)
    q = np.where(np.abs(x) <= 1, 0.2 + 0.6 * q, q)
    p = 1 / (1 + np.exp(-4 * (x - boundary)))
    return x, np.stack([1 - p, p], axis=1), np.stack([1 - q, q], axis=1)


@pytest.mark.parametrize("boundary", [-2.0, -0.5, 0.0, 0.9, 1.5])
def test_where_the_boundary_runs_is_what_the_figure_shows(boundary):
    _, guessed, soft = on_a_line(boundary)
    (one,) = pair_boundaries(guessed, soft)
    assert one.pair == (0, 1)
    # The share of (-1, 1) to the left of the boundary, and the parts of the clear sides that it cuts off.
    assert one.on_a.value == pytest.approx(np.clip((boundary + 1) / 2, 0, 1), abs=0.04)
    assert one.lean == pytest.approx(np.clip(boundary / 2, -0.5, 0.5), abs=0.04)
    assert one.a_for_b.value == pytest.approx(max(0, boundary - 1) / 2, abs=0.04)
    assert one.b_for_a.value == pytest.approx(max(0, -1 - boundary) / 2, abs=0.04)
    assert one.through == (abs(boundary) < 0.9)
    if one.excess:
        assert np.sign(one.excess) == np.sign(one.lean)  # the claim of the paper


def test_the_frontier_is_excused_where_it_is_ambiguous_and_faulty_where_it_is_clear():
    x, guessed, soft = on_a_line(1.5)
    found = frontier(guessed, soft, width=0.4)
    by_hand = np.abs(1 - 2 * guessed[:, 0]) <= 0.4
    np.testing.assert_array_equal(found.near, by_hand)
    np.testing.assert_array_equal(found.ambiguous, np.abs(x) <= 1)
    np.testing.assert_array_equal(found.faults, by_hand & (x > 1) & (x < 1.5))
    assert found.share_wrong(near=True).value == pytest.approx(found.faults.sum() / (by_hand & (np.abs(x) > 1)).sum())
    assert found.share_wrong(near=True).value > 5 * found.share_wrong(near=False).value
    assert found.share_near(ambiguous=True).value == pytest.approx(by_hand[np.abs(x) <= 1].mean())
    assert found.share_near(ambiguous=False).value == pytest.approx(by_hand[np.abs(x) > 1].mean())


def test_the_frontier_ends_where_one_class_is_three_times_as_likely_as_the_other():
    assert frontier([[0.75, 0.25], [0.7501, 0.2499]], [[1, 0], [1, 0]]).near.tolist() == [True, False]


def test_only_the_two_classes_of_a_pair_decide_and_equality_counts_half():
    guessed = np.array([[0.2, 0.1, 0.7], [0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.2, 0.8, 0], [0.6, 0.4, 0]])
    soft = np.array([[0.6, 0.4, 0], [0.6, 0.4, 0], [0.4, 0.6, 0], [1, 0, 0], [0, 1, 0]])
    (one,) = pair_boundaries(guessed, soft, fewest=3)
    assert one.on_a.value == pytest.approx(0.5)
    assert one.lean == pytest.approx(0.5 - 2 / 3)
    assert (one.b_for_a.value, one.a_for_b.value, one.excess) == (1, 1, 0)
    assert frontier(guessed, soft).wrong.tolist() == [True, True, True, True, True]
    assert pair_boundaries(guessed, soft) == []  # too few


def test_a_class_without_clear_images_has_no_excess():
    soft = np.tile([0.5, 0.5, 0], (12, 1))
    (one,) = pair_boundaries(soft, soft)
    assert (one.a_for_b, one.b_for_a, one.excess) == (None, None, None)
    assert one.through and one.lean == 0
    almost = frontier([[1, 0], [1, 0]], [[1 - SHARE, SHARE], [0.95, 0.05]])
    assert almost.ambiguous.tolist() == [True, False]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: frontier([[1, 0]], [[1, 0]]).share_near(ambiguous=True), "No image is ambiguous"),
        (lambda: frontier([[1, 0]], [[1, 0, 0]]), r"shape \(1, 2\) and the soft labels \(1, 3\)"),
        (lambda: pair_boundaries([[1.0]], [[1.0]]), "one class only"),
        (lambda: frontier([[0.5, 0.5]], [[0.5, 0.5]]).share_wrong(near=True), "No clear image lies at"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()
