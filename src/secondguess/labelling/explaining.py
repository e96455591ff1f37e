"""Explanations as the page shows them: the image, its counterexample where one is known, and the prototype."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from secondguess.report.pictures import data_uri
from secondguess.search.explain import Explanation, explain, explain_pair, prototype

if TYPE_CHECKING:
    from secondguess.model.classifier import Classifier
    from secondguess.search.pool import Pool
    from secondguess.web.pictures import Album

__all__ = ["explainer"]

SAMPLES = 300  # enough to see; a person waits


def explainer(
    classifier: Classifier, current: Callable[[], Pool], album: Album, *, seed: int = 0
) -> Callable[[int], dict[str, Any]] | None:
    """A function from the position of an image to a text and pictures with captions; None without captum.

    Args:
        classifier: the system under test.
        current: returns the pool whose images are to be explained; its distances may come later.
        album: through which its images are read.
        seed: of the superpixels and of what is hidden.
    """
    if find_spec("captum") is None:
        return None

    def explained(row: int) -> dict[str, Any]:
        pool = current()
        names, distances = pool.observation.class_names, pool.distances
        image, predicted = album[row], int(pool.predictions[row])
        if distances is None or distances.failed[row]:
            first, second = explain(classifier, image, predicted, samples=SAMPLES, seed=seed), None
        else:
            first, second = explain_pair(classifier, image, distances.counterexamples[row], samples=SAMPLES, seed=seed)
        shown = [(image, f"The image; the model says {_sure(names[first.target], first)}")]
        shown += [(first.overlay(), f"What speaks for {names[first.target]}")]
        if second is not None:
            shown += [(second.image, f"Its counterexample; the model says {_sure(names[second.target], second)}")]
            shown += [(second.overlay(), f"What speaks for {names[second.target]}")]
        standing = None if distances is None else prototype(pool.predictions, distances.mae, predicted)
        if standing is not None:
            text = f"Prototype of {names[predicted]}: farthest from any other decision"
            shown += [(album[standing], text)]
        return {
            "text": "Teal parts speak for the class, orange parts against it.",
            "pictures": [{"image": data_uri(picture), "caption": caption} for picture, caption in shown],
        }

    return explained


def _sure(name: str, one: Explanation) -> str:
    return f"{name} ({100 * one.probability:.0f}\N{NO-BREAK SPACE}%)"
