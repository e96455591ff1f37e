"""Charts as inline SVG that follow the page into dark mode.

Matplotlib does not support CSS variables, so charts are drawn in stand-in colours, one for each role, which the page's
variables replace in the finished SVG. Text stays text: it can be selected, searched and read aloud.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from secondguess.report import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "ACCENT",
    "BAD",
    "INK",
    "MUTED",
    "canvas",
    "changes",
    "histogram",
    "latent_space",
    "reliability",
    "risk_coverage",
    "to_svg",
]

INK, MUTED, GRID, ACCENT, BAD, SURFACE = "#010203", "#020304", "#030405", "#040506", "#050607", "#060708"
PAGE = plots.Palette(INK, MUTED, ACCENT, BAD, SURFACE)
ROLES = {INK: "ink", MUTED: "muted", GRID: "line", ACCENT: "accent", BAD: "bad", SURFACE: "surface"}

MOST_POINTS = 400  # of each class in a picture of latent space


@contextmanager
def canvas(width: float, height: float, **layout: Any) -> Iterator[tuple[Figure, Any]]:
    """A figure of that size in inches and its axes; what is drawn inside the block has the style of the page."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_style()):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots(**layout)


def to_svg(figure: Figure, label: str) -> Markup:
    """The figure as inline SVG; `label` is what a screen reader says."""
    import matplotlib as mpl

    buffer = io.StringIO()
    # The salt keeps ids of clip paths apart when several charts stand in one page, and the output reproducible.
    with mpl.rc_context(_style() | {"svg.hashsalt": label}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for colour, role in ROLES.items():
        svg = svg.replace(colour, f"var(--{role})")
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    return Markup(svg.replace("<svg", f'<svg class="chart" role="img" aria-label="{escape(label)}"', 1))


def reliability(
    edges: NDArray[np.float64],
    confidence: NDArray[np.float64],
    accuracy: NDArray[np.float64],
    counts: NDArray[np.int64],
) -> Markup:
    """A reliability diagram: accuracy of each confidence bin against the diagonal, and how full the bins are."""
    with canvas(4.6, 4.8, nrows=2, height_ratios=[3, 1], sharex=True) as (figure, (top, bottom)):
        plots.reliability(edges, confidence, accuracy, counts, top, PAGE)
        filled = counts > 0
        left, widths = edges[:-1][filled], np.diff(edges)[filled]
        bottom.bar(left, counts[filled], widths, align="edge", color=MUTED, edgecolor=SURFACE, linewidth=1)
        bottom.set(xlabel="confidence of the prediction", ylabel="images")
        return to_svg(figure, "Reliability diagram: accuracy against confidence")


def histogram(
    nominal: NDArray[np.float64], other: NDArray[np.float64], threshold: float, title: str, name: str
) -> Markup:
    """Scores of nominal images and of a stress set on one axis, with the alarm threshold."""
    with canvas(4.2, 2.4) as (figure, axes):
        bins = _bins(np.concatenate([nominal, other]))
        for scores, colour, label in ((nominal, ACCENT, "nominal"), (other, BAD, name)):
            shown = np.clip(scores[~np.isnan(scores)], bins[0], bins[-1])
            heights = np.histogram(shown, bins)[0] / len(scores)
            axes.stairs(heights, bins, fill=True, color=colour, alpha=0.55, label=label)
        if np.isfinite(threshold):
            axes.axvline(threshold, color=INK, linewidth=1, linestyle="--", label="threshold")
        axes.set(xlabel=f"{title} score, larger = more suspicious", yticks=[])
        axes.locator_params(axis="x", nbins=5)  # scores that differ little have long labels
        axes.spines["left"].set_visible(False)
        axes.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(-0.02, 1))
        return to_svg(figure, f"Scores of {title} on nominal and on {name} images")


def risk_coverage(curves: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]]) -> Markup:
    """Risk against coverage, one line for each name; at most four are told apart by colour and stroke."""
    with canvas(4.6, 3.0) as (figure, axes):
        plots.risk_coverage(curves, axes, PAGE)
        return to_svg(figure, f"Risk against coverage of {', '.join(curves)}")


def changes(rows: Sequence[plots.Row], axis: str, label: str) -> Markup:
    """Changes with their intervals, one below the other, and the line where nothing has changed.

    Args:
        rows: name, (value, low, high), and `better`, `worse` or another word.
        axis: what the values are.
        label: what a screen reader says.
    """
    with canvas(4.6, 0.75 + 0.21 * len(rows)) as (figure, axes):
        plots.intervals(rows, axis, axes, PAGE, reference=0)
        return to_svg(figure, label)


def latent_space(
    points: NDArray[np.float64],
    which: NDArray[np.int64],
    weights: NDArray[np.float64],
    bounds: tuple[float, float, float, float],
    drawn: NDArray[np.float64],
    names: tuple[str, str],
) -> Markup:
    """Where the images of two classes lie in an autoencoder's plane, and from where ambiguous ones were drawn.

    Args:
        points: (n, 2) of real images.
        which: (n,) 0 or 1, their class.
        weights: (S, S) of the cells, first index along x.
        bounds: (left, right, bottom, top) of the cells together.
        drawn: (m, 2) of the ambiguous images.
        names: of the two classes.
    """
    with canvas(4.6, 4.2) as (figure, axes):
        for index, colour in ((0, ACCENT), (1, BAD)):
            # As vectors, not pixels: only those can take the colours of the page.
            x, y = points[which == index][:MOST_POINTS].T
            axes.plot(x, y, "o", markersize=2.2, color=colour, alpha=0.6, markeredgewidth=0, label=names[index])
        share = weights.T / max(float(weights.max()), 1e-12)
        shade = np.zeros((*share.shape, 4))
        shade[..., :3], shade[..., 3] = 0.5, 0.55 * share  # grey is readable on light and dark alike
        axes.imshow(shade, extent=bounds, origin="lower", aspect="auto", interpolation="nearest")
        left, right, bottom, top = bounds
        outline = [(left, bottom), (right, bottom), (right, top), (left, top), (left, bottom)]
        axes.plot(*zip(*outline, strict=True), color=MUTED, linewidth=1, linestyle="--", label="confined space")
        axes.scatter(*drawn.T, s=14, marker="x", color=INK, linewidths=0.9, label="ambiguous images")
        axes.set(xlabel="first latent coordinate", ylabel="second latent coordinate", xlim=(-8, 8), ylim=(-6, 6))
        axes.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(-0.02, 1))
        return to_svg(figure, f"Latent space between {names[0]} and {names[1]}")


def _bins(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Thirty bins over the finite scores, but for the last percent, which the outer bins take in; one if all are equal.

    Some scores have tails a hundred times as long as everything else, which would be left with a single bin.
    """
    finite = scores[np.isfinite(scores)]
    if not finite.size or np.ptp(finite) == 0:
        centre = finite[0] if finite.size else 0.0
        return np.array([centre - 0.5, centre + 0.5])
    low, high = np.quantile(finite, [0.005, 0.995])
    return np.linspace(low, high, 31) if low < high else np.linspace(finite.min(), finite.max(), 31)


def _style() -> Any:
    return {
        "svg.fonttype": "none",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": MUTED,
        "axes.labelcolor": INK,
        "axes.titlesize": 9,
        "axes.titlecolor": INK,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "legend.fontsize": 8,
        "legend.labelcolor": INK,
        "legend.borderpad": 0,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "text.color": INK,
    }
