"""Oracles on an engine: workers take of each image what an oracle judges by, in the pass that observes the images.

Pixels and traces then stay where they were read. What comes back are a few numbers for each image, which the oracle
remembers as its own (`Oracle.remember`); verdicts, reasons and advice follow from them here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy.oracles.base import Oracle
from secondguess.engine.shared import fingerprint_of, travels
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.model.shards import observe_and_score
from secondguess.progress import Progress

if TYPE_CHECKING:
    from secondguess.images import ImageSet
    from secondguess.model.classifier import Classifier

__all__ = ["observe_and_inspect"]


@dataclass(frozen=True, eq=False)
class Inspector:
    """A fitted oracle as a scorer, whose numbers are what it inspects.

    Attributes:
        oracle: parameters and what was learnt, and nothing that was made of it since.
        fingerprint: of its code, its parameters and what it has learnt.
    """

    oracle: Oracle
    fingerprint: str

    @classmethod
    def of(cls, oracle: Oracle) -> Inspector:
        """Of a copy of an oracle."""
        bare = oracle.clone()
        bare._restore(oracle.state())
        return cls(bare, fingerprint_of(oracle))

    @property
    def name(self) -> str:
        """The fingerprint: several oracles may have one name."""
        return self.fingerprint

    @property
    def needs(self) -> Needs:
        """What the oracle needs, and the pixels."""
        return self.oracle.needs | Needs(images=True)

    def score(self, observation: Observation) -> NDArray[np.float64]:
        """(n, m) what the oracle inspects."""
        return self.oracle.inspect(observation).astype(np.float64)


def observe_and_inspect(
    classifier: Classifier,
    images: ImageSet,
    oracles: Sequence[Oracle],
    others: Sequence[Needs],
    *,
    progress: Progress | None = None,
) -> Observation:
    """Observe images on the workers of a classifier's engine, where oracles inspect them.

    Args:
        classifier: the system under test, with an engine.
        images: that are worth sending.
        oracles: fitted; each remembers what it inspected of the observation.
        others: what is needed of the observation here.
        progress: where to report the images done.
    """
    inspecting = [one for one in dict.fromkeys(oracles) if one.inspects and one.is_fitted and travels(one)]
    sent = {one: Inspector.of(one) for one in inspecting}
    back = Needs.union([*others, *(one.needs for one in oracles if one not in sent)])
    found = observe_and_score(classifier, images, list(sent.values()), back, progress=progress)
    failed = [one for one, scorer in sent.items() if scorer.name not in found.scores]
    seen = found.observation
    if failed:  # what they need comes here, where what is wrong can be said
        seen = classifier.observe(images, Needs.union([back, *(one.needs for one in failed)]), progress=progress)
    for one, scorer in sent.items():
        if one not in failed:
            values = found.scores[scorer.name]
            one.remember(seen, values.reshape(len(seen), -1).astype(np.int64))
    return seen
