"""The supervisors of a guard, asked together: one pass over the images, one row of scores an image.

The recommended ones are what the comparison in `docs/supervisors.md` advises: no single one sees everything, so there
is one of each kind. Entropy and margin see ambiguity, the logits and the distances to the training data at three depths
of the model see the rest. `dsa` keeps 10,000 training traces, so that a guard stays a file of moderate size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from secondguess.errors import UserError
from secondguess.model.observation import Needs, Observation, Trace
from secondguess.supervisors import make, make_all
from secondguess.supervisors.base import Supervisor

if TYPE_CHECKING:
    from secondguess.model.classifier import Classifier

__all__ = ["RECOMMENDED", "SupervisorSet", "recommended"]

RECOMMENDED = "recommended"
EARLY = ("25%", "50%")  # of the depth; there, what is wrong with the pixels is still to be seen
KEPT = 10_000  # training traces of `dsa`
TIMED = 16  # images that are scored one by one to know the cost of a supervisor

Scorer = Callable[[Observation], NDArray[np.float64]]


def recommended(classifier: Classifier) -> list[Supervisor]:
    """The supervisors to take for a classifier, as far as it gives what they need."""
    made = make_all(["entropy", "pcs"])
    if "logits" in classifier.gives:
        made += make_all(["max_logit", "energy"])
    if "traces" in classifier.gives:
        made.append(make("dissector", batch_size=256))
        made += make_all(["mdsa", "relative_mahalanobis"])
        made += make_all(["vim"] if "logits" in classifier.gives else [])
        made.append(make("dsa", subsampling=KEPT, other_distances="fit"))
        for share in EARLY:
            made.append(make("mdsa_global", layers=Trace(share, "grid")))
            made.append(make("relative_mahalanobis", layers=Trace(share, "grid")))
    return made


class SupervisorSet:
    """Supervisors under labels that tell them apart.

    Args:
        supervisors: one or more; two of the same name are told apart by their layers, `mdsa@25%`.

    Attributes:
        labels: m texts, also the names of their files.
    """

    def __init__(self, supervisors: Sequence[Supervisor]) -> None:
        if not supervisors:
            raise UserError("A guard needs at least one supervisor; name some, or leave supervisors='recommended'.")
        self.supervisors = tuple(supervisors)
        self.labels = _labels(self.supervisors)
        self.needs = reduce(Needs.__or__, (one.needs for one in self.supervisors), Needs())
        self._scorers: list[Scorer] = [_scorer(one) for one in self.supervisors]

    def __len__(self) -> int:
        return len(self.supervisors)

    def scores(self, observation: Observation, which: Sequence[int] | None = None) -> NDArray[np.float64]:
        """The scores (n, m) of an observation by all supervisors, or (n, len(which)) by some of them."""
        chosen = self._scorers if which is None else [self._scorers[index] for index in which]
        scores = np.empty((len(observation), len(chosen)))
        for column, score in enumerate(chosen):
            scores[:, column] = score(observation)
        return scores

    def fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> SupervisorSet:
        """A jury of freshly fitted supervisors; those that need no fitting are taken as they are."""
        fitted = [one.clone().fit(observation, labels) if one.requires_fit else one for one in self.supervisors]
        return SupervisorSet(fitted)

    def costs(self, observation: Observation) -> NDArray[np.float64]:
        """Milliseconds (m,) that each supervisor takes for an image that comes alone: the median of a few."""
        singles = [observation.take(np.array([row])) for row in range(min(TIMED, len(observation)))]
        return 1e3 * np.array([np.median([_seconds(score, one) for one in singles]) for score in self._scorers])


def _labels(supervisors: Sequence[Supervisor]) -> tuple[str, ...]:
    names = [one.name for one in supervisors]
    labels = [
        one.name if names.count(one.name) == 1 or _layers(one) == "penultimate" else f"{one.name}@{_layers(one)}"
        for one in supervisors
    ]
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise UserError(f"The supervisor {twice!r} is there twice; give each once, or with layers of its own.")
    return tuple(labels)


def _layers(supervisor: Supervisor) -> str:
    layers = getattr(supervisor, "layers", "penultimate")
    chosen = [layers] if isinstance(layers, str | Trace) else list(layers)
    return "+".join(one.layer if isinstance(one, Trace) else one for one in chosen)


def _scorer(supervisor: Supervisor) -> Scorer:
    """How to ask a supervisor: by its `score`, or in a quicker way for an image that comes alone."""
    from secondguess.guard.quick import quick_mdsa
    from secondguess.supervisors.surprise.mdsa import MDSA, GlobalMDSA

    if type(supervisor) in (MDSA, GlobalMDSA):
        return quick_mdsa(supervisor)  # type: ignore[arg-type]
    return supervisor.score


def _seconds(score: Scorer, observation: Observation) -> float:
    began = time.perf_counter()
    score(observation)
    return time.perf_counter() - began
