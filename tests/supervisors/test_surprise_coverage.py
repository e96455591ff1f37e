from __future__ import annotations

import json
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.supervisors.surprise.coverage import SurpriseCoverage

Scores = NDArray[np.float64]
SOME = np.random.default_rng(0).normal(1.0, 1.5, 400)


def by_definition(scores: Scores, upper: float, buckets: int) -> float:
    """The share of segments (U (i - 1) / n, U i / n] that hold a score."""
    return float(
        np.mean(
            [any(upper * (i - 1) / buckets < s <= upper * i / buckets for s in scores) for i in range(1, buckets + 1)]
        )
    )


def like_sadl(lower: float, upper: float, k: int, scores: Scores) -> float:
    """As a share rather than per cent."""
    return len(set(np.digitize(scores, np.linspace(lower, upper, k)).tolist())) / k


def like_dnn_tip(scores: Scores, sections: int, upper: float) -> NDArray[np.bool_]:
    """The boolean profile (scores, sections)."""
    edges = np.linspace(0, upper, sections + 1)
    return np.array([[low <= s < high for low, high in pairwise(edges)] for s in scores])


@pytest.mark.parametrize("buckets", [1, 7, 64])
def test_coverage_is_the_definition(buckets: int) -> None:
    scores = np.concatenate([SOME, [0.0, 4.0, 2.0]])  # borders: 0 is outside, the upper end inside
    assert SurpriseCoverage(0, 4, buckets).add(scores).coverage == by_definition(scores, 4, buckets)


def test_buckets_are_closed_on_the_right_and_the_rest_is_counted_apart() -> None:
    coverage = SurpriseCoverage(0, 4, 4).add(np.array([-1.0, 0.0, 1.0, 1.5, 4.0, 4.1, np.inf]))
    assert coverage.counts.tolist() == [1, 1, 0, 1]
    assert (coverage.underflow, coverage.overflow) == (2, 2)
    assert coverage.covered.tolist() == [True, True, False, True]
    assert coverage.coverage == 0.75
    assert coverage.edges.tolist() == [0, 1, 2, 3, 4]
    assert coverage.bucket_of(np.array([-1.0, 0.5, 9.0])).tolist() == [-1, 0, 4]
    assert repr(coverage) == "SurpriseCoverage((0, 4], 4 buckets: 75.0% covered, 2 scores below, 2 above)"


def test_negative_scores_can_be_covered() -> None:
    """LSA may be negative, and a range that begins at 0 never sees it."""
    assert SurpriseCoverage(-50, -20, 3).add(np.array([-45.0, -22.0])).coverage == pytest.approx(2 / 3)
    assert SurpriseCoverage(0, 2000, 3).add(np.array([-45.0, -22.0])).underflow == 2


@pytest.mark.parametrize("lower", [-1.0, 0.3])
def test_compat_with_sadl(lower: float) -> None:
    for scores in (SOME, SOME[lower < SOME], SOME[:1], np.array([9.0]), np.array([2.0])):
        coverage = SurpriseCoverage(lower, 2, 50, compat="sadl").add(scores)
        assert coverage.coverage == like_sadl(lower, 2, 50, scores)


def test_compat_with_sadl_counts_what_lies_outside() -> None:
    coverage = SurpriseCoverage(0, 1, 5, compat="sadl").add(np.array([-1.0, 0.0, 0.3, 1.0, 2.0, np.inf]))
    assert coverage.counts.tolist() == [1, 1, 0, 0]
    assert (coverage.underflow, coverage.overflow) == (1, 3)
    assert coverage.bucket_of(np.array([-0.1, 0.0, 0.99, 1.0])).tolist() == [-1, 0, 3, 4]
    assert coverage.coverage == 4 / 5
    assert coverage.add(np.array([0.6, 0.8])).coverage == 6 / 5
    assert repr(coverage) == "SurpriseCoverage([0, 1), 5 buckets: 120.0% covered, 1 scores below, 3 above)"


def test_compat_with_dnn_tip() -> None:
    scores = np.concatenate([SOME, [0.0, 2.0, 1.0]])
    coverage = SurpriseCoverage(0, 2, 40, compat="dnn-tip").add(scores)
    profile = like_dnn_tip(scores, 40, 2)
    np.testing.assert_array_equal(coverage.counts, profile.sum(axis=0))
    assert coverage.coverage == profile.any(axis=0).mean()
    assert coverage.underflow == (scores < 0).sum()
    assert coverage.overflow == (scores >= 2).sum()


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.floats(-5, 5), max_size=60),
    st.integers(0, 60),
    st.integers(2, 30),
    st.sampled_from([None, "sadl", "dnn-tip"]),
)
def test_batches_and_unions_count_like_the_whole(values: list[float], cut: int, buckets: int, compat: str) -> None:
    scores = np.array(values, dtype=np.float64)
    before = scores.copy()

    def fresh() -> SurpriseCoverage:
        return SurpriseCoverage(-2, 3, buckets, compat=compat)  # type: ignore[arg-type]

    whole = fresh().add(scores)
    batches = fresh().add(scores[:cut]).add(scores[cut:])
    union = fresh().add(scores[:cut]) | fresh().add(scores[cut:])
    for other in (batches, union):
        np.testing.assert_array_equal(other.counts, whole.counts)
        assert (other.underflow, other.overflow) == (whole.underflow, whole.overflow)
        assert other.coverage == whole.coverage
    assert whole.counts.sum() + whole.underflow + whole.overflow == len(scores)
    np.testing.assert_array_equal(scores, before)


