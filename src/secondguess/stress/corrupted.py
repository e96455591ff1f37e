"""Corrupted images: nominal ones, spoilt. Their class is still what it was, and a good model might still see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from secondguess.errors import UserError
from secondguess.stress.base import StressSet
from secondguess.stress.corruptions import CORRUPTIONS, corrupt, find

if TYPE_CHECKING:
    from secondguess.classifier import Classifier
    from secondguess.data import ImageSet

__all__ = ["Corrupted"]

BLOCK = 1024  # images in double precision at a time; the result itself is one byte a value


class Corrupted(StressSet):
    """Each nominal image gets one corruption; the corruptions share the images equally, at random.

    Args:
        corruptions: names from `secondguess.stress.corruptions.CORRUPTIONS`; all of them if left out.
        severity: 1 to 5, or the published default of each corruption.
    """

    kind = "corrupted"

    def __init__(self, corruptions: Sequence[str] | None = None, *, severity: int | None = None) -> None:
        self.corruptions = tuple(CORRUPTIONS if corruptions is None else corruptions)
        self.severity = severity
        self.name = "corrupted" if corruptions is None else "_".join(["corrupted", *self.corruptions])
        if not self.corruptions:
            raise UserError("At least one corruption must be named.")
        for name in self.corruptions:
            find(name)

    def _make(self, nominal: ImageSet, seed: int, classifier: Classifier | None) -> ImageSet:
        from secondguess.data import ImageSet

        order = np.random.default_rng(seed).permutation(len(nominal))
        share = np.empty(len(nominal), dtype=np.int64)
        share[order] = np.arange(len(nominal)) % len(self.corruptions)
        images = np.empty((len(nominal), *nominal.shape), dtype=np.uint8)
        for index, name in enumerate(self.corruptions):
            mine = np.flatnonzero(share == index)
            for start in range(0, len(mine), BLOCK):
                rows = mine[start : start + BLOCK]
                spoilt = corrupt(nominal.images[rows], name, severity=self.severity, seed=(seed, start))
                images[rows] = np.rint(spoilt * 255).astype(np.uint8)
        return ImageSet.from_arrays(
            images,
            nominal.labels,
            class_names=nominal.class_names,
            name=f"{nominal.name}, {self.name}",
            layout="NCHW",
            columns={"corruption": np.array(self.corruptions)[share]},
        )
