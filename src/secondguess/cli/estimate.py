"""`secondguess estimate`: how accurate is a model now, on images whose labels nobody knows?"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secondguess.cli.options import (
    BatchSize,
    Channels,
    Debug,
    Device,
    Fit,
    Json,
    Mean,
    Output,
    Quiet,
    Seed,
    Size,
    SkipBad,
    Std,
    Weights,
    loading_for,
    open_classifier,
    print_json,
    progress_for,
    say,
)
from secondguess.errors import UserError

if TYPE_CHECKING:
    from secondguess.accuracy.monitor import AccuracyMonitor
    from secondguess.accuracy.watched_folder import WatchedFolder
    from secondguess.model.observation import Observation
    from secondguess.progress import Progress

__all__ = ["estimate"]

SHOWN, LONGEST = 20, 160  # images judged wrong on the terminal, and letters of a reason


def estimate(
    model: Annotated[
        str,
        typer.Option(help="An .onnx or .pt2 file, zoo:NAME, or package.module:make_model.", rich_help_panel="Model"),
    ],
    train: Annotated[str, typer.Option(help="The images the model was trained on.", rich_help_panel="Data")],
    operation: Annotated[
        str, typer.Option(help="Images without labels: a folder into which they arrive.", rich_help_panel="Data")
    ],
    validation: Annotated[
        str | None,
        typer.Option(
            help="Labelled images it was not trained on. [default: a fifth of --train]", rich_help_panel="Data"
        ),
    ] = None,
    rules: Annotated[
        Path | None,
        typer.Option(
            help="Which labels can occur where, as TOML or JSON; see docs/accuracy.md.", rich_help_panel="Data"
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, help="Learn from at most so many training images.", rich_help_panel="Data")
    ] = 10_000,
    size: Size = None,
    channels: Channels = None,
    fit: Fit = "stretch",
    skip_bad: SkipBad = False,
    weights: Weights = None,
    mean: Mean = "0",
    std: Std = "1",
    output: Output = "auto",
    batch_size: BatchSize = 256,
    watch: Annotated[
        bool, typer.Option("--watch", help="Estimate again whenever images come or go, until Ctrl-C.")
    ] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks with --watch.")] = 5.0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for estimate.json; nothing is written without it.")
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Estimate the accuracy on images without labels, and name the predictions that look wrong.

    Every method says what it may be trusted with: it is tried on your validation images, shifted in ways of which the
    effect is known. Two trivial ones are always there to compare with: the validation accuracy and the average
    confidence. Predictions are judged one by one by the oracle ICOS, with the rule that they violate.

    **Examples**

    `secondguess estimate --model m.onnx --train photos/train --validation photos/val --operation incoming/`

    `secondguess estimate --model m.onnx --train train.npz --operation incoming/ --rules rules.toml --out out/today`

    `secondguess estimate --model m.onnx --train photos/train --validation photos/val --operation incoming/ --watch`
    """
    from secondguess.accuracy.monitor import make_monitor
    from secondguess.accuracy.watched_folder import holds_images
    from secondguess.images import load_images

    if watch and json:
        raise UserError(
            "--json prints one object, but --watch has no end; give --out FOLDER: estimate.json in it is renewed."
        )
    if watch and not Path(operation).is_dir():
        raise UserError(f"--watch needs a folder into which images arrive, but --operation {operation} is none.")
    arriving = watch or holds_images(Path(operation))
    progress = progress_for(quiet=quiet or json)
    classifier = open_classifier(model, weights, mean, std, output, batch_size, device)
    loading = loading_for(classifier.input_shape, size, channels, fit, skip_bad=skip_bad)
    if not arriving:
        load_images(operation, **loading)  # a mistyped name is told before the work begins
    folder = operation if arriving else None
    desk = make_monitor(classifier, train, validation, rules, limit, seed, loading, progress, folder=folder)
    shape = desk.training.require_images("Estimating").shape
    loading |= {"size": shape[1:], "channels": shape[0]}
    if watch:
        _watch(desk, Path(operation), every, out, fit, progress)
    found = desk.report(_operation(desk, operation, loading, progress))
    _keep(found, out)
    print_json(found) if json else _print(found)


def _operation(desk: AccuracyMonitor, where: str, loading: dict[str, Any], progress: Progress) -> Observation:
    """A folder of images as it is; anything else that can be loaded, with its metadata columns."""
    from secondguess.accuracy.monitor import look
    from secondguess.accuracy.watched_folder import WatchedFolder, holds_images
    from secondguess.images import load_images

    like, folder = desk.training.require_images("Estimating"), Path(where)
    if not holds_images(folder):
        return look(desk.classifier, replace(load_images(where, **loading), name=where), progress)
    incoming = WatchedFolder(folder, desk.classifier, like, fit=loading["fit"], skip_bad=loading["skip_bad"])
    incoming.look(progress)
    return _arrived(incoming)


