from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from secondguess.errors import UserError
from secondguess_lab.statistics.friedman import critical_difference, friedman, mean_absolute_error


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("shape", [(12, 3), (30, 4), (8, 7)])
def test_friedman_is_scipys(shape, ties) -> None:
    values = np.random.default_rng(shape[0]).normal(size=shape) + 0.3 * np.arange(shape[1])
    if ties:
        values = np.round(values)
    found = friedman(values)
    referee = stats.friedmanchisquare(*values.T)
    assert found.chi2 == pytest.approx(referee.statistic)
    assert found.p_value == pytest.approx(referee.pvalue)
    assert found.ranks == pytest.approx(stats.rankdata(values, axis=1).mean(axis=0))


def test_iman_davenport_is_the_anova_of_the_ranks() -> None:
    """F of a two-way analysis of variance of the ranks, without interaction, is the same number."""
    values = np.random.default_rng(1).normal(size=(15, 4)) + 0.4 * np.arange(4)
    ranks = stats.rankdata(values, axis=1)
    between = 15 * ((ranks.mean(axis=0) - 2.5) ** 2).sum()
    rest = ((ranks - ranks.mean(axis=0)) ** 2).sum()
    f = (between / 3) / (rest / (3 * 14))
    found = friedman(values)
    assert found.f == pytest.approx(f)
    assert found.f_p_value == pytest.approx(stats.f.sf(f, 3, 42))


def test_pairs_and_critical_difference_agree() -> None:
    values = np.random.default_rng(2).normal(size=(25, 5)) + 0.5 * np.arange(5)
    found = friedman(values, ["a", "b", "c", "d", "e"])
    apart = np.abs(found.ranks[:, None] - found.ranks)
    assert ((found.pairwise < 0.05) == (apart > found.critical_difference)).all()
    assert (np.diag(found.pairwise) == 1).all()
    scale = np.sqrt(5 * 6 / (6 * 25))
    expected = stats.studentized_range.sf(apart[0, 4] * np.sqrt(2) / scale, 5, np.inf)
    assert found.pairwise[0, 4] == pytest.approx(expected)


@pytest.mark.parametrize(("methods", "blocks", "expected"), [(4, 360, 0.247), (3, 90, 0.349)])
def test_published_critical_differences(methods, blocks, expected) -> None:
    assert critical_difference(methods, blocks) == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)])
def test_the_quantiles_of_the_usual_table(methods, q) -> None:
    assert critical_difference(methods, 1) == pytest.approx(q * np.sqrt(methods * (methods + 1) / 6), rel=5e-4)


def test_groups_are_the_largest_that_do_not_differ() -> None:
    values = np.array([[0.0, 0.1, 5.0, 5.1, 9.0]]) + np.random.default_rng(3).normal(size=(60, 5))
    found = friedman(values, list("abcde")).groups()
    assert [set(group) for group in found] == [{"a", "b"}, {"c", "d"}]
    flat = np.random.default_rng(4).normal(size=(10, 3))
    assert len(friedman(flat, list("xyz")).groups()[0]) == 3


def test_blocks_that_all_agree() -> None:
    found = friedman(np.tile([1.0, 2.0, 3.0], (10, 1)))
    assert found.f == np.inf and found.f_p_value == 0.0
    assert found.names == ("0", "1", "2")


def test_mean_absolute_error() -> None:
    assert mean_absolute_error([0.9, 0.8], [0.95, 0.7]) == pytest.approx(0.075)


def test_bad_input() -> None:
    with pytest.raises(UserError, match=r"shape \(5, 2\)"):
        friedman(np.zeros((5, 2)))
    with pytest.raises(UserError, match="NaN or infinity"):
        friedman([[1, 2, np.nan], [1, 2, 3]])
    with pytest.raises(UserError, match="nothing to rank"):
        friedman(np.ones((5, 3)))
    with pytest.raises(UserError, match="2 names were given for 3 methods"):
        friedman(np.random.default_rng(0).random((5, 3)), ["a", "b"])
    with pytest.raises(UserError, match="1 methods, 5 blocks"):
        critical_difference(1, 5)
    with pytest.raises(UserError, match="2 estimates but 3 truths"):
        mean_absolute_error([1, 2], [1, 2, 3])
