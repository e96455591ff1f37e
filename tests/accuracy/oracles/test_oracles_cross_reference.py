from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from secondguess.accuracy.oracles.cross_reference import CrossReference, majority
from secondguess.errors import UserError
from secondguess.model.classifier import Classifier
from secondguess.model.observation import Observation

Make = Callable[..., Observation]


def test_three_networks_vote_as_in_the_paper() -> None:
    """Net 1's prediction if it equals net 2's or net 3's; else net 2's if it equals net 3's; else none."""
    ballots = np.array(list(product(range(3), repeat=3)))
    wanted = [a if a in (b, c) else b if b == c else -1 for a, b, c in ballots]
    assert majority(ballots, 3).tolist() == wanted


@pytest.mark.parametrize("voters", [2, 4, 5])
def test_any_number_of_networks_needs_two_votes_and_no_tie(voters: int) -> None:
    ballots = np.random.default_rng(voters).integers(0, 4, (300, voters))
    for votes, winner in zip(ballots, majority(ballots, 4), strict=True):
        ranked = Counter(votes.tolist()).most_common()
        clear = ranked[0][1] >= 2 and (len(ranked) == 1 or ranked[0][1] > ranked[1][1])
        assert winner == (ranked[0][0] if clear else -1)


def test_verdicts_name_the_majority_and_count_ties_apart(evidence: Make) -> None:
    columns = {"b": np.array([0, 2, 1, 1]), "c": np.array(["cat", "fox", "fox", "dog"])}
    seen = evidence([0, 1, 0, 1], columns=columns, class_names=("cat", "dog", "fox"))
    verdicts = CrossReference(["b", "c"]).judge(seen)
    assert verdicts.wrong.tolist() == [0, 1, -1, 0]
    assert verdicts.advice.tolist() == [-1, 2, -1, -1]
    assert verdicts.reasons.tolist() == ["", "2 of 3 models say 'fox'", "", ""]
    assert verdicts.undecided == 1
    assert verdicts.share_passed() == 3 / 4
    assert verdicts.share_passed("fail") == 2 / 4


def test_classifiers_can_be_referees(evidence: Make) -> None:
    seen = evidence([0, 1, 2])
    always_two = Classifier(lambda images: np.eye(3)[np.full(len(images), 2)], output_kind="probabilities")
    verdicts = CrossReference([always_two, always_two]).judge(seen)
    assert verdicts.wrong.tolist() == [1, 1, 0]
    assert verdicts.advice.tolist() == [2, 2, -1]
    of_two = Classifier(lambda images: np.full((len(images), 2), 0.5), output_kind="probabilities", name="small")
    with pytest.raises(UserError, match="The referee small has 2 classes, but the model in question 3"):
        CrossReference([always_two, of_two]).judge(seen)
    with pytest.raises(UserError, match="A Classifier cannot be saved with an oracle"):
        CrossReference([always_two, always_two]).save("nowhere")


def test_bad_referees_are_refused(evidence: Make) -> None:
    seen = evidence([0, 1], columns={"b": np.array([0, 3]), "c": np.array(["0", "x"])})
    with pytest.raises(UserError, match="two or more referees"):
        CrossReference(["b"]).judge(seen)
    with pytest.raises(UserError, match=r"has no column 'z' .*its columns: b, c"):
        CrossReference(["z", "b"]).judge(seen)
    for column in ("b", "c"):
        with pytest.raises(UserError, match=f"The column '{column}' holds predictions that are none of the 3 classes"):
            CrossReference([column, column]).judge(seen)
