"""What `overconfidence` returns: the hubris of predictions, or of models with its controls."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondguess.errors import UserError
from secondguess.files import make_folder, write_json, write_text
from secondguess.hubris.scores import Scores
from secondguess.hubris.table import HubrisTable, ModelRow
from secondguess.results import Result, flat, html_table, numbers_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from secondguess.stress.ambiguous import AmbiguousImages

__all__ = ["OverconfidenceResult"]

MOST_MODELS = 6  # in a summary


@dataclass(frozen=True, repr=False)
class OverconfidenceResult(Result):
    """How overconfident predictions are, or models on ambiguous images.

    Attributes:
        found: scores of bare predictions, or the table of the models.
        made: the ambiguous images that were made for the purpose; None where they were given.
    """

    found: Scores | HubrisTable
    made: AmbiguousImages | None = None

    def __repr__(self) -> str:
        return f"OverconfidenceResult({self.summary().splitlines()[0]})"

    @property
    def scores(self) -> Scores:
        """The scores of bare predictions."""
        if not isinstance(self.found, Scores):
            raise UserError("Models were measured, not bare predictions; their scores are in the rows of the table.")
        return self.found

    @property
    def table(self) -> HubrisTable:
        """The models with their controls."""
        if not isinstance(self.found, HubrisTable):
            raise UserError("Bare predictions were measured, not models, so there is no table; use scores.")
        return self.found

    def summary(self) -> str:
        """The indices of predictions; or one line for each of the first models, and what its columns mean."""
        if isinstance(self.found, Scores):
            return _scores_text(self.found)
        lines = self.found.lines()
        head, models, legend = lines[:2], lines[2 : 2 + len(self.found.rows)], lines[2 + len(self.found.rows) :][:2]
        if len(models) > MOST_MODELS:
            models = [*models[: MOST_MODELS - 1], f"and {len(models) - MOST_MODELS + 1} more models"]
        return "\n".join([*head, *models, *legend])

    def details(self) -> str:
        """Everything that the summary has no room for: all models, comparisons of equally accurate ones, and notes."""
        return self.summary() if isinstance(self.found, Scores) else "\n".join(self.found.lines())

    def to_dict(self) -> dict[str, Any]:
        """The scores, or the table with its comparisons; what `hubris.json` holds."""
        return self.found.to_dict()

    def rows(self) -> list[dict[str, Any]]:
        """A row for each model, or one for bare predictions."""
        if isinstance(self.found, Scores):
            return [flat(self.found.to_dict())]
        return [flat(row.to_dict()) for row in self.found.rows]

    def metrics(self) -> dict[str, float]:
        """The numbers of bare predictions, or of each model below its name."""
        if isinstance(self.found, Scores):
            return super().metrics()
        return {f"{row['model']}.{name}": value for row in self.rows() for name, value in numbers_in(row).items()}

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the absolute hubris of every model with its controls; the dotted line is as high as it goes.

        Args:
            ax: where to draw; a new figure if left out.
        """
        from secondguess.hubris.picture import LINE, plot_table
        from secondguess.report import plots

        return plot_table(self.table, plots.new_axes(ax, 6.0, 1.6 + LINE * max(3, len(self.table.rows))))

    def save(self, folder: str | Path) -> Path:
        """Write `hubris.json`; of models also `hubris.csv`, `hubris.png` and the ambiguous images that were made."""
        folder = make_folder(folder)
        write_json(folder / "hubris.json", self.to_dict())
        if isinstance(self.found, HubrisTable):
            from secondguess.hubris.picture import save_picture

            write_text(folder / "hubris.csv", self.found.to_csv())
            save_picture(self.found, folder / "hubris.png")
        if self.made is not None:
            self.made.save(folder / "companion")
        return folder

    def _repr_html_(self) -> str:
        """The indices with their intervals, or a row for each model."""
        if isinstance(self.found, Scores):
            rows = [("absolute hubris", self.found.absolute.value, f"{self.found.absolute.ceiling:.3f}")]
            if self.found.relative is not None:
                rows.append(("relative hubris", self.found.relative.value, f"{self.found.relative.ceiling:.3f}"))
            return html_table([*rows, ("ACD", self.found.acd, "0.500")], ("", "value", "at most"))
        header = ("model", "accuracy", "temperature", "hubris", "scaled", "clean", "slope")
        return html_table([_cells(row) for row in self.found.rows], header)


def _cells(row: ModelRow) -> tuple[str, ...]:
    slope = row.response.slope if row.response is not None else None
    return (
        row.model,
        f"{row.accuracy.value:.1%}",
        f"{row.temperature:.2f}",
        str(row.ambiguous.main.value),
        str(row.ambiguous_scaled.main.value),
        str(row.clean.absolute.value),
        "-" if slope is None else str(slope),
    )


def _scores_text(found: Scores) -> str:
    main = found.main
    against = "the reference" if found.relative is not None else "complete ambiguity"
    lines = [
        f"{len(found.absolute.scores):,} predictions",
        f"  absolute hubris  {found.absolute.value:.4f}   at most {found.absolute.ceiling:.4f}",
    ]
    if found.relative is not None:
        lines.append(f"  relative hubris  {found.relative.value:.4f}   at most {found.relative.ceiling:.4f}")
    return "\n".join(
        [
            *lines,
            f"  ACD              {found.acd:.4f}",
            f"  mean divergence  {main.mean_kl:.4f}   nats, from {against}",
            f"    of which over  {main.over:.4f}   surer than {against}; under {main.under:.4f}",
            f"  rescaled         {main.rescaled:.4f}   1 is the worst that predictions can do",
        ]
    )
