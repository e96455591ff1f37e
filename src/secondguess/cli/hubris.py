"""`secondguess hubris`: how overconfident predictions, or models, are where the truth is ambiguous."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from secondguess.cli.groups import grouped
from secondguess.cli.options import (
    BETWEEN,
    COUNT,
    DATA,
    MODEL,
    Common,
    LoadingOptions,
    OptionalModel,
    Seed,
    print_json,
    say,
)
from secondguess.errors import UserError

__all__ = ["hubris"]

PREDICTIONS, MODELS = "Predictions", "Models"
SEVERAL = f"{MODEL} May be repeated."


@dataclass(frozen=True, kw_only=True)
class SeveralModels(OptionalModel):
    """The models to compare; what the options say holds for all of them."""

    model: Annotated[list[str] | None, typer.Option("--model", help=SEVERAL, rich_help_panel="Model")] = None  # type: ignore[assignment]


@grouped
def hubris(
    *,
    predictions: Annotated[
        Path | None,
        typer.Argument(
            help="A .csv or .npz file with a column p, or p0, p1, ... one for each class.", show_default=False
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            help="What to compare with: constant, a number, a file, or a column. [default: constant; with --model, the "
            "soft labels or the estimator of the ambiguous images]"
        ),
    ] = None,
    votes: Annotated[
        str | None,
        typer.Option(help="Votes of people as reference: a file, or a column.", rich_help_panel=PREDICTIONS),
    ] = None,
    smoothing: Annotated[
        float | None,
        typer.Option(
            help="Mixed into a reference that has zeros; with --votes, votes added to each class.",
            rich_help_panel=PREDICTIONS,
        ),
    ] = None,
    compat: Annotated[
        bool, typer.Option("--compat", help="Exactly as published.", rich_help_panel=PREDICTIONS)
    ] = False,
    models: SeveralModels,
    data: Annotated[str | None, DATA] = None,
    on: Annotated[
        str,
        typer.Option(
            "--on",
            help="A folder of ambiguous images, or what makes some: auto (what suits them), ambiguess, flow or blend.",
            rich_help_panel=MODELS,
        ),
    ] = "auto",
    between: Annotated[str | None, BETWEEN] = None,
    count: Annotated[int, COUNT] = 1000,
    loading: LoadingOptions,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for hubris.json and, with --model, .csv and .png.")
    ] = None,
    seed: Seed = 0,
    common: Common,
) -> None:
    """Measure overconfidence: score a file of predictions, or compare models on ambiguous images.

    Hubris is 0 for predictions as uncertain as the images are, .63 for random ones and at most .97 for two classes. It
    misleads alone: read docs/hubris.md. With `--model` the table has the controls: accuracy, the same model after
    temperature scaling, clean images, models of equal accuracy.

    **Examples**

    `secondguess hubris predictions.csv`

    `secondguess hubris predictions.csv --votes votes.csv --json`

    `secondguess hubris --model a.onnx --model b.pt2 --data mnist5k --between 9,8 --out out/hubris`

    `secondguess hubris --model model.toml --data photos/ --on out/companion --reference mean_probability`
    """
    from secondguess.hubris import open_models, overconfidence

    if predictions is not None and on != "auto":
        raise UserError("--on is for models, not for a file of predictions.")
    names = models.model
    result = overconfidence(
        open_models(names, **models.changes(), **loading.changes()) if names else None,
        data,
        on=on,
        between=between,
        predictions=predictions,
        reference=reference,
        votes=votes,
        smoothing=smoothing,
        compat=compat,
        count=count,
        seed=seed,
        device=models.device,
        folder=out,
        progress=common.progress,
        **loading.arguments(),
    )
    print_json(result.to_dict()) if common.json else say(result.details())
    if out is not None and not common.json:
        say(f"Written: {', '.join(sorted(str(path) for path in out.glob('hubris.*')))}")
