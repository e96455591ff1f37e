from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from secondguess.images import ImageSet
from secondguess.stress.ambiguous.base import Candidates, assemble, water_fill

supplies = st.dictionaries(st.text(max_size=3), st.integers(0, 60), max_size=8)


@given(supplies, st.integers(0, 300))
def test_water_is_filled_up_to_the_brim_and_to_one_level(available, count):
    shares = water_fill(available, count)
    assert shares.keys() == available.keys()
    assert sum(shares.values()) == min(count, sum(available.values()))
    assert all(0 <= shares[key] <= available[key] for key in available)
    for key in available:
        if shares[key] < available[key]:  # nobody else may have got more than one above somebody who could take more
            assert shares[key] >= max(shares.values()) - 1


def test_water_filling_by_hand():
    assert water_fill({"a": 3, "b": 100, "c": 100}, 43) == {"a": 3, "b": 20, "c": 20}
    assert water_fill({"a": 1, "b": 1}, 9) == {"a": 1, "b": 1}
    assert water_fill({}, 5) == {}


def classes(count: int = 5) -> ImageSet:
    names = [f"class {k}" for k in range(count)]
    return ImageSet.from_arrays(np.zeros((count, 8, 8), np.uint8), np.arange(count), class_names=names, name="toys")


def candidates(count: int = 40, p1=None, seed: int = 0) -> Candidates:
    rng = np.random.default_rng(seed)
    pair = np.array([(0, 3), (2, 4)])[rng.integers(0, 2, count)]
    images = rng.integers(0, 256, (count, 1, 8, 8), dtype=np.uint8)
    return Candidates(images, pair, rng.uniform(0.4, 0.6, count) if p1 is None else p1, {"row": np.arange(count)})


def test_soft_labels_hold_the_two_shares_and_everything_stays_together():
    chosen = candidates()
    made = assemble(classes(), chosen, name="ambiguous", seed=0)
    rows = made.columns["row"]
    assert sorted(rows) == list(range(40)) and not np.array_equal(rows, np.arange(40))
    np.testing.assert_array_equal(np.rint(made.materialise() * 255).astype(np.uint8), chosen.images[rows])
    np.testing.assert_array_equal(made.columns["class_1"], chosen.pair[rows, 0])
    np.testing.assert_array_equal(made.columns["class_2"], chosen.pair[rows, 1])
    expected = np.zeros((40, 5))
    for row, origin in enumerate(rows):
        expected[row, chosen.pair[origin, 0]] = chosen.p1[origin]
        expected[row, chosen.pair[origin, 1]] = 1 - chosen.p1[origin]
    np.testing.assert_allclose(made.soft_labels, expected, rtol=1e-12)
    assert made.is_ambiguous.all()
    assert made.class_names == classes().class_names
    assert made.name == "ambiguous between classes of toys"


def test_hard_labels_are_drawn_from_the_soft_ones():
    made = assemble(classes(), candidates(20_000, np.full(20_000, 0.3)), name="x", seed=1)
    first = made.labels == made.columns["class_1"]
    second = made.labels == made.columns["class_2"]
    assert (first ^ second).all()
    assert first.mean() == pytest.approx(0.3, abs=0.012)
    certain = assemble(classes(), candidates(50, np.ones(50)), name="x", seed=1)
    np.testing.assert_array_equal(certain.labels, certain.columns["class_1"])


def test_the_seed_decides():
    one, same, other = (assemble(classes(), candidates(), name="x", seed=seed) for seed in (1, 1, 2))
    assert one.fingerprint == same.fingerprint != other.fingerprint


def test_candidates_can_be_taken_and_put_together():
    one, two = candidates(5), candidates(4, seed=1)
    both = Candidates.concatenate([one, two])
    assert len(both) == 9
    part = both.take(np.array([8, 0]))
    np.testing.assert_array_equal(part.images, np.stack([two.images[3], one.images[0]]))
    np.testing.assert_array_equal(part.p1, [two.p1[3], one.p1[0]])
    np.testing.assert_array_equal(part.origin["row"], [3, 0])
