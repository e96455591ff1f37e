"""`secondguess guard`: fit a guard, ask it, serve it, watch it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secondguess.cli import guard_service
from secondguess.cli.guard_options import RESIZED_BY, Folder, Model, OwnFit, note_resizing, open_guard, resizing
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
    listed,
    loading_for,
    open_classifier,
    print_json,
    progress_for,
    say,
    training_images,
)
from secondguess.errors import UserError

if TYPE_CHECKING:
    from secondguess.images import ImageSource
    from secondguess.images.fitting import Fit as FitName

__all__ = ["app"]

app = typer.Typer(
    help="From a score to a decision: fit a guard for a model, judge images, serve predictions, watch them.",
    no_args_is_help=True,
)


@app.command("fit")
def fit(
    model: Model,
    train: Annotated[str, typer.Option(help="Labelled images the model was trained on.", rich_help_panel="Data")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the guard, and for nothing else.")],
    calibration: Annotated[
        str | None,
        typer.Option(
            help="Nominal images it was not trained on, hundreds or better thousands. [default: a third of --train]",
            rich_help_panel="Data",
        ),
    ] = None,
    false_alarms: Annotated[
        float, typer.Option(help="The share of nominal images that may raise an alarm.", rich_help_panel="Guard")
    ] = 0.01,
    supervisors: Annotated[
        str,
        typer.Option(
            help="recommended, or names separated by commas, with parameters after colons: dsa:subsampling=0.3.",
            rich_help_panel="Guard",
        ),
    ] = "recommended",
    rule: Annotated[
        str,
        typer.Option(
            help="learnt (from generated stress images), or without these: bonferroni, harmonic, cauchy.",
            rich_help_panel="Guard",
        ),
    ] = "learnt",
    per_class: Annotated[
        bool, typer.Option("--per-class", help="Keep the share within every predicted class.", rich_help_panel="Guard")
    ] = False,
    latency: Annotated[
        float | None,
        typer.Option(
            help="Milliseconds an image that supervisors may take; default: all are asked.", rich_help_panel="Guard"
        ),
    ] = None,
    action: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND=ACTION",
            help="What to do about a kind of trouble, such as adversarial=ask; may be given several times.",
            rich_help_panel="Guard",
        ),
    ] = None,
    sure: Annotated[
        float,
        typer.Option(help="The probability from which one kind of trouble is named alone.", rich_help_panel="Guard"),
    ] = 0.7,
    size: Size = None,
    channels: Channels = None,
    fit: Fit = "stretch",
    skip_bad: SkipBad = False,
    weights: Weights = None,
    mean: Mean = "0",
    std: Std = "1",
    output: Output = "auto",
    batch_size: BatchSize = 256,
    seed: Seed = 0,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Learn what is nominal and what trouble looks like, and calibrate the threshold of alarms.

    The folder holds all that is needed at run time; training images are not.

    **Examples**

    `secondguess guard fit --model m.onnx --train photos/train --calibration photos/val --out guard/`

    `secondguess guard fit --model m.onnx --train train.npz --false-alarms 0.05 --supervisors entropy,mdsa --out guard/`
    """
    from secondguess.guard import Guard
    from secondguess.images import load_images

    chosen = supervisors if supervisors == "recommended" else listed(supervisors)
    guard = Guard(
        chosen,
        false_alarms=false_alarms,
        per_class=per_class,
        rule=rule,  # type: ignore[arg-type]
        actions=_actions(action or []),  # type: ignore[arg-type]
        sure=sure,
        latency_ms=latency,
    )
    classifier = open_classifier(model, weights, mean, std, output, batch_size, device)
    loading = loading_for(classifier.input_shape, size, channels, fit, skip_bad=skip_bad)
    images = training_images(train, loading)
    nominal = None if calibration is None else load_images(calibration, **loading)
    classifier.class_names = classifier.class_names or images.class_names
    guard.fit(classifier, images, nominal, seed=seed, progress=progress_for(quiet=quiet or json))
    note_resizing(guard, fit)
    guard.save(out)
    if json:
        print_json({"guard": str(out), "report": guard.report.to_json(), "record": guard.record})
        return
    say(str(guard.report))
    say(f"The guard is in {out}; serve it: secondguess guard serve {out} --model {model}")


def _actions(given: list[str]) -> dict[str, str]:
    """Actions by the kind of trouble, of words KIND=ACTION."""
    for word in given:
        if not all(word.partition("=")[::2]):
            raise UserError(f"--action {word!r} is no KIND=ACTION; give one such as adversarial=ask.")
    return {kind: action for kind, _, action in (word.partition("=") for word in given)}


