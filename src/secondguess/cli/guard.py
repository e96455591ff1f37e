"""`secondguess guard`: fit a guard, judge images with it, serve it, watch it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from secondguess.cli import guard_service
from secondguess.cli.groups import grouped
from secondguess.cli.guard_options import (
    Folder,
    GuardModel,
    GuardOptions,
    Resize,
    open_guard,
    resizing,
)
from secondguess.cli.options import (
    AMBIGUOUS,
    TRAIN,
    VALIDATION,
    Common,
    LoadingOptions,
    ModelOptions,
    PlanOptions,
    Seed,
    SkipBad,
    open_classifier,
    print_json,
    say,
)
from secondguess.errors import UserError

__all__ = ["app"]

MINUTES = 5.0

app = typer.Typer(
    help="From a score to a decision: fit a guard for a model, judge images, serve predictions, watch them.",
    no_args_is_help=True,
)


@app.command("fit")
@grouped
def fit(
    *,
    model: ModelOptions,
    train: Annotated[str, TRAIN],
    validation: Annotated[str | None, VALIDATION] = None,
    loading: LoadingOptions,
    guard: GuardOptions,
    ambiguous: Annotated[str, AMBIGUOUS] = "auto",
    plan: PlanOptions,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the guard, and for nothing else.")],
    seed: Seed = 0,
    common: Common,
) -> None:
    """Fit a guard on nominal images and stress sets, and calibrate the threshold of alarms.

    `--validation` are nominal images, hundreds or better thousands; without them a third of `--train` is held out. The
    folder holds all that is needed at run time, the model included; training images are not.

    It is planned to take 5 minutes: the model is timed on a few images, and the plan is printed before the work. After
    Ctrl-C the same command goes on with what is finished.

    **Examples**

    `secondguess guard fit --model m.onnx --train photos/train --validation photos/val --out guard/`

    `secondguess guard fit --model m.onnx --train train.npz --false-alarms 0.05 --supervisors entropy,mdsa --out guard/`
    """
    made = guard.make()
    classifier, progress = open_classifier(model, loading), common.progress
    how = plan.arguments(MINUTES) | {"ambiguous": ambiguous, "folder": out, "seed": seed}
    made.fit(classifier, train, validation, progress=progress, skip_bad=loading.skip_bad, **how)
    made.save(out)
    if common.json:
        print_json({"guard": str(out), "report": made.report.to_dict(), "record": made.record})
        return
    say(str(made.report))
    say(f"The guard is in {out}; serve it: secondguess guard serve {shlex.quote(str(out))}")


@app.command("export")
@grouped
def export(
    *,
    guard: Folder,
    model: GuardModel,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for model and scores as ONNX.")],
    common: Common,
) -> None:
    """Write a guard with its model for ONNX Runtime, to be used without torch.

    In Python: `secondguess.guard.runtime.Runtime(FOLDER).judge(images)`.

    **Example**

    `secondguess guard export guard/ --out exported/`
    """
    from secondguess.guard.onnx_export import export_onnx

    folder = export_onnx(open_guard(guard, replace(model, device="cpu")), out)
    if common.json:
        print_json({"guard": str(guard), "exported": str(folder)})
        return
    say(f"Exported to {folder}; it needs onnxruntime and NumPy only: secondguess.guard.runtime.Runtime('{folder}').")


@app.command("judge")
@grouped
def judge(
    *,
    guard: Folder,
    images: Annotated[
        list[str],
        typer.Argument(
            metavar="IMAGES...",
            help="Image files, folders or .npz files; with --stream -, a folder, or kafka://HOST:9092/TOPIC.",
            show_default=False,
        ),
    ],
    model: GuardModel,
    resize: Resize = None,
    skip_bad: SkipBad = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for judgements as Parquet files; a second run makes those missing."),
    ] = None,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Judge images as they come, and record each once: JSON lines from -, a folder, a Kafka topic.",
            rich_help_panel="Stream",
        ),
    ] = False,
    records: Annotated[
        str | None,
        typer.Option(
            help="Of a stream: an SQLite file or postgresql://... [default: GUARD/stream.sqlite]",
            rich_help_panel="Stream",
        ),
    ] = None,
    common: Common,
) -> None:
    """Judge images: the prediction, how unusual the image is, what may be wrong with it, and what to do.

    With `--out` the judgements go to files, and one line says how many images have which verdict. With `--stream` it
    goes on until the stream ends, or Ctrl-C; every line of standard input is `{"id": ..., "image": FILE or BASE64}`.

    **Examples**

    `secondguess guard judge guard/ one.png two.png`

    `secondguess guard judge guard/ incoming/ --json`

    `secondguess guard judge guard/ archive/ --engine local:8 --out judged/`

    `secondguess guard judge guard/ kafka://broker:9092/photos --stream --records postgresql://me@db/records --json`
    """
    if stream:
        _judge_stream(guard, images, model, resize, out, records, common)
        return
    if records is not None:
        raise UserError("--records is for --stream; use --out for the judgements of images that are there already.")
    from secondguess.guard.inputs import judge_places
    from secondguess.guard.judging import ShardedJudging

    loaded = open_guard(guard, model)
    how: Any = {"model": model.model, "changes": model.changes() | {"engine": None}, "resize": resize}
    how |= {"engine": model.engine, "progress": common.progress, "skip_bad": skip_bad}
    if out is not None:
        common.show(ShardedJudging.of(loaded, guard, images, **how).write(out))
        return
    judged: Iterable[tuple[dict[str, Any], str]]
    if model.engine == "local":
        found = judge_places(loaded, images, resize=resize, skip_bad=skip_bad, batch_size=model.batch_size)
        judged = (({"image": name, **one.to_dict()}, f"{name}: {one}") for name, one in found)
    else:
        judged = ShardedJudging.of(loaded, guard, images, **how).rows()
    rows: list[dict[str, Any]] = []
    for row, line in judged:
        rows.append(row)
        if not common.json:
            say(line)
    if common.json:
        print_json({"guard": str(guard), "judgements": rows})


def _judge_stream(
    guard: Path,
    places: list[str],
    model: GuardModel,
    resize: str | None,
    out: Path | None,
    records: str | None,
    common: Common,
) -> None:
    from secondguess.service.stream import RECORDS, judge_stream

    if len(places) != 1:
        raise UserError(f"--stream judges one stream at a time, but {len(places)} were given; start one for each.")
    if out is not None or model.engine != "local":
        raise UserError("--stream records where --records says, in this process; leave out --out and --engine.")

    def said(lines: list[dict[str, Any]]) -> None:
        for line in lines:
            say(json.dumps(line, allow_nan=False) if common.json else _spoken(line))
        sys.stdout.flush()

    how: Any = {"records": records or str(guard / RECORDS), "resize": resize, "batch_size": model.batch_size}
    result = judge_stream(open_guard(guard, model), places[0], said=said, **how)
    if not common.json:  # every line is an object of its own there
        say(result.summary())


def _spoken(line: dict[str, Any]) -> str:
    """A line of a stream for a person."""
    if "error" in line:
        return f"{line['id']}: {line['error']}"
    known = " (recorded before)" if "again" in line else ""
    verdict = " or ".join(line["verdict"])
    return (
        f"{line['id']}: {line['class_name']} ({line['confidence']:.0%}): {verdict}, p = {line['p_value']:.3g} "
        f"-> {line['action']}{known}"
    )


@app.command("recalibrate")
@grouped
def recalibrate(
    *,
    guard: Folder,
    nominal: Annotated[str, typer.Argument(metavar="IMAGES", help="Fresh nominal images.", show_default=False)],
    model: GuardModel,
    resize: Resize = None,
    skip_bad: SkipBad = False,
    common: Common,
) -> None:
    """Calibrate the threshold of alarms anew on fresh nominal images; nothing else changes.

    **Example**

    `secondguess guard recalibrate guard/ camera2/`
    """
    loaded = open_guard(guard, model)
    loaded.recalibrate(nominal, resize=resizing(loaded, resize), skip_bad=skip_bad).save(guard)
    if common.json:
        print_json({"guard": str(guard), "report": loaded.report.to_dict(), "record": loaded.record})
    else:
        say(str(loaded.report))


@app.command("show")
@grouped
def show(*, guard: Folder, common: Common) -> None:
    """Show the false-alarm rate of a guard, what it detects and what it will miss; the model is not needed.

    **Example**

    `secondguess guard show guard/`
    """
    from secondguess.guard.artefact import read_card
    from secondguess.guard.pipeline import Settings
    from secondguess.guard.report import GuardReport

    card = read_card(guard)
    if common.json:
        print_json(card)
        return
    names = [Path(name).name.rpartition("-")[0] or Path(name).stem for name in card["supervisors"]]
    say(f"A guard for {card['model']['name']} (fingerprint {str(card['model']['fingerprint'])[:8]})")
    resized = f" ({card['record']['resized_by']})" if "resized_by" in card["record"] else ""
    say(f"  images        {' x '.join(map(str, card['shape']))}{resized}, {len(card['class_names'])} classes")
    say(f"  supervisors   {', '.join(names)}")
    times, settings = len(card["record"]["calibrations"]), Settings(**card["settings"])
    say(f"  protects      against {'errors and novelty' if settings.protect == 'both' else settings.protect}")
    promised = ("false alarms", settings.false_alarms) if settings.risk is None else ("risk", settings.risk)
    say(f"  {promised[0]:<12}  {promised[1]:g}, calibrated {times} time{'s' if times > 1 else ''}")
    say(str(GuardReport.from_dict(card["report"])))


app.command("serve")(guard_service.serve)
app.command("watch")(guard_service.watch)
