"""A model with a guard in front of its answers, to be called like the model itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondguess.errors import UserError
from secondguess.guard.guard import Guard
from secondguess.guard.judgements import Judgements
from secondguess.model.libraries import described_by_itself

if TYPE_CHECKING:
    from secondguess.model.classifier import Classifier

__all__ = ["Guarded"]


class Guarded:
    """A drop-in wrapper: call it with images as you would call the model.

        model = Guarded(classifier, "guard/")
        answer = model(images)
        answer.predictions, answer.probabilities, answer.p_values, answer.verdicts, answer.actions
        model(picture)[0].action                                       # of a single image

    Any number of threads may call it at the same time.

    Args:
        model: the classifier, or a model that `secondguess.Classifier` takes.
        guard: fitted on it, or the folder that such a guard was saved in.
    """

    def __init__(self, model: Any, guard: Guard | str | Path) -> None:
        from secondguess.model.classifier import Classifier

        if isinstance(guard, Guard):
            _ = guard.pipeline  # fitted?
            if not _is_guarded(model, guard.classifier):
                raise UserError("The guard was fitted on another model; fit one on this model, or hand in the other.")
            self.guard = guard
        else:
            self.guard = Guard.load(guard, Classifier.open(model))
        self.classifier: Classifier = self.guard.classifier

    def __call__(self, images: Any) -> Judgements:
        """Predictions, probabilities, p-values, verdicts and actions for one image or several."""
        return self.guard.judge(images)


def _is_guarded(model: Any, classifier: Classifier) -> bool:
    """Whether a model, or a classifier, is the one that a guard was fitted on."""
    from secondguess.model.classifier import Classifier

    if isinstance(model, Classifier):
        return model is classifier or (model.fingerprint is not None and model.fingerprint == classifier.fingerprint)
    model, _ = described_by_itself(model)
    return model is getattr(classifier.backend, "module", model)
