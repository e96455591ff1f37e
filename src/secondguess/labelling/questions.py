"""What a labelling session tells annotators: the question, the comparison with the model's answer, the progress."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Comparison", "Found", "Question", "SessionProgress"]


@dataclass(frozen=True)
class Question:
    """An image for one annotator.

    Attributes:
        image: its position in the set.
        why: the reasons for asking about it, by name.
        look_alikes: positions of the images nearest to it, nearest first.
        before: the annotator's answer before it was undone, in words, or None.
        prediction: the model's answer and its confidence, or None where that is hidden.
    """

    image: int
    why: dict[str, float | str]
    look_alikes: list[int]
    before: str | None
    prediction: tuple[str, float] | None


@dataclass(frozen=True)
class Comparison:
    """An annotator's answer beside the model's.

    Attributes:
        image: position of the image.
        said: the annotator's answer in words.
        model: the model's class.
        confidence: of the model.
        wrong: whether the model's class has no share in the answer.
    """

    image: int
    said: str
    model: str
    confidence: float
    wrong: bool


@dataclass(frozen=True)
class Found(Comparison):
    """An error that was found, and by whom."""

    annotators: tuple[str, ...]


@dataclass(frozen=True)
class SessionProgress:
    """How far the session is.

    Attributes:
        labelled: images with a valid label.
        skipped: images that were skipped.
        mine: answers of the annotator who asks.
        remaining: images that have not been shown to any annotator yet.
        pool: images that may be asked about in all.
        goal: how many labels are wanted, or None.
        errors: labelled images on which the model is wrong.
        expected: how many of them would be errors if the confidences were right.
        can_undo: whether the annotator who asks has anything to undo.
    """

    labelled: int
    skipped: int
    mine: int
    remaining: int
    pool: int
    goal: int | None
    errors: int
    expected: float
    can_undo: bool
