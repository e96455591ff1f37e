"""The first look at the images of a pool, which an image without an answer does not end.

`Classifier.observe` refuses NaN and passes errors on. Where it does, the images at fault are found by
`secondguess.search.attacks.decisions` and left out of a second look. They keep their places among the n images: answers
of people are kept by position, and must still belong to the same images when a model answers differently tomorrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.observation import Needs, Observation
from secondguess.progress import Progress

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier

__all__ = ["look"]

Number = TypeVar("Number", bound="np.floating[Any]")
WITNESSES = 8  # images that are tried to see whether the model answers at all


def look(
    classifier: Classifier,
    images: ImageSet,
    needs: Needs,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Observation, NDArray[np.bool_]]:
    """Look at n images and pass over those that the classifier has no answer to.

    Returns:
        The observation, and which of the n images were answered (n,). The others have the same probability for all
        classes, and zeros for whatever else was asked for.

    Raises:
        UserError: if the classifier answers nothing at all, or what is asked of it cannot be done.
    """
    classifier.check(needs)
    try:
        seen = classifier.observe(images, needs, seed=seed, progress=progress)
    except Exception as error:  # whatever a black box may raise
        answered = _answered(classifier, images, error)
    else:
        return seen, np.ones(len(images), dtype=np.bool_)
    seen = classifier.observe(images.take(np.flatnonzero(answered)), needs, seed=seed, progress=progress)
    return _spread(seen, images, answered), answered


def _answered(classifier: Classifier, images: ImageSet, error: Exception) -> NDArray[np.bool_]:
    """(n,) which images the classifier answers; the error again where that is no matter of single images."""
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
    """What was seen of the answered images, at their places among all n."""

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
