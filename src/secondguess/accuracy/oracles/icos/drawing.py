"""A pixel rule drawn over an image: green where it must be dark, red where it must be bright."""

from __future__ import annotations

import io
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from secondguess.accuracy.oracles.icos.features import grid_of
from secondguess.accuracy.oracles.icos.pixel_rules import PixelRule

__all__ = ["draw_rule", "to_png"]

GREEN, RED, AMBER = (0, 190, 80), (235, 40, 40), (250, 180, 0)
TINT = 0.4  # of the colour inside a cell, so that the image still shows through
LOOSE = 0.9  # a cell that may be nearly anything but white is outlined only
LONGEST = 336  # pixels on the longer side of the picture, or a little less


def draw_rule(rule: PixelRule, image: NDArray[np.float32], cell: int = 1) -> NDArray[np.uint8]:
    """Draw the conditions of a rule over an image.

    Args:
        rule: about cells of images of this shape.
        image: (C, H, W) in [0, 1], with one or three channels.
        cell: the side of a cell in pixels.

    Returns:
        A picture (h, w, 3), enlarged by a whole number. Cells that must be dark are green, cells that must be bright
        are red, and cells that must be neither too dark nor too bright are amber, in whichever colour plane. A green
        cell that may be almost white is outlined only.
    """
    channels, height, width = image.shape
    scale = max(1, LONGEST // max(height, width))
    planes = image[:3] if channels >= 3 else np.repeat(image[:1], 3, axis=0)
    levels = np.rint(np.clip(planes, 0, 1) * 255).astype(np.uint8)
    picture = np.moveaxis(levels, 0, -1).repeat(scale, axis=0).repeat(scale, axis=1)
    grid = grid_of((channels, height, width), cell)

    def cells(features: Iterable[int]) -> set[tuple[int, int]]:
        places = (np.unravel_index(feature, grid) for feature in features)
        return {(int(row), int(column)) for _, row, column in places}

    dark, bright = cells(rule.up_to), cells(rule.above)
    side = cell * scale
    loose = cells(feature for feature, bound in rule.up_to.items() if bound > LOOSE) - bright
    for row, column in sorted(dark | bright):
        colour = AMBER if (row, column) in dark & bright else GREEN if (row, column) in dark else RED
        square = picture[row * side : (row + 1) * side, column * side : (column + 1) * side]
        if (row, column) not in loose:
            square[:] = np.rint((1 - TINT) * square + TINT * np.array(colour)).astype(np.uint8)
        edge = max(1, side // 8)
        square[:edge] = square[-edge:] = square[:, :edge] = square[:, -edge:] = colour
    return picture


def to_png(picture: NDArray[np.uint8]) -> bytes:
    """A picture (h, w, 3) as a PNG file."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
