"""What other models predict, as classes of the model in question.

Both sides know their classes by name. So a referee whose outputs are in another order is read by these names, and one
with other classes is refused. Classes that are called "0", "1", ... have no names: their numbers are taken for the
other side's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.classifier import Classifier
from secondguess.model.observation import Observation, are_numbers, shown_classes

__all__ = ["as_referee", "predicted_by"]


def as_referee(model: Any, judged: Classifier) -> Classifier:
    """Open another model, and make sure that its classes are those of the model that it judges, in whatever order."""
    referee = Classifier.open(model)
    own, theirs = judged.class_names, referee.class_names
    if own and theirs and set(own) != set(theirs):
        raise _other_classes(referee, theirs, own)
    return referee


def predicted_by(referee: Classifier, seen: Observation) -> NDArray[np.int64]:
    """The classes (n,) that a referee predicts for the images of an observation, by their numbers there."""
    theirs = referee.observe(seen.require_images("A referee"))
    if theirs.num_classes != seen.num_classes:
        raise UserError(
            f"The referee {referee.name} has {theirs.num_classes} classes, but the model in question "
            f"{seen.num_classes}; a referee needs the same classes."
        )
    own, named = seen.class_names, theirs.class_names
    if set(own) == set(named):
        places = {name: place for place, name in enumerate(own)}
        return np.array([places[name] for name in named])[theirs.predictions]
    if are_numbers(own) or are_numbers(named):
        return theirs.predictions
    raise _other_classes(referee, named, own)


def _other_classes(referee: Classifier, theirs: tuple[str, ...], own: tuple[str, ...]) -> UserError:
    return UserError(
        f"The referee {referee.name} has the classes {shown_classes(theirs)}, but the model in question has "
        f"{shown_classes(own)}; a referee needs the same classes, in any order."
    )
