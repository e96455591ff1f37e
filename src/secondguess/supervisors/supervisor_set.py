"""Supervisors that score together: one pass over the images, one row of scores per image."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from secondguess.contracts.parameters import with_own_names
from secondguess.errors import UserError
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.supervisors.base import Supervisor

__all__ = ["SupervisorSet"]

TIMED = 16  # images that are scored one by one to know the cost of a supervisor


class SupervisorSet:
    """Supervisors under unique labels.

    Args:
        supervisors: one or more; two of the same name are distinguished by their layers, `mdsa@25%`, and by their other
            parameters, `dsa:subsampling=0.3`.

    Attributes:
        labels: m texts, also the names of their files.
    """

    def __init__(self, supervisors: Sequence[Supervisor]) -> None:
        if not supervisors:
            raise UserError("A guard needs at least one supervisor; name some, or leave supervisors='recommended'.")
        self.supervisors = tuple(supervisors)
        self.labels = _labels(self.supervisors)
        self.needs = Needs.union(self.supervisors)
        ready = all(one.is_fitted or not one.requires_fit for one in self.supervisors)
        known = {one.fitted_classes_ for one in self.supervisors if one.requires_fit and one.is_fitted}
        self._classes = (known.pop() if known else None) if ready and len(known) < 2 else -1  # -1: nothing fits

    @property
    def by_label(self) -> dict[str, Supervisor]:
        """The supervisors by their labels."""
        return dict(zip(self.labels, self.supervisors, strict=True))

    def __len__(self) -> int:
        return len(self.supervisors)

    def score(self, observation: Observation, which: Sequence[int] | None = None) -> NDArray[np.float64]:
        """The scores (n, m) of an observation by all supervisors, or (n, len(which)) by some of them.

        Each uses its `score_few`, and so agrees with its `score` to about four digits.
        """
        chosen = self.supervisors if which is None else [self.supervisors[index] for index in which]
        scores = np.empty((len(observation), len(chosen)))
        # What every supervisor checks is checked once for all of them; should it fail, each supervisor raises its own
        # error.
        sound = self._fits(observation)
        for column, one in enumerate(chosen):
            scores[:, column] = one._score_few(observation) if sound else one.score_few(observation)
        if np.isnan(scores).any():
            wrong = chosen[int(np.isnan(scores).any(axis=0).argmax())]
            raise ValueError(f"{wrong.name}: _score_few returned NaN for {int(np.isnan(scores).sum())} images")
        return scores

    def _fits(self, observation: Observation) -> bool:
        """Whether an observation holds all that is needed, of as many classes as the supervisors know."""
        needs = self.needs
        return (
            self._classes in (None, observation.num_classes)
            and needs.traces <= observation.traces.keys()
            and not (needs.logits and observation.logits is None)
            and not (needs.images and observation.pixels is None)
            and not needs.samples
            and len(observation) > 0
        )

    def fit(self, observation: Observation, labels: NDArray[np.int64] | None) -> SupervisorSet:
        """A set of freshly fitted supervisors; those that need no fitting are taken as they are."""
        fitted = [one.clone().fit(observation, labels) if one.requires_fit else one for one in self.supervisors]
        return SupervisorSet(fitted)

    def costs(self, observation: Observation) -> NDArray[np.float64]:
        """Milliseconds (m,) that each supervisor takes for a single image: the median of a few."""
        singles = [observation.take(np.array([row])) for row in range(min(TIMED, len(observation)))]
        return 1e3 * np.array([np.median([_seconds(one, image) for image in singles]) for one in self.supervisors])


def _labels(supervisors: Sequence[Supervisor]) -> tuple[str, ...]:
    labels = [one.name for one in with_own_names(supervisors)]
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise UserError(f"The supervisor {twice!r} is there twice; give each once, or with parameters of its own.")
    return tuple(labels)


def _seconds(supervisor: Supervisor, observation: Observation) -> float:
    began = time.perf_counter()
    supervisor.score_few(observation)
    return time.perf_counter() - began
