"""The answers of annotators about an image, their consensus, and the keys that give them.

An answer is a tuple of classes: one; several where the image is ambiguous, each with the same share; none where it is
invalid, that is, belongs to no class. Several answers about one image are averaged; where more than half of them call
it invalid, it is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError

__all__ = ["Answer", "checked", "consensus", "name_of", "shortcuts", "spoken"]

Answer = tuple[int, ...]

COMMANDS = "asieu"  # ambiguous, skip, invalid, explain, undo
DIGITS = tuple("1234567890")
KEYS = (*DIGITS, *(letter for letter in "qwertyuiopasdfghjklzxcvbnm" if letter not in COMMANDS))
LONGEST_NAME = 60


def checked(classes: Sequence[int], num_classes: int) -> Answer:
    """The answer with its classes in ascending order, a `UserError` if it is not valid."""
    if len(set(classes)) != len(classes) or any(not 0 <= one < num_classes for one in classes):
        raise UserError(f"The answer {list(classes)} is none: give different classes out of 0..{num_classes - 1}.")
    return tuple(sorted(classes))


def name_of(annotator: str) -> str:
    """The name of an annotator without spaces around it."""
    name = annotator.strip()
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise UserError(
            f"The annotator's name {name[:LONGEST_NAME]!r} cannot be used; give 1 to 60 visible characters."
        )
    return name


def consensus(answers: Collection[Answer], num_classes: int) -> NDArray[np.float64]:
    """One soft label (K,) out of at least one answer; a row of zeros says that the image is invalid."""
    label = np.zeros(num_classes)
    valid = [answer for answer in answers if answer]
    if 2 * len(valid) < len(answers):
        return label
    for answer in valid:
        label[list(answer)] += 1 / len(answer)
    return label / len(valid)


def spoken(answer: Answer, class_names: Sequence[str]) -> str:
    """The answer in words: a class, "3 or 8", "invalid"."""
    return " or ".join(class_names[one] for one in answer) or "invalid"


def shortcuts(class_names: Sequence[str]) -> list[str]:
    """The key of each class: its name where that is a digit; else 1..9, 0 and then letters; "" when none is left."""
    free = [key for key in KEYS if key not in class_names]
    taken: set[str] = set()
    keys = []
    for name in class_names:
        own = name in DIGITS and name not in taken
        keys.append(name if own else free.pop(0) if free else "")
        taken.add(name)
    return keys
