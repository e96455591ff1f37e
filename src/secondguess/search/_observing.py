"""The first observation of the images of a pool, which continues past images without a usable answer.

`Classifier.observe` refuses NaN and passes errors on. Where it does, the images at fault are found by
`secondguess.search.attacks.decisions` and left out of a second pass. They keep their places among the n images: answers
of people are kept by position, and must still belong to the same images when a model answers differently tomorrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.progress import Progress

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier

__all__ = ["observe_answered"]

Number = TypeVar("Number", bound="np.floating[Any]")
WITNESSES = 8  # images that are tried to see whether the model answers at all


def observe_answered(
    classifier: Classifier,
    images: ImageSet,
    needs: Needs,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Observation, NDArray[np.bool_]]:
    """Observe n images, except those that the classifier has no usable answer to.

    Returns:
        The observation, and which of the n images were answered (n,). The others have the same probability for all
        classes, and zeros for everything else that was requested.

    Raises:
        UserError: if the classifier answers no image at all, or cannot provide what is needed.
    """
    classifier.check(needs)
    try:
        seen = classifier.observe(images, needs, seed=seed, progress=progress)
    except Exception as error:  # a black box may raise anything
        answered = _answered(classifier, images, error)
    else:
        return seen, np.ones(len(images), dtype=np.bool_)
    seen = classifier.observe(images.take(np.flatnonzero(answered)), needs, seed=seed, progress=progress)
    return _spread(seen, images, answered), answered


def _answered(classifier: Classifier, images: ImageSet, error: Exception) -> NDArray[np.bool_]:
    """(n,) which images the classifier answers; raises the error again where it does not concern single images."""
    from secondguess.search.distance import first_answers

    few = np.unique(np.linspace(0, len(images) - 1, WITNESSES).astype(np.int64))
    if not any(_answers(classifier, images.take([row])) for row in few):
        raise error
    try:
        answered = first_answers(classifier, images.images, classifier.batch_size) >= 0
    except UserError:
        raise error from None
    if answered.all():
        raise error
    return np.asarray(answered)


def _answers(classifier: Classifier, images: ImageSet) -> bool:
    try:
        classifier.predict(images)
    except Exception:
        return False
    return True


def _spread(seen: Observation, images: ImageSet, answered: NDArray[np.bool_]) -> Observation:
    """The observation of the answered images, at their positions among all n."""

    def all_rows(values: NDArray[Number], fill: float) -> NDArray[Number]:
        rows = np.full((len(answered), *values.shape[1:]), fill, dtype=values.dtype)
        rows[answered] = values
        return rows

    even = 1 / seen.num_classes
    return seen.replace(
        probabilities=all_rows(seen.probabilities, even),
        logits=None if seen.logits is None else all_rows(seen.logits, 0),
        traces={trace: all_rows(values, 0) for trace, values in seen.traces.items()},
        samples=None if seen.samples is None else all_rows(seen.samples, even),
        images=images,
    )
