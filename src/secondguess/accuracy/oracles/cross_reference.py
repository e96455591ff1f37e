"""The cross-referencing oracle: the majority of several models is taken for the truth.

The classifier under test and its referees vote; the class with most votes wins if it has at least two of them and no
other class has as many. A prediction that differs from it is judged wrong, with the winner as advice. Without a winner
there is no decision: those predictions are counted apart (`Verdicts.undecided`), and code that turns verdicts into an
accuracy decides how to count them (`Verdicts.share_passed`).

Source: Srisakaokul et al., "Multiple-implementation testing of supervised learning software", 2018, in the form with
three networks that Guerriero et al. (2023) compare ICOS with, generalised to any number of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy.oracles.base import RIGHT, UNDECIDED, WRONG, Oracle, Verdicts
from secondguess.accuracy.oracles.registry import register
from secondguess.accuracy.referees import predicted_by
from secondguess.errors import UserError
from secondguess.model.observation import Observation

if TYPE_CHECKING:
    from secondguess.model.classifier import Classifier

__all__ = ["CrossReference", "majority"]


def majority(ballots: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """The class (n,) that wins among the votes (n, m): at least two and more than any other; -1 where none does."""
    counts = np.zeros((len(ballots), classes), dtype=np.int64)
    for vote in ballots.T:
        counts[np.arange(len(ballots)), vote] += 1
    top = counts.max(axis=1)
    won = (top >= 2) & ((counts == top[:, None]).sum(axis=1) == 1)
    return np.where(won, counts.argmax(axis=1), -1)


@register
class CrossReference(Oracle):
    """Judges predictions by the majority of several models, of which the classifier under test is one.

    Args:
        referees: the other models, two or more: each a `Classifier` for the same classes, in any order, or the name of
            a column of the observation that holds its predictions (whole numbers, or class names).
    """

    name = "cross_reference"
    requires_fit = False

    def __init__(self, referees: Sequence[Classifier | str] = ("referee_1", "referee_2")) -> None:
        self.referees = referees

    def _judge(self, operation: Observation) -> Verdicts:
        if isinstance(self.referees, str) or len(self.referees) < 2:
            raise UserError(
                "Cross-referencing needs two or more referees beside the classifier: with a single one, "
                "a disagreement does not show which is wrong."
            )
        own = operation.predictions
        ballots = np.stack([own, *(_predicted(referee, operation) for referee in self.referees)], axis=1)
        names = operation.class_names
        if not operation.classes_are_known:  # a referee may know classes that the classifier never predicts
            names = tuple(str(k) for k in range(max(len(names), int(ballots.max()) + 1)))
        winner = majority(ballots, len(names))
        wrong = np.where(winner < 0, UNDECIDED, np.where(winner == own, RIGHT, WRONG))
        reasons = np.full(len(own), "", dtype=object)
        for row in np.flatnonzero(wrong == WRONG):
            agreeing = int((ballots[row] == winner[row]).sum())
            reasons[row] = f"{agreeing} of {ballots.shape[1]} models say {names[winner[row]]!r}"
        return Verdicts.make(wrong, reasons, np.where(wrong == WRONG, winner, -1))


def _predicted(referee: Classifier | str, operation: Observation) -> NDArray[np.int64]:
    """The classes (n,) that a referee predicts."""
    if not isinstance(referee, str):
        return predicted_by(referee, operation)
    names, columns = operation.class_names, operation.columns
    if referee not in columns:
        known = ", ".join(columns) or "none"
        raise UserError(
            f"The set {operation.name!r} has no column {referee!r} with a referee's predictions (its columns: {known})."
        )
    given = np.asarray(columns[referee])
    if given.dtype.kind not in "iu":
        place = {name: number for number, name in enumerate(names)}
        given = np.array([place.get(str(one), -1) for one in given])
    if given.min() < 0 or (operation.classes_are_known and given.max() >= len(names)):
        raise UserError(f"The column {referee!r} holds predictions that are none of the {len(names)} classes.")
    return given.astype(np.int64)
