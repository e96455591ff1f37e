"""`secondguess model`: describe a model once, check the description, convert a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secondguess.cli.groups import grouped
from secondguess.cli.options import (
    DATA,
    MAX_IMAGES,
    Common,
    InputOptions,
    LoadingOptions,
    ReadingOptions,
    Seed,
)
from secondguess.errors import UserError

__all__ = ["app"]

app = typer.Typer(
    help="Describe a model in a model.toml, which every command takes; check it; convert checkpoints.",
    no_args_is_help=True,
)

What = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="A model.toml, an .onnx or .pt2 file, zoo:NAME, or package.module:make_model."
    ),
]


@app.command("new")
@grouped
def new(
    *,
    model: What,
    reading: ReadingOptions,
    fed: InputOptions,
    output: Annotated[
        str | None,
        typer.Option("--output", help="Name or number of the output, if there are several.", rich_help_panel="Model"),
    ] = None,
    layer: Annotated[
        list[str] | None,
        typer.Option(
            "--layer",
            metavar="TRACE=LAYER",
            help="Which layer a trace means, such as penultimate=avgpool; may be given several times.",
            rich_help_panel="Model",
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for model.toml.")] = Path(),
    common: Common,
) -> None:
    """Write a model.toml from the file of a model and the options.

    **Examples**

    `secondguess model new resnet20.onnx --classes cat,dog --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225`

    `secondguess model new my_package.models:resnet20 --weights resnet20.safetensors --size 32 --channels 3`
    """
    from secondguess.model.describe import describe_model

    changes = reading.changes() | fed.changes()
    if output is not None:
        changes["output"] = int(output) if output.isdecimal() else output
    if layer:
        changes["layers"] = dict(_layer(word) for word in layer)
    changes.pop("batch_size")
    common.show(describe_model(model, **changes).written(out))


@app.command("check")
@grouped
def check(
    *,
    model: What,
    data: Annotated[str, DATA],
    reading: ReadingOptions,
    loading: LoadingOptions,
    max_images: Annotated[int, MAX_IMAGES] = 1000,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for check.json.")] = None,
    seed: Seed = 0,
    common: Common,
) -> int:
    """Try a model on labelled images and report what seems wrong with its description.

    It measures the accuracy, tries the usual normalisations and other orders of the classes, and inspects outputs and
    confidences. Exit code 0: nothing is wrong, 1: something is, 2: something given cannot be used.

    **Examples**

    `secondguess model check model.toml --data photos/`

    `secondguess model check m.onnx --mean 0.5 --std 0.5 --data test.npz --json`
    """
    from secondguess.model.check import check_model
    from secondguess.model.classifier import Classifier

    classifier = Classifier.open(model, **reading.changes(), **loading.changes())
    found = check_model(
        classifier, data, max_images=max_images, seed=seed, progress=common.progress, skip_bad=loading.skip_bad
    )
    if out is not None:
        found.save(out)
    common.show(found)
    return 0 if found.passed else 1


@app.command("convert")
@grouped
def convert(
    *,
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="A .pth, .pt, .ckpt or .bin file.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the weights. [default: that of CHECKPOINT]")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="The part with the weights, such as ema. [default: state_dict, model, ...]")
    ] = None,
    common: Common,
) -> None:
    """Take the weights out of a torch checkpoint, without running any code in it, and write them as safetensors.

    **Examples**

    `secondguess model convert checkpoint.pth`

    `secondguess model convert checkpoint.pth --key ema --out weights/`
    """
    from secondguess.model.convert import convert_checkpoint

    common.show(convert_checkpoint(checkpoint, out, key=key))


def _layer(word: str) -> tuple[str, str]:
    trace, _, layer = word.partition("=")
    if not trace or not layer:
        raise UserError(f"--layer {word!r} is no TRACE=LAYER; give one such as penultimate=avgpool.")
    return trace, layer
