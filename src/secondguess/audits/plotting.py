"""Charts of an audit, from the answers that it kept image by image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from secondguess.audits.predictions import NOMINAL, Predictions
from secondguess.errors import UserError
from secondguess.metrics import aurc, risk_coverage
from secondguess.metrics.calibration import reliability_of_hits
from secondguess.report import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["What", "plot_predictions"]

What = Literal["risk", "reliability"]
OWN = "confidence"  # the score that every model has
DRAWN = 3  # curves of the best supervisors, beside that of the confidence


def plot_predictions(found: Predictions | None, what: What, ax: Axes | None) -> Axes:
    """Draw risk against coverage, or the reliability diagram, of the labelled test images."""
    if found is None or not (known := found.sets[NOMINAL].right | found.sets[NOMINAL].wrong).any():
        raise UserError("There is nothing to draw: the audit has no answers to labelled test images.")
    seen = found.sets[NOMINAL]
    if what == "reliability":
        diagram = reliability_of_hits(seen.confidence[known], seen.right[known])
        drawn = plots.reliability(
            diagram.edges, diagram.confidence, diagram.accuracy, diagram.count, plots.new_axes(ax, 4.6, 3.6)
        )
        drawn.set_xlabel("confidence of the prediction")
        return drawn
    if what != "risk":
        raise UserError(f"{what!r} cannot be drawn; choose 'risk' or 'reliability'.")
    wrong, scores = seen.wrong[known], {name: values[known] for name, values in seen.scores.items()}
    best = sorted(scores, key=lambda name: aurc(scores[name], wrong))[:DRAWN]
    chosen = {name: scores[name] for name in best} | {OWN: -seen.confidence[known]}
    curves = {name: risk_coverage(values, wrong) for name, values in chosen.items()}
    lines = {name: (one.coverage, one.risk) for name, one in curves.items()}
    return plots.risk_coverage(lines, plots.new_axes(ax, 4.6, 3.0))
