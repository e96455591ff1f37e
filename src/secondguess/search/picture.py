"""What a simulated search found, as a chart for a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from markupsafe import Markup

    from secondguess.search.simulation import SearchStudy

__all__ = ["search_chart"]

SETTLED = 10  # labels; before, a ratio to what was expected is mostly noise and may leave the chart


def search_chart(study: SearchStudy, method: str, *, reference: str = "random") -> Markup:
    """Errors found and confidence-matched lift over the labels, with the band of the repetitions, as inline SVG.

    The axes are the same for all methods of a study, so that their charts can be compared.

    Args:
        study: what searches found.
        method: the one to draw.
        reference: drawn in grey, where the study has it.
    """
    from secondguess.report.figures import ACCENT, INK, MUTED, canvas, to_svg

    labels = np.arange(1, study.budget + 1)
    with canvas(2.9, 2.9, nrows=2, sharex=True) as (drawing, axes):
        panels = (("errors", "mistakes found"), ("matched_lift", "times expected"))
        for panel, (metric, title) in zip(axes, panels, strict=True):
            drawn = study.curve(method, metric)
            panel.fill_between(labels, drawn.low, drawn.high, color=ACCENT, alpha=0.2, linewidth=0)
            if reference in study.outcomes and reference != method:
                panel.plot(labels, study.curve(reference, metric).pooled, color=MUTED, linewidth=1.2)
            panel.plot(labels, drawn.pooled, color=ACCENT, linewidth=1.8)
            highest = max(float(study.curve(one, metric).high[SETTLED - 1 :].max()) for one in study.outcomes)
            panel.set(ylabel=title, xlim=(0, study.budget), ylim=(0, 1.05 * max(highest, 1.0)))
        axes[1].axhline(1, color=INK, linewidth=0.8, linestyle=":")
        axes[1].set(xlabel="labels")
        return to_svg(drawing, f"{study.titles[method]}: mistakes found, and times those expected, over the labels")
