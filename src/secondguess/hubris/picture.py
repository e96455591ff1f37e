"""The benchmark as a picture: hubris with its controls, and the response curves."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from secondguess.files import atomic_path
from secondguess.hubris.response import Response
from secondguess.hubris.table import HubrisTable

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes

__all__ = ["plot_table", "response_chart", "save_picture"]

SETS = (
    ("ambiguous", "ambiguous", "#c4442a"),
    ("ambiguous_scaled", "ambiguous, temperature", "#e8a18f"),
    ("clean", "clean", "#2a6fc4"),
    ("clean_scaled", "clean, temperature", "#93b8e6"),
)
LINE = 0.62  # inches per model


def save_picture(table: HubrisTable, path: str | os.PathLike[str]) -> None:
    """Write a PNG: absolute hubris of each model with its controls, the ceiling, and answers against the dial."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 1.6 + LINE * max(3, len(table.rows))), layout="constrained", dpi=120)
    bars, curves = figure.subplots(ncols=2, width_ratios=[3, 2])
    plot_table(table, bars)
    curves.plot([0, 1], [0, 1], linestyle="--", color="#777777", linewidth=1)
    for row in table.rows:
        if row.response is not None:
            curves.plot(row.response.dial, row.response.answer, "o-", markersize=3, label=row.model)
    curves.set(xlim=(0, 1), ylim=(0, 1), xlabel="dial: share of the first class", ylabel="mean answer of the model")
    if any(row.response is not None for row in table.rows):
        curves.legend(frameon=False, fontsize=8)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png")


def plot_table(table: HubrisTable, bars: Axes) -> Axes:
    """Draw the absolute hubris of each model with its controls, and the ceiling, into axes."""
    names = [row.model for row in table.rows]
    places = np.arange(len(names), dtype=float)
    for offset, (attribute, label, colour) in enumerate(SETS):
        found = [getattr(row, attribute).absolute.value for row in table.rows]
        values = np.array([one.value for one in found])
        errors = np.abs(np.array([[one.value - one.low for one in found], [one.high - one.value for one in found]]))
        bars.barh(places + 0.2 * (offset - 1.5), values, 0.19, xerr=errors, color=colour, label=label, ecolor="#333333")
    bars.axvline(table.rows[0].ambiguous.absolute.ceiling, color="#333333", linewidth=1, linestyle=":")
    bars.set(yticks=places, yticklabels=names, xlim=(0, 1), xlabel="absolute hubris (dotted: as high as it goes)")
    bars.invert_yaxis()
    bars.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    return bars


def response_chart(plain: Response, scaled: Response) -> Markup:
    """Draw answers against the dial for a report: the model as it is, with the spread of its answers, and scaled."""
    from secondguess.report.figures import ACCENT, BAD, INK, MUTED, canvas, to_svg

    with canvas(4.6, 3.8) as (figure, axes):
        axes.plot([0, 1], [0, 1], "--", color=MUTED, linewidth=1, label="follows the dial")
        axes.fill_between(plain.dial, plain.low, plain.high, color=BAD, alpha=0.2, linewidth=0)
        axes.plot(plain.dial, plain.answer, "o-", color=BAD, markersize=3.5, label="the model")
        axes.plot(scaled.dial, scaled.answer, "o-", color=ACCENT, markersize=3.5, label="with its temperature")
        axes.axhline(0.5, color=INK, linewidth=0.5)
        axes.set(xlabel="share of the first class in the soft label", ylabel="model's share", xlim=(0, 1), ylim=(0, 1))
        axes.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(-0.02, 1))
        return to_svg(figure, "Response curve: the model's answer against the soft label")
