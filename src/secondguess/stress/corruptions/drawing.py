"""Drawing: lines and stripes over the image, and the image reduced to its edges.

MNIST-C defines these for 28 x 28 pixels. Here ends and stripes are fractions of the image, and lines grow with it; on
smaller images they keep their published thickness, or they would vanish between the pixels.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from secondguess.stress.corruptions.digital import luma
from secondguess.stress.corruptions.registry import Work, corruption

__all__ = ["canny_edges", "dotted_line", "line", "stripe", "zigzag"]

REACH = 2.3  # where the ink of a line 28 pixels long ends, in pixels above and below


@corruption()
def stripe(images: Work, rng: np.random.Generator) -> Work:
    """The left and the right quarter in negative: columns 0-6 and 21-27."""
    quarter = max(1, images.shape[3] // 4)
    column = np.arange(images.shape[3])
    return np.where((column < quarter) | (column >= images.shape[3] - quarter), 1 - images, images)


@corruption()
def line(images: Work, rng: np.random.Generator) -> Work:
    """A straight line in ink, v + l, from a column near the left edge (0-4) to one near the right (22-26).

    l = ln(1 - d / 2.3) + 1, cut to [0, 1], at d pixels above or below the line.
    """
    height, width = images.shape[2:]
    drawn = rng.random((len(images), 4))
    margin = max(1, round(5 * width / 28))
    first = np.floor(drawn[:, 0] * margin)
    last = width - 2 - np.floor(drawn[:, 1] * margin)
    return images + _ink(images, first, _row(drawn[:, 2], height), last, _row(drawn[:, 3], height))


@corruption()
def dotted_line(images: Work, rng: np.random.Generator) -> Work:
    """The ink of `line` from edge to edge, but only on columns 2-3, 6-7, 10-11, ..., 26."""
    height, width = images.shape[2:]
    rows = _row(rng.random((len(images), 2)), height)
    ink = _ink(images, np.zeros(len(images)), rows[:, 0], np.full(len(images), width - 1.0), rows[:, 1])
    dash = max(2, round(width / 14))
    return images + ink * (np.arange(width) // dash % 2)


@corruption()
def zigzag(images: Work, rng: np.random.Generator) -> Work:
    """A zigzag in the ink of `line`, from column 2 to 25, that ends 5 rows higher to 4 rows lower than it began."""
    height, width = images.shape[2:]
    unit = _unit(images)
    drawn = rng.random((len(images), 2))
    start = min(2 * unit, (width - 1) // 4)
    begin, drop = _row(drawn[:, 0], height), np.floor(drawn[:, 1] * 10) - 5
    result = images.copy()
    for rise in np.unique(drop):
        mine = drop == rise
        columns, rows = _zigzag(width - 1 - 2 * start, rise * unit, 2 * unit)
        ends = [(start + columns[k], begin[mine] + rows[k]) for k in range(len(columns))]
        for (c0, r0), (c1, r1) in pairwise(ends):
            result[mine] += _ink(images[mine], np.full(mine.sum(), c0), r0, np.full(mine.sum(), c1), r1)
    return result


def _zigzag(run: float, rise: float, tooth: float) -> tuple[Work, Work]:
    """The vertices (columns, rows) of a zigzag about the line from (0, 0) to (run, rise).

    Teeth are 2 tooth long and alternate between +tooth and -tooth; the last vertex lies where the published formula
    puts it, but never farther out than a tooth.
    """
    angle = np.arctan2(rise, run)
    length = np.hypot(run, rise)
    along = np.arange(tooth, length, 2 * tooth)
    across = tooth * (-1.0) ** np.arange(len(along))
    rest = length % (2 * tooth)
    if rest and len(along):
        along = np.append(along, length)
        across = np.append(across, np.clip(across[-1] / (2 * rest), -tooth, tooth))
    along, across = np.insert(along, 0, 0), np.insert(across, 0, 0)
    cos, sin = np.cos(angle), np.sin(angle)
    return cos * along - sin * across, sin * along + cos * across


def _ink(images: Work, c0: Work, r0: Work, c1: Work, r1: Work) -> Work:
    """Lines (n, 1, H, W) from (column c0, row r0) to (c1, r1), (n,) each, on columns floor(c0) .. ceil(c1) - 1."""
    c0, r0, c1, r1 = (end[:, None, None] for end in (c0, r0, c1, r1))
    row, column = np.ogrid[0 : images.shape[2], 0 : images.shape[3]]
    slope = np.divide(r1 - r0, c1 - c0, out=np.zeros_like(r0), where=c1 > c0)
    distance = np.abs(row - r0 - slope * (column - c0)) / (REACH * _unit(images))
    ink = (np.log1p(-distance.clip(max=1 - 1e-10)) + 1).clip(0, 1)
    return (ink * ((column >= np.floor(c0)) & (column < np.ceil(c1)) & (c1 > c0)))[:, None]


def _unit(images: Work) -> float:
    """By how much lines are larger than on 28 pixels."""
    return max(1.0, min(images.shape[2:]) / 28)


def _row(drawn: Work, height: int) -> Work:
    """A uniform number as one of the rows 0 .. height - 2."""
    return np.floor(drawn * max(1, height - 1))


@corruption()
def canny_edges(images: Work, rng: np.random.Generator) -> Work:
    """White edges on black: Canny's detector with a Gaussian of width 1 and thresholds 0.1 and 0.2.

    As in scikit-image: the blur weighs only what lies inside the image; the thresholds are on the norm of the gradient
    by Sobel's operators, whose weights sum to 4 on either side; an edge is a pixel off the border no weaker than what
    is interpolated on either side of it along its gradient; weak edges stay if they touch a strong one, diagonally or
    over other weak ones. Colour images are judged by their luma, and all channels get the same edges.
    """
    grey = luma(images)
    inside = ndimage.gaussian_filter(np.ones(grey.shape[1:]), 1, mode="constant")
    smooth = ndimage.gaussian_filter(grey, (0, 1, 1), mode="constant") / (inside + np.finfo(np.float64).eps)
    down, right = _sobel(smooth, 1, 2), _sobel(smooth, 2, 1)
    strength = np.sqrt(down**2 + right**2)
    weak = _crests(strength, down, right) & (strength >= 0.1)
    neighbours = np.zeros((3, 3, 3), dtype=bool)
    neighbours[1] = True  # within an image, never from one image to the next
    pieces, count = ndimage.label(weak, neighbours)
    kept = np.zeros(count + 1, dtype=bool)
    kept[pieces[weak & (strength >= 0.2)]] = True
    return np.broadcast_to(kept[pieces][:, None], images.shape).astype(np.float64)


def _sobel(planes: Work, along: int, across: int) -> Work:
    """The gradient of planes (n, H, W) along an axis by Sobel's operator; SciPy's own would mix neighbouring images."""
    difference = ndimage.correlate1d(planes, [-1, 0, 1], axis=along)
    return ndimage.correlate1d(difference, [1, 2, 1], axis=across)


def _crests(strength: Work, down: Work, right: Work) -> NDArray[np.bool_]:
    """Where the strength (n, H, W) is no less than on either side along the gradient, off the border."""
    padded = np.pad(strength, ((0, 0), (1, 1), (1, 1)))
    height, width = strength.shape[1:]

    def at(dy: int, dx: int) -> Work:
        return padded[:, 1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]

    falling = (down > 0) == (right > 0)  # the gradient points down right or up left
    steep = np.abs(down) > np.abs(right)
    short, long = np.minimum(np.abs(down), np.abs(right)), np.maximum(np.abs(down), np.abs(right))
    slant = np.divide(short, long, out=np.zeros_like(long), where=long > 0)
    crest = np.zeros(strength.shape, dtype=bool)
    crest[:, 1:-1, 1:-1] = True
    for way in (1, -1):
        diagonal = np.where(falling, at(way, way), at(-way, way))
        straight = np.where(steep, np.where(falling, at(way, 0), at(-way, 0)), at(0, way))
        crest &= diagonal * slant + straight * (1 - slant) <= strength
    return crest
