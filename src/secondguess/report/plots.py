"""Charts as matplotlib axes: drawn into those that are given, or into new ones, and returned to be restyled.

The pages draw the same charts in the colours of their roles (`figures`); the results' `plot` in plain ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PLAIN", "Palette", "intervals", "new_axes", "reliability", "risk_coverage"]

LONGEST = 26  # letters of a name beside a chart
FEW = 10  # a bar of fewer images is drawn faintly: its height is mostly noise

Row = tuple[str, tuple[float, float, float], str]  # name, (value, low, high), and what has become of it


@dataclass(frozen=True)
class Palette:
    """A colour for each role."""

    ink: str
    muted: str
    accent: str
    bad: str
    surface: str


PLAIN = Palette(ink="#222222", muted="#777777", accent="#2a6fc4", bad="#c4442a", surface="#ffffff")


def new_axes(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes that are given, or those of a new figure of that size in inches, which a notebook shows."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def reliability(
    edges: NDArray[np.float64],
    confidence: NDArray[np.float64],
    accuracy: NDArray[np.float64],
    counts: NDArray[np.int64],
    ax: Axes,
    colours: Palette = PLAIN,
) -> Axes:
    """Draw the accuracy of each bin of confidence against the diagonal; bins of few images are faint."""
    filled = counts > 0
    left, widths = edges[:-1][filled], np.diff(edges)[filled]
    bars = ax.bar(
        left, accuracy[filled], widths, align="edge", color=colours.accent, edgecolor=colours.surface, linewidth=1
    )
    for bar, count in zip(bars, counts[filled], strict=True):
        bar.set_alpha(0.8 if count >= FEW else 0.25)
    ax.plot([0, 1], [0, 1], "--", color=colours.muted, linewidth=1, label="perfect calibration")
    mean = confidence[filled]
    ax.plot(mean, mean, "o", color=colours.ink, markersize=3.5, label="mean confidence of a bin")
    ax.set(ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
    ax.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(-0.02, 1))
    return ax


def risk_coverage(
    curves: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]], ax: Axes, colours: Palette = PLAIN
) -> Axes:
    """Draw risk against coverage, one line for each name; four are told apart by colour and stroke."""
    styles = cycle(((colours.accent, "-"), (colours.bad, "-"), (colours.ink, "--"), (colours.muted, ":")))
    for (name, (coverage, risk)), (colour, stroke) in zip(curves.items(), styles, strict=False):
        ax.plot(coverage, risk, stroke, color=colour, linewidth=1.4, label=name)
    ax.set(xlabel="share of answers that are accepted", ylabel="share of these that are wrong", xlim=(0, 1))
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(-0.02, 1))
    return ax


def intervals(
    rows: Sequence[Row], axis: str, ax: Axes, colours: Palette = PLAIN, *, reference: float | None = None
) -> Axes:
    """Draw values with their intervals, one below the other.

    Args:
        rows: name, (value, low, high), and `better`, `worse` or another word, which choose the colour.
        axis: what the values are.
        ax: where to draw.
        colours: in which.
        reference: where a dashed line stands.
    """
    if reference is not None:
        ax.axvline(reference, color=colours.muted, linewidth=1, linestyle="--")
    for place, (_, (value, low, high), outcome) in enumerate(rows):
        colour = {"better": colours.accent, "worse": colours.bad}.get(outcome, colours.muted)
        ax.plot([low, high], [place, place], color=colour, linewidth=1.6, solid_capstyle="round")
        ax.plot(value, place, "o", color=colour, markersize=4)
    names = [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name, *_ in rows]
    ax.set_yticks(range(len(rows)), names)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel(axis)
    ax.locator_params(axis="x", nbins=5)
    return ax
