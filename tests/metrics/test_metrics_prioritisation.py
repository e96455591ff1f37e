from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from secondguess.errors import UserError
from secondguess.metrics import apfd_curve
from secondguess.metrics.interval import bootstrap
from secondguess.metrics.prioritisation import (
    apfd,
    apfd_interval,
    avoidable_faults,
    best_apfd,
    fault_chances,
    share_of_first,
)

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=300)
WRONG = RNG.random(300) < 1 / (1 + np.exp(2 - SCORES))
CHANCES = np.where(RNG.random(300) < 0.3, RNG.random(300), WRONG)


def in_every_order(scores, faults):
    """The textbook's formula, averaged over all ways to break ties."""
    n, total = len(scores), sum(faults)
    falling = [order for order in permutations(range(n)) if all(scores[a] >= scores[b] for a, b in pairwise(order))]
    ranks = [sum(faults[i] * rank for rank, i in enumerate(order, 1)) for order in falling]
    return 1 - np.mean(ranks) / (n * total) + 1 / (2 * n)


@pytest.mark.parametrize("scores", [[3, 1, 4, 1, 5, 1], [2, 2, 2, 2, 2, 2], [1, 2, 2, 3, 3, np.inf]])
@pytest.mark.parametrize("faults", [[1, 0, 0, 1, 1, 0], [0.5, 0.2, 0, 1, 0, 0.3]])
def test_apfd_is_the_textbook_formula_with_ties_in_random_order(scores, faults):
    assert apfd(scores, faults) == pytest.approx(in_every_order(scores, faults))


def test_apfd_is_that_of_a_whole_search_and_an_auroc_on_another_scale():
    order = np.argsort(-SCORES)
    assert apfd(SCORES, WRONG) == pytest.approx(apfd_curve(WRONG[order], int(WRONG.sum()))[-1])
    share = WRONG.mean()
    ties = SCORES.round(1)
    auroc = roc_auc_score(WRONG, ties)
    assert apfd(ties, WRONG) == pytest.approx(1 - share / 2 - (1 - auroc) * (1 - share))
    assert best_apfd(WRONG) == pytest.approx(1 - share / 2)
    assert apfd(-WRONG.astype(float), WRONG) == pytest.approx(share / 2)


@pytest.mark.parametrize("faults", [WRONG, CHANCES])
@pytest.mark.parametrize("scores", [SCORES, SCORES.round(1)])
def test_the_interval_is_that_of_a_bootstrap(scores, faults):
    ours, theirs = apfd_interval(scores, faults), bootstrap(apfd, (scores, faults), resamples=1000)
    assert ours.value == theirs.value
    assert (ours.n, ours.level) == (300, 0.95)
    assert ours.high - ours.low == pytest.approx(theirs.high - theirs.low, rel=0.12)
    assert ours.low == pytest.approx(theirs.low, abs=0.01)


def test_order_and_scale_of_the_scores_do_not_matter():
    shuffled = RNG.permutation(300)
    assert apfd_interval(SCORES[shuffled], CHANCES[shuffled]).low == pytest.approx(apfd_interval(SCORES, CHANCES).low)
    assert apfd(np.exp(SCORES), CHANCES) == pytest.approx(apfd(SCORES, CHANCES))
    assert apfd(np.zeros(300), CHANCES) == pytest.approx(0.5)


def test_share_of_first_counts_ties_in_proportion():
    scores, which = [5, 4, 4, 4, 1], [True, True, False, False, True]
    assert share_of_first(scores, which, 1) == 1
    assert share_of_first(scores, which, 2) == pytest.approx((1 + 1 / 3) / 2)
    assert share_of_first(scores, which, 4) == pytest.approx(2 / 4)
    assert share_of_first(scores, which, 5) == pytest.approx(3 / 5)


def test_faults_of_ambiguous_images():
    soft = np.array([[1, 0, 0], [0.6, 0.4, 0], [0.6, 0.4, 0], [0.6, 0.4, 0], [0.95, 0.05, 0]])
    predictions = np.array([0, 0, 1, 2, 1])
    assert fault_chances(predictions, soft) == pytest.approx([0, 0.4, 0.6, 1, 0.95])
    assert avoidable_faults(predictions, soft).tolist() == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: apfd([1.0, 2.0], [False, False]), "at least one image that is answered wrongly"),
        (lambda: apfd([1.0, 2.0], [1.0, -1.0]), "must be 0 or above"),
        (lambda: apfd([1.0], [True, False]), "1 scores but 2 faults"),
        (lambda: share_of_first([1.0, 2.0], [True, False], 3), "first 3 of 2 images"),
        (lambda: fault_chances([3], [[0.5, 0.5]]), "hold class 3, but there are 2 classes"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()
