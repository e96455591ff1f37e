"""The contract of a stress set: test images that a classifier should not take at face value, with their provenance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal, final

from secondguess.errors import UserError

if TYPE_CHECKING:
    from secondguess.classifier import Classifier
    from secondguess.data import ImageSet

__all__ = ["Kind", "StressSet"]

Kind = Literal["ambiguous", "corrupted", "adversarial", "invalid"]


class StressSet(ABC):
    """Makes one kind of stressful images out of nominal ones.

    Attributes:
        kind: what is wrong with the images: their truth is ambiguous, they are corrupted, somebody attacked them, or
            they belong to no class at all.
        name: by which the set is known in reports and gates.
    """

    kind: ClassVar[Kind]
    name: str

    @final
    def make(self, nominal: ImageSet, *, seed: int = 0, classifier: Classifier | None = None) -> ImageSet:
        """The stress images.

        Args:
            nominal: images the classifier is made for; their shape and class names carry over.
            seed: same seed, same images.
            classifier: only attacks look at it.

        Returns:
            A set whose `columns` say where each image comes from. Labels are -1 where no class is right.
        """
        if len(nominal) == 0:
            raise UserError(f"The stress set {self.name!r} cannot be made from an empty set of images.")
        return self._make(nominal, seed, classifier)

    @abstractmethod
    def _make(self, nominal: ImageSet, seed: int, classifier: Classifier | None) -> ImageSet:
        """The images; `nominal` is not empty."""
