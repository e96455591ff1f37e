"""What the commands of `secondguess guard` share: the model, and how images are loaded for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secondguess.cli.options import numbers, pixels

if TYPE_CHECKING:
    from secondguess.classifier import Classifier
    from secondguess.guard.guard import Guard

__all__ = ["Folder", "Model", "loading_for", "open_classifier", "open_guard"]

Model = Annotated[
    str,
    typer.Option(
        "--model", help="An .onnx or .pt2 file, zoo:NAME, or package.module:make_model.", rich_help_panel="Model"
    ),
]
Folder = Annotated[Path, typer.Argument(metavar="GUARD", help="The folder of a guard.", show_default=False)]


def open_classifier(
    model: str, weights: Path | None, mean: str, std: str, output: str, batch_size: int, device: str
) -> Classifier:
    """The model under guard, as the options describe it."""
    from secondguess.classifier import Classifier

    options: dict[str, Any] = {"output": output, "batch_size": batch_size, "device": device}
    return Classifier(model, weights=weights, mean=numbers(mean), std=numbers(std), **options)


def loading_for(
    classifier: Classifier, size: str | None, channels: int | None, fit: str, *, skip_bad: bool
) -> dict[str, Any]:
    """How images are loaded: as the options say, else as the model takes them."""
    shape = classifier.input_shape
    sides = pixels(size) or (shape and shape[1:])
    return {"fit": fit, "skip_bad": skip_bad, "size": sides, "channels": channels or (shape and shape[0])}


def open_guard(folder: Path, classifier: Classifier) -> Guard:
    """The guard in a folder, if it is the classifier's."""
    from secondguess.guard import Guard

    return Guard.load(folder, classifier)