def _arrived(incoming: WatchedFolder) -> Observation:
    found = incoming.observation()
    images = found.require_images("A report")
    return found.replace(images=replace(images, skipped=incoming.unreadable))


def _watch(desk: AccuracyMonitor, folder: Path, every: float, out: Path | None, fit: str, progress: Progress) -> None:
    """Look again and again; Ctrl-C ends it."""
    from secondguess.accuracy.watched_folder import WatchedFolder
    from secondguess.images.decode import BadImage
    from secondguess.progress import Silent

    like = desk.training.require_images("Estimating")
    incoming = WatchedFolder(folder, desk.classifier, like, fit=fit, skip_bad=True)  # type: ignore[arg-type]
    told: set[tuple[str, str]] = set()
    due = False  # whether anything has changed since the last report
    if not isinstance(progress, Silent):
        typer.echo(f"Watching {folder}; Ctrl-C ends it.", err=True)
    while True:
        try:
            due |= incoming.look(progress)
            if due and len(incoming):
                found = desk.report(_arrived(incoming))
                _keep(found, out)
                say(time.strftime("%Y-%m-%d %H:%M:%S"))
                _print(found, told)
                told |= {(one["image"], one["reason"]) for one in found["judged_wrong"]}
                due = False
        except BadImage:  # a file was taken away or written to while it was read; the report is still due
            incoming.forget_unreadable()
        time.sleep(every)


def _keep(found: dict[str, Any], out: Path | None) -> None:
    from secondguess._files import make_folder, write_json

    if out is not None:
        write_json(make_folder(out) / "estimate.json", found)


def _print(found: dict[str, Any], told: set[tuple[str, str]] | None = None) -> None:
    """The table of estimates and the images judged wrong, without those that were told of before."""
    n = found["operation"]["images"]
    say(f"Accuracy of {found['model']['name']} on {n:,} images of {found['operation']['name']}, without labels")
    say()
    tried = list(dict.fromkeys(trial["shift"] for one in found["estimates"] for trial in one["trust"]))
    shifts = [shift.rpartition(" ") for shift in tried]
    widths = [max(7, len(above), len(below)) for above, _, below in shifts]
    names = [one["method"] + " (baseline)" * one["baseline"] for one in found["estimates"]]
    wide = max(map(len, names))
    starts = ("", f"{'':<{wide}}  {'estimate':>8}  {'95% interval':<16}")
    for start, heads in zip(starts, ([one[0] for one in shifts], [one[2] for one in shifts]), strict=True):
        cells = "  ".join(f"{head:<{width}}" for head, width in zip(heads, widths, strict=True))
        say(f"{start:<{wide + 28}}  {cells}".rstrip())
    for name, one in zip(names, found["estimates"], strict=True):
        trials = {trial["shift"]: _flag(trial) for trial in one["trust"]}  # not every method can be tried on each
        flags = "  ".join(f"{trials.get(shift, '-'):<{width}}" for shift, width in zip(tried, widths, strict=True))
        interval = f"{one['low']:.1%} to {one['high']:.1%}"
        say(f"{name:<{wide}}  {one['value']:>8.1%}  {interval:<16}  {flags}".rstrip())
    if found["truth"] is not None:
        say(f"{'truth, not looked at':<{wide}}  {found['truth']['value']:>8.1%}")
    say()
    say("May I trust it? Tried on your validation images, shifted on purpose: mean error in points, ok up to 2.")
    for note in [*found["notes"], *(f"Left out: {name} cannot be read." for name in found["operation"]["skipped"])]:
        say(note)
    say()
    _print_wrong(found, told or set())


def _print_wrong(found: dict[str, Any], told: set[tuple[str, str]]) -> None:
    wrong = found["judged_wrong"]
    new = [one for one in wrong if (one["image"], one["reason"]) not in told]
    kinds = ", ".join(f"{one['credited']} by {one['kind']}" for one in found["oracle"]["contributions"])
    say(f"{len(wrong):,} predictions are judged wrong by rules ({kinds})" + (":" if new else "."))
    for one in new[:SHOWN]:
        rather = f", rather {one['advice']}" if one["advice"] is not None else ""
        say(f"  {one['image']}: {one['predicted']} ({one['confidence']:.0%}){rather}; {_cut(one['reason'])}")
    if len(new) > SHOWN:
        say(f"  and {len(new) - SHOWN:,} more; --json and --out have all of them, with the whole rules.")


def _flag(trial: dict[str, Any]) -> str:
    """The mean error in points; one above the tolerance is rounded up, or 2.04 would read as if it were within."""
    from secondguess.accuracy.base import TOLERANCE

    points = 100 * trial["error"]
    return f"{points:.1f} ok" if trial["error"] <= TOLERANCE else f"{math.ceil(10 * points) / 10:.1f} no"


def _cut(reason: str) -> str:
    """A long rule without its middle: what it is about and what it says stand at the ends."""
    return reason if len(reason) <= LONGEST else f"{reason[: LONGEST - 60]} ... {reason[-55:]}"
