from __future__ import annotations

import pytest

from secondguess import UserError
from secondguess.hubris import family_means, rank_agreement, ranks

GAN = {"a": 0.1, "b": 0.5, "c": 0.7, "d": 0.9}
GUESS = {"d": 0.8, "c": 0.81, "b": 0.3, "a": 0.2, "e": 0.9}


def test_the_least_hubris_comes_first_and_ties_share() -> None:
    assert ranks({"x": 0.9, "y": 0.2, "z": 0.9}) == {"x": 2.5, "y": 1, "z": 2.5}
    with pytest.raises(UserError, match="at least one"):
        ranks({})


def test_agreement_counts_pairs_of_models() -> None:
    (found,) = rank_agreement({"ambigan": GAN, "ambiguess": GUESS})
    assert (found.first, found.second, found.models, found.family) == ("ambigan", "ambiguess", 4, None)
    # Five of the six pairs are ranked alike, c and d are not: tau = (5 - 1) / 6, and Σd² = 2 for Spearman.
    assert found.kendall == pytest.approx(4 / 6)
    assert found.spearman == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert found.p_value == pytest.approx(8 / 24), "8 of 24 orders are as far from chance"
    assert found.to_dict()["models"] == 4


def test_agreement_within_families_and_of_three_sets() -> None:
    families = {"a": "small", "b": "small", "c": "small", "d": "large"}
    found = rank_agreement({"one": GAN, "two": GUESS, "three": GAN}, families)
    told = [(one.first, one.second, one.family) for one in found]
    pairs = [("one", "two"), ("one", "three"), ("two", "three")]
    assert told == [(*pair, family) for pair in pairs for family in (None, "small")]
    assert all(one.kendall == pytest.approx(1) for one in found if one.family == "small")


def test_too_few_models_and_equal_models_have_no_agreement() -> None:
    assert rank_agreement({"one": {"a": 1, "b": 2}, "two": {"a": 1, "b": 2}}) == []
    (found,) = rank_agreement({"one": GAN, "two": dict.fromkeys(GAN, 0.5)})
    assert found.kendall is None and found.spearman is None


def test_family_means() -> None:
    assert family_means(GAN, {"a": "x", "b": "x", "c": "y", "d": "y"}) == pytest.approx({"x": 0.3, "y": 0.8})
    with pytest.raises(UserError, match="'d' belongs to no family"):
        family_means(GAN, {"a": "x", "b": "x", "c": "y"})
