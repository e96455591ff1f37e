"""Whether a model is the one that something was fitted on.

Equal fingerprints say so. But a callable has none, and another version of a library can change that of a model that is
the same. So what is fitted and kept remembers, beside the fingerprint, what the model answered to a few images of
noise, the canaries: one that answers alike is taken for the same model, any other is refused. How its output is read
must be the same, too: that is no part of a fingerprint, and logits that are taken for probabilities are another model.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.needs import Needs

if TYPE_CHECKING:
    from secondguess.images import ImageSource
    from secondguess.model.classifier import Classifier

__all__ = ["Answers", "answers_to_canaries", "canaries", "recognise"]

Answers = Mapping[str, NDArray[Any]]

CANARIES = 8
TOLERANCE = 1e-3  # of what a model answers in another version of its library


def canaries(shape: tuple[int, int, int]) -> ImageSource:
    """The images of noise (C, H, W), always the same ones."""
    from secondguess.images.sources import ArraySource

    return ArraySource(np.random.default_rng(0).random((CANARIES, *shape), dtype=np.float32), "NCHW")


def answers_to_canaries(classifier: Classifier, shape: tuple[int, int, int]) -> dict[str, NDArray[Any]]:
    """What a classifier answers to them: probabilities and, on a scale on which large ones may be rounded, logits."""
    seen = classifier.observe(canaries(shape), Needs(logits="logits" in classifier.gives))
    answers: dict[str, NDArray[Any]] = {"probabilities": seen.probabilities}
    return answers if seen.logits is None else answers | {"logits": np.arcsinh(seen.logits)}


def recognise(
    classifier: Classifier,
    card: Mapping[str, Any],
    known: Answers,
    ask: Callable[[Classifier], Answers],
    *,
    what: str,
    stacklevel: int = 4,
) -> None:
    """Raise a `UserError` unless this is the model that something was fitted on; its output is then read as it was.

    Args:
        classifier: the model that is given.
        card: of the one that was fitted on: its `name`, `fingerprint` and, but for older files, `output_kind`.
        known: what that one answered to the canaries; empty where that was not kept.
        ask: gives what a classifier answers to them, by the names in `known`.
        what: was fitted, such as "guard".
        stacklevel: of the warning that a model is taken for the same although its fingerprint is another.
    """
    mine, its, kind = classifier.fingerprint, card["fingerprint"], card.get("output_kind", "auto")
    equal = its is not None and mine == its
    refusal = (
        f"The {what} was fitted on the model {card['name']!r} ({_shown(its)}), but {classifier.name!r} "
        f"({_shown(mine)}) is another one; fit a {what} on it, or, if it is the same network, open it with the mean, "
        "std and classes of then."
    )
    if not equal and not known:
        if its is not None:
            raise UserError(refusal)
        raise UserError(
            f"The {what} was fitted on the model {card['name']!r}, which has no fingerprint, and did not keep its "
            f"answers either, so that {classifier.name!r} cannot be recognised; fit the {what} again."
        )
    if "auto" not in (kind, classifier.output_kind) and kind != classifier.output_kind:
        raise UserError(
            f"The {what} was fitted on {card['name']!r} with its output read as {kind}, but here it is read as "
            f"{classifier.output_kind}; open the model with output_kind={kind!r}, or fit a {what} on it."
        )
    if not equal:
        _compare(classifier, kind, known, ask, refusal)
        if mine is not None and its is not None:
            warnings.warn(
                f"The fingerprint of {classifier.name!r} is not the one that the {what} was fitted on, but it answers "
                "alike (another version of its library, perhaps); it is taken for the same model.",
                stacklevel=stacklevel,
            )
    classifier.settle(kind)  # of no other model: it would be read wrongly


def _compare(
    classifier: Classifier, kind: Any, known: Answers, ask: Callable[[Classifier], Answers], refusal: str
) -> None:
    """Raise the refusal unless the classifier answers alike."""
    asked = copy.copy(classifier)  # which must not learn from noise how its output is read, nor from another's card
    asked.settle(kind)
    try:
        answers = ask(asked)
    except UserError as error:
        raise UserError(f"{refusal} ({error})") from error
    if not all(name in answers and _alike(answers[name], array) for name, array in known.items()):
        raise UserError(refusal)


def _alike(given: NDArray[Any], known: NDArray[Any]) -> bool:
    return given.shape == known.shape and np.allclose(given, known, rtol=TOLERANCE, atol=TOLERANCE)


def _shown(fingerprint: str | None) -> str:
    return "without a fingerprint" if fingerprint is None else f"fingerprint {fingerprint[:8]}"
