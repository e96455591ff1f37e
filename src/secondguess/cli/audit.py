"""`secondguess audit`: everything known about one classifier, in one report."""

from __future__ import annotations

import shlex
import sys
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
    Out,
    Output,
    Quiet,
    Seed,
    Size,
    SkipBad,
    Std,
    Weights,
    listed,
    numbers,
    pixels,
    print_json,
    progress_for,
    say,
    training_images,
)
from secondguess.errors import UserError

if TYPE_CHECKING:
    from secondguess.audits import AuditResult
    from secondguess.images import Dataset
    from secondguess.model.classifier import Classifier
    from secondguess.progress import Progress

__all__ = ["audit"]

DEFAULT_DATA, DEFAULT_ARCHITECTURE = "mnist5k", "simple_cnn"
SMALLEST = 12  # pixels a side, for the default architecture
FAILED, UNKNOWN_NUMBER, INTERRUPTED = 1, 2, 130


def audit(
    model: Annotated[
        str | None,
        typer.Option(help="An .onnx or .pt2 file, zoo:NAME, or package.module:make_model.", rich_help_panel="Model"),
    ] = None,
    weights: Weights = None,
    mean: Mean = "0",
    std: Std = "1",
    output: Output = "auto",
    batch_size: BatchSize = 256,
    architecture: Annotated[
        str | None,
        typer.Option(help="What to train without --model. [default: simple_cnn]", rich_help_panel="Model"),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Instead of the paper's, when training.", rich_help_panel="Model")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help=f"Training and test images together. [default: {DEFAULT_DATA}]", rich_help_panel="Data"),
    ] = None,
    test: Annotated[str | None, typer.Option(help="Labelled test images.", rich_help_panel="Data")] = None,
    train: Annotated[
        str | None, typer.Option(help="The images the model was trained on.", rich_help_panel="Data")
    ] = None,
    size: Size = None,
    channels: Channels = None,
    fit: Fit = "stretch",
    skip_bad: SkipBad = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Use at most so many test images.", rich_help_panel="Data")
    ] = None,
    invalid: Annotated[str, typer.Option(help="Images that belong to no class.", rich_help_panel="Stress")] = "mixed",
    stress: Annotated[
        str, typer.Option(help="Stress sets, separated by commas.", rich_help_panel="Stress")
    ] = "ambiguous,corrupted,adversarial,invalid",
    supervisors: Annotated[
        str,
        typer.Option(
            help="Names separated by commas, with parameters after colons (dsa:subsampling=0.3); standard: all but the "
            "expensive ones; all.",
            rich_help_panel="Stress",
        ),
    ] = "standard",
    gates: Annotated[
        list[str] | None,
        typer.Option("--assert", help='A gate, e.g. "accuracy.test.low>=0.95"; may be repeated.'),
    ] = None,
    out: Out = Path("out/audit"),
    seed: Seed = 0,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> int:
    """Audit a classifier: accuracy, calibration, supervisors on stress sets, images to look at.

    Writes `report.html`, `audit.json` and `junit.xml` into the folder `--out`. Exit code 0: fine, 1: a gate or a
    section failed, 2: something given cannot be used, 130: interrupted (what was found until then is in the report).

    **Examples**

    `secondguess audit` trains a small classifier on 5,000 MNIST digits and audits it.

    `secondguess audit --model resnet20.onnx --test photos/test --train photos/train --out out/mine`

    `secondguess audit --model my_package.models:make_model --weights weights.safetensors --test test.npz`

    `secondguess audit --model m.onnx --test test/ --assert "supervisor.entropy.invalid.auroc>=0.8"`
    """
    from secondguess.audits import Gate, run_audit

    parsed = [Gate.parse(text) for text in gates or []]
    progress = progress_for(quiet=quiet or json)
    loading: dict[str, Any] = {"fit": fit, "skip_bad": skip_bad}
    if model is None:
        if test or train or weights:
            raise UserError("Images or weights of your own were given without a model; say which with --model.")
        loading |= {"size": pixels(size), "channels": channels}
        dataset = _load(data or DEFAULT_DATA, None, None, loading)
        small = min(dataset.test.shape[1:]) < SMALLEST
        chosen = architecture or ("fully_connected" if small else DEFAULT_ARCHITECTURE)
        classifier = _trained(chosen, dataset, out, epochs, seed, device, progress)
    else:
        if data is None and test is None:
            raise UserError("A model was given without images; say which with --test (and --train), or --data.")
        options = {
            "output": output,
            "batch_size": batch_size,
            "device": device,
            "mean": numbers(mean),
            "std": numbers(std),
        }
        classifier = _opened(model, weights, options)
        shape = classifier.input_shape
        loading |= {"size": pixels(size) or (shape and shape[1:]), "channels": channels or (shape and shape[0])}
        dataset = _load(data, test, train, loading)
    images = dataset.test.head(limit, seed=seed) if limit and limit < len(dataset.test) else dataset.test
    result = run_audit(
        classifier,
        images,
        train=dataset.train,
        out=out,
        supervisors=listed(supervisors),
        stress=[f"invalid:{invalid}" if name == "invalid" else name for name in listed(stress)],
        gates=parsed,
        seed=seed,
        command=_command(),
        progress=progress,
    )
    _report(result, as_json=json)
    return _code(result)


def _report(result: AuditResult, *, as_json: bool) -> None:
    if as_json:
        print_json(result.to_json())
        return
    say()
    width = max((len(what) for what, _ in result.summary()), default=0)
    for what, how in result.summary():
        say(f"  {what:<{width}}  {how}")
    say()
    for verdict in result.verdicts:
        if verdict.outcome != "passed":
            say(f"  Gate {verdict.outcome}: {verdict.reason}")
    say(f"Report: {result.report}")


def _code(result: AuditResult) -> int:
    """0 fine, 1 a gate failed or a section did, 2 a gate asks for a number that this audit does not have."""
    if result.interrupted:
        return INTERRUPTED
    outcomes = {verdict.outcome for verdict in result.verdicts}
    if "failed" in outcomes or result.failed:
        return FAILED
    return UNKNOWN_NUMBER if "error" in outcomes else 0


def _opened(model: str, weights: Path | None, options: dict[str, Any]) -> Classifier:
    from secondguess.model.classifier import Classifier

    return Classifier(model, weights=weights, **options)


def _trained(
    architecture: str, dataset: Dataset, out: Path, epochs: int | None, seed: int, device: str, progress: Progress
) -> Classifier:
    from secondguess.audits import train_subject

    return train_subject(
        architecture, dataset, folder=out / "model", epochs=epochs, seed=seed, device=device, progress=progress
    )


def _load(data: str | None, test: str | None, train: str | None, loading: dict[str, Any]) -> Dataset:
    """One data set from `--data`, or from `--test` and `--train`."""
    from secondguess.images import Dataset, load, load_images

    if data is not None:
        if test is not None or train is not None:
            raise UserError("Give either --data, or --test and --train, not both.")
        return load(data, **loading)
    if test is None:
        raise UserError("Say which images to test on with --test.")
    tested = replace(load_images(test, **loading), name=test)
    if train is None:
        return Dataset(test, None, tested)
    shape = tested.shape
    trained = training_images(train, loading | {"size": shape[1:], "channels": shape[0]})
    if trained.content_fingerprint == tested.content_fingerprint:
        raise UserError(
            f"--train {train} and --test {test} are the same images; supervisors must not learn from the test."
        )
    return Dataset(test, trained, tested)


def _command() -> str:
    return shlex.join(["secondguess", *sys.argv[1:]])