def test_the_range_is_fixed_from_nominal_scores() -> None:
    coverage = SurpriseCoverage.from_nominal(np.array([-3.0, 1.0, 5.0, np.inf]), 4)
    assert (coverage.lower, coverage.upper, coverage.buckets) == (-3, 5, 4)
    assert coverage.counts.sum() == 0
    assert SurpriseCoverage.from_nominal(np.array([1.0, 5.0]), lower=0).lower == 0
    middle = SurpriseCoverage.from_nominal(np.arange(101.0), quantiles=(0.1, 0.9))
    assert (middle.lower, middle.upper) == (10, 90)
    small, large = (SurpriseCoverage(0, 4).add(scores).coverage for scores in (SOME[:50], SOME))
    assert small < large  # sadl's moving lower bound made such a comparison meaningless


@pytest.mark.parametrize("compat", [None, "sadl", "dnn-tip"])
def test_what_a_part_of_the_scores_would_cover_is_the_mean_over_all_parts(compat: Any) -> None:
    scores = np.array([-1.0, 0.1, 0.2, 0.3, 1.5, 1.6, 2.9, 3.5])
    whole = SurpriseCoverage(0, 3, 3, compat=compat).add(scores)
    for size in range(len(scores) + 1):
        parts = [
            SurpriseCoverage(0, 3, 3, compat=compat).add(np.array(part)).coverage for part in combinations(scores, size)
        ]
        assert whole.expected(size) == pytest.approx(np.mean(parts))
    with pytest.raises(UserError, match="8 scores were counted, so 9 of them"):
        whole.expected(9)


def test_sets_are_collected_in_a_file_whose_range_is_that_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "dsa.json"
    first = SurpriseCoverage.collect(path, np.array([0.5, 1.0, 4.0]), buckets=4)
    assert (first.own.lower, first.own.upper, first.before) == (0, 4, None)
    assert first.summary().startswith("50.0% of 4 buckets from 0 to 4 covered; 0.0% of the scores lie above; the range")
    second = SurpriseCoverage.collect(path, np.array([1.5, 5.0]))
    assert (second.own.coverage, second.before.coverage, second.together.coverage) == (0.25, 0.5, 0.75)
    assert second.summary().endswith("50.0% of the scores lie above; with those before 50.0% became 75.0%")
    assert second.to_dict()["above"] == 1 and SurpriseCoverage.load(path).total == 5
    lsa = SurpriseCoverage.collect(tmp_path / "lsa.json", np.array([-30.0, -20.0]), upper=10)
    assert (lsa.own.lower, lsa.own.upper, lsa.own.buckets, lsa.own.underflow) == (-30, 10, 1000, 1)
    with pytest.raises(UserError, match="has its range and its buckets already"):
        SurpriseCoverage.collect(path, np.array([1.0]), upper=3)


@pytest.mark.parametrize("compat", [None, "sadl", "dnn-tip"])
def test_a_coverage_survives_saving(tmp_path: Path, compat: Literal["sadl", "dnn-tip"] | None) -> None:
    coverage = SurpriseCoverage(0, 2, 30, compat=compat).add(SOME)
    coverage.save(tmp_path / "coverage.json")
    loaded = SurpriseCoverage.load(tmp_path / "coverage.json")
    assert repr(loaded) == repr(coverage)
    assert loaded.compat == compat
    np.testing.assert_array_equal(loaded.counts, coverage.counts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2, 2), "must go from a number to a larger one, not from 2 to 2"),
        ((0, np.inf), "not from 0 to inf"),
        ((0, 1, 0), "number of buckets is 0"),
        ((0, 1, 2.5), "number of buckets is 2.5"),
        ((0, 1, None), "number of buckets is None; it must be a whole number"),
        ((0, 1, np.inf), "number of buckets is inf"),
        ((0, 1, True), "number of buckets is True"),
        (("0", 1), "not from '0' to 1"),
    ],
)
def test_bad_ranges_are_refused(arguments: tuple[float, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        SurpriseCoverage(*arguments)  # type: ignore[arg-type]


def test_bad_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="one number per image without NaN"):
        SurpriseCoverage(0, 1).add(np.array([np.nan]))
    with pytest.raises(UserError, match=r"not an array of shape \(2, 1\)"):
        SurpriseCoverage(0, 1).add(np.ones((2, 1)))
    with pytest.raises(UserError, match="No finite nominal score"):
        SurpriseCoverage.from_nominal(np.array([np.inf]))
    with pytest.raises(UserError, match="can be united if their buckets are the same"):
        SurpriseCoverage(0, 1) | SurpriseCoverage(0, 2)
    with pytest.raises(UserError, match="compat must be one of None, 'sadl', 'dnn-tip', not 'usi'"):
        SurpriseCoverage(0, 1, compat="usi")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="There is no surprise coverage at"):
        SurpriseCoverage.load(tmp_path / "nowhere.json")
    for text in ("{", json.dumps({"lower": 0}), "[]"):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(UserError, match="is not a saved surprise coverage"):
            SurpriseCoverage.load(tmp_path / "bad.json")
