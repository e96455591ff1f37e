"""`secondguess estimate`: how accurate a model is on images without labels."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from secondguess.cli.groups import grouped
from secondguess.cli.options import (
    IMAGES,
    MAX_TRAIN,
    TRAIN,
    VALIDATION,
    Common,
    LoadingOptions,
    ModelOptions,
    PlanOptions,
    Seed,
    open_classifier,
    say,
)
from secondguess.errors import UserError

__all__ = ["estimate"]

MINUTES = 3.0


@grouped
def estimate(
    *,
    model: ModelOptions,
    images: Annotated[str, IMAGES],
    like: Annotated[
        str | None,
        typer.Option(help="A labelled data set of the same kind, instead of --train.", rich_help_panel="Data"),
    ] = None,
    train: Annotated[str | None, TRAIN] = None,
    validation: Annotated[str | None, VALIDATION] = None,
    rules: Annotated[
        Path | None,
        typer.Option(
            help="Which labels can occur where, as TOML or JSON; see docs/accuracy.md.", rich_help_panel="Data"
        ),
    ] = None,
    referee: Annotated[
        list[str] | None,
        typer.Option(
            help="Another model for the same classes; repeat it. Two or more outvote the model (cross-referencing).",
            rich_help_panel="Methods",
        ),
    ] = None,
    selfchecker: Annotated[
        bool,
        typer.Option(
            "--selfchecker", help="Ask SelfChecker, too: do the inner layers agree?", rich_help_panel="Methods"
        ),
    ] = False,
    max_train: Annotated[int, MAX_TRAIN] = 10_000,
    widest: Annotated[
        float, typer.Option(help="The widest interval with which a number is given; beyond, it cannot be said.")
    ] = 0.35,
    loading: LoadingOptions,
    plan: PlanOptions,
    watch: Annotated[
        bool, typer.Option("--watch", help="Estimate again whenever images come or go, until Ctrl-C.")
    ] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two scans with --watch.")] = 5.0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for estimate.json; nothing is written without it.")
    ] = None,
    seed: Seed = 0,
    common: Common,
) -> None:
    """Estimate the accuracy on images without labels, and name the predictions that are probably wrong.

    The answer is one number with an interval, or the reason why there is none, and whether the images look shifted in
    their classes or their appearance. It is learnt from your validation images, shifted in ways of which the effect is
    known, and every other method is tried on these for comparison. Predictions are judged one by one by the oracle
    ICOS, with the rule that they violate. Without `--validation` a fifth of `--train` is held out; `--like` is a data
    set that has both. It is planned to take 3 minutes: the model is timed on a few images, and the plan is printed
    before the work where it is long.

    **Examples**

    `secondguess estimate --model m.onnx --images incoming/ --like photos/`

    `secondguess estimate --model m.onnx --images incoming/ --train train.npz --rules rules.toml --out out/today`

    `secondguess estimate --model m.onnx --images new/ --like photos/ --referee b.onnx --referee c.onnx --selfchecker`

    `secondguess estimate --model m.onnx --images incoming/ --train photos/train --validation photos/val --watch`
    """
    from secondguess import accuracy

    if watch and common.json:
        raise UserError(
            "--json prints one object, but --watch has no end; give --out FOLDER: estimate.json in it is renewed."
        )
    if watch and (referee or selfchecker):
        raise UserError(
            "--referee and --selfchecker look at the images themselves, but --watch keeps only the model's answers; "
            "leave either out."
        )
    if watch and not Path(images).is_dir():
        raise UserError(f"--watch needs a folder into which images arrive, but --images {images} is none.")
    classifier = open_classifier(model, loading)
    options: dict[str, Any] = {"like": like, "train": train, "validation": validation, "rules": rules}
    options |= {
        "max_train": max_train,
        "widest": widest,
        "seed": seed,
        "progress": common.progress,
        **plan.arguments(MINUTES),
        **loading.arguments(classifier),
    }
    if watch:
        _watch(accuracy.watch(classifier, images, every=every, **options), images, out, quiet=common.quiet)
        return
    found = accuracy.estimate(classifier, images, referees=referee or (), selfchecker=selfchecker, **options)
    if out is not None:
        found.save(out)
    common.show(found)
    if not common.json:
        say()
        say(found.table())


def _watch(results: Any, folder: str, out: Path | None, *, quiet: bool) -> None:
    """Print one result after the other; Ctrl-C ends it."""
    known: set[Any] = set()
    if not quiet:
        typer.echo(f"Watching {folder}; Ctrl-C ends it.", err=True)
    for found in results:
        if out is not None:
            found.save(out)
        say(time.strftime("%Y-%m-%d %H:%M:%S"))
        say(found.summary())
        say()
        say(found.table(known))
        known |= set(found.judged_wrong)
