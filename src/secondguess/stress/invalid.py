"""Invalid images: pictures of something else altogether. No class is right, so every label is -1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from secondguess.stress.base import StressSet

if TYPE_CHECKING:
    from secondguess.classifier import Classifier
    from secondguess.data import ImageSet

__all__ = ["Invalid"]


class Invalid(StressSet):
    """Images of another data set, brought to the shape of the nominal ones.

    Args:
        source: what `secondguess.data.load_images` takes. The embedded `photos` are patches of two photographs: out of
            this world for a classifier of digits or X-rays, less so for one of holiday pictures. Better name a folder
            of your own.
    """

    kind = "invalid"

    def __init__(self, source: str = "photos") -> None:
        self.source = source
        self.name = "invalid"

    def _make(self, nominal: ImageSet, seed: int, classifier: Classifier | None) -> ImageSet:
        from dataclasses import replace

        from secondguess.data import conform, load_images

        other = conform(load_images(self.source), nominal.shape)
        if len(other) > len(nominal):
            other = other.head(len(nominal), seed=seed)
        return replace(
            other,
            labels=np.full(len(other), -1, dtype=np.int64),
            soft_labels=None,
            is_ambiguous=None,
            class_names=nominal.class_names,
            name=f"{self.source}, as invalid {nominal.name}",
            columns={"source": np.full(len(other), self.source)},
        )
