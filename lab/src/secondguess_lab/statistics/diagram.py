"""The critical-difference diagram: methods on an axis of mean ranks, bars over those that do not differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from markupsafe import Markup

    from secondguess_lab.statistics.friedman import Friedman

__all__ = ["critical_difference_diagram"]

LINE = 0.32  # inches a name takes


def critical_difference_diagram(test: Friedman) -> Markup:
    """Draw the outcome of a Friedman test: best method at the left, a bar joins those that do not differ.

    The bar above the axis is as long as the critical difference.
    """
    from secondguess.report.figures import ACCENT, INK, MUTED, canvas, to_svg

    order = np.argsort(test.ranks, kind="stable")
    methods, groups = len(order), test.groups()
    rows = (methods + 1) // 2
    with canvas(6.4, LINE * (rows + 0.5 * len(groups) + 3)) as (figure, axes):
        _axis(axes, methods, test.critical_difference, INK)
        ranks = dict(zip(test.names, test.ranks.tolist(), strict=True))
        for bar, names in enumerate(groups):
            depth = -0.35 - 0.4 * bar
            inside = [ranks[name] for name in names]
            axes.plot([min(inside) - 0.03, max(inside) + 0.03], [depth, depth], color=ACCENT, linewidth=3)
        floor = -0.5 - 0.4 * len(groups)
        for place, index in enumerate(order):
            left = place < rows
            depth = floor - (place if left else methods - 1 - place)
            rank, edge = float(test.ranks[index]), 1 - 0.15 if left else methods + 0.15
            axes.plot([rank, rank, edge], [0, depth, depth], color=MUTED, linewidth=0.8)
            text = f"{test.names[index]}  {rank:.2f}"
            axes.text(edge, depth, text, ha="right" if left else "left", va="center", color=INK)
        axes.set(xlim=(1 - 1.2 * (methods - 1) / 2, methods + 1.2 * (methods - 1) / 2), ylim=(floor - rows, 1.9))
        return to_svg(figure, f"Critical-difference diagram of {methods} methods over {test.blocks} blocks")


def _axis(axes: Any, methods: int, difference: float, ink: str) -> None:
    """Draw the axis of ranks: that of matplotlib would run below the names."""
    axes.axis("off")
    axes.plot([1, methods], [0, 0], color=ink, linewidth=1)
    for rank in range(1, methods + 1):
        axes.plot([rank, rank], [0, 0.15], color=ink, linewidth=1)
        axes.text(rank, 0.25, str(rank), ha="center", va="bottom", color=ink)
    axes.plot([1, 1 + difference], [1.25, 1.25], "|-", color=ink, linewidth=1)
    axes.text(1 + difference / 2, 1.35, f"CD = {difference:.2f}", ha="center", va="bottom", color=ink)