@app.command("export")
def export(
    guard: Folder,
    model: Model,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for model and scores as ONNX.")],
    weights: Weights = None,
    mean: Mean = "0",
    std: Std = "1",
    output: Output = "auto",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a guard with its model for ONNX Runtime, to be used without torch.

    In Python: `secondguess.guard.runtime.Runtime(FOLDER).judge(images)`.

    **Example**

    `secondguess guard export guard/ --model zoo:simple_cnn --weights m.safetensors --out exported/`
    """
    from secondguess.guard.onnx_export import export_onnx

    classifier = open_classifier(model, weights, mean, std, output, 256, "cpu")
    folder = export_onnx(open_guard(guard, classifier), out)
    if json:
        print_json({"guard": str(guard), "exported": str(folder)})
        return
    say(f"Exported to {folder}; it needs onnxruntime and NumPy only: secondguess.guard.runtime.Runtime('{folder}').")


@app.command("judge")
def judge(
    guard: Folder,
    images: Annotated[
        list[str], typer.Argument(metavar="IMAGES...", help="Image files, folders or .npz files.", show_default=False)
    ],
    model: Model,
    fit: OwnFit = None,
    weights: Weights = None,
    mean: Mean = "0",
    std: Std = "1",
    output: Output = "auto",
    batch_size: BatchSize = 256,
    device: Device = "auto",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Judge images: the prediction, how unusual the image is, what may be wrong with it, and what to do.

    **Examples**

    `secondguess guard judge guard/ --model m.onnx one.png two.png`

    `secondguess guard judge guard/ --model m.onnx incoming/ --json`
    """
    loaded = open_guard(guard, open_classifier(model, weights, mean, std, output, batch_size, device))
    rows: list[dict[str, Any]] = []
    for names, source in _named(images, loaded.shape, resizing(loaded, fit)):
        for start in range(0, len(source), batch_size):
            part = slice(start, min(start + batch_size, len(source)))
            for name, judgement in zip(names[part], loaded.judge(source[part]), strict=True):
                rows += [{"image": name, **judgement.to_json()}]
                if not json:
                    say(f"{name}: {judgement}")
    if json:
        print_json({"guard": str(guard), "judgements": rows})


@app.command("recalibrate")
def recalibrate(
    guard: Folder,
    nominal: Annotated[str, typer.Argument(metavar="IMAGES", help="Fresh nominal images.", show_default=False)],
    model: Model,
    fit: OwnFit = None,
    skip_bad: SkipBad = False,
    weights: Weights = None,
    mean: Mean = "0",
    std: Std = "1",
    output: Output = "auto",
    batch_size: BatchSize = 256,
    device: Device = "auto",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Draw the line of alarms anew from fresh nominal images; nothing else of the guard changes.

    **Example**

    `secondguess guard recalibrate guard/ camera2/ --model m.onnx`
    """
    from secondguess.images import load_images

    loaded = open_guard(guard, open_classifier(model, weights, mean, std, output, batch_size, device))
    channels, *sides = loaded.shape
    loading: dict[str, Any] = {"size": tuple(sides), "channels": channels, "fit": resizing(loaded, fit)}
    images = load_images(nominal, **loading, skip_bad=skip_bad)
    loaded.recalibrate(images).save(guard)
    if json:
        print_json({"guard": str(guard), "report": loaded.report.to_json(), "record": loaded.record})
    else:
        say(str(loaded.report))


@app.command("show")
def show(guard: Folder, json: Json = False, debug: Debug = False) -> None:
    """Show what a guard promises, what it sees and what it will miss; the model is not needed.

    **Example**

    `secondguess guard show guard/`
    """
    from secondguess.guard.artefact import read_card
    from secondguess.guard.report import GuardReport

    card = read_card(guard)
    if json:
        print_json(card)
        return
    names = [Path(name).name.rpartition("-")[0] or Path(name).stem for name in card["supervisors"]]
    say(f"A guard for {card['model']['name']} (fingerprint {str(card['model']['fingerprint'])[:8]})")
    resized = f" ({card['record'][RESIZED_BY]})" if RESIZED_BY in card["record"] else ""
    say(f"  images        {' x '.join(map(str, card['shape']))}{resized}, {len(card['class_names'])} classes")
    say(f"  supervisors   {', '.join(names)}")
    times = len(card["record"]["calibrations"])
    say(f"  false alarms  {card['settings']['false_alarms']:g}, calibrated {times} time{'s' if times > 1 else ''}")
    say(str(GuardReport.from_json(card["report"])))


app.command("serve")(guard_service.serve)
app.command("watch")(guard_service.watch)


def _named(places: list[str], shape: tuple[int, int, int], fit: FitName) -> list[tuple[list[str], ImageSource]]:
    """What is to be judged: the names of images, and where they are read from."""
    from secondguess.images import load_images
    from secondguess.images.decode import EXTENSIONS
    from secondguess.images.encoded import FileSource

    channels, *sides = shape
    files = [Path(place) for place in places if place.lower().endswith(EXTENSIONS) and not Path(place).is_dir()]
    if missing := next((path for path in files if not path.is_file()), None):
        raise UserError(f"There is no image {missing}.")
    found: list[tuple[list[str], ImageSource]] = []
    if files:
        found.append(([str(path) for path in files], FileSource(files, shape, fit)))
    for place in places:
        if place not in map(str, files):
            images = load_images(place, size=tuple(sides), channels=channels, fit=fit)  # type: ignore[arg-type]
            names = images.ids or tuple(f"{place}[{row}]" for row in range(len(images)))
            found.append((list(names), images.images))
    return found
