"""Agreement with other models: independently trained models that are right agree, those that are wrong need not.

The generalisation disagreement equality (Jiang et al., ICLR 2022): if the ensemble is calibrated, the rate at which two
members agree is the accuracy of one. Where it is not, the difference on the validation images is taken off:

    acc(V) + agreement(O) - agreement(V)

Agreement is the mean over the other models of the share of images with the same prediction, by the names of classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy.base import Estimator, EstimatorSettings, Rows
from secondguess.accuracy.referees import predicted_by
from secondguess.accuracy.registry import register
from secondguess.errors import UserError
from secondguess.model.observation import Observation

if TYPE_CHECKING:
    from secondguess.model.classifier import Classifier

__all__ = ["EnsembleAgreement"]


@register
class EnsembleAgreement(Estimator):
    """How often other models predict the same.

    Args:
        others: models for the same classes, in any order, trained apart from the one in question.
        corrected: whether to correct for the bias of agreement on the validation images.
        **settings: of every estimator: `resamples`, `level` and `seed`.
    """

    name = "ensemble_agreement"

    def __init__(
        self, others: Sequence[Classifier], corrected: bool = True, **settings: Unpack[EstimatorSettings]
    ) -> None:
        super().__init__(**settings)
        if not others:
            raise UserError("Agreement needs at least one other model; none was given.")
        self.others = others
        self.corrected = corrected
        self.name += "" if corrected else "_raw"

    @property
    def other_models(self) -> bool:
        """Always."""
        return True

    def _see(self, seen: Observation) -> Rows:
        agreement = np.zeros(len(seen))
        for other in self.others:
            agreement += predicted_by(other, seen) == seen.predictions
        return agreement / len(self.others), seen.predictions

    def _learn(self, seen: Rows, labels: NDArray[np.int64]) -> float:
        return float((seen[1] == labels).mean() - seen[0].mean()) if self.corrected else 0.0

    def _value(self, learnt: float, seen: Rows) -> float:
        return learnt + float(seen[0].mean())
