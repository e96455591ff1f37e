"""Invalid images: pictures of something else altogether. No class is right, so every label is -1.

They come from another data set, from a formula, or from the nominal images themselves, spoilt beyond recognition:

    textures   noise, gratings, checkerboards and blobs (`secondguess.stress.textures`): no object, artificial statistics
    shuffled   nominal images cut into about 7 x 7 patches, each of which moves to another place: the same pixels, and the
               same strokes close up, but no object
    inverted   1 - v: not in the mix, since an inverted shirt is still a shirt; for classes that an inversion destroys

The default, `mixed`, takes equal shares of `photos`, `textures` and `shuffled`. Each alone can be told from nominal
images by a shallow rule, photographs by their grey levels, textures by their smoothness, and shuffled images by neither;
a supervisor that notices all three has seen more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secondguess.stress.base import StressSet
from secondguess.stress.textures import TEXTURES, texture

if TYPE_CHECKING:
    from secondguess.classifier import Classifier
    from secondguess.data import ImageSet, ImageSource

__all__ = ["MIX", "MIXED", "Invalid", "shuffle_patches"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

MIXED = "mixed"
MIX = ("photos", "textures", "shuffled")
GRID = 7


class Invalid(StressSet):
    """Images that show nothing the classifier knows, in the shape of the nominal ones and at most as many.

    The column `source` says what an image is; among `textures` alone, which texture.

    Args:
        source: `mixed`, `textures`, `shuffled`, `inverted`, or what `secondguess.data.load_images` takes: `photos`,
            `digits`, `mnist5k`, a folder of your own (`./textures` if it is called like one of these). What is out of
            this world for a classifier of digits need not be for one of holiday pictures: you decide.
    """

    kind = "invalid"

    def __init__(self, source: str = MIXED) -> None:
        self.source = source
        self.name = f"invalid_{source}" if source in GENERATED else "invalid"

    def _make(self, nominal: ImageSet, seed: int, classifier: Classifier | None) -> ImageSet:
        if self.source == MIXED:
            made = _mixed([_part(name, nominal, seed) for name in MIX], len(nominal), seed)
        else:
            made = _part(self.source, nominal, seed)
        return replace(made, name=f"{self.source}, as invalid {nominal.name}")


def shuffle_patches(images: Floats, keys: NDArray[np.floating[Any]]) -> Floats:
    """Move every patch of every image to another place, by a single cycle through all of them.

    Patches are a seventh of the image high and wide, rounded down, but at least two pixels where the image has four;
    what is left over at the lower and right edge stays.

    Args:
        images: (m, C, H, W).
        keys: (m, p) random numbers for the p patches (`patches(shape)`), whose order is the cycle.
    """
    (height, width), (rows, columns) = _patch(images.shape[2:]), _grid(images.shape[2:])
    inner = images[:, :, : rows * height, : columns * width]
    cut = inner.reshape(*images.shape[:2], rows, height, columns, width)
    flat = cut.transpose(0, 2, 4, 1, 3, 5).reshape(len(images), rows * columns, images.shape[1], height, width)
    cycle = np.argsort(keys, axis=1)
    moved = np.empty_like(flat)
    image = np.arange(len(images))[:, None]
    moved[image, np.roll(cycle, 1, axis=1)] = flat[image, cycle]
    tiles = moved.reshape(len(images), rows, columns, images.shape[1], height, width)
    result = images.copy()
    result[:, :, : rows * height, : columns * width] = tiles.transpose(0, 3, 1, 4, 2, 5).reshape(inner.shape)
    return result


def _patch(sides: Sequence[int]) -> tuple[int, int]:
    height, width = (max(2, side // GRID) if side >= 4 else 1 for side in sides)
    return height, width


def _grid(sides: Sequence[int]) -> tuple[int, int]:
    patch = _patch(sides)
    return sides[0] // patch[0], sides[1] // patch[1]


def _part(name: str, nominal: ImageSet, seed: int) -> ImageSet:
    """One kind of invalid images with the column `source`, as many as there are nominal ones or all there are."""
    kinds = np.full(len(nominal), name)
    if name in GENERATED:
        from secondguess.data import ImageSet

        read, kinds = GENERATED[name](nominal, seed)
        return ImageSet(_source(len(nominal), nominal.shape, read), _nothing(nominal), nominal.class_names)
    from secondguess.data import conform, load_images

    other = conform(load_images(name), nominal.shape)
    ...
