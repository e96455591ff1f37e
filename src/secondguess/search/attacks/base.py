"""What an attack is: rounds over a `Walk`, each image's own end, and parameters that can be compared.

An attack holds parameters only. All that changes is in the walk, so that a run can be saved between two rounds and
taken up again, and images that are finished leave.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from torch import Tensor

from secondguess.search.attacks.decisions import Decisions
from secondguess.search.attacks.noise import Noise
from secondguess.search.attacks.walk import Walk

__all__ = ["Attack"]


@dataclass(frozen=True)
class Attack(ABC):
    """A search for the nearest image with another decision."""

    name: ClassVar[str]
    needs_start: ClassVar[bool] = True  # whether it needs a counterexample to start from
    needs_gradients: ClassVar[bool] = False
    usual_budget: ClassVar[int | None] = None  # queries per image by default; None ends by itself

    @property
    @abstractmethod
    def usual_queries(self) -> int:
        """Approximate number of queries per image, for showing progress."""

    @property
    @abstractmethod
    def least_queries(self) -> int:
        """The smallest budget it can work with, the first query and the last check of the counterexample included."""

    @abstractmethod
    def start(self, walk: Walk, decide: Decisions) -> None:
        """Prepare what the walk must remember, and make the first queries."""

    @abstractmethod
    def step(self, walk: Walk, decide: Decisions, noise: Noise) -> None:
        """One round for every image of the walk."""

    @abstractmethod
    def finished(self, walk: Walk, decide: Decisions) -> Tensor:
        """(m,) bool, which images are finished; none of them may be above its budget."""

    def settings(self) -> dict[str, Any]:
        """Name and parameters, for a record."""
        return {"attack": self.name, **asdict(self)}
