"""`secondguess audit`: everything known about one classifier, in one report."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    open_classifier,
    pixels,
    print_json,
    progress_for,
    say,
)
from secondguess.errors import UserError

if TYPE_CHECKING:
    from secondguess.audits import AuditResult

__all__ = ["audit"]

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
        typer.Option(help="Training and test images together. [default: mnist5k]", rich_help_panel="Data"),
    ] = None,
    test: Annotated[str | None, typer.Option(help="Labelled test images.", rich_help_panel="Data")] = None,
    train: Annotated[
        str | None, typer.Option(help="The images the model was trained on.", rich_help_panel="Data")
    ] = None,
    size: Size = None,
    channels: Channels = None,
    fit: Fit = "stretch",
    skip_bad: SkipBad = False,
    max_test: Annotated[
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
    from secondguess.audits import audit as run_audit

    if model is None and (weights or test or train):
        raise UserError("Images or weights of your own were given without a model; say which with --model.")
    classifier = model and open_classifier(model, weights, mean, std, output, batch_size, device)
    result = run_audit(
        classifier,
        data,
        test=test,
        train=train,
        supervisors=listed(supervisors),
        stress=[f"invalid:{invalid}" if name == "invalid" else name for name in listed(stress)],
        gates=gates or (),
        architecture=architecture,
        epochs=epochs,
        max_test=max_test,
        seed=seed,
        device=device,
        folder=out,
        progress=progress_for(quiet=quiet or json),
        command=shlex.join(["secondguess", *sys.argv[1:]]),
        size=pixels(size),
        channels=channels,
        fit=fit,
        skip_bad=skip_bad,
    )
    print_json(result.to_dict()) if json else _print(result)
    return _code(result)


def _print(result: AuditResult) -> None:
    say()
    for line in result.summary().splitlines():
        say(f"  {line}")
    say()
    for gate in result.gates:
        if gate.outcome != "passed":
            say(f"  Gate {gate.outcome}: {gate.reason}")
    say(f"Report: {result.report}")


def _code(result: AuditResult) -> int:
    """0 fine, 1 a gate failed or a section did, 2 a gate asks for a number that this audit does not have."""
    if result.interrupted:
        return INTERRUPTED
    outcomes = {gate.outcome for gate in result.gates}
    if "failed" in outcomes or result.failed:
        return FAILED
    return UNKNOWN_NUMBER if "error" in outcomes else 0
