"""What an alarm is for: the model's errors, images unlike those it knows, or both.

| protect | an alarm is well placed on                              | and a false alarm on                            |
|---------|---------------------------------------------------------|-------------------------------------------------|
| errors  | any image that is answered wrongly, ordinary or strange | any image that is answered rightly              |
| novelty | images unlike nominal ones, however they are answered   | nominal images, however they are answered       |
| both    | either of them                                          | nominal images that are answered rightly        |

It decides from which images the panel learns to be quiet and to raise an alarm, and which nominal images the
false-alarm rate counts. An answer is right where the label says so; of a soft label, if the class has a share in it. An
image of no class has no right answer. Where nothing is known of an answer it is taken for neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.guard.verdicts import MISTAKEN, OF_STRESS, Kind

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.model.observation import Observation

__all__ = ["PROTECT", "Answers", "Examples", "Protect", "Stressed", "check_protect", "examples"]

Protect = Literal["errors", "novelty", "both"]
PROTECT: tuple[Protect, ...] = get_args(Protect)

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

SHARE = 0.1  # of a soft label, below which a class is a wrong answer
FEWEST = 10  # images of a kind, from which something can be learnt


def check_protect(protect: str) -> Protect:
    """The word, if it is one that is known."""
    for known in PROTECT:
        if protect == known:
            return known
    raise UserError(f"There is no protection against {protect!r}; there is {', '.join(PROTECT)}.")


@dataclass(frozen=True, eq=False)
class Answers:
    """Which of n predictions are right and which wrong; of the others nothing is known.

    Attributes:
        right: (n,).
        wrong: (n,).
    """

    right: Bools
    wrong: Bools

    @classmethod
    def of(cls, images: ImageSet, predictions: NDArray[np.int64], kind: str = "nominal") -> Answers:
        """From the labels of the images.

        Args:
            images: n of them, with classes in the order of the model's.
            predictions: (n,) classes.
            kind: of the stress set, where they are one; images of the kind `invalid` have no right answer.
        """
        if kind == "invalid":
            return cls(np.zeros(len(predictions), dtype=bool), np.ones(len(predictions), dtype=bool))
        if images.soft_labels is not None:
            right = images.soft_labels[np.arange(len(predictions)), predictions] >= SHARE
            return cls(right, ~right)
        known = images.labels >= 0
        right = predictions == images.labels
        return cls(known & right, known & ~right)

    @classmethod
    def of_observation(cls, seen: Observation, kind: str = "nominal") -> Answers:
        """From the images that were observed, whose labels count in the order of the model's classes there.

        The set that was given to be observed may have its classes in another order.
        """
        images = seen.require_images("Knowing which answers are right")
        if kind != "invalid" and (images.soft_labels is not None or images.is_labelled):
            seen.check_classes()
        return cls.of(images, seen.predictions, kind)

    @property
    def known(self) -> Bools:
        """Of which predictions it is known (n,)."""
        return self.right | self.wrong

    def take(self, rows: NDArray[Any]) -> Answers:
        """Those of some images."""
        return Answers(self.right[rows], self.wrong[rows])

    def quiet(self, protect: Protect) -> Bools:
        """On which of n nominal images an alarm would be false, (n,)."""
        return np.ones(len(self.wrong), dtype=bool) if protect == "novelty" else ~self.wrong


@dataclass(frozen=True, eq=False)
class Stressed:
    """The images of one kind of stress set.

    Attributes:
        scores: (k, m) of the supervisors.
        answers: what is known of the answers to them.
        sorts: (k,) of which sort each image is, such as a corruption; None where there is one.
    """

    scores: Floats
    answers: Answers
    sorts: NDArray[Any] | None = None

    @classmethod
    def joined(cls, parts: Sequence[Stressed]) -> Stressed:
        """Several sets as one; all of them have sorts."""
        known = [one.answers for one in parts]
        return cls(
            np.concatenate([one.scores for one in parts]),
            Answers(np.concatenate([one.right for one in known]), np.concatenate([one.wrong for one in known])),
            np.concatenate([one.sorts for one in parts if one.sorts is not None]),
        )

    def take(self, rows: NDArray[Any]) -> Stressed:
        """Some of the images."""
        sorts = None if self.sorts is None else self.sorts[rows]
        return Stressed(self.scores[rows], self.answers.take(rows), sorts)


@dataclass(frozen=True, eq=False)
class Examples:
    """The scores of the images that a panel learns from.

    Attributes:
        nominal: (n, m) of nominal images on which an alarm would be false.
        anomalies: (k, m) for each kind of anomaly.
        sorts: (k,) of the images of the kinds that have several sorts.
        harmless: (h, m) of strange images on which an alarm would be false, too; None where novelty itself is a reason
            for an alarm.
    """

    nominal: Floats
    anomalies: Mapping[Kind, Floats]
    sorts: Mapping[Kind, NDArray[Any]] = field(default_factory=dict)
    harmless: Floats | None = None


def examples(
    protect: Protect,
    nominal: Floats,
    answers: Answers,
    stress: Mapping[str, Stressed],
    *,
    learnt: bool = True,
) -> Examples:
    """What a panel learns from.

    Args:
        protect: what an alarm is for.
        nominal: (n, m) scores of nominal images.
        answers: what is known of the answers to them.
        stress: the images of each kind of stress set.
        learnt: whether the panel learns from anomalies; a plain rule needs none.
    """
    if not learnt:
        return Examples(nominal if protect == "novelty" else nominal[~answers.wrong], {})
    quiet, mistaken = nominal[~answers.wrong], nominal[answers.wrong]
    own: dict[Kind, Floats] = {MISTAKEN: mistaken} if len(mistaken) >= FEWEST and protect != "novelty" else {}
    if protect != "errors":
        found = {OF_STRESS[kind]: one for kind, one in stress.items()}
        return Examples(nominal if protect == "novelty" else quiet, _scores(found) | own, _sorts(found))
    wrong = {OF_STRESS[kind]: one.take(one.answers.wrong) for kind, one in stress.items()}
    wrong = {kind: one for kind, one in wrong.items() if len(one.scores) >= FEWEST}
    if not (wrong or own):
        raise UserError(
            f"The model answers fewer than {FEWEST} of these images wrongly, so a guard cannot learn what its errors "
            "look like; give more images, or protect against novelty."
        )
    harmless = np.concatenate([quiet[:0], *(one.scores[one.answers.right] for one in stress.values())])
    return Examples(quiet, own | _scores(wrong), _sorts(wrong), harmless)


def _scores(found: Mapping[Kind, Stressed]) -> dict[Kind, Floats]:
    return {kind: one.scores for kind, one in found.items()}


def _sorts(found: Mapping[Kind, Stressed]) -> dict[Kind, NDArray[Any]]:
    return {kind: one.sorts for kind, one in found.items() if one.sorts is not None}
