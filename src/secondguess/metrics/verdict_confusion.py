"""How well alarms find wrong predictions: rates, F1, and what they make of the accuracy.

The positive class is a wrong prediction. A verdict is 1 (judged wrong), 0 (judged right) or -1 (no decision).
Predictions without a decision are no true or false positives and no false negatives, but stay in the denominator of the
false positive rate: TN = n - TP - FP - FN, as in the study of Guerriero et al. (2023), whose numbers can be reproduced
only so.

With every prediction decided and a share e of them wrong, estimated and true accuracy differ by
(FN - FP) / n = (1 - TPR) e - FPR (1 - e): a good estimate needs as many misses as false alarms, not a good detector.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from secondguess.errors import UserError
from secondguess.metrics import checks

__all__ = ["VerdictConfusion", "verdict_confusion"]


@dataclass(frozen=True, slots=True)
class VerdictConfusion:
    """Verdicts against the truth.

    Attributes:
        true_positives: wrong predictions judged wrong.
        false_positives: right predictions judged wrong.
        false_negatives: wrong predictions judged right.
        true_negatives: all others.
        undecided: predictions without a decision.
    """

    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int
    undecided: int

    @property
    def n(self) -> int:
        """All predictions."""
        return self.true_positives + self.false_positives + self.false_negatives + self.true_negatives

    @property
    def tpr(self) -> float:
        """The share of wrong predictions that were found; 0 where there were none."""
        return _ratio(self.true_positives, self.true_positives + self.false_negatives)

    @property
    def fpr(self) -> float:
        """The share of other predictions judged wrong."""
        return _ratio(self.false_positives, self.false_positives + self.true_negatives)

    @property
    def precision(self) -> float:
        """The share of alarms that were right."""
        return _ratio(self.true_positives, self.true_positives + self.false_positives)

    @property
    def f1(self) -> float:
        """The harmonic mean of `tpr` and `precision`; 0 without a true positive."""
        return _ratio(2 * self.true_positives, 2 * self.true_positives + self.false_positives + self.false_negatives)

    @property
    def estimated_accuracy(self) -> float:
        """One minus the share of alarms, predictions without a decision counted as passed."""
        return 1 - _ratio(self.true_positives + self.false_positives, self.n)

    def to_dict(self) -> dict[str, float | int]:
        """Counts and rates."""
        counts = ("true_positives", "false_positives", "false_negatives", "true_negatives", "undecided")
        rates = ("tpr", "fpr", "precision", "f1", "estimated_accuracy")
        return {name: getattr(self, name) for name in (*counts, *rates)}


def verdict_confusion(verdicts: ArrayLike, correct: ArrayLike) -> VerdictConfusion:
    """Count verdicts (n,) of 1, 0 and -1 against whether each prediction is right, booleans (n,)."""
    judged = checks.integers(verdicts, "verdicts")
    right = np.asarray(correct)
    if right.dtype != bool or right.shape != judged.shape:
        raise UserError(
            f"{len(judged)} verdicts and an array of {right.dtype} of shape {right.shape} were given; "
            "say with one boolean each whether a prediction is right."
        )
    if not np.isin(judged, (-1, 0, 1)).all():
        raise UserError("A verdict is 1 (wrong), 0 (right) or -1 (no decision); others were given.")
    found = int(((judged == 1) & ~right).sum())
    false_alarms = int(((judged == 1) & right).sum())
    missed = int(((judged == 0) & ~right).sum())
    return VerdictConfusion(
        found, false_alarms, missed, len(judged) - found - false_alarms - missed, int((judged == -1).sum())
    )


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
